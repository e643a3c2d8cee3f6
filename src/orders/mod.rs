//! From facts to orders. The rules are pure ([`fact`], [`ledger`], [`status`], [`needs`], [`transition`]): what is
//! known of an order goes in, how it stands comes out. [`apply`](apply::apply) reads and writes around them, in
//! one transaction.

pub mod apply;
pub mod fact;
pub mod ledger;
pub mod needs;
mod paid_twice;
pub mod status;
mod trade_status;
pub mod transition;
