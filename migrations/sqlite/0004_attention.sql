-- What needs a human, what could not be applied, and what was refused.

create table attention (
    id                text primary key,
    code              text   not null,
    source            text not null,    -- the fact, event or queue it is about: a replay raises it once
    merchant          text   not null,
    provider          text,
    account           text,
    order_id          text,
    trade_id          text,
    event_id          text,
    explanation       text   not null,
    state             text   not null default 'open' check (state in ('open', 'resolved')),
    created_at        integer not null,
    resolved_at       integer,
    resolved_by       text,
    resolution        text,                         -- the action
    resolution_reason text,
    unique (merchant, code, source),
    check ((state = 'resolved') = (resolved_at is not null))
) strict, without rowid;
create index attention_open on attention (merchant, id) where state = 'open';
create index attention_by_order on attention (merchant, order_id) where order_id is not null;
create index attention_by_event on attention (event_id) where state = 'open' and event_id is not null;

create table dead_letters (
    id          text primary key,
    event_id    text,
    event_key   text,
    merchant    text,
    error       text   not null,
    attempts    integer not null,
    message     blob,                              -- of a message that names no known event
    created_at  integer not null,
    redriven_at integer
) strict;
create index dead_letters_open on dead_letters (id) where redriven_at is null;
create index dead_letters_by_event on dead_letters (event_id) where event_id is not null;

-- Refused notifications, whole; bounded, the oldest of the largest sender goes first.
create table quarantine (
    id          text primary key,
    provider    text   not null,
    account     text   not null,
    merchant    text   not null,
    reason      text   not null,
    detail      text   not null,
    path        text   not null,
    headers     text   not null,
    body        blob  not null,
    received_at integer not null,
    remote_addr text,
    sender      text   not null,                    -- /24 or /48 of the sender, for fair eviction
    bytes       integer not null
) strict;
create index quarantine_by_account on quarantine (provider, account, sender, id);

create trigger attention_keep_first before insert on attention
when exists (select 1 from attention where (merchant = new.merchant and code = new.code and source = new.source) or id = new.id) begin
    select raise(ignore);
end;
create trigger attention_resolved_once before update on attention
when old.state = 'resolved' or new.id <> old.id or new.code <> old.code or new.source <> old.source
     or new.merchant <> old.merchant or new.order_id is not old.order_id or new.event_id is not old.event_id
     or new.explanation <> old.explanation or new.created_at <> old.created_at begin
    select raise(abort, 'payhook: an attention item can only be resolved, once');
end;
create trigger attention_never_deleted before delete on attention begin
    select raise(abort, 'payhook: DELETE on attention is refused: it is append-only');
end;
