-- A replay walks one merchant's events in the order of their arrival; without this it would sort all of them for
-- every page.
create index events_by_merchant on events (merchant, id);
