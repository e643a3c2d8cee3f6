//! Everything with I/O, in one binary: real sockets, real Postgres, real RabbitMQ.

mod support;
