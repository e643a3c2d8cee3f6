-- An order is inserted at its first version: pending and untouched at 0, or as the first change left it at 1.
drop trigger orders_start_unpaid;
create trigger orders_start_at_first_version before insert on orders
when new.version <> (new.status <> 'pending' or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
                     or new.paid_version is not null)
     or new.paid_version <> new.version begin
    select raise(abort, 'payhook: an order starts pending at version 0, or changed at version 1');
end;
