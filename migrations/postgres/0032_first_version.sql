-- An order is inserted at its first version: pending and untouched at 0, or as the first change left it at 1.
drop trigger orders_start_unpaid on orders;
create or replace function payhook_guard_new_order() returns trigger language plpgsql as $$
begin
    if new.version <> (new.status <> 'pending' or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
                       or new.paid_version is not null)::int
       or new.paid_version is distinct from new.version and new.paid_version is not null then
        raise exception 'payhook: an order starts pending at version 0, or changed at version 1'
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
create trigger orders_start_at_first_version before insert on orders
    for each row execute function payhook_guard_new_order();
alter table orders enable always trigger orders_start_at_first_version;
