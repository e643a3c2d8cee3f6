-- What operators did: one row when it begins and, where it takes several transactions, one with its outcome.

create table audit (
    id       text collate "C" primary key,
    merchant text   not null,
    actor    text   not null,                      -- the token's name
    action   text   not null,
    reason   text   not null,
    details  text   not null,                      -- JSON object
    at       bigint not null
);
create index audit_by_merchant on audit (merchant, id);

create trigger audit_append_only before update on audit
    for each row execute function payhook_refuse_change();
create trigger audit_never_deleted before delete on audit
    for each row execute function payhook_refuse_change();
create trigger audit_never_truncated before truncate on audit
    for each statement execute function payhook_refuse_change();
