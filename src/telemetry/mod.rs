//! What the process says about itself while it runs: its log, its health and its metrics.
//!
//! Every flow may use this module and it uses none of them: a flow reports here, `api` shows it. Names of
//! metrics stand in one list ([`metrics`]), so that a dashboard can be written from one page.

mod account;
mod causes;
pub mod health;
pub mod logs;
pub mod metrics;
mod restraint;

pub use account::AccountMeters;
pub use causes::causes;
pub use health::{BrokerState, Health, OutboxState};
pub use metrics::Metrics;
pub use restraint::Restraint;
