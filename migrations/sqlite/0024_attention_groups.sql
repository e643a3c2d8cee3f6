-- One item may stand for many events of one kind at one account. The open one counts; after it is closed the next
-- event raises another. Each event is counted once, so a replay adds nothing.
alter table attention add column group_key text;                     -- account and type; null: an item by itself
alter table attention add column events integer not null default 1;  -- how many it stands for
create unique index attention_open_group on attention (merchant, code, group_key)
    where state = 'open' and group_key is not null;

create table attention_events (
    code         text not null,
    event_id     text not null,
    attention_id text not null,
    primary key (code, event_id)
) strict, without rowid;
create index attention_events_by_item on attention_events (attention_id);
create trigger attention_events_keep_first before insert on attention_events
when exists (select 1 from attention_events where code = new.code and event_id = new.event_id) begin
    select raise(ignore);
end;
create trigger attention_events_append_only before update on attention_events begin
    select raise(abort, 'payhook: UPDATE on attention_events is refused: it is append-only');
end;
create trigger attention_events_never_deleted before delete on attention_events begin
    select raise(abort, 'payhook: DELETE on attention_events is refused: it is append-only');
end;

drop trigger attention_resolved_once;
create trigger attention_resolved_once before update on attention
when old.state = 'resolved' or new.id <> old.id or new.code <> old.code or new.source <> old.source
     or new.merchant <> old.merchant or new.order_id is not old.order_id or new.event_id is not old.event_id
     or new.explanation <> old.explanation or new.created_at <> old.created_at or new.group_key is not old.group_key begin
    select raise(abort, 'payhook: an attention item can only be resolved, once');
end;
create trigger attention_events_never_shrink before update on attention when new.events < old.events begin
    select raise(abort, 'payhook: the events of an attention item may not shrink');
end;
