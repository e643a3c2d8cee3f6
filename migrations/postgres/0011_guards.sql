-- What an event came to, what was given up and what came again are kept like the events themselves: retention
-- removes them together with their event, and nobody else does. And a session that turns ordinary triggers off
-- (session_replication_role = replica) meets every guard all the same.

create function payhook_guard_outcome() returns trigger language plpgsql as $$
begin
    if exists (select 1 from retention_cutoff where old.decided_at < received_before) then
        return old;
    end if;
    -- A redrive takes the end back that it undoes.
    if old.outcome = 'dead'
       and exists (select 1 from dead_letters where event_id = old.event_id)
       and not exists (select 1 from dead_letters where event_id = old.event_id and redriven_at is null) then
        return old;
    end if;
    raise exception 'payhook: DELETE on event_outcomes is refused: only retention removes expired rows'
        using errcode = 'restrict_violation';
end $$;
create trigger event_outcomes_retained before delete on event_outcomes
    for each row execute function payhook_guard_outcome();
create trigger event_outcomes_never_truncated before truncate on event_outcomes
    for each statement execute function payhook_refuse_change();

create trigger deliveries_append_only before update on deliveries
    for each row execute function payhook_refuse_change();
create trigger deliveries_retained before delete on deliveries
    for each row execute function payhook_refuse_unless_expired();
create trigger deliveries_never_truncated before truncate on deliveries
    for each statement execute function payhook_refuse_change();

create function payhook_guard_dead_letter() returns trigger language plpgsql as $$
begin
    if old.redriven_at is not null or new.redriven_at is null
       or (new.id, new.event_id, new.event_key, new.merchant, new.error, new.attempts, new.message, new.created_at)
          is distinct from
          (old.id, old.event_id, old.event_key, old.merchant, old.error, old.attempts, old.message, old.created_at) then
        raise exception 'payhook: a dead letter can only be redriven, once' using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger dead_letters_redriven_once before update on dead_letters
    for each row execute function payhook_guard_dead_letter();
create trigger dead_letters_never_deleted before delete on dead_letters
    for each row execute function payhook_refuse_change();
create trigger dead_letters_never_truncated before truncate on dead_letters
    for each statement execute function payhook_refuse_change();

-- When each key last verified a notification, by what the key is and not by its place in the configuration:
-- so that an old one can be taken out with confidence. Written at most once a minute by each daemon.
create table key_uses (
    provider    text   not null,
    account     text   not null,
    fingerprint text collate "C" not null,          -- as `check` shows it
    verified_at bigint not null,
    primary key (provider, account, fingerprint)
);

do $$
declare
    guard record;
begin
    for guard in
        select t.tgrelid::regclass as guarded, t.tgname as name
          from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc f on f.oid = t.tgfoid
         where not t.tgisinternal and c.relnamespace = current_schema()::regnamespace and f.proname like 'payhook\_%'
    loop
        execute format('alter table %s enable always trigger %I', guard.guarded, guard.name);
    end loop;
end $$;
