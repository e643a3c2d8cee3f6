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

-- An order that is paid already is shipped later, when a report shows that its payment is not an old one: the
-- message is a version of its own.
create or replace function payhook_guard_order() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.order_id, new.created_at) is distinct from (old.merchant, old.order_id, old.created_at) then
        raise exception 'payhook: an order keeps its identity' using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status) then
        raise exception 'payhook: order % may not go from % to %', old.order_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    if old.closed_by = 'merchant' and (new.status, new.closed_by) is distinct from (old.status, old.closed_by) then
        raise exception 'payhook: order % was closed by its merchant, which is final', old.order_id
            using errcode = 'check_violation';
    end if;
    if new.paid < old.paid or new.refunded < old.refunded or new.reversed < old.reversed then
        raise exception 'payhook: a total of order % may not shrink', old.order_id using errcode = 'check_violation';
    end if;
    if old.amount is not null and new.amount is distinct from old.amount
       or old.currency is not null and new.currency is distinct from old.currency
       or old.paid_version is not null and new.paid_version is distinct from old.paid_version then
        raise exception 'payhook: amount, currency and paid_version of order % are written once', old.order_id
            using errcode = 'check_violation';
    end if;
    if (new.status, new.paid, new.refunded, new.reversed, new.paid_version)
       is distinct from (old.status, old.paid, old.refunded, old.reversed, old.paid_version) then
        if new.version <> old.version + 1 then
            raise exception 'payhook: a change of order % must raise its version by one', old.order_id
                using errcode = 'check_violation';
        end if;
    elsif new.version <> old.version then
        raise exception 'payhook: a version of order % without a change', old.order_id using errcode = 'check_violation';
    end if;
    return new;
end $$;
