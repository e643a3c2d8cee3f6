-- payhook's tables, one after the other, each with its constraints, indexes and triggers beside it.
--
-- Ids are UUID v7 as text, which sorts by arrival; times are microseconds since 1970 UTC; amounts are minor units of
-- their currency. An index names the function that needs it.
--
-- Triggers hold what no writer may break, whoever writes. `insert or replace` deletes without firing delete triggers,
-- unless the connection asked for recursive ones; so each guarded table has a trigger `*_keep_first` that drops an
-- insert whose key is taken. On these tables an upsert (`on conflict do update`) therefore does nothing: insert `on
-- conflict do nothing`, then update. No foreign key points at events: retention removes these, and facts and ledger
-- stay.

-- Retention is the one path that may delete. In its own transaction it writes the moment before which rows may go, and
-- removes that row again: no other transaction sees it, and without it nothing can be deleted.
create table retention_cutoff (
    received_before integer not null
) strict;

----------------------------------------------------------------------------------------------------------------------
-- Events: what was received and verified.

create table events (
    -- The feed's order: one writer numbers them.
    position            integer primary key autoincrement,
    id                  text not null unique,
    event_key           text not null unique check (length(cast(event_key as blob)) between 1 and 200),
    provider            text not null check (provider in ('alipay', 'wechatpay', 'stripe', '2c2p', 'antom')),
    account             text not null,
    merchant            text not null,
    type                text not null,
    provider_event_type text not null,
    subject             text,
    order_id            text,
    trade_id            text,
    refund_id           text,
    amount              integer,
    currency            text,
    orders              text,                 -- JSON, for events that speak of several orders
    occurred_at         integer not null,
    received_at         integer not null,
    fingerprint         blob    not null,     -- what a second arrival is compared by
    headers             text    not null,     -- JSON [[name, value]], without cookies and authorization
    body                blob    not null,     -- byte for byte
    content             blob,                 -- the provider's fields as JSON, when the body is not that
    remote_addr         text,
    check ((amount is null) = (currency is null))
) strict;
-- The feed's pages (Store::feed_page).
create index events_by_position on events (merchant, position);
-- The events of an order (Store::events, orders show).
create index events_by_order on events (merchant, order_id, id) where order_id is not null;
-- The events of a trade; those parked for it (Store::events, history::parked_by_trade).
create index events_by_trade on events (trade_id, id) where trade_id is not null;
-- The list's pages and a replay's walk (Store::events, Store::replay_look).
create index events_by_merchant on events (merchant, id);
-- The list of one provider, account or type (Store::events).
create index events_by_kind on events (merchant, provider, account, type, id);
create trigger events_keep_first before insert on events
when exists (select 1 from events where id = new.id or event_key = new.event_key or position = new.position) begin
    select raise(ignore);
end;
create trigger events_append_only before update on events begin
    select raise(abort, 'payhook: UPDATE on events is refused: it is append-only');
end;
create trigger events_retained before delete on events
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on events is refused: only retention removes expired rows');
end;

-- Duplicates of an event; about a hundred rows an event are kept.
create table deliveries (
    id          integer primary key autoincrement,
    event_id    text not null,
    received_at integer not null,
    remote_addr text
) strict;
-- The duplicates of an event (timeline, retention).
create index deliveries_by_event on deliveries (event_id);
create trigger deliveries_keep_first before insert on deliveries
when exists (select 1 from deliveries where id = new.id) begin
    select raise(ignore);
end;
create trigger deliveries_append_only before update on deliveries begin
    select raise(abort, 'payhook: UPDATE on deliveries is refused: it is append-only');
end;
create trigger deliveries_retained before delete on deliveries
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on deliveries is refused: only retention removes expired rows');
end;

-- Conflicts: the same key with other signed content. Both are kept, and an operator is told once.
create table event_conflicts (
    event_id    text    not null,
    fingerprint blob    not null,
    received_at integer not null,
    headers     text    not null,
    body        blob    not null,
    content     blob,
    remote_addr text,
    primary key (event_id, fingerprint)
) strict, without rowid;
create trigger event_conflicts_keep_first before insert on event_conflicts
when exists (select 1 from event_conflicts where event_id = new.event_id and fingerprint = new.fingerprint) begin
    select raise(ignore);
end;
create trigger event_conflicts_append_only before update on event_conflicts begin
    select raise(abort, 'payhook: UPDATE on event_conflicts is refused: it is append-only');
end;
create trigger event_conflicts_retained before delete on event_conflicts
when not exists (select 1 from retention_cutoff where old.received_at < received_before) begin
    select raise(abort, 'payhook: DELETE on event_conflicts is refused: only retention removes expired rows');
end;

-- The outcome of each event. A replay may end otherwise than the first application, so the row can be replaced.
create table event_outcomes (
    event_id   text primary key,
    outcome    text not null
        check (outcome in ('applied', 'already_applied', 'stale', 'unmapped', 'parked', 'attention', 'dead')),
    reason     text not null,
    decided_at integer not null
) strict;
-- Events that have waited too long (Store::raise_overdue).
create index event_outcomes_parked on event_outcomes (decided_at) where outcome = 'parked';
-- The list of one outcome (Store::events).
create index event_outcomes_by_outcome on event_outcomes (outcome, event_id);
create trigger event_outcomes_retained before delete on event_outcomes
when not exists (select 1 from retention_cutoff where old.decided_at < received_before)
     -- A redrive takes the end back that it undoes.
     and not (old.outcome = 'dead'
              and exists (select 1 from dead_letters where event_id = old.event_id)
              and not exists (select 1 from dead_letters where event_id = old.event_id and redriven_at is null)) begin
    select raise(abort, 'payhook: DELETE on event_outcomes is refused: only retention removes expired rows');
end;

-- The orders that an event concerned, by what it carried or by its trade.
create table event_orders (
    event_id text not null,
    merchant text not null,
    order_id text not null,
    primary key (event_id, merchant, order_id)
) strict;
-- The events of an order; those parked for it (Store::events, history::parked_by_order).
create index event_orders_by_order on event_orders (merchant, order_id, event_id);

----------------------------------------------------------------------------------------------------------------------
-- Outbox: what is still to be sent, and what was sent and has not ended yet.

-- Order and attention messages. They are kept: the feed and replays send them again.
create table messages (
    position    integer primary key autoincrement,
    id          text    not null unique,            -- {merchant}/{order_id}/{version}, or attention/{id}
    merchant    text    not null,
    order_id    text,
    routing_key text    not null,
    body        blob    not null,                   -- the CloudEvent
    created_at  integer not null
) strict;
-- The feed's pages and a replay's walk (Store::feed_page, Store::replay_look).
create index messages_by_position on messages (merchant, position);
-- The messages of an order (Store::replay_look).
create index messages_by_order on messages (merchant, order_id);
create trigger messages_keep_first before insert on messages
when exists (select 1 from messages where id = new.id or position = new.position) begin
    select raise(ignore);
end;
create trigger messages_append_only before update on messages begin
    select raise(abort, 'payhook: UPDATE on messages is refused: it is append-only');
end;
create trigger messages_never_deleted before delete on messages begin
    select raise(abort, 'payhook: DELETE on messages is refused: it is append-only');
end;

-- One row for each event without outcome and each message without confirm. `due_at` is the only clock: a claim moves it
-- ahead, a failed attempt moves it by its backoff, a confirmed publish of an event moves it by the time after which an
-- outcome is missed. A `replay` waits for the workers as well as for its confirm. A `resend` (a message again, or an
-- event to one queue alone) is done when the broker has confirmed it.
create table outbox (
    id           text    not null primary key,      -- the event's or message's id; of a replay: {that id}#{replay id}
    kind         text    not null,
    event_id     text,
    message_id   text,
    created_at   integer not null,
    due_at       integer not null,
    claimed_by   text,                              -- the process that holds it until due_at
    published_at integer,                           -- last confirmed publish
    publishes    integer not null default 0,        -- confirmed publishes without an outcome since
    attempts     integer not null default 0,        -- applications that failed
    last_error   text,
    unpublishable integer not null default 0,       -- the broker will not take it; a human was told
    replay_id    text,                              -- of a replay: goes into the message's data.replay
    replay_reason text,
    queue        text,                              -- to this queue alone, else to everybody
    applied_at   integer,                           -- of a replay: applied, its confirm still owed
    check (kind in ('event', 'message', 'replay', 'resend')),
    check ((event_id is null) <> (message_id is null)
        and (kind <> 'message' or message_id is not null) and (kind not in ('event', 'replay') or event_id is not null)),
    check ((kind in ('replay', 'resend')) = (replay_id is not null)
        and (replay_id is null) = (replay_reason is null) and (queue is null or kind = 'resend'))
) strict;
-- What is to be published (Store::claim_due).
create index outbox_first on outbox (due_at) where published_at is null and not unpublishable;
-- What was published and has no outcome in time (Store::claim_due, Store::unfinished_are_due).
create index outbox_again on outbox (due_at) where published_at is not null;
-- What the embedded broker ends unread (Store::done_with_messages).
create index outbox_messages on outbox (id) where kind in ('message', 'resend');
-- The replays of an event (finish_applied, retention).
create index outbox_replays on outbox (event_id) where replay_id is not null;
-- The rows of a replay (Store::outstanding, cancel).
create index outbox_of_replay on outbox (replay_id) where replay_id is not null;

-- Queues that payhook declares, with the time they were last seen at the broker: one that is missing later has lost
-- what it held since.
create table broker_queues (
    name    text not null primary key,
    seen_at integer not null
) strict;

----------------------------------------------------------------------------------------------------------------------
-- Orders: what the events add up to.

create table orders (
    merchant     text   not null,
    order_id     text not null check (length(cast(order_id as blob)) between 1 and 255),
    status       text   not null
        check (status in ('pending', 'processing', 'failed', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded')),
    closed_by    text check (closed_by in ('merchant', 'provider')),
    currency     text,                              -- registered, else the first payment's
    amount       integer check (amount >= 0),        -- registered
    paid         integer not null default 0,
    refunded     integer not null default 0,
    reversed     integer not null default 0,
    version      integer not null default 0,
    paid_version integer,                            -- the version under which order.paid was written, once
    parked_until integer,                            -- waits for its registration
    created_at   integer not null,
    updated_at   integer not null,
    primary key (merchant, order_id),
    check ((status = 'closed') = (closed_by is not null))
) strict, without rowid;
-- The list's pages (Store::orders); not to be taken for a way to one order, so they do not end with its id.
create index orders_by_creation on orders (merchant, created_at, order_id);
-- Orders that have waited too long for their registration (Store::raise_overdue).
create index orders_parked on orders (parked_until) where parked_until is not null;
create index orders_by_status on orders (merchant, status, created_at, order_id);
create trigger orders_keep_first before insert on orders
when exists (select 1 from orders where merchant = new.merchant and order_id = new.order_id) begin
    select raise(ignore);
end;
create trigger orders_never_deleted before delete on orders begin
    select raise(abort, 'payhook: DELETE on orders is refused: it is append-only');
end;
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
create trigger orders_start_at_their_version before insert on orders begin
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

-- The provider's payments. A trade without an order waits for the event that carries both ids.
create table trades (
    merchant   text   not null,
    provider   text   not null,
    trade_id   text not null check (length(cast(trade_id as blob)) between 1 and 255),
    account    text   not null,
    order_id   text,
    status     text   not null
        check (status in ('unpaid', 'closed', 'paid', 'partially_refunded', 'finished', 'refunded', 'held')),
    amount     integer,                              -- what it was billed, once known
    currency   text,
    refunded   integer not null default 0,
    reversed   integer not null default 0,
    paid_at    integer,
    processing_at integer,                    -- the latest report that it is under way
    late       integer not null default 0, -- paid after its own or its order's close: booked, but does not count
    created_at integer not null,
    updated_at integer not null,
    failed_at  integer,                       -- the latest report that an attempt failed
    ships      integer not null default 0,    -- its payment is known not to be from before its account's `since`
    primary key (merchant, provider, trade_id)
) strict, without rowid;
-- The trades of an order (trades::of_orders, views).
create index trades_by_order on trades (merchant, order_id) where order_id is not null;
create trigger trades_keep_first before insert on trades
when exists (select 1 from trades where merchant = new.merchant and provider = new.provider and trade_id = new.trade_id) begin
    select raise(ignore);
end;
create trigger trades_never_deleted before delete on trades begin
    select raise(abort, 'payhook: DELETE on trades is refused: it is append-only');
end;
create trigger trades_ship_for_good before update on trades when old.ships and not new.ships begin
    select raise(abort, 'payhook: a trade is shipped for good');
end;
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

-- What the events say, each fact once, in the order in which it became known.
create table facts (
    id             integer primary key autoincrement,
    merchant       text   not null,
    provider       text   not null,                 -- 'payhook' for registrations and closes
    key            text not null,
    kind           text   not null,
    order_id       text,
    trade_id       text,
    refund_id      text,
    amount         integer,
    currency       text,
    currency_assumed integer not null default 0, -- the message names none
    at             integer,
    reason         text,
    unsigned_total integer,                          -- of a refund that was encrypted but not signed
    event_id       text,                -- no foreign key: retention removes events, facts stay
    recorded_at    integer not null,
    unique (merchant, provider, key)
) strict;
-- The facts of a trade (facts::of).
create index facts_by_trade on facts (merchant, provider, trade_id) where trade_id is not null;
-- An order's own facts (facts::of).
create index facts_by_order on facts (merchant, order_id) where order_id is not null;
create trigger facts_keep_first before insert on facts
when exists (select 1 from facts where (merchant = new.merchant and provider = new.provider and key = new.key) or id = new.id) begin
    select raise(ignore);
end;
create trigger facts_append_only before update on facts begin
    select raise(abort, 'payhook: UPDATE on facts is refused: it is append-only');
end;
create trigger facts_never_deleted before delete on facts begin
    select raise(abort, 'payhook: DELETE on facts is refused: it is append-only');
end;

-- One movement of money; signed minor units.
create table ledger_entries (
    id         integer primary key autoincrement,
    merchant   text   not null,
    provider   text   not null,
    source     text not null,           -- trade id, refund id, dispute id, or {trade_id}@{total}
    entry_type text   not null
        check (entry_type in ('payment', 'refund', 'refund_reversal', 'dispute', 'dispute_reversal')),
    trade_id   text,
    order_id   text,
    amount     integer not null,
    currency   text   not null,
    event_id   text,
    at         integer not null,
    unique (merchant, provider, source, entry_type),
    check (case when entry_type in ('refund', 'dispute') then amount <= 0 else amount >= 0 end)
) strict;
-- The entries of an order (views) and of a trade (ledger::of_trades).
create index ledger_entries_by_order on ledger_entries (merchant, order_id);
create index ledger_entries_by_trade on ledger_entries (merchant, provider, trade_id);
create trigger ledger_entries_keep_first before insert on ledger_entries
when exists (select 1 from ledger_entries where (merchant = new.merchant and provider = new.provider and source = new.source
              and entry_type = new.entry_type) or id = new.id) begin
    select raise(ignore);
end;
create trigger ledger_entries_append_only before update on ledger_entries begin
    select raise(abort, 'payhook: UPDATE on ledger_entries is refused: it is append-only');
end;
create trigger ledger_entries_never_deleted before delete on ledger_entries begin
    select raise(abort, 'payhook: DELETE on ledger_entries is refused: it is append-only');
end;

-- What each event did to an order, or why it did nothing.
create table order_history (
    id            integer primary key autoincrement,
    merchant      text   not null,
    order_id      text not null,
    at            integer not null,
    event_id      text,
    fact          text   not null,
    outcome       text   not null,
    reason        text   not null,
    status_before text   not null,
    status_after  text   not null
) strict;
-- The history of an order (views).
create index order_history_by_order on order_history (merchant, order_id, id);
create trigger order_history_keep_first before insert on order_history
when exists (select 1 from order_history where id = new.id) begin
    select raise(ignore);
end;
create trigger order_history_append_only before update on order_history begin
    select raise(abort, 'payhook: UPDATE on order_history is refused: it is append-only');
end;
create trigger order_history_never_deleted before delete on order_history begin
    select raise(abort, 'payhook: DELETE on order_history is refused: it is append-only');
end;

----------------------------------------------------------------------------------------------------------------------
-- Attention, dead letters, quarantine: what needs an operator, could not be applied, was refused.

-- An item may stand for many events of one kind at one account (`group_key`). The open one counts; after it is resolved
-- the next event raises another.
create table attention (
    id                text primary key,
    code              text   not null,
    source            text not null,    -- the fact, event or queue it is about: a replay raises it once
    merchant          text   not null,
    provider          text,
    account           text,
    order_id          text,
    trade_id          text,
    event_id          text,
    explanation       text   not null,
    state             text   not null default 'open' check (state in ('open', 'resolved')),
    created_at        integer not null,
    resolved_at       integer,
    resolved_by       text,
    resolution        text,                         -- the action
    resolution_reason text,
    group_key         text,                         -- account and type; null: an item by itself
    events            integer not null default 1,   -- how many it stands for
    unique (merchant, code, source),
    check ((state = 'resolved') = (resolved_at is not null))
) strict, without rowid;
-- The list (Store::attention).
create index attention_open on attention (merchant, id) where state = 'open';
-- The items of an order (attention::of_orders, views) and of an event (redrive, retention).
create index attention_by_order on attention (merchant, order_id) where order_id is not null;
create index attention_by_event on attention (event_id) where state = 'open' and event_id is not null;
create unique index attention_open_group on attention (merchant, code, group_key)
    where state = 'open' and group_key is not null;
create trigger attention_keep_first before insert on attention
when exists (select 1 from attention where (merchant = new.merchant and code = new.code and source = new.source) or id = new.id) begin
    select raise(ignore);
end;
create trigger attention_never_deleted before delete on attention begin
    select raise(abort, 'payhook: DELETE on attention is refused: it is append-only');
end;
create trigger attention_resolved_once before update on attention
when old.state = 'resolved' or new.id <> old.id or new.code <> old.code or new.source <> old.source
     or new.merchant <> old.merchant or new.order_id is not old.order_id or new.event_id is not old.event_id
     or new.explanation <> old.explanation or new.created_at <> old.created_at or new.group_key is not old.group_key begin
    select raise(abort, 'payhook: an attention item can only be resolved, once');
end;
create trigger attention_events_never_shrink before update on attention when new.events < old.events begin
    select raise(abort, 'payhook: the events of an attention item may not shrink');
end;

-- The events that an item with a group stands for, each counted once.
create table attention_events (
    code         text not null,
    event_id     text not null,
    attention_id text not null,
    primary key (code, event_id)
) strict, without rowid;
-- The events of an item (attention_group).
create index attention_events_by_item on attention_events (attention_id);
create trigger attention_events_keep_first before insert on attention_events
when exists (select 1 from attention_events where code = new.code and event_id = new.event_id) begin
    select raise(ignore);
end;
create trigger attention_events_append_only before update on attention_events begin
    select raise(abort, 'payhook: UPDATE on attention_events is refused: it is append-only');
end;
create trigger attention_events_never_deleted before delete on attention_events begin
    select raise(abort, 'payhook: DELETE on attention_events is refused: it is append-only');
end;

create table dead_letters (
    id          text primary key,
    event_id    text,
    event_key   text,
    merchant    text,
    error       text   not null,
    attempts    integer not null,
    message     blob,                              -- of a message that names no known event
    created_at  integer not null,
    redriven_at integer
) strict;
-- The list (Store::dead_letters) and the letters of an event (redrive, retention).
create index dead_letters_open on dead_letters (id) where redriven_at is null;
create index dead_letters_by_event on dead_letters (event_id) where event_id is not null;
create trigger dead_letters_keep_first before insert on dead_letters
when exists (select 1 from dead_letters where id = new.id or rowid = new.rowid) begin
    select raise(ignore);
end;
create trigger dead_letters_redriven_once before update on dead_letters
when old.redriven_at is not null or new.redriven_at is null or new.id <> old.id or new.rowid <> old.rowid
     or new.event_id is not old.event_id or new.event_key is not old.event_key or new.merchant is not old.merchant
     or new.error <> old.error or new.attempts <> old.attempts or new.message is not old.message
     or new.created_at <> old.created_at begin
    select raise(abort, 'payhook: a dead letter can only be redriven, once');
end;
create trigger dead_letters_never_deleted before delete on dead_letters begin
    select raise(abort, 'payhook: DELETE on dead_letters is refused: it is append-only');
end;

-- Refused notifications, whole; bounded, the oldest of the largest sender goes first.
create table quarantine (
    id          text primary key,
    provider    text   not null,
    account     text   not null,
    merchant    text   not null,
    reason      text   not null,
    detail      text   not null,
    path        text   not null,
    headers     text   not null,
    body        blob  not null,
    received_at integer not null,
    remote_addr text,
    sender      text   not null,                    -- /24 or /48 of the sender, for fair eviction
    bytes       integer not null
) strict;
-- The list and the eviction (Store::quarantine, Store::keep).
create index quarantine_by_account on quarantine (provider, account, sender, id);

-- Networks that an account's new events came from, in the form of quarantine.sender.
create table known_senders (
    provider text    not null,
    account  text    not null,
    network  text    not null,
    seen_at  integer not null,
    primary key (provider, account, network)
) strict;

----------------------------------------------------------------------------------------------------------------------
-- Operators: keys, decisions, replays, the feed.

-- One row for each Idempotency-Key in its scope. The primary key decides which of several racers goes first. The claim
-- is a commit of its own; the completion shares the business write's commit.
create table idempotency_keys (
    id          text not null primary key,         -- SHA-256 of merchant, method, path and key
    key_hash    text    not null,                  -- all that logs may show of the key
    merchant    text    not null,
    method      text    not null,
    path        text    not null,
    fingerprint blob    not null,                  -- SHA-256 of method, path and canonical body
    effect      text    not null check (effect in ('none', 'outside')),
    state       text    not null check (state in ('running', 'finished')),
    owner       text    not null,                  -- the attempt that holds the claim
    lease_until integer not null,
    status      integer,
    headers     text,                              -- JSON [[name, value]]
    body        blob,
    created_at  integer not null,
    expires_at  integer not null,
    check ((state = 'finished') = (status is not null))
) strict, without rowid;
-- Keys to remove, and claims whose lease ran out (Keys::purge, Keys::running).
create index idempotency_keys_expired on idempotency_keys (expires_at);
create index idempotency_keys_running on idempotency_keys (created_at) where state = 'running';
create trigger idempotency_keys_answer_once before update on idempotency_keys
when old.state = 'finished' and old.expires_at > cast(unixepoch('subsec') * 1000000 as integer) begin
    select raise(abort, 'payhook: a stored answer is never changed');
end;

-- What operators did: one row when it begins and, where it takes several transactions, one with its result.
create table audit (
    id       text primary key,
    merchant text    not null,
    actor    text    not null,                     -- the token's name
    action   text    not null,
    reason   text    not null,
    details  text    not null,                     -- JSON object
    at       integer not null
) strict, without rowid;
create index audit_by_merchant on audit (merchant, id);
create trigger audit_keep_first before insert on audit
when exists (select 1 from audit where id = new.id) begin
    select raise(ignore);
end;
create trigger audit_append_only before update on audit begin
    select raise(abort, 'payhook: UPDATE on audit is refused: it is append-only');
end;
create trigger audit_never_deleted before delete on audit begin
    select raise(abort, 'payhook: DELETE on audit is refused: it is append-only');
end;

-- Replays that operators asked for. Each goes from the oldest to the newest of what was there then, and outlives every
-- process.
create table replays (
    id           text    primary key,
    merchant     text    not null,
    actor        text    not null,                  -- the token's name
    reason       text    not null,
    what         text    not null check (what in ('events', 'orders')),
    queue        text,                              -- to this queue alone, else to everybody
    filter       text    not null,                  -- JSON object
    per_second   integer not null,
    -- It goes from the oldest to the newest of those that were there when it was asked for.
    at_position  integer not null default 0,        -- of messages; events are found by id alone
    at_id        text    not null default '',
    end_position integer not null,
    end_id       text    not null,
    total        integer,                           -- how many match; null until they were counted
    sent         integer not null default 0,        -- handed to the outbox
    refused      integer not null default 0,
    refusals     text    not null default '{}',     -- JSON object: why, and how many
    state        text    not null default 'running' check (state in ('running', 'done', 'cancelled')),
    created_at   integer not null,
    updated_at   integer not null,
    walked_at    integer,                           -- when the last of them had been handed over
    ended_at     integer,
    leased_by    text,                              -- the process that drives it until leased_until
    leased_until integer,
    waits        text,                              -- why no process could go on with it so far
    waits_since  integer,
    check ((state = 'running') = (ended_at is null))
) strict, without rowid;
-- Replays to drive (Store::lease_replays) and the list (Store::replays).
create index replays_running on replays (id) where state = 'running';
create index replays_by_merchant on replays (merchant, id);
create trigger replays_keep_first before insert on replays
when exists (select 1 from replays where id = new.id) begin
    select raise(ignore);
end;
create trigger replays_end_once before update on replays
when old.state <> 'running' or new.id <> old.id or new.merchant <> old.merchant or new.actor <> old.actor
     or new.reason <> old.reason or new.what <> old.what or new.queue is not old.queue
     or new.filter <> old.filter or new.created_at <> old.created_at begin
    select raise(abort, 'payhook: a replay that has ended, and what was asked for, stay as they are');
end;
create trigger replays_never_deleted before delete on replays begin
    select raise(abort, 'payhook: DELETE on replays is refused: it is append-only');
end;

-- What a replay sent to everybody: the feed shows it again at a position of its own. One row for an event or message
-- and a replay, however often the replay is resumed.
create table replays_sent (
    turn       integer primary key autoincrement,
    event_id   text,
    message_id text,
    merchant   text    not null,
    replay_id  text    not null,
    reason     text    not null,                   -- what data.replay says
    sent_at    integer not null,
    position   integer not null,                   -- of the stream's last row then: it comes after that
    check ((event_id is null) <> (message_id is null))
) strict;
create unique index replays_sent_of_event on replays_sent (event_id, replay_id) where event_id is not null;
create unique index replays_sent_of_message on replays_sent (message_id, replay_id) where message_id is not null;
-- The feed's pages (Store::feed_page).
create index replays_sent_by_position on replays_sent (merchant, position, turn);

-- When the feed's positions begin to mean something else: another cluster after a restore, another timeline after a
-- failover, another run of the daemon on SQLite. Cursors of earlier epochs are drawn back to the floor.
create table feed_epochs (
    stream  text    not null check (stream in ('events', 'orders')),
    epoch   integer not null,                      -- when it began: no epoch that a restore undid has the same
    base    integer not null,                      -- what positions are ahead of this cluster's transaction ids
    floor   integer not null,                      -- up to here the epochs before it are shared history
    mark    integer not null,                      -- a position reached lately in this cluster
    cluster text    not null,                      -- its identifier and timeline, '' when they cannot be read
    primary key (stream, epoch)
) strict;
insert into feed_epochs values ('events', 0, 0, 0, 0, ''), ('orders', 0, 0, 0, 0, '');

-- Up to which position retention has removed events. A cursor that has not passed it may have missed some.
create table feed_horizons (
    stream   text    not null primary key check (stream in ('events', 'orders')),
    position integer not null
) strict;
insert into feed_horizons values ('events', 0), ('orders', 0);

----------------------------------------------------------------------------------------------------------------------
-- Accounts and probes.

-- When the store first knew an account: a payment from before that was shipped by whoever came before.
create table accounts (
    provider text    not null,
    account  text    not null,
    known_at integer not null,
    primary key (provider, account)
) strict, without rowid;
create trigger accounts_keep_first before insert on accounts
when exists (select 1 from accounts where provider = new.provider and account = new.account) begin
    select raise(ignore);
end;
create trigger accounts_append_only before update on accounts begin
    select raise(abort, 'payhook: UPDATE on accounts is refused: it is append-only');
end;
create trigger accounts_never_deleted before delete on accounts begin
    select raise(abort, 'payhook: DELETE on accounts is refused: it is append-only');
end;

-- When each key last verified a notification, by what the key is and not by its place in the configuration. Written at
-- most once a minute by each daemon.
create table key_uses (
    provider    text    not null,
    account     text    not null,
    fingerprint text    not null,                   -- as `check` shows it
    verified_at integer not null,
    primary key (provider, account, fingerprint)
) strict, without rowid;

-- One row that the readiness probe writes, to know that a commit still comes through.
create table write_probe (
    id integer primary key check (id = 1),
    at integer not null
) strict;
