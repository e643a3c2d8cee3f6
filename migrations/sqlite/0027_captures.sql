-- A payment may be captured in parts: the amount of such a trade is the sum of its captures, so it grows, and a
-- capture that becomes known after the refund of all the others leaves the trade refunded in part.

drop trigger trades_never_regress;
create trigger trades_never_regress before update on trades begin
    select raise(abort, 'payhook: a trade keeps its identity, order and time of payment, and its amount may only grow')
     where new.merchant <> old.merchant or new.provider <> old.provider or new.trade_id <> old.trade_id
        or old.order_id is not null and new.order_id is not old.order_id
        or old.amount is not null and (new.amount is null or new.amount < old.amount or new.currency is not old.currency)
        or old.paid_at is not null and new.paid_at is not old.paid_at;
    select raise(abort, 'payhook: a trade''s amount may grow by captures only')
     where new.amount > old.amount
       and not exists (
            select 1 from facts f
             where f.merchant = new.merchant and f.provider = new.provider and f.trade_id = new.trade_id
               and f.kind = 'payment_succeeded' and f.refund_id is not null);
    select raise(abort, 'payhook: a total may not shrink') where new.refunded < old.refunded or new.reversed < old.reversed;
    select raise(abort, 'payhook: a trade stays paid after its close') where old.late and not new.late;
    select raise(abort, 'payhook: a trade''s rank may not fall')
     where case new.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
         < case old.status when 'paid' then 1 when 'partially_refunded' then 2 when 'finished' then 3 when 'refunded' then 4 else 0 end
       and not (old.status = 'refunded' and new.status = 'partially_refunded' and new.amount > old.amount);
end;
