-- One row that a readiness probe writes, to know that a commit still comes through.
create table write_probe (
    id integer primary key check (id = 1),
    at integer not null
) strict;
