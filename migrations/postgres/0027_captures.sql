-- A payment may be captured in parts: the amount of such a trade is the sum of its captures, so it grows, and a
-- capture that becomes known after the refund of all the others leaves the trade refunded in part.

create or replace function payhook_guard_trade() returns trigger language plpgsql as $$
begin
    if (new.merchant, new.provider, new.trade_id) is distinct from (old.merchant, old.provider, old.trade_id)
       or old.order_id is not null and new.order_id is distinct from old.order_id
       or old.amount is not null and (new.amount is null or new.amount < old.amount or new.currency is distinct from old.currency)
       or old.paid_at is not null and new.paid_at is distinct from old.paid_at then
        raise exception 'payhook: trade % keeps its identity, order and time of payment, and its amount may only grow',
            old.trade_id using errcode = 'check_violation';
    end if;
    if new.amount > old.amount and not exists (
        select 1 from facts f
         where f.merchant = new.merchant and f.provider = new.provider and f.trade_id = new.trade_id
           and f.kind = 'payment_succeeded' and f.refund_id is not null) then
        raise exception 'payhook: the amount of trade % may grow by captures only', old.trade_id
            using errcode = 'check_violation';
    end if;
    if old.late and not new.late then
        raise exception 'payhook: trade % stays paid after its close', old.trade_id using errcode = 'check_violation';
    end if;
    if new.refunded < old.refunded or new.reversed < old.reversed then
        raise exception 'payhook: a total of trade % may not shrink', old.trade_id using errcode = 'check_violation';
    end if;
    if payhook_rank(new.status) < payhook_rank(old.status)
       and not (old.status = 'refunded' and new.status = 'partially_refunded' and new.amount > old.amount) then
        raise exception 'payhook: trade % may not go from % to %', old.trade_id, old.status, new.status
            using errcode = 'check_violation';
    end if;
    return new;
end $$;
