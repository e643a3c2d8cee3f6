-- Bodies are kept byte for byte and read whole: a row that fits into a page is stored as it is. By default Postgres
-- tries to compress each row of more than 2 kB, which was a fifth of what it did for a notification.
alter table events set (toast_tuple_target = 8160);
alter table messages set (toast_tuple_target = 8160);
