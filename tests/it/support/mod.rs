//! What the tests share: databases, private servers, proxies that break on command.

pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod proxy;
pub(crate) mod rabbit;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod store;
pub(crate) mod traffic;
