//! Facts move orders, on both databases: what commutes, what is written, what happens side by side.

mod cast;
mod commute;
mod written;
