-- What operators did: one row when it begins and, where it takes several transactions, one with its outcome.

create table audit (
    id       text primary key,
    merchant text    not null,
    actor    text    not null,                     -- the token's name
    action   text    not null,
    reason   text    not null,
    details  text    not null,                     -- JSON object
    at       integer not null
) strict, without rowid;
create index audit_by_merchant on audit (merchant, id);

create trigger audit_keep_first before insert on audit
when exists (select 1 from audit where id = new.id) begin
    select raise(ignore);
end;
create trigger audit_append_only before update on audit begin
    select raise(abort, 'payhook: UPDATE on audit is refused: it is append-only');
end;
create trigger audit_never_deleted before delete on audit begin
    select raise(abort, 'payhook: DELETE on audit is refused: it is append-only');
end;
