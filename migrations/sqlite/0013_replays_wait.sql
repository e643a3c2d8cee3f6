-- Why a replay rests that no process could go on with so far, and since when.
alter table replays add column waits text;
alter table replays add column waits_since integer;
