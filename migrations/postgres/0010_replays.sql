-- Replays: what an operator has sent again, in a run of its own that outlives every process.

create table replays (
    id           text collate "C" primary key,
    merchant     text    not null,
    actor        text    not null,                  -- the token's name
    reason       text    not null,
    what         text    not null check (what in ('events', 'orders')),
    queue        text,                              -- to this queue alone, else to everybody
    filter       text    not null,                  -- JSON object
    per_second   integer not null,
    -- It goes from the oldest to the newest of those that were there when it was asked for.
    at_position  bigint  not null default 0,        -- of messages; events are found by id alone
    at_id        text collate "C" not null default '',
    end_position bigint  not null,
    end_id       text collate "C" not null,
    total        bigint,                            -- how many match; null until they were counted
    sent         bigint  not null default 0,        -- handed to the outbox
    refused      bigint  not null default 0,
    refusals     text    not null default '{}',     -- JSON object: why, and how many
    state        text    not null default 'running' check (state in ('running', 'done', 'cancelled')),
    created_at   bigint  not null,
    updated_at   bigint  not null,
    walked_at    bigint,                            -- when the last of them had been handed over
    ended_at     bigint,
    leased_by    text,                              -- the process that drives it until then
    leased_until bigint  not null default 0,
    check ((state = 'running') = (ended_at is null))
);
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

alter table replays
    enable always trigger replays_end_once,
    enable always trigger replays_never_deleted,
    enable always trigger replays_never_truncated;

-- A `resend` is no business of the workers: a message again, or an event to one queue alone. It is done when the
-- broker has it. A `replay` waits for the workers too.
alter table outbox
    drop constraint outbox_kind_check,
    drop constraint outbox_check,
    drop constraint outbox_check1,
    add column queue      text,                     -- to this queue alone, else to everybody
    add column applied_at bigint,                   -- of a replay: applied, its confirm still owed
    add constraint outbox_kind_check check (kind in ('event', 'message', 'replay', 'resend')),
    add constraint outbox_about_check check ((event_id is null) <> (message_id is null)
        and (kind <> 'message' or message_id is not null) and (kind not in ('event', 'replay') or event_id is not null)),
    add constraint outbox_replay_check check ((kind in ('replay', 'resend')) = (replay_id is not null)
        and (replay_id is null) = (replay_reason is null) and (queue is null or kind = 'resend'));
drop index outbox_messages;
create index outbox_messages on outbox (id) where kind in ('message', 'resend');
drop index outbox_replays;
create index outbox_replays on outbox (event_id) where replay_id is not null;
create index outbox_of_replay on outbox (replay_id) where replay_id is not null;
