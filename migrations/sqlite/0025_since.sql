-- When the store first knew an account: a payment from before that was shipped by whoever came before.
create table accounts (
    provider text    not null,
    account  text    not null,
    known_at integer not null,
    primary key (provider, account)
) strict, without rowid;
create trigger accounts_keep_first before insert on accounts
when exists (select 1 from accounts where provider = new.provider and account = new.account) begin
    select raise(ignore);
end;
create trigger accounts_append_only before update on accounts begin
    select raise(abort, 'payhook: UPDATE on accounts is refused: it is append-only');
end;
create trigger accounts_never_deleted before delete on accounts begin
    select raise(abort, 'payhook: DELETE on accounts is refused: it is append-only');
end;

-- Whether a report of the trade's payment showed that it is not from before its account's `since`. What was paid
-- until now was judged without that.
alter table trades add column ships integer not null default 0;
update trades set ships = 1;
create trigger trades_ship_for_good before update on trades when old.ships and not new.ships begin
    select raise(abort, 'payhook: a trade is shipped for good');
end;
