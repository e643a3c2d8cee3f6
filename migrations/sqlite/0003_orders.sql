-- What the events add up to. The triggers hold what no writer may break: a paid order never becomes unpaid, a
-- rank never falls, a final status is never left, no total shrinks, and every such change is a new version.

create table orders (
    merchant     text   not null,
    order_id     text not null check (length(cast(order_id as blob)) between 1 and 255),
    status       text   not null
        check (status in ('pending', 'processing', 'failed', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded')),
    closed_by    text check (closed_by in ('merchant', 'provider')),
    currency     text,                              -- registered, else the first payment's
    amount       integer check (amount >= 0),        -- registered
    paid         integer not null default 0,
    refunded     integer not null default 0,
    reversed     integer not null default 0,
    version      integer not null default 0,
    paid_version integer,                            -- the version under which order.paid was written, once
    parked_until integer,                            -- waits for its registration
    created_at   integer not null,
    updated_at   integer not null,
    primary key (merchant, order_id),
    check ((status = 'closed') = (closed_by is not null))
) strict, without rowid;
create index orders_by_creation on orders (merchant, created_at, order_id);
create index orders_parked on orders (parked_until) where parked_until is not null;

-- The provider's payments; a trade without an order waits for the event that carries both ids.
create table trades (
    merchant   text   not null,
    provider   text   not null,
    trade_id   text not null check (length(cast(trade_id as blob)) between 1 and 255),
    account    text   not null,
    order_id   text,
    status     text   not null
        check (status in ('unpaid', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded', 'held')),
    amount     integer,                              -- what it was billed, once known
    currency   text,
    refunded   integer not null default 0,
    reversed   integer not null default 0,
    paid_at    integer,
    processing_at integer,                    -- the latest report that it is under way
    late       integer not null default 0, -- paid after its own or its order's close: booked, but does not count
    created_at integer not null,
    updated_at integer not null,
    primary key (merchant, provider, trade_id)
) strict, without rowid;
create index trades_by_order on trades (merchant, order_id) where order_id is not null;

-- What the events said, each fact once, in the order in which it became known.
create table facts (
    id             integer primary key autoincrement,
    merchant       text   not null,
    provider       text   not null,                 -- 'payhook' for registrations and closes
    key            text not null,
    kind           text   not null,
    order_id       text,
    trade_id       text,
    refund_id      text,
    amount         integer,
    currency       text,
    currency_assumed integer not null default 0, -- the message names none
    at             integer,
    reason         text,
    unsigned_total integer,                          -- of a refund that was encrypted but not signed
    event_id       text,                -- no foreign key: retention removes events, facts stay
    recorded_at    integer not null,
    unique (merchant, provider, key)
) strict;
create index facts_by_trade on facts (merchant, provider, trade_id) where trade_id is not null;
create index facts_by_order on facts (merchant, order_id) where order_id is not null;

-- One movement of money; signed minor units.
create table ledger_entries (
    id         integer primary key autoincrement,
    merchant   text   not null,
    provider   text   not null,
    source     text not null,           -- trade id, refund id, dispute id, or {trade_id}@{total}
    entry_type text   not null
        check (entry_type in ('payment', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal')),
    trade_id   text,
    order_id   text,
    amount     integer not null,
    currency   text   not null,
    event_id   text,
    at         integer not null,
    unique (merchant, provider, source, entry_type),
    check (case when entry_type in ('refund', 'dispute') then amount <= 0 else amount >= 0 end)
) strict;
create index ledger_entries_by_order on ledger_entries (merchant, order_id);
create index ledger_entries_by_trade on ledger_entries (merchant, provider, trade_id);

create index event_outcomes_parked on event_outcomes (decided_at) where outcome = 'parked';

-- Everything an event did to an order, and why it did nothing.
create table order_history (
    id            integer primary key autoincrement,
    merchant      text   not null,
    order_id      text not null,
    at            integer not null,
    event_id      text,
    fact          text   not null,
    outcome       text   not null,
    reason        text   not null,
    status_before text   not null,
    status_after  text   not null
) strict;
create index order_history_by_order on order_history (merchant, order_id, id);

create trigger orders_keep_first before insert on orders
when exists (select 1 from orders where merchant = new.merchant and order_id = new.order_id) begin
    select raise(ignore);
end;
create trigger orders_start_unpaid before insert on orders
when new.status <> 'pending' or new.version <> 0 or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
     or new.paid_version is not null begin
    select raise(abort, 'payhook: an order starts pending, at version 0, with nothing paid');
end;
create trigger orders_never_regress before update on orders begin
    select raise(abort, 'payhook: an order keeps its identity')
     where new.merchant <> old.merchant or new.order_id <> old.order_id or new.created_at <> old.created_at;
    select raise(abort, 'payhook: an order''s rank may not fall')
     where case new.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
         < case old.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end;
    select raise(abort, 'payhook: an order closed by its merchant stays closed')
     where old.closed_by = 'merchant' and (new.status <> old.status or new.closed_by is not old.closed_by);
    select raise(abort, 'payhook: a total may not shrink')
     where new.paid < old.paid or new.refunded < old.refunded or new.reversed < old.reversed;
    select raise(abort, 'payhook: amount, currency and paid_version are written once')
     where old.amount is not null and new.amount is not old.amount
        or old.currency is not null and new.currency is not old.currency
        or old.paid_version is not null and new.paid_version is not old.paid_version;
    select raise(abort, 'payhook: a change of an order must raise its version by one, and only a change may')
     where new.version <> old.version
        + (new.status <> old.status or new.paid <> old.paid or new.refunded <> old.refunded or new.reversed <> old.reversed);
end;
create trigger orders_never_deleted before delete on orders begin
    select raise(abort, 'payhook: DELETE on orders is refused: it is append-only');
end;
create trigger trades_keep_first before insert on trades
when exists (select 1 from trades where merchant = new.merchant and provider = new.provider and trade_id = new.trade_id) begin
    select raise(ignore);
end;
create trigger trades_never_regress before update on trades begin
    select raise(abort, 'payhook: a trade keeps its identity, order, amount and time of payment')
     where new.merchant <> old.merchant or new.provider <> old.provider or new.trade_id <> old.trade_id
        or old.order_id is not null and new.order_id is not old.order_id
        or old.amount is not null and (new.amount is not old.amount or new.currency is not old.currency)
        or old.paid_at is not null and new.paid_at is not old.paid_at;
    select raise(abort, 'payhook: a total may not shrink') where new.refunded < old.refunded or new.reversed < old.reversed;
    select raise(abort, 'payhook: a trade stays paid after its close') where old.late and not new.late;
    select raise(abort, 'payhook: a trade''s rank may not fall')
     where case new.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
         < case old.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end;
end;
create trigger trades_never_deleted before delete on trades begin
    select raise(abort, 'payhook: DELETE on trades is refused: it is append-only');
end;
create trigger facts_keep_first before insert on facts
when exists (select 1 from facts where (merchant = new.merchant and provider = new.provider and key = new.key) or id = new.id) begin
    select raise(ignore);
end;
create trigger facts_append_only before update on facts begin
    select raise(abort, 'payhook: UPDATE on facts is refused: it is append-only');
end;
create trigger facts_never_deleted before delete on facts begin
    select raise(abort, 'payhook: DELETE on facts is refused: it is append-only');
end;
create trigger ledger_entries_keep_first before insert on ledger_entries
when exists (select 1 from ledger_entries where (merchant = new.merchant and provider = new.provider and source = new.source
              and entry_type = new.entry_type) or id = new.id) begin
    select raise(ignore);
end;
create trigger ledger_entries_append_only before update on ledger_entries begin
    select raise(abort, 'payhook: UPDATE on ledger_entries is refused: it is append-only');
end;
create trigger ledger_entries_never_deleted before delete on ledger_entries begin
    select raise(abort, 'payhook: DELETE on ledger_entries is refused: it is append-only');
end;
create trigger order_history_keep_first before insert on order_history
when exists (select 1 from order_history where id = new.id) begin
    select raise(ignore);
end;
create trigger order_history_append_only before update on order_history begin
    select raise(abort, 'payhook: UPDATE on order_history is refused: it is append-only');
end;
create trigger order_history_never_deleted before delete on order_history begin
    select raise(abort, 'payhook: DELETE on order_history is refused: it is append-only');
end;
