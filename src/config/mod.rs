//! What the operator decides, read once and handed down as values.

mod account;

pub use account::{
    Account, AccountProblem, AccountState, AlipayAccount, AlipaySignType, AntomAccount, KeyMaterial, Scheme,
    StripeAccount, TwoCTwoPAccount, WechatpayAccount,
};
