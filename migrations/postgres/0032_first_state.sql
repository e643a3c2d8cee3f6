-- An order is inserted as it stands when the transaction that first tells of it ends. Its version counts its changes
-- all the same: one for what happened to it, and one before that for `order.paid` if it has gone on since.

create or replace function payhook_guard_new_order() returns trigger language plpgsql as $$
begin
    if new.version <> (new.status <> 'pending' or new.paid <> 0 or new.refunded <> 0 or new.reversed <> 0
                       or new.paid_version is not null)::integer
                    + (new.paid_version is not null and new.status <> 'paid')::integer then
        raise exception 'payhook: order % starts at the version that its changes make', new.order_id
            using errcode = 'check_violation';
    end if;
    if new.paid < 0 or new.refunded < 0 or new.reversed < 0 then
        raise exception 'payhook: no total of order % starts below zero', new.order_id using errcode = 'check_violation';
    end if;
    if new.paid_version is not null
       and (new.paid_version <> 1 or new.status not in ('paid', 'partially_refunded', 'finished')) then
        raise exception 'payhook: order % is not paid, or was not first of all', new.order_id
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
