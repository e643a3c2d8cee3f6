-- `refunded` is final for a trade. An order leaves it when another of its trades counts that is not refunded whole,
-- and a merchant's close when an operator keeps a payment that came after it. The trades say whether that is so.

create function payhook_order_stands_as(of_merchant text, of_order text, status text) returns boolean
stable language sql as $$
    select exists (
        select 1 from trades t
         where t.merchant = of_merchant and t.order_id = of_order
           and payhook_rank(t.status) > 0 and (t.status = 'refunded') = ($3 = 'refunded')
           and (not t.late or exists (
                select 1 from facts f
                 where f.merchant = t.merchant and f.provider = t.provider and f.trade_id = t.trade_id
                   and f.kind = 'payment_kept')))
$$;

create or replace function payhook_guard_order() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.order_id, new.created_at) is distinct from (old.merchant, old.order_id, old.created_at) then
        raise exception 'payhook: an order keeps its identity' using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status)
       and not (old.status = 'refunded' and payhook_rank(new.status) > 0
                and payhook_order_stands_as(new.merchant, new.order_id, new.status)) then
        raise exception 'payhook: order % may not go from % to %', old.order_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    if old.closed_by = 'merchant' and (new.status, new.closed_by) is distinct from (old.status, old.closed_by)
       and not (payhook_rank(new.status) > 0
                and payhook_order_stands_as(new.merchant, new.order_id, new.status)) then
        raise exception 'payhook: order % was closed by its merchant, which only a payment that is kept can change',
            old.order_id using errcode = 'check_violation';
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
    -- An order that is paid already is shipped later, when a report shows that its payment is not an old one.
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
