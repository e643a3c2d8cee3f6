-- payhook's tables, one after the other, each with its constraints, indexes and triggers beside it.
--
-- Ids are UUID v7 as text, which sorts by arrival; amounts are minor units of their currency. An index names the
-- function that needs it. A key that is looked up begins with what tells rows apart: while Postgres has no statistics
-- of a table, an index that begins with the merchant looks as good to it as any other.
--
-- Triggers hold what no writer may break, whoever writes. All are `enable always` (at the end), so that a session with
-- session_replication_role = replica meets them too. No foreign key points at events: retention removes these, and
-- facts and ledger stay.

create function payhook_refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'payhook: % on % is refused: it is append-only', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end $$;

-- Retention is the one path that may delete. In its own transaction it writes the moment before which rows may go, and
-- removes that row again: no other transaction sees it, and without it nothing can be deleted.
create table retention_cutoff (
    received_before timestamptz not null
);

create function payhook_refuse_unless_expired() returns trigger language plpgsql as $$
begin
    if not exists (select 1 from retention_cutoff where old.received_at < received_before) then
        raise exception 'payhook: DELETE on % is refused: only retention removes expired rows', tg_table_name
            using errcode = 'restrict_violation';
    end if;
    return old;
end $$;

----------------------------------------------------------------------------------------------------------------------
-- Events: what was received and verified.

create table events (
    id                  text collate "C" primary key,
    event_key           text collate "C" not null unique check (octet_length(event_key) between 1 and 200),
    provider            text not null check (provider in ('alipay', 'wechatpay', 'stripe', '2c2p', 'antom')),
    account             text not null,
    merchant            text not null,
    type                text not null,
    provider_event_type text not null,
    subject             text,
    order_id            text collate "C",
    trade_id            text collate "C",
    refund_id           text collate "C",
    amount              bigint,
    currency            text,
    orders              jsonb,               -- of events that speak of several orders
    occurred_at         timestamptz not null,
    received_at         timestamptz not null,
    fingerprint         bytea not null,      -- a second arrival is compared by it
    headers             jsonb not null,      -- [[name, value]], without cookies and authorization
    body                bytea not null,      -- byte for byte
    content             bytea,               -- the provider's fields as JSON, when the body is not that
    remote_addr         text,
    -- The feed's order: a reader sees only transactions below the oldest one still running.
    position            bigint not null default (pg_current_xact_id()::text::bigint),
    check ((amount is null) = (currency is null))
)
-- A row that fits into a page is stored as it is: compressing each row of more than 2 kB was a fifth of the work.
with (toast_tuple_target = 8160);
-- The feed's pages (Store::feed_page).
create index events_by_position on events (merchant, position, id);
-- The list's pages and a replay's walk (Store::events, Store::replay_look).
create index events_by_merchant on events (merchant, id);
-- The list of one provider, account or type (Store::events).
create index events_by_kind on events (merchant, provider, account, type, id);
-- The events of an order (Store::events, orders show).
create index events_by_order on events (order_id, merchant, id) where order_id is not null;
-- The events of a trade; those parked for it (Store::events, history::parked_by_trade).
create index events_by_trade on events (trade_id, id) where trade_id is not null;
create trigger events_append_only before update on events
    for each row execute function payhook_refuse_change();
create trigger events_retained before delete on events
    for each row execute function payhook_refuse_unless_expired();
create trigger events_never_truncated before truncate on events
    for each statement execute function payhook_refuse_change();

-- Duplicates of an event; about a hundred rows an event are kept.
create table deliveries (
    id          bigint generated always as identity primary key,
    event_id    text collate "C" not null,
    received_at timestamptz not null,
    remote_addr text
);
-- The duplicates of an event (timeline, retention).
create index deliveries_by_event on deliveries (event_id);
create trigger deliveries_append_only before update on deliveries
    for each row execute function payhook_refuse_change();
create trigger deliveries_retained before delete on deliveries
    for each row execute function payhook_refuse_unless_expired();
create trigger deliveries_never_truncated before truncate on deliveries
    for each statement execute function payhook_refuse_change();

-- Conflicts: the same key with other signed content. Both are kept, and an operator is told once.
create table event_conflicts (
    event_id    text collate "C" not null,
    fingerprint bytea not null,
    received_at timestamptz not null,
    headers     jsonb not null,
    body        bytea not null,
    content     bytea,
    remote_addr text,
    primary key (event_id, fingerprint)
);
create trigger event_conflicts_append_only before update on event_conflicts
    for each row execute function payhook_refuse_change();
create trigger event_conflicts_retained before delete on event_conflicts
    for each row execute function payhook_refuse_unless_expired();
create trigger event_conflicts_never_truncated before truncate on event_conflicts
    for each statement execute function payhook_refuse_change();

-- The outcome of each event. A replay may end otherwise than the first application, so the row can be replaced.
create table event_outcomes (
    event_id   text collate "C" primary key,
    outcome    text not null
        check (outcome in ('applied', 'already_applied', 'stale', 'unmapped', 'parked', 'attention', 'dead')),
    reason     text not null,
    decided_at timestamptz not null
);
-- The list of one outcome (Store::events).
create index event_outcomes_by_outcome on event_outcomes (outcome, event_id);
-- Events that have waited too long (Store::raise_overdue).
create index event_outcomes_parked on event_outcomes (decided_at) where outcome = 'parked';

create function payhook_guard_outcome() returns trigger language plpgsql as $$
begin
    if exists (select 1 from retention_cutoff where old.decided_at < received_before) then
        return old;
    end if;
    -- A redrive takes back the outcome that it undoes.
    if old.outcome = 'dead'
       and exists (select 1 from dead_letters where event_id = old.event_id)
       and not exists (select 1 from dead_letters where event_id = old.event_id and redriven_at is null) then
        return old;
    end if;
    raise exception 'payhook: DELETE on event_outcomes is refused: only retention removes expired rows'
        using errcode = 'restrict_violation';
end $$;
create trigger event_outcomes_retained before delete on event_outcomes
    for each row execute function payhook_guard_outcome();
create trigger event_outcomes_never_truncated before truncate on event_outcomes
    for each statement execute function payhook_refuse_change();

-- The orders that an event concerned, by what it carried or by its trade.
create table event_orders (
    event_id text collate "C" not null,
    merchant text not null,
    order_id text collate "C" not null,
    primary key (event_id, merchant, order_id)
);
-- The events of an order; those parked for it (Store::events, history::parked_by_order).
create index event_orders_by_order on event_orders (order_id, merchant, event_id);

----------------------------------------------------------------------------------------------------------------------
-- Outbox: what is still to be sent, and what was sent and has not ended yet.

-- Order and attention messages. They are kept: the feed and replays send them again.
create table messages (
    id          text collate "C" primary key,  -- {merchant}/{order_id}/{version}, its hash, or attention/{id}
    merchant    text   not null,
    order_id    text collate "C",
    routing_key text   not null,
    body        bytea  not null,               -- the CloudEvent
    created_at  timestamptz not null,
    position    bigint not null default (pg_current_xact_id()::text::bigint)
) with (toast_tuple_target = 8160);
-- The feed's pages and a replay's walk (Store::feed_page, Store::replay_look).
create index messages_by_position on messages (merchant, position, id);
-- The messages of an order (Store::replay_look).
create index messages_by_order on messages (order_id, merchant);
create trigger messages_append_only before update on messages
    for each row execute function payhook_refuse_change();
-- Without a gap the order stream begins where the orders do.
create trigger messages_never_deleted before delete on messages
    for each row execute function payhook_refuse_change();
create trigger messages_never_truncated before truncate on messages
    for each statement execute function payhook_refuse_change();

-- One row for each event without outcome and each message without confirm. `due_at` is the only clock: a claim moves it
-- ahead, a failed attempt moves it by its backoff, a confirmed publish of an event moves it by the time after which an
-- outcome is missed. A `replay` waits for the workers as well as for its confirm. A `resend` (a message again, or an
-- event to one queue alone) is done when the broker has confirmed it.
create table outbox (
    id            text collate "C" primary key,   -- the event's or message's id; of a replay: {that id}#{replay id}
    kind          text not null check (kind in ('event', 'message', 'replay', 'resend')),
    event_id      text collate "C",
    message_id    text collate "C",
    created_at    timestamptz not null,
    due_at        timestamptz not null,
    claimed_by    text,                           -- the process that holds it until due_at
    published_at  timestamptz,                    -- last confirmed publish
    publishes     integer not null default 0,     -- confirmed publishes without an outcome since
    attempts      integer not null default 0,     -- failed attempts to apply it
    last_error    text,
    unpublishable boolean not null default false, -- the broker refuses it; an operator was told
    replay_id     text,                           -- goes into the message's data.replay
    replay_reason text,
    queue         text,                           -- to this queue alone, else to everybody
    applied_at    timestamptz,                    -- of a replay: applied, its confirm still owed
    check ((event_id is null) <> (message_id is null)
        and (kind <> 'message' or message_id is not null) and (kind not in ('event', 'replay') or event_id is not null)),
    check ((kind in ('replay', 'resend')) = (replay_id is not null)
        and (replay_id is null) = (replay_reason is null) and (queue is null or kind = 'resend'))
) with (fillfactor = 70);
-- What is to be published (Store::claim_due).
create index outbox_first on outbox (due_at) where published_at is null and not unpublishable;
-- What was published and has no outcome in time (Store::claim_due, Store::unfinished_are_due).
create index outbox_again on outbox (due_at) where published_at is not null;
-- What the embedded broker ends unread (Store::done_with_messages).
create index outbox_messages on outbox (id) where kind in ('message', 'resend');
-- The replays of an event (finish_applied, retention).
create index outbox_replays on outbox (event_id) where replay_id is not null;
-- The rows of a replay (Store::outstanding, cancel).
create index outbox_of_replay on outbox (replay_id) where replay_id is not null;
create trigger outbox_never_truncated before truncate on outbox
    for each statement execute function payhook_refuse_change();

-- Queues that payhook declares, with the time they were last seen at the broker: one that is missing later has lost
-- what it held since.
create table broker_queues (
    name    text collate "C" primary key,
    seen_at timestamptz not null
);

----------------------------------------------------------------------------------------------------------------------
-- Orders: what the events add up to.

create table orders (
    merchant     text not null,
    order_id     text collate "C" not null check (octet_length(order_id) between 1 and 255),
    status       text not null
        check (status in ('pending', 'processing', 'failed', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded')),
    closed_by    text check (closed_by in ('merchant', 'provider')),
    currency     text,                             -- registered, else the first payment's
    amount       bigint check (amount >= 0),       -- registered
    paid         bigint not null default 0 check (paid >= 0),
    refunded     bigint not null default 0 check (refunded >= 0),
    reversed     bigint not null default 0 check (reversed >= 0),
    version      bigint not null default 0,
    paid_version bigint,                           -- the version under which order.paid was written, once
    parked_until timestamptz,                      -- waits for its registration
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    primary key (order_id, merchant),
    check ((status = 'closed') = (closed_by is not null))
) with (fillfactor = 80);
-- The list's pages (Store::orders); not to be taken for a way to one order, so they do not end with its id.
create index orders_by_creation on orders (merchant, created_at);
create index orders_by_status on orders (status, merchant, created_at);
-- Orders that have waited too long for their registration (Store::raise_overdue).
create index orders_parked on orders (parked_until) where parked_until is not null;

create function payhook_rank(status text) returns integer immutable language sql as $$
    select case status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3
                       when 'refunded' then 4 else 0 end
$$;

-- An order is inserted as the transaction that creates it leaves it. Its version counts its changes: one for what
-- happened to it, and one before that for `order.paid` if it has gone on since.
create function payhook_guard_new_order() returns trigger language plpgsql as $$
begin
    if new.version <> (new.status <> 'pending' or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
                       or new.paid_version is not null)::integer
                    + (new.paid_version is not null and new.status <> 'paid')::integer then
        raise exception 'payhook: order % starts at the version that its changes make', new.order_id
            using errcode = 'check_violation';
    end if;
    if new.paid_version is not null
       and (new.paid_version <> 1 or new.status not in ('paid', 'partially_refunded', 'finished')) then
        raise exception 'payhook: order % is not paid, or was not first of all', new.order_id
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger orders_start_at_their_version before insert on orders
    for each row execute function payhook_guard_new_order();
create trigger orders_never_deleted before delete on orders
    for each row execute function payhook_refuse_change();
create trigger orders_never_truncated before truncate on orders
    for each statement execute function payhook_refuse_change();

-- The provider's payments. A trade without an order waits for the event that carries both ids.
create table trades (
    merchant      text not null,
    provider      text not null,
    trade_id      text collate "C" not null check (octet_length(trade_id) between 1 and 255),
    account       text not null,
    order_id      text collate "C",
    status        text not null
        check (status in ('unpaid', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded', 'held')),
    amount        bigint,                          -- what it was billed, once known
    currency      text,
    refunded      bigint not null default 0,
    reversed      bigint not null default 0,
    paid_at       timestamptz,
    processing_at timestamptz,                     -- the latest report that it is under way
    failed_at     timestamptz,                     -- the latest report that an attempt failed
    late          boolean not null default false,  -- paid after its own or its order's close: booked, does not count
    ships         boolean not null default false,  -- its payment is known not to be from before its account's `since`
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    primary key (trade_id, merchant, provider)
) with (fillfactor = 80);
-- The trades of an order (trades::of_orders, views).
create index trades_by_order on trades (order_id, merchant) where order_id is not null;

-- The amount of a payment that is captured in parts is the sum of its captures, so it grows; a capture that becomes
-- known after the refund of all others leaves the trade refunded in part.
create function payhook_guard_trade() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.provider, new.trade_id) is distinct from (old.merchant, old.provider, old.trade_id)
       or old.order_id is not null and new.order_id is distinct from old.order_id
       or old.amount is not null and (new.amount is null or new.amount < old.amount or new.currency is distinct from old.currency)
       or old.paid_at is not null and new.paid_at is distinct from old.paid_at then
        raise exception 'payhook: trade % keeps its identity, order and time of payment, and its amount may only grow',
            old.trade_id using errcode = 'check_violation';
    end if;
    if new.amount > old.amount and not exists (
        select 1 from facts f
         where f.merchant = new.merchant and f.provider = new.provider and f.trade_id = new.trade_id
           and f.kind = 'payment_succeeded' and f.refund_id is not null) then
        raise exception 'payhook: the amount of trade % may grow by captures only', old.trade_id
            using errcode = 'check_violation';
    end if;
    if old.late and not new.late then
        raise exception 'payhook: trade % stays paid after its close', old.trade_id using errcode = 'check_violation';
    end if;
    if old.ships and not new.ships then
        raise exception 'payhook: trade % is shipped for good', old.trade_id using errcode = 'check_violation';
    end if;
    if new.refunded < old.refunded or new.reversed < old.reversed then
        raise exception 'payhook: a total of trade % may not shrink', old.trade_id using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status)
       and not (old.status = 'refunded' and new.status = 'partially_refunded' and new.amount > old.amount) then
        raise exception 'payhook: trade % may not go from % to %', old.trade_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger trades_never_regress before update on trades
    for each row execute function payhook_guard_trade();
create trigger trades_never_deleted before delete on trades
    for each row execute function payhook_refuse_change();
create trigger trades_never_truncated before truncate on trades
    for each statement execute function payhook_refuse_change();

-- What the events say, each fact once, in the order in which it became known.
create table facts (
    id               bigint generated always as identity primary key,
    merchant         text not null,
    provider         text not null,                  -- 'payhook' for registrations and closes
    key              text collate "C" not null,
    kind             text not null,
    order_id         text collate "C",
    trade_id         text collate "C",
    refund_id        text collate "C",
    amount           bigint,
    currency         text,
    currency_assumed boolean not null default false, -- the message names none
    at               timestamptz,
    reason           text,
    unsigned_total   bigint,                         -- of a refund that was encrypted but not signed
    event_id         text collate "C",
    recorded_at      timestamptz not null,
    unique (key, merchant, provider)
);
-- The facts of a trade (facts::of).
create index facts_by_trade on facts (trade_id, merchant, provider) where trade_id is not null;
-- An order's own facts (facts::of).
create index facts_by_order on facts (order_id, merchant) where trade_id is null and order_id is not null;
create trigger facts_append_only before update or delete on facts
    for each row execute function payhook_refuse_change();
create trigger facts_never_truncated before truncate on facts
    for each statement execute function payhook_refuse_change();

-- `refunded` is final for a trade. An order leaves it when another of its trades counts that is not refunded whole, and a
-- merchant's close when an operator keeps a payment that came after it. The trades say whether that is so.
create function payhook_order_stands_as(of_merchant text, of_order text, status text) returns boolean
stable language sql as $$
    select exists (
        select 1 from trades t
         where t.merchant = of_merchant and t.order_id = of_order
           and payhook_rank(t.status) > 0 and (t.status = 'refunded') = ($3 = 'refunded')
           and (not t.late or exists (
                select 1 from facts f
                 where f.merchant = t.merchant and f.provider = t.provider and f.trade_id = t.trade_id
                   and f.kind = 'payment_kept')))
$$;

create function payhook_guard_order() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.order_id, new.created_at) is distinct from (old.merchant, old.order_id, old.created_at) then
        raise exception 'payhook: an order keeps its identity' using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status)
       and not (old.status = 'refunded' and payhook_rank(new.status) > 0
                and payhook_order_stands_as(new.merchant, new.order_id, new.status)) then
        raise exception 'payhook: order % may not go from % to %', old.order_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    if old.closed_by = 'merchant' and (new.status, new.closed_by) is distinct from (old.status, old.closed_by)
       and not (payhook_rank(new.status) > 0
                and payhook_order_stands_as(new.merchant, new.order_id, new.status)) then
        raise exception 'payhook: order % was closed by its merchant, which only a payment that is kept can change',
            old.order_id using errcode = 'check_violation';
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
    -- An order that is paid already is shipped later, when a report shows that its payment is not an old one.
    if (new.status, new.paid, new.refunded, new.reversed, new.paid_version)
       is distinct from (old.status, old.paid, old.refunded, old.reversed, old.paid_version) then
        if new.version <> old.version + 1 then
            raise exception 'payhook: a change of order % must raise its version by one', old.order_id
                using errcode = 'check_violation';
        end if;
    elsif new.version <> old.version then
        raise exception 'payhook: a version of order % without a change', old.order_id using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger orders_never_regress before update on orders
    for each row execute function payhook_guard_order();

-- One movement of money; signed minor units.
create table ledger_entries (
    id         bigint generated always as identity primary key,
    merchant   text not null,
    provider   text not null,
    source     text collate "C" not null,           -- trade id, refund id, dispute id, or {trade_id}@{total}
    entry_type text not null
        check (entry_type in ('payment', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal')),
    trade_id   text collate "C",
    order_id   text collate "C",
    amount     bigint not null,
    currency   text not null,
    event_id   text collate "C",
    at         timestamptz not null,
    unique (source, entry_type, merchant, provider),
    check (case when entry_type in ('refund', 'dispute') then amount <= 0 else amount >= 0 end)
);
-- The entries of an order (views) and of a trade (ledger::of_trades).
create index ledger_entries_by_order on ledger_entries (order_id, merchant);
create index ledger_entries_by_trade on ledger_entries (trade_id, merchant, provider);
create trigger ledger_entries_append_only before update or delete on ledger_entries
    for each row execute function payhook_refuse_change();
create trigger ledger_entries_never_truncated before truncate on ledger_entries
    for each statement execute function payhook_refuse_change();

-- What each event did to an order, or why it did nothing.
create table order_history (
    id            bigint generated always as identity primary key,
    merchant      text not null,
    order_id      text collate "C" not null,
    at            timestamptz not null,
    event_id      text collate "C",
    fact          text not null,
    outcome       text not null,
    reason        text not null,
    status_before text not null,
    status_after  text not null
);
-- The history of an order (views).
create index order_history_by_order on order_history (order_id, merchant, id);
create trigger order_history_append_only before update or delete on order_history
    for each row execute function payhook_refuse_change();
create trigger order_history_never_truncated before truncate on order_history
    for each statement execute function payhook_refuse_change();

----------------------------------------------------------------------------------------------------------------------
-- Attention, dead letters, quarantine: what needs an operator, could not be applied, was refused.

-- An item may stand for many events of one kind at one account (`group_key`). The open one counts; after it is resolved
-- the next event raises another.
create table attention (
    id                text collate "C" primary key,
    code              text not null,
    source            text collate "C" not null,    -- the fact, event or queue it is about: a replay raises it once
    merchant          text not null,
    provider          text,
    account           text,
    order_id          text collate "C",
    trade_id          text collate "C",
    event_id          text collate "C",
    explanation       text not null,
    state             text not null default 'open' check (state in ('open', 'resolved')),
    created_at        timestamptz not null,
    resolved_at       timestamptz,
    resolved_by       text,
    resolution        text,                         -- the action
    resolution_reason text,
    group_key         text collate "C",             -- account and type; null: an item by itself
    events            bigint not null default 1,    -- how many it stands for
    unique (merchant, code, source),
    check ((state = 'resolved') = (resolved_at is not null))
);
-- The list (Store::attention).
create index attention_open on attention (merchant, id) where state = 'open';
-- The items of an order (attention::of_orders, views) and of an event (redrive, retention).
create index attention_by_order on attention (order_id, merchant) where order_id is not null;
create index attention_by_event on attention (event_id) where state = 'open' and event_id is not null;
create unique index attention_open_group on attention (merchant, code, group_key)
    where state = 'open' and group_key is not null;

create function payhook_guard_attention() returns trigger language plpgsql as $$
begin
    if old.state = 'resolved'
       or (new.id, new.code, new.source, new.merchant, new.order_id, new.event_id, new.explanation, new.created_at, new.group_key)
          is distinct from (old.id, old.code, old.source, old.merchant, old.order_id, old.event_id, old.explanation, old.created_at, old.group_key) then
        raise exception 'payhook: an attention item can only be resolved, once' using errcode = 'check_violation';
    end if;
    if new.events < old.events then
        raise exception 'payhook: the events of an attention item may not shrink' using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger attention_resolved_once before update on attention
    for each row execute function payhook_guard_attention();
create trigger attention_never_deleted before delete on attention
    for each row execute function payhook_refuse_change();
create trigger attention_never_truncated before truncate on attention
    for each statement execute function payhook_refuse_change();

-- The events that an item with a group stands for, each counted once.
create table attention_events (
    code         text not null,
    event_id     text collate "C" not null,
    attention_id text collate "C" not null,
    primary key (code, event_id)
);
-- The events of an item (attention_group).
create index attention_events_by_item on attention_events (attention_id);
create trigger attention_events_append_only before update or delete on attention_events
    for each row execute function payhook_refuse_change();
create trigger attention_events_never_truncated before truncate on attention_events
    for each statement execute function payhook_refuse_change();

create table dead_letters (
    id          text collate "C" primary key,
    event_id    text collate "C",
    event_key   text collate "C",
    merchant    text,
    error       text not null,
    attempts    integer not null,
    message     bytea,                              -- of a message that names no known event
    created_at  timestamptz not null,
    redriven_at timestamptz
);
-- The list (Store::dead_letters) and the letters of an event (redrive, retention).
create index dead_letters_open on dead_letters (id) where redriven_at is null;
create index dead_letters_by_event on dead_letters (event_id) where event_id is not null;

create function payhook_guard_dead_letter() returns trigger language plpgsql as $$
begin
    if old.redriven_at is not null or new.redriven_at is null
       or (new.id, new.event_id, new.event_key, new.merchant, new.error, new.attempts, new.message, new.created_at)
          is distinct from
          (old.id, old.event_id, old.event_key, old.merchant, old.error, old.attempts, old.message, old.created_at) then
        raise exception 'payhook: a dead letter can only be redriven, once' using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger dead_letters_redriven_once before update on dead_letters
    for each row execute function payhook_guard_dead_letter();
create trigger dead_letters_never_deleted before delete on dead_letters
    for each row execute function payhook_refuse_change();
create trigger dead_letters_never_truncated before truncate on dead_letters
    for each statement execute function payhook_refuse_change();

-- Refused notifications, whole; bounded, the oldest of the largest sender goes first.
create table quarantine (
    id          text collate "C" primary key,
    provider    text not null,
    account     text not null,
    merchant    text not null,
    reason      text not null,
    detail      text not null,
    path        text not null,
    headers     jsonb not null,                     -- [[name, value]]
    body        bytea not null,
    received_at timestamptz not null,
    remote_addr text,
    sender      text not null,                      -- /24 or /48 of the sender, for fair eviction
    bytes       integer not null
);
-- The list and the eviction (Store::quarantine, Store::keep).
create index quarantine_by_account on quarantine (provider, account, sender, id);

-- Networks that an account's new events came from, in the form of quarantine.sender.
create table known_senders (
    provider text not null,
    account  text not null,
    network  text not null,
    seen_at  timestamptz not null,
    primary key (provider, account, network)
);

----------------------------------------------------------------------------------------------------------------------
-- Operators: keys, decisions, replays, the feed.

-- One row for each Idempotency-Key in its scope. The primary key decides which of several racers goes first. The claim
-- is a commit of its own; the completion shares the business write's commit.
create table idempotency_keys (
    id          text collate "C" primary key,       -- SHA-256 of merchant, method, path and key
    key_hash    text not null,                      -- all that logs may show of the key
    merchant    text not null,
    method      text not null,
    path        text not null,
    fingerprint bytea not null,                     -- SHA-256 of method, path and canonical body
    effect      text not null check (effect in ('none', 'outside')),
    state       text not null check (state in ('running', 'finished')),
    owner       text not null,                      -- the attempt that holds the claim
    lease_until timestamptz not null,
    status      integer,
    headers     text,                               -- JSON [[name, value]], answered as stored
    body        bytea,
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    check ((state = 'finished') = (status is not null))
);
-- Keys to remove, and claims whose lease ran out (Keys::purge, Keys::running).
create index idempotency_keys_expired on idempotency_keys (expires_at);
create index idempotency_keys_running on idempotency_keys (created_at) where state = 'running';

create function payhook_guard_idempotency_key() returns trigger language plpgsql as $$
begin
    if old.state = 'finished' and old.expires_at > clock_timestamp() then
        raise exception 'payhook: a stored answer is never changed' using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger idempotency_keys_answer_once before update on idempotency_keys
    for each row execute function payhook_guard_idempotency_key();

-- What operators did: one row when it begins and, where it takes several transactions, one with its result.
create table audit (
    id       text collate "C" primary key,
    merchant text not null,
    actor    text not null,                         -- the token's name
    action   text not null,
    reason   text not null,
    details  jsonb not null,
    at       timestamptz not null
);
create index audit_by_merchant on audit (merchant, id);
create trigger audit_append_only before update on audit
    for each row execute function payhook_refuse_change();
create trigger audit_never_deleted before delete on audit
    for each row execute function payhook_refuse_change();
create trigger audit_never_truncated before truncate on audit
    for each statement execute function payhook_refuse_change();

-- Replays that operators asked for. Each goes from the oldest to the newest of what was there then, and outlives every
-- process.
create table replays (
    id           text collate "C" primary key,
    merchant     text    not null,
    actor        text    not null,                  -- the token's name
    reason       text    not null,
    what         text    not null check (what in ('events', 'orders')),
    queue        text,                              -- to this queue alone, else to everybody
    filter       jsonb   not null,
    per_second   integer not null,
    at_position  bigint  not null default 0,        -- of messages; events are found by id alone
    at_id        text collate "C" not null default '',
    end_position bigint  not null,
    end_id       text collate "C" not null,
    total        bigint,                            -- how many match; null until they were counted
    sent         bigint  not null default 0,        -- handed to the outbox
    refused      bigint  not null default 0,
    refusals     jsonb   not null default '{}',     -- reason: count
    state        text    not null default 'running' check (state in ('running', 'done', 'cancelled')),
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    walked_at    timestamptz,                       -- when the last of them had been handed over
    ended_at     timestamptz,
    leased_by    text,                              -- the process that drives it until leased_until
    leased_until timestamptz,
    waits        text,                              -- why no process could go on with it so far
    waits_since  timestamptz,
    check ((state = 'running') = (ended_at is null))
);
-- Replays to drive (Store::lease_replays) and the list (Store::replays).
create index replays_running on replays (id) where state = 'running';
create index replays_by_merchant on replays (merchant, id);

create function payhook_guard_replays() returns trigger language plpgsql as $$
begin
    if old.state <> 'running'
       or (new.id, new.merchant, new.actor, new.reason, new.what, new.queue, new.filter, new.created_at)
          is distinct from
          (old.id, old.merchant, old.actor, old.reason, old.what, old.queue, old.filter, old.created_at) then
        raise exception 'payhook: a replay that has ended, and what was asked for, stay as they are'
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger replays_end_once before update on replays
    for each row execute function payhook_guard_replays();
create trigger replays_never_deleted before delete on replays
    for each row execute function payhook_refuse_change();
create trigger replays_never_truncated before truncate on replays
    for each statement execute function payhook_refuse_change();

-- What a replay sent to everybody: the feed shows it again at a position of its own. One row for an event or message
-- and a replay, however often the replay is resumed.
create table replays_sent (
    turn       bigint generated always as identity primary key,
    event_id   text collate "C",
    message_id text collate "C",
    merchant   text not null,
    replay_id  text not null,
    reason     text not null,                       -- what data.replay says
    sent_at    timestamptz not null,
    position   bigint not null default (pg_current_xact_id()::text::bigint),
    check ((event_id is null) <> (message_id is null))
);
create unique index replays_sent_of_event on replays_sent (event_id, replay_id) where event_id is not null;
create unique index replays_sent_of_message on replays_sent (message_id, replay_id) where message_id is not null;
-- The feed's pages (Store::feed_page).
create index replays_sent_by_position on replays_sent (merchant, position, turn);

-- When the feed's positions begin to mean something else: another cluster after a restore, another timeline after a
-- failover, another run of the daemon on SQLite. Cursors of earlier epochs are drawn back to the floor.
create table feed_epochs (
    stream  text   not null check (stream in ('events', 'orders')),
    epoch   bigint not null,                        -- when it began: no epoch that a restore undid has the same
    base    bigint not null,                        -- what positions are ahead of this cluster's transaction ids
    floor   bigint not null,                        -- up to here the epochs before it are shared history
    mark    bigint not null,                        -- a position reached lately in this cluster
    cluster text   not null,                        -- its identifier and timeline, '' when they cannot be read
    primary key (stream, epoch)
);
insert into feed_epochs values ('events', 0, 0, 0, 0, ''), ('orders', 0, 0, 0, 0, '');

-- Up to which position retention has removed events. A cursor that has not passed it may have missed some.
create table feed_horizons (
    stream   text   primary key check (stream in ('events', 'orders')),
    position bigint not null
);
insert into feed_horizons values ('events', 0), ('orders', 0);

----------------------------------------------------------------------------------------------------------------------
-- Accounts and probes.

-- When the store first knew an account: a payment from before that was shipped by whoever came before.
create table accounts (
    provider text not null,
    account  text not null,
    known_at timestamptz not null,
    primary key (provider, account)
);
create trigger accounts_append_only before update or delete on accounts
    for each row execute function payhook_refuse_change();
create trigger accounts_never_truncated before truncate on accounts
    for each statement execute function payhook_refuse_change();

-- When each key last verified a notification, by what the key is and not by its place in the configuration. Written at
-- most once a minute by each daemon.
create table key_uses (
    provider    text not null,
    account     text not null,
    fingerprint text collate "C" not null,          -- as `check` shows it
    verified_at timestamptz not null,
    primary key (provider, account, fingerprint)
);

-- One row that the readiness probe writes, to know that a commit still comes through.
create table write_probe (
    id bigint primary key check (id = 1),
    at timestamptz not null
) with (fillfactor = 10);

do $$
declare
    guard record;
begin
    for guard in
        select t.tgrelid::regclass as guarded, t.tgname as name
          from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc f on f.oid = t.tgfoid
         where not t.tgisinternal and c.relnamespace = current_schema()::regnamespace and f.proname like 'payhook\_%'
    loop
        execute format('alter table %s enable always trigger %I', guard.guarded, guard.name);
    end loop;
end $$;
