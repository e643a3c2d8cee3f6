-- What was received and verified. Append-only: the database refuses UPDATE, DELETE and TRUNCATE.
-- Times are microseconds since 1970 UTC; ids are UUID v7 text, which sorts by arrival.

-- Retention is the one path that may delete events: in its own transaction it first writes the moment before
-- which rows may go, and removes that row again. Nobody else sees the row; without it nothing can be deleted.
create table retention_cutoff (
    received_before bigint not null
);

create function payhook_refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'payhook: % on % is refused: it is append-only', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end $$;

create function payhook_refuse_unless_expired() returns trigger language plpgsql as $$
begin
    if not exists (select 1 from retention_cutoff where old.received_at < received_before) then
        raise exception 'payhook: DELETE on % is refused: only retention removes expired rows', tg_table_name
            using errcode = 'restrict_violation';
    end if;
    return old;
end $$;

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
    orders              text,                -- JSON, for events that speak of several orders
    occurred_at         bigint not null,
    received_at         bigint not null,
    fingerprint         bytea  not null,     -- what a second arrival is compared by
    headers             text   not null,     -- JSON [[name, value]], without cookies and authorization
    body                bytea  not null,     -- byte for byte
    content             bytea,               -- the provider's fields as JSON, when the body is not that
    remote_addr         text,
    -- The feed's order: a reader sees only transactions below the oldest one still running.
    position            bigint not null default (pg_current_xact_id()::text::bigint),
    check ((amount is null) = (currency is null))
);
create index events_by_position on events (merchant, position, id);
create index events_by_order on events (merchant, order_id, id) where order_id is not null;
create index events_by_trade on events (trade_id, id) where trade_id is not null;

create trigger events_append_only before update on events
    for each row execute function payhook_refuse_change();
create trigger events_retained before delete on events
    for each row execute function payhook_refuse_unless_expired();
create trigger events_never_truncated before truncate on events
    for each statement execute function payhook_refuse_change();

-- The same event arriving again: at most about a hundred rows an event are kept.
create table deliveries (
    id          bigint generated always as identity primary key,
    event_id    text collate "C" not null,
    received_at bigint not null,
    remote_addr text
);
create index deliveries_by_event on deliveries (event_id);

-- The same key with other signed content: both are kept, a human is told once.
create table event_conflicts (
    event_id    text collate "C" not null,
    fingerprint bytea  not null,
    received_at bigint not null,
    headers     text   not null,
    body        bytea  not null,
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

-- How each event ended. A replay may end otherwise than the first time, so the row can be replaced.
create table event_outcomes (
    event_id   text collate "C" primary key,
    outcome    text not null
        check (outcome in ('applied', 'already_applied', 'stale', 'unmapped', 'parked', 'attention', 'dead')),
    reason     text not null,
    decided_at bigint not null
);

-- Every order an event concerned, by what it carried or by its trade.
create table event_orders (
    event_id text collate "C" not null,
    merchant text not null,
    order_id text collate "C" not null,
    primary key (event_id, merchant, order_id)
);
create index event_orders_by_order on event_orders (merchant, order_id, event_id);
