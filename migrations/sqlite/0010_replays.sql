-- Replays: what an operator has sent again, in a run of its own that outlives every process.

create table replays (
    id           text    primary key,
    merchant     text    not null,
    actor        text    not null,                  -- the token's name
    reason       text    not null,
    what         text    not null check (what in ('events', 'orders')),
    queue        text,                              -- to this queue alone, else to everybody
    filter       text    not null,                  -- JSON object
    per_second   integer not null,
    -- It goes from the oldest to the newest of those that were there when it was asked for.
    at_position  integer not null default 0,        -- of messages; events are found by id alone
    at_id        text    not null default '',
    end_position integer not null,
    end_id       text    not null,
    total        integer,                           -- how many match; null until they were counted
    sent         integer not null default 0,        -- handed to the outbox
    refused      integer not null default 0,
    refusals     text    not null default '{}',     -- JSON object: why, and how many
    state        text    not null default 'running' check (state in ('running', 'done', 'cancelled')),
    created_at   integer not null,
    updated_at   integer not null,
    walked_at    integer,                           -- when the last of them had been handed over
    ended_at     integer,
    leased_by    text,                              -- the process that drives it until then
    leased_until integer not null default 0,
    check ((state = 'running') = (ended_at is null))
) strict, without rowid;
create index replays_running on replays (id) where state = 'running';
create index replays_by_merchant on replays (merchant, id);

create trigger replays_keep_first before insert on replays
when exists (select 1 from replays where id = new.id) begin
    select raise(ignore);
end;
create trigger replays_end_once before update on replays
when old.state <> 'running' or new.id <> old.id or new.merchant <> old.merchant or new.actor <> old.actor
     or new.reason <> old.reason or new.what <> old.what or new.queue is not old.queue
     or new.filter <> old.filter or new.created_at <> old.created_at begin
    select raise(abort, 'payhook: a replay that has ended, and what was asked for, stay as they are');
end;
create trigger replays_never_deleted before delete on replays begin
    select raise(abort, 'payhook: DELETE on replays is refused: it is append-only');
end;

-- A `resend` is no business of the workers: a message again, or an event to one queue alone. It is done when the
-- broker has it. A `replay` waits for the workers too. SQLite cannot change a check, so the table is made anew.
alter table outbox rename to outbox_before;
create table outbox (
    id           text    not null primary key,      -- the event's or message's id; of a replay: {that id}#{replay id}
    kind         text    not null,
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
    queue        text,                              -- to this queue alone, else to everybody
    applied_at   integer,                           -- of a replay: applied, its confirm still owed
    check (kind in ('event', 'message', 'replay', 'resend')),
    check ((event_id is null) <> (message_id is null)
        and (kind <> 'message' or message_id is not null) and (kind not in ('event', 'replay') or event_id is not null)),
    check ((kind in ('replay', 'resend')) = (replay_id is not null)
        and (replay_id is null) = (replay_reason is null) and (queue is null or kind = 'resend'))
) strict;
insert into outbox (id, kind, event_id, message_id, created_at, due_at, claimed_by, published_at, publishes, attempts,
        last_error, unpublishable, replay_id, replay_reason)
    select id, kind, event_id, message_id, created_at, due_at, claimed_by, published_at, publishes, attempts,
        last_error, unpublishable, replay_id, replay_reason from outbox_before;
drop table outbox_before;
create index outbox_first on outbox (due_at) where published_at is null and not unpublishable;
create index outbox_again on outbox (due_at) where published_at is not null;
create index outbox_unpublished on outbox (created_at) where published_at is null;
create index outbox_messages on outbox (id) where kind in ('message', 'resend');
create index outbox_replays on outbox (event_id) where replay_id is not null;
create index outbox_of_replay on outbox (replay_id) where replay_id is not null;
