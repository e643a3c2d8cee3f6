-- One row that a readiness probe writes, to know that a commit still comes through.
create table write_probe (
    id bigint primary key check (id = 1),
    at bigint not null
) with (fillfactor = 10);
