-- One item may stand for many events of one kind at one account. The open one counts; after it is closed the next
-- event raises another. Each event is counted once, so a replay adds nothing.
alter table attention add column group_key text collate "C";        -- account and type; null: an item by itself
alter table attention add column events bigint not null default 1;  -- how many it stands for
create unique index attention_open_group on attention (merchant, code, group_key)
    where state = 'open' and group_key is not null;

create table attention_events (
    code         text   not null,
    event_id     text collate "C" not null,
    attention_id text collate "C" not null,
    primary key (code, event_id)
);
create index attention_events_by_item on attention_events (attention_id);
create trigger attention_events_append_only before update or delete on attention_events
    for each row execute function payhook_refuse_change();
create trigger attention_events_never_truncated before truncate on attention_events
    for each statement execute function payhook_refuse_change();
alter table attention_events enable always trigger attention_events_append_only;
alter table attention_events enable always trigger attention_events_never_truncated;

create or replace function payhook_guard_attention() returns trigger language plpgsql as $$
begin
    if old.state = 'resolved'
       or (new.id, new.code, new.source, new.merchant, new.order_id, new.event_id, new.explanation, new.created_at, new.group_key)
          is distinct from (old.id, old.code, old.source, old.merchant, old.order_id, old.event_id, old.explanation, old.created_at, old.group_key) then
        raise exception 'payhook: an attention item can only be resolved, once' using errcode = 'check_violation';
    end if;
    if new.events < old.events then
        raise exception 'payhook: the events of an attention item may not shrink' using errcode = 'check_violation';
    end if;
    return new;
end $$;
