-- An order is inserted as it stands when the transaction that first tells of it ends. Its version counts its changes
-- all the same: one for what happened to it, and one before that for `order.paid` if it has gone on since.

drop trigger orders_start_unpaid;
create trigger orders_start_unpaid before insert on orders begin
    select raise(abort, 'payhook: an order starts at the version that its changes make')
     where new.version <> (new.status <> 'pending' or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
                           or new.paid_version is not null)
                        + (new.paid_version is not null and new.status <> 'paid');
    select raise(abort, 'payhook: no total of an order starts below zero')
     where new.paid < 0 or new.refunded < 0 or new.reversed < 0;
    select raise(abort, 'payhook: an order is not paid, or was not first of all')
     where new.paid_version is not null
       and (new.paid_version <> 1 or new.status not in ('paid', 'partially_refunded', 'finished'));
end;
