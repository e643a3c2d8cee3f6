//! What the operator decides, read once and handed down as values.

mod account;

pub use account::{
    Account, AccountProblem, AccountState, AlipayAccount, AlipaySignType, AntomAccount, KeyMaterial, Scheme,
    StripeAccount, TwoCTwoPAccount, WechatpayAccount,
};

/// The commented example: the documentation of every key, and the built-in defaults.
pub const EXAMPLE: &str = include_str!("../../deploy/payhook.toml");
