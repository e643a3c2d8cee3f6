-- What needs a human, what could not be applied, and what was refused.

create table attention (
    id                text collate "C" primary key,
    code              text   not null,
    source            text collate "C" not null,    -- the fact, event or queue it is about: a replay raises it once
    merchant          text   not null,
    provider          text,
    account           text,
    order_id          text collate "C",
    trade_id          text collate "C",
    event_id          text collate "C",
    explanation       text   not null,
    state             text   not null default 'open' check (state in ('open', 'resolved')),
    created_at        bigint not null,
    resolved_at       bigint,
    resolved_by       text,
    resolution        text,                         -- the action
    resolution_reason text,
    unique (merchant, code, source),
    check ((state = 'resolved') = (resolved_at is not null))
);
create index attention_open on attention (merchant, id) where state = 'open';
create index attention_by_order on attention (merchant, order_id) where order_id is not null;
create index attention_by_event on attention (event_id) where state = 'open' and event_id is not null;

create function payhook_guard_attention() returns trigger language plpgsql as $$
begin
    if old.state = 'resolved'
       or (new.id, new.code, new.source, new.merchant, new.order_id, new.event_id, new.explanation, new.created_at)
          is distinct from (old.id, old.code, old.source, old.merchant, old.order_id, old.event_id, old.explanation, old.created_at) then
        raise exception 'payhook: an attention item can only be resolved, once' using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger attention_resolved_once before update on attention
    for each row execute function payhook_guard_attention();
create trigger attention_never_deleted before delete on attention
    for each row execute function payhook_refuse_change();
create trigger attention_never_truncated before truncate on attention
    for each statement execute function payhook_refuse_change();

create table dead_letters (
    id          text collate "C" primary key,
    event_id    text collate "C",
    event_key   text collate "C",
    merchant    text,
    error       text   not null,
    attempts    integer not null,
    message     bytea,                              -- of a message that names no known event
    created_at  bigint not null,
    redriven_at bigint
);
create index dead_letters_open on dead_letters (id) where redriven_at is null;
create index dead_letters_by_event on dead_letters (event_id) where event_id is not null;

-- Refused notifications, whole; bounded, the oldest of the largest sender goes first.
create table quarantine (
    id          text collate "C" primary key,
    provider    text   not null,
    account     text   not null,
    merchant    text   not null,
    reason      text   not null,
    detail      text   not null,
    path        text   not null,
    headers     text   not null,
    body        bytea  not null,
    received_at bigint not null,
    remote_addr text,
    sender      text   not null,                    -- /24 or /48 of the sender, for fair eviction
    bytes       integer not null
);
create index quarantine_by_account on quarantine (provider, account, sender, id);
