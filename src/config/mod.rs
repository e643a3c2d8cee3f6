//! What the operator decides, read once and handed down as values.
//!
//! The embedded example is both the documentation and the defaults; the file and the environment lie over it
//! (`layers`), each section reads its own keys (`keys`), and every problem is reported at once. A reload is
//! [`Config::load_with`] again. Whether key bytes are a usable key is the provider's judgement, passed in.

mod account;
mod accounts;
mod broker;
mod environment;
mod keys;
mod layers;
mod load;
mod log;
mod names;
mod orders;
mod problem;
mod retention;
mod schemes;
mod secret;
mod server;
mod spell;
mod store;
#[cfg(test)]
mod tests;
mod token;
mod token_file;
mod worker;

pub use account::{
    Account, AccountProblem, AccountState, AlipayAccount, AlipaySignType, AntomAccount, Capture, KeyMaterial,
    Scheme, StripeAccount, TwoCTwoPAccount, WechatpayAccount,
};
pub use broker::{BrokerConfig, BrokerUrl, Exchange, Queue};
pub use environment::{Environment, program};
pub use load::{Config, Settings, Source};
pub use log::{LogConfig, LogFormat};
pub use names::{DEFAULT_MERCHANT, is_merchant_name};
pub use orders::{OrdersConfig, UnknownOrder};
pub use problem::{ConfigErrors, Problem};
pub use retention::{RetentionConfig, horizon};
pub use server::ServerConfig;
pub use spell::spell;
pub use store::StoreConfig;
pub use token::{Scope, Token};
pub use token_file::{TokenFileError, local_tokens, read_token_file, token_file};
pub use worker::WorkerConfig;

/// The commented example: the documentation of every key, and the built-in defaults.
pub const EXAMPLE: &str = include_str!("../../deploy/payhook.toml");
