-- What an event came to, what was given up and what came again are kept like the events themselves: retention
-- removes them together with their event, and nobody else does.

create trigger event_outcomes_retained before delete on event_outcomes
when not exists (select 1 from retention_cutoff where old.decided_at < received_before)
     -- A redrive takes the end back that it undoes.
     and not (old.outcome = 'dead'
              and exists (select 1 from dead_letters where event_id = old.event_id)
              and not exists (select 1 from dead_letters where event_id = old.event_id and redriven_at is null)) begin
    select raise(abort, 'payhook: DELETE on event_outcomes is refused: only retention removes expired rows');
end;

create trigger deliveries_keep_first before insert on deliveries
when exists (select 1 from deliveries where id = new.id) begin
    select raise(ignore);
end;
create trigger deliveries_append_only before update on deliveries begin
    select raise(abort, 'payhook: UPDATE on deliveries is refused: it is append-only');
end;
create trigger deliveries_retained before delete on deliveries
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on deliveries is refused: only retention removes expired rows');
end;

create trigger dead_letters_keep_first before insert on dead_letters
when exists (select 1 from dead_letters where id = new.id or rowid = new.rowid) begin
    select raise(ignore);
end;
create trigger dead_letters_redriven_once before update on dead_letters
when old.redriven_at is not null or new.redriven_at is null or new.id <> old.id or new.rowid <> old.rowid
     or new.event_id is not old.event_id or new.event_key is not old.event_key or new.merchant is not old.merchant
     or new.error <> old.error or new.attempts <> old.attempts or new.message is not old.message
     or new.created_at <> old.created_at begin
    select raise(abort, 'payhook: a dead letter can only be redriven, once');
end;
create trigger dead_letters_never_deleted before delete on dead_letters begin
    select raise(abort, 'payhook: DELETE on dead_letters is refused: it is append-only');
end;

-- When each key last verified a notification, by what the key is and not by its place in the configuration:
-- so that an old one can be taken out with confidence. Written at most once a minute by each daemon.
create table key_uses (
    provider    text    not null,
    account     text    not null,
    fingerprint text    not null,                   -- as `check` shows it
    verified_at integer not null,
    primary key (provider, account, fingerprint)
) strict, without rowid;
