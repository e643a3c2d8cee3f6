-- Events :from to :to of :all, as payhook would have left them: three orders for ten events, each paid by its
-- first event. The first :old of them are half a year old, the others came within the last 25 days.
-- Triggers would refuse an order that is born paid, and twice the time; this session does without them.
set session_replication_role = replica;
create function pg_temp.set_guards(was "char", becomes text) returns void language plpgsql as $$
declare guard record;
begin
    for guard in select tgrelid::regclass as tab, tgname from pg_trigger where not tgisinternal and tgenabled = was loop
        execute format('alter table %s %s trigger %I', guard.tab, becomes, guard.tgname);
    end loop;
end $$;
select pg_temp.set_guards('A', 'disable');
set synchronous_commit = off;

create temporary table numbered as
select n,
       n * 3 / 10 as o,                                            -- its order
       n * 3 / 10 <> (n - 1) * 3 / 10 or n = 0 as pays,            -- the first of its order
       (case when n < :old then :now - 180 * 86400.0 + n * (86400.0 * 30 / greatest(:old, 1))
             else :now - 25 * 86400.0 + (n - :old) * (86400.0 * 24 / greatest(:all - :old, 1)) end
        * 1000000)::bigint as at,
       md5(n::text) as h
from generate_series(:from::bigint, :to::bigint - 1) as n;

create temporary table made as
select n, o, pays, to_timestamp(at / 1000000.0) as at, h,
       substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-7' || substr(h, 1, 3) || '-8' || substr(h, 4, 3)
           || '-' || substr(h, 7, 12) as id,
       case when n % 10 < 6 then 'stripe' when n % 10 < 9 then 'alipay' else 'wechatpay' end as provider
from (select *, lpad(to_hex(at / 1000), 12, '0') as hex from numbered) as with_hex;

insert into events (id, event_key, provider, account, merchant, type, provider_event_type, subject, order_id, trade_id,
                    amount, currency, occurred_at, received_at, fingerprint, headers, body, remote_addr)
select id, 'webhook:stripe:filled:' || n, provider, 'filled', 'default',
       case when pays then 'payment.succeeded' when n % 1000 = 1 then 'refund.succeeded' else 'other.noted' end,
       'payment_intent.succeeded', 'filled-' || o, 'filled-' || o, 'pi_filled_' || o, 2000, 'USD', at, at,
       sha256(h::bytea) || sha256(h::bytea) || sha256(id::bytea),
       ('[["content-type","application/json; charset=utf-8"],["stripe-signature","t=1790000000,v1=' || h || h || '"],["user-agent","filled"]]')::jsonb,
       convert_to('{"id":"evt_' || n || '","type":"payment_intent.succeeded","data":{"object":{"id":"pi_filled_' || o
           || '","amount":2000,"currency":"usd","metadata":{"order_id":"filled-' || o || '","cart":"' || h || h || h || h || '"}}}}', 'UTF8'),
       '192.0.2.7'
from made order by n;

insert into event_outcomes
select id, case when pays then 'applied' when n % 997 = 0 then 'stale' else 'unmapped' end,
       case when pays then 'payment of 20.00 USD booked; the order is paid' else 'it says nothing about an order' end, at
from made order by n;
insert into event_orders select id, 'default', 'filled-' || o from made order by n;

insert into orders (merchant, order_id, status, currency, paid, version, paid_version, created_at, updated_at)
select 'default', 'filled-' || o, case when o % 1009 = 0 then 'refunded' else 'paid' end, 'USD', 2000, 1, 1, at, at
from made where pays order by n;
insert into trades (merchant, provider, trade_id, account, order_id, status, amount, currency, paid_at, created_at, updated_at)
select 'default', 'stripe', 'pi_filled_' || o, 'filled', 'filled-' || o, 'paid', 2000, 'USD', at, at, at
from made where pays order by n;
insert into facts (merchant, provider, key, kind, order_id, trade_id, amount, currency, at, event_id, recorded_at)
select 'default', 'stripe', 'pi_filled_' || o || ':paid', 'payment_succeeded', 'filled-' || o, 'pi_filled_' || o, 2000, 'USD', at, id, at
from made where pays order by n;
insert into ledger_entries (merchant, provider, source, entry_type, trade_id, order_id, amount, currency, event_id, at)
select 'default', 'stripe', 'pi_filled_' || o, 'payment', 'pi_filled_' || o, 'filled-' || o, 2000, 'USD', id, at
from made where pays order by n;
insert into order_history (merchant, order_id, at, event_id, fact, outcome, reason, status_before, status_after)
select 'default', 'filled-' || o, at, id, 'payment_succeeded', 'applied', 'payment of 20.00 USD booked; the order is paid', 'pending', 'paid'
from made where pays order by n;
insert into messages (id, merchant, order_id, routing_key, body, created_at)
select 'default/filled-' || o || '/1', 'default', 'filled-' || o, 'order.paid',
       convert_to('{"specversion":"1.0","id":"default/filled-' || o || '/1","type":"order.paid","data":{"order_id":"filled-' || o
           || '","status":"paid","paid":2000,"pad":"' || h || h || h || h || h || h || h || h || '"}}', 'UTF8'), at
from made where pays order by n;

drop table numbered, made;

select pg_temp.set_guards('D', 'enable always');
