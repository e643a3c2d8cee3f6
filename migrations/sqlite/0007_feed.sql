-- The feed: events and messages in the order of their commits, and what a cursor is judged by.

-- What a replay sent, each at a position of its own: the feed shows it again there. One row for an event or a
-- message and a replay, however often the replay is resumed.
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
create index replays_sent_by_position on replays_sent (merchant, position, turn);

-- When the positions begin to mean something else: another cluster after a restore, another timeline after a
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

-- Messages are not removed by age: without a gap the order stream begins where the orders do.
create trigger messages_never_deleted before delete on messages begin
    select raise(abort, 'payhook: DELETE on messages is refused: it is append-only');
end;
