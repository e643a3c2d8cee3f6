-- `refunded` is final for a trade. An order leaves it when another of its trades counts that is not refunded whole,
-- and a merchant's close when an operator keeps a payment that came after it. The trades say whether that is so.

drop trigger orders_never_regress;
create trigger orders_never_regress before update on orders begin
    select raise(abort, 'payhook: an order keeps its identity')
     where new.merchant <> old.merchant or new.order_id <> old.order_id or new.created_at <> old.created_at;
    select raise(abort, 'payhook: an order''s rank may not fall, but from refunded to what another trade says')
     where case new.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
         < case old.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
       and not (old.status = 'refunded' and new.status in ('paid', 'partially_refunded', 'finished')
                and exists (
                    select 1 from trades t
                     where t.merchant = new.merchant and t.order_id = new.order_id
                       and t.status in ('paid', 'partially_refunded', 'finished')
                       and (not t.late or exists (
                            select 1 from facts f
                             where f.merchant = t.merchant and f.provider = t.provider and f.trade_id = t.trade_id
                               and f.kind = 'payment_kept'))));
    select raise(abort, 'payhook: an order closed by its merchant stays closed, unless a payment is kept')
     where old.closed_by = 'merchant' and (new.status <> old.status or new.closed_by is not old.closed_by)
       and not (new.status in ('paid', 'partially_refunded', 'finished', 'refunded')
                and exists (
                    select 1 from trades t
                     where t.merchant = new.merchant and t.order_id = new.order_id
                       and t.status in ('paid', 'partially_refunded', 'finished', 'refunded')
                       and (t.status = 'refunded') = (new.status = 'refunded')
                       and (not t.late or exists (
                            select 1 from facts f
                             where f.merchant = t.merchant and f.provider = t.provider and f.trade_id = t.trade_id
                               and f.kind = 'payment_kept'))));
    select raise(abort, 'payhook: a total may not shrink')
     where new.paid < old.paid or new.refunded < old.refunded or new.reversed < old.reversed;
    select raise(abort, 'payhook: amount, currency and paid_version are written once')
     where old.amount is not null and new.amount is not old.amount
        or old.currency is not null and new.currency is not old.currency
        or old.paid_version is not null and new.paid_version is not old.paid_version;
    select raise(abort, 'payhook: a change of an order must raise its version by one, and only a change may')
     where new.version <> old.version
        -- An order that is paid already is shipped later, when a report shows that its payment is not an old one.
        + (new.status <> old.status or new.paid <> old.paid or new.refunded <> old.refunded or new.reversed <> old.reversed
           or new.paid_version is not old.paid_version);
end;
