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

-- An order that is paid already is shipped later, when a report shows that its payment is not an old one: the
-- message is a version of its own.
drop trigger orders_never_regress;
create trigger orders_never_regress before update on orders begin
    select raise(abort, 'payhook: an order keeps its identity')
     where new.merchant <> old.merchant or new.order_id <> old.order_id or new.created_at <> old.created_at;
    select raise(abort, 'payhook: an order''s rank may not fall')
     where case new.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
         < case old.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end;
    select raise(abort, 'payhook: an order closed by its merchant stays closed')
     where old.closed_by = 'merchant' and (new.status <> old.status or new.closed_by is not old.closed_by);
    select raise(abort, 'payhook: a total may not shrink')
     where new.paid < old.paid or new.refunded < old.refunded or new.reversed < old.reversed;
    select raise(abort, 'payhook: amount, currency and paid_version are written once')
     where old.amount is not null and new.amount is not old.amount
        or old.currency is not null and new.currency is not old.currency
        or old.paid_version is not null and new.paid_version is not old.paid_version;
    select raise(abort, 'payhook: a change of an order must raise its version by one, and only a change may')
     where new.version <> old.version
        + (new.status <> old.status or new.paid <> old.paid or new.refunded <> old.refunded or new.reversed <> old.reversed
           or new.paid_version is not old.paid_version);
end;
