-- What was received and verified. Append-only: the database refuses UPDATE and DELETE.
-- `insert or replace` deletes without firing delete triggers, unless the connection asked for recursive ones; so
-- each guarded table has a trigger `*_keep_first` that drops an insert whose key is taken. On these tables an
-- upsert (`on conflict do update`) therefore does nothing: insert `on conflict do nothing`, then update.
-- Times are microseconds since 1970 UTC; ids are UUID v7 text, which sorts by arrival.

-- Retention is the one path that may delete events: in its own transaction it first writes the moment before
-- which rows may go, and removes that row again. Without that row nothing can be deleted.
create table retention_cutoff (
    received_before integer not null
) strict;

create table events (
    -- The feed's order: one writer numbers them.
    position            integer primary key autoincrement,
    id                  text not null unique,
    event_key           text not null unique check (length(cast(event_key as blob)) between 1 and 200),
    provider            text not null check (provider in ('alipay', 'wechatpay', 'stripe', '2c2p', 'antom')),
    account             text not null,
    merchant            text not null,
    type                text not null,
    provider_event_type text not null,
    subject             text,
    order_id            text,
    trade_id            text,
    refund_id           text,
    amount              integer,
    currency            text,
    orders              text,                 -- JSON, for events that speak of several orders
    occurred_at         integer not null,
    received_at         integer not null,
    fingerprint         blob    not null,     -- what a second arrival is compared by
    headers             text    not null,     -- JSON [[name, value]], without cookies and authorization
    body                blob    not null,     -- byte for byte
    content             blob,                 -- the provider's fields as JSON, when the body is not that
    remote_addr         text,
    check ((amount is null) = (currency is null))
) strict;
create index events_by_position on events (merchant, position);
create index events_by_order on events (merchant, order_id, id) where order_id is not null;
create index events_by_trade on events (trade_id, id) where trade_id is not null;

create trigger events_keep_first before insert on events
when exists (select 1 from events where id = new.id or event_key = new.event_key or position = new.position) begin
    select raise(ignore);
end;
create trigger events_append_only before update on events begin
    select raise(abort, 'payhook: UPDATE on events is refused: it is append-only');
end;
create trigger events_retained before delete on events
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on events is refused: only retention removes expired rows');
end;

-- The same event arriving again: at most about a hundred rows an event are kept.
create table deliveries (
    id          integer primary key autoincrement,
    event_id    text not null,
    received_at integer not null,
    remote_addr text
) strict;
create index deliveries_by_event on deliveries (event_id);

-- The same key with other signed content: both are kept, a human is told once.
create table event_conflicts (
    event_id    text    not null,
    fingerprint blob    not null,
    received_at integer not null,
    headers     text    not null,
    body        blob    not null,
    content     blob,
    remote_addr text,
    primary key (event_id, fingerprint)
) strict, without rowid;
create trigger event_conflicts_keep_first before insert on event_conflicts
when exists (select 1 from event_conflicts where event_id = new.event_id and fingerprint = new.fingerprint) begin
    select raise(ignore);
end;
create trigger event_conflicts_append_only before update on event_conflicts begin
    select raise(abort, 'payhook: UPDATE on event_conflicts is refused: it is append-only');
end;
create trigger event_conflicts_retained before delete on event_conflicts
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on event_conflicts is refused: only retention removes expired rows');
end;

-- How each event ended. A replay may end otherwise than the first time, so the row can be replaced.
create table event_outcomes (
    event_id   text primary key,
    outcome    text not null
        check (outcome in ('applied', 'already_applied', 'stale', 'unmapped', 'parked', 'attention', 'dead')),
    reason     text not null,
    decided_at integer not null
) strict;

-- Every order an event concerned, by what it carried or by its trade.
create table event_orders (
    event_id text not null,
    merchant text not null,
    order_id text not null,
    primary key (event_id, merchant, order_id)
) strict;
create index event_orders_by_order on event_orders (merchant, order_id, event_id);
