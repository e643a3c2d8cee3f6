-- The lists that an operator asks for, each by an index in the order of its pages: events of one provider, account
-- or type, events that ended so, orders that stand so.
--
-- A large table can have them made beforehand without keeping its writers waiting: `create index concurrently if not
-- exists …`, each by itself; then there is nothing left to do here.
create index if not exists events_by_kind on events (merchant, provider, account, type, id);
create index if not exists event_outcomes_by_outcome on event_outcomes (outcome, event_id);
create index if not exists orders_by_status on orders (merchant, status, created_at, order_id);
