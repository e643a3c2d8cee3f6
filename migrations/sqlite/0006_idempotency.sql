-- One row for each Idempotency-Key in its scope. The primary key decides which of several racers goes first; the
-- claim is a commit of its own, and the completion shares the business write's commit.
create table idempotency_keys (
    id          text not null primary key,         -- SHA-256 of merchant, method, path and key
    key_hash    text    not null,                  -- all that logs may show of the key
    merchant    text    not null,
    method      text    not null,
    path        text    not null,
    fingerprint blob    not null,                  -- SHA-256 of method, path and canonical body
    effect      text    not null check (effect in ('none', 'outside')),
    state       text    not null check (state in ('running', 'finished')),
    owner       text    not null,                  -- the attempt that holds the claim
    lease_until integer not null,
    status      integer,
    headers     text,                              -- JSON [[name, value]]
    body        blob,
    created_at  integer not null,
    expires_at  integer not null,
    check ((state = 'finished') = (status is not null))
) strict, without rowid;
create index idempotency_keys_expired on idempotency_keys (expires_at);
create index idempotency_keys_running on idempotency_keys (created_at) where state = 'running';

create trigger idempotency_keys_answer_once before update on idempotency_keys
when old.state = 'finished' and old.expires_at > cast(unixepoch('subsec') * 1000000 as integer) begin
    select raise(abort, 'payhook: a stored answer is never changed');
end;
