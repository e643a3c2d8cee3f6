-- What the events add up to. The triggers hold what no writer may break: a paid order never becomes unpaid, a
-- rank never falls, a final status is never left, no total shrinks, and every such change is a new version.

create table orders (
    merchant     text   not null,
    order_id     text collate "C" not null check (octet_length(order_id) between 1 and 255),
    status       text   not null
        check (status in ('pending', 'processing', 'failed', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded')),
    closed_by    text check (closed_by in ('merchant', 'provider')),
    currency     text,                              -- registered, else the first payment's
    amount       bigint check (amount >= 0),        -- registered
    paid         bigint not null default 0,
    refunded     bigint not null default 0,
    reversed     bigint not null default 0,
    version      bigint not null default 0,
    paid_version bigint,                            -- the version under which order.paid was written, once
    parked_until bigint,                            -- waits for its registration
    created_at   bigint not null,
    updated_at   bigint not null,
    primary key (merchant, order_id),
    check ((status = 'closed') = (closed_by is not null))
) with (fillfactor = 80);
create index orders_by_creation on orders (merchant, created_at, order_id);
create index orders_parked on orders (parked_until) where parked_until is not null;

create function payhook_rank(status text) returns integer immutable language sql as $$
    select case status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3
                       when 'refunded' then 4 else 0 end
$$;

create function payhook_guard_new_order() returns trigger language plpgsql as $$
begin
    if new.status <> 'pending' or new.version <> 0 or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
       or new.paid_version is not null then
        raise exception 'payhook: an order starts pending, at version 0, with nothing paid'
            using errcode = 'check_violation';
    end if;
    return new;
end $$;

create function payhook_guard_order() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.order_id, new.created_at) is distinct from (old.merchant, old.order_id, old.created_at) then
        raise exception 'payhook: an order keeps its identity' using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status) then
        raise exception 'payhook: order % may not go from % to %', old.order_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    if old.closed_by = 'merchant' and (new.status, new.closed_by) is distinct from (old.status, old.closed_by) then
        raise exception 'payhook: order % was closed by its merchant, which is final', old.order_id
            using errcode = 'check_violation';
    end if;
    if new.paid < old.paid or new.refunded < old.refunded or new.reversed < old.reversed then
        raise exception 'payhook: a total of order % may not shrink', old.order_id using errcode = 'check_violation';
    end if;
    if old.amount is not null and new.amount is distinct from old.amount
       or old.currency is not null and new.currency is distinct from old.currency
       or old.paid_version is not null and new.paid_version is distinct from old.paid_version then
        raise exception 'payhook: amount, currency and paid_version of order % are written once', old.order_id
            using errcode = 'check_violation';
    end if;
    if (new.status, new.paid, new.refunded, new.reversed) is distinct from (old.status, old.paid, old.refunded, old.reversed) then
        if new.version <> old.version + 1 then
            raise exception 'payhook: a change of order % must raise its version by one', old.order_id
                using errcode = 'check_violation';
        end if;
    elsif new.version <> old.version then
        raise exception 'payhook: a version of order % without a change', old.order_id using errcode = 'check_violation';
    end if;
    return new;
end $$;

create trigger orders_start_unpaid before insert on orders for each row execute function payhook_guard_new_order();
create trigger orders_never_regress before update on orders for each row execute function payhook_guard_order();
create trigger orders_never_deleted before delete on orders for each row execute function payhook_refuse_change();
create trigger orders_never_truncated before truncate on orders for each statement execute function payhook_refuse_change();

-- The provider's payments; a trade without an order waits for the event that carries both ids.
create table trades (
    merchant   text   not null,
    provider   text   not null,
    trade_id   text collate "C" not null check (octet_length(trade_id) between 1 and 255),
    account    text   not null,
    order_id   text collate "C",
    status     text   not null
        check (status in ('unpaid', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded', 'held')),
    amount     bigint,                              -- what it was billed, once known
    currency   text,
    refunded   bigint not null default 0,
    reversed   bigint not null default 0,
    paid_at    bigint,
    processing_at bigint,                     -- the latest report that it is under way
    late       boolean not null default false, -- paid after its own or its order's close: booked, but does not count
    created_at bigint not null,
    updated_at bigint not null,
    primary key (merchant, provider, trade_id)
) with (fillfactor = 80);
create index trades_by_order on trades (merchant, order_id) where order_id is not null;

create function payhook_guard_trade() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.provider, new.trade_id) is distinct from (old.merchant, old.provider, old.trade_id)
       or old.order_id is not null and new.order_id is distinct from old.order_id
       or old.amount is not null and (new.amount, new.currency) is distinct from (old.amount, old.currency)
       or old.paid_at is not null and new.paid_at is distinct from old.paid_at then
        raise exception 'payhook: trade % keeps its identity, order, amount and time of payment', old.trade_id
            using errcode = 'check_violation';
    end if;
    if old.late and not new.late then
        raise exception 'payhook: trade % stays paid after its close', old.trade_id using errcode = 'check_violation';
    end if;
    if new.refunded < old.refunded or new.reversed < old.reversed then
        raise exception 'payhook: a total of trade % may not shrink', old.trade_id using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status) then
        raise exception 'payhook: trade % may not go from % to %', old.trade_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger trades_never_regress before update on trades for each row execute function payhook_guard_trade();
create trigger trades_never_deleted before delete on trades for each row execute function payhook_refuse_change();
create trigger trades_never_truncated before truncate on trades for each statement execute function payhook_refuse_change();

-- What the events said, each fact once, in the order in which it became known.
create table facts (
    id             bigint generated always as identity primary key,
    merchant       text   not null,
    provider       text   not null,                 -- 'payhook' for registrations and closes
    key            text collate "C" not null,
    kind           text   not null,
    order_id       text collate "C",
    trade_id       text collate "C",
    refund_id      text collate "C",
    amount         bigint,
    currency       text,
    currency_assumed boolean not null default false, -- the message names none
    at             bigint,
    reason         text,
    unsigned_total bigint,                          -- of a refund that was encrypted but not signed
    event_id       text collate "C",                -- no foreign key: retention removes events, facts stay
    recorded_at    bigint not null,
    unique (merchant, provider, key)
);
create index facts_by_trade on facts (merchant, provider, trade_id) where trade_id is not null;
create index facts_by_order on facts (merchant, order_id) where order_id is not null;
create trigger facts_append_only before update or delete on facts
    for each row execute function payhook_refuse_change();
create trigger facts_never_truncated before truncate on facts
    for each statement execute function payhook_refuse_change();

-- One movement of money; signed minor units.
create table ledger_entries (
    id         bigint generated always as identity primary key,
    merchant   text   not null,
    provider   text   not null,
    source     text collate "C" not null,           -- trade id, refund id, dispute id, or {trade_id}@{total}
    entry_type text   not null
        check (entry_type in ('payment', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal')),
    trade_id   text collate "C",
    order_id   text collate "C",
    amount     bigint not null,
    currency   text   not null,
    event_id   text collate "C",
    at         bigint not null,
    unique (merchant, provider, source, entry_type),
    check (case when entry_type in ('refund', 'dispute') then amount <= 0 else amount >= 0 end)
);
create index ledger_entries_by_order on ledger_entries (merchant, order_id);
create index ledger_entries_by_trade on ledger_entries (merchant, provider, trade_id);
create trigger ledger_entries_append_only before update or delete on ledger_entries
    for each row execute function payhook_refuse_change();
create trigger ledger_entries_never_truncated before truncate on ledger_entries
    for each statement execute function payhook_refuse_change();

create index event_outcomes_parked on event_outcomes (decided_at) where outcome = 'parked';

-- Everything an event did to an order, and why it did nothing.
create table order_history (
    id            bigint generated always as identity primary key,
    merchant      text   not null,
    order_id      text collate "C" not null,
    at            bigint not null,
    event_id      text collate "C",
    fact          text   not null,
    outcome       text   not null,
    reason        text   not null,
    status_before text   not null,
    status_after  text   not null
);
create index order_history_by_order on order_history (merchant, order_id, id);
create trigger order_history_append_only before update or delete on order_history
    for each row execute function payhook_refuse_change();
create trigger order_history_never_truncated before truncate on order_history
    for each statement execute function payhook_refuse_change();
