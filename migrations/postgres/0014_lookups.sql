-- The lists that an operator asks for, each by an index in the order of its pages: events of one provider, account
-- or type, events that ended so, orders that stand so.
create index events_by_kind on events (merchant, provider, account, type, id);
create index event_outcomes_by_outcome on event_outcomes (outcome, event_id);
create index orders_by_status on orders (merchant, status, created_at, order_id);
