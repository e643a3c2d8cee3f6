-- What is still to be sent, and what has been sent but has not ended yet.

-- Order and attention messages: kept, since the feed and a replay send them again.
create table messages (
    position    integer primary key autoincrement,
    id          text    not null unique,            -- {merchant}/{order_id}/{version}, or attention/{id}
    merchant    text    not null,
    order_id    text,
    routing_key text    not null,
    body        blob    not null,                   -- the CloudEvent
    created_at  integer not null
) strict;
create index messages_by_position on messages (merchant, position);
create index messages_by_order on messages (merchant, order_id);
create trigger messages_keep_first before insert on messages
when exists (select 1 from messages where id = new.id or position = new.position) begin
    select raise(ignore);
end;
create trigger messages_append_only before update on messages begin
    select raise(abort, 'payhook: UPDATE on messages is refused: it is append-only');
end;

-- One row for each event without outcome and each message without confirm. `due_at` is the only clock: a claim
-- is `due_at` moved ahead, a failed application is `due_at` moved by its backoff, a confirmed publish of an
-- event moves it by the time after which an outcome is missed.
create table outbox (
    id           text    not null primary key,      -- the event's or message's id; a replay: {event id}#{replay id}
    kind         text    not null check (kind in ('event', 'message', 'replay')),
    event_id     text,
    message_id   text,
    created_at   integer not null,
    due_at       integer not null,
    claimed_by   text,                              -- the process that holds it until due_at
    published_at integer,                           -- last confirmed publish
    publishes    integer not null default 0,        -- confirmed publishes without an outcome since
    attempts     integer not null default 0,        -- applications that failed
    last_error   text,
    unpublishable integer not null default 0,       -- the broker will not take it; a human was told
    replay_id    text,                              -- of a replay: goes into the message's data.replay
    replay_reason text,
    check ((event_id is null) = (kind = 'message') and (message_id is null) = (kind <> 'message')),
    check ((kind = 'replay') = (replay_id is not null) and (replay_id is null) = (replay_reason is null))
) strict;
create index outbox_first on outbox (due_at) where published_at is null and not unpublishable;
create index outbox_again on outbox (due_at) where published_at is not null;
create index outbox_unpublished on outbox (created_at) where published_at is null;
create index outbox_messages on outbox (id) where kind = 'message';
create index outbox_replays on outbox (event_id) where kind = 'replay';

-- Every queue that payhook declares, with the moment it was last seen at the broker: one that is missing later
-- has lost what it held since, whoever was running then.
create table broker_queues (
    name    text not null primary key,
    seen_at integer not null
) strict;
