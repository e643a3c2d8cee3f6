-- When the store first knew an account: a payment from before that was shipped by whoever came before.
create table accounts (
    provider text   not null,
    account  text   not null,
    known_at bigint not null,
    primary key (provider, account)
);
create trigger accounts_append_only before update or delete on accounts
    for each row execute function payhook_refuse_change();
create trigger accounts_never_truncated before truncate on accounts
    for each statement execute function payhook_refuse_change();
alter table accounts enable always trigger accounts_append_only;
alter table accounts enable always trigger accounts_never_truncated;

-- Whether a report of the trade's payment showed that it is not from before its account's `since`. What was paid
-- until now was judged without that.
alter table trades add column ships boolean not null default false;
update trades set ships = true;

create function payhook_guard_ships() returns trigger language plpgsql as $$
begin
    if old.ships and not new.ships then
        raise exception 'payhook: trade % is shipped for good', old.trade_id using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger trades_ship_for_good before update on trades for each row execute function payhook_guard_ships();
alter table trades enable always trigger trades_ship_for_good;
