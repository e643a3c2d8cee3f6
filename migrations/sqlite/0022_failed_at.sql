-- The latest report that an attempt failed: an attempt that is reported twice is one fact, which keeps the time of
-- the report that came first.
alter table trades add column failed_at integer;
