-- Indexes by which rows are looked up begin with what tells them apart. While Postgres knows nothing of a table, one
-- that begins with the merchant looks as good to it as any other, and an entry is found the later in a page the more
-- of its columns are like its neighbours'.
--
-- On a large database this takes minutes in which nothing can be recorded: stop the daemons before, providers send
-- again.
lock table events, attention, trades, orders, facts, ledger_entries, event_orders, order_history, messages
    in access exclusive mode;
alter table orders drop constraint orders_pkey;
alter table orders add primary key (order_id, merchant);
-- The lists' own indexes do not end with the order: they would be taken for one that finds it.
drop index orders_by_creation;
create index orders_by_creation on orders (merchant, created_at);
drop index orders_by_status;
create index orders_by_status on orders (merchant, status, created_at);
alter table trades drop constraint trades_pkey;
alter table trades add primary key (trade_id, merchant, provider);
drop index trades_by_order;
create index trades_by_order on trades (order_id, merchant) where order_id is not null;
alter table facts drop constraint facts_merchant_provider_key_key;
alter table facts add unique (key, merchant, provider);
drop index facts_by_trade;
create index facts_by_trade on facts (trade_id, merchant, provider) where trade_id is not null;
drop index facts_by_order;
create index facts_by_order on facts (order_id, merchant) where trade_id is null and order_id is not null;
alter table ledger_entries drop constraint ledger_entries_merchant_provider_source_entry_type_key;
alter table ledger_entries add unique (source, entry_type, merchant, provider);
drop index ledger_entries_by_trade;
create index ledger_entries_by_trade on ledger_entries (trade_id, merchant, provider);
drop index ledger_entries_by_order;
create index ledger_entries_by_order on ledger_entries (order_id, merchant);
drop index event_orders_by_order;
create index event_orders_by_order on event_orders (order_id, merchant, event_id);
drop index events_by_order;
create index events_by_order on events (order_id, merchant, id) where order_id is not null;
drop index order_history_by_order;
create index order_history_by_order on order_history (order_id, merchant, id);
drop index messages_by_order;
create index messages_by_order on messages (order_id, merchant);
drop index attention_by_order;
create index attention_by_order on attention (order_id, merchant) where order_id is not null;
