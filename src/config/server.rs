//! `[server]`: the two listeners and the limits of the public one.
//!
//! Keys: `notify_addr`, `admin_addr`, `max_body`, `ack_deadline`, `trusted_proxies`, `max_connections`,
//! `max_in_flight`, `header_timeout`, `body_timeout`, `drain_deadline`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use super::keys::Keys;

/// The `[server]` section.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The public listener.
    pub notify_addr: SocketAddr,
    /// The private listener.
    pub admin_addr: SocketAddr,
    /// The longest notification, in bytes.
    pub max_body: usize,
    /// From a notification's arrival to its 503.
    pub ack_deadline: Duration,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Connections of the public listener.
    pub max_connections: usize,
    /// Notifications being read or stored.
    pub max_in_flight: usize,
    /// For a request head, and for the wait before it.
    pub header_timeout: Duration,
    /// For a body.
    pub body_timeout: Duration,
    /// For what was taken to be answered, at the end.
    pub drain_deadline: Duration,
}

impl ServerConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let seconds = |from, to| Duration::from_secs(from)..=Duration::from_secs(to);
        let section = Self {
            notify_addr: address(keys, "notify_addr"),
            admin_addr: address(keys, "admin_addr"),
            max_body: keys.size("max_body", 1024..=8 * 1024 * 1024),
            ack_deadline: keys.duration("ack_deadline", Duration::from_millis(50)..=Duration::from_mins(1)),
            trusted_proxies: networks(keys, "trusted_proxies"),
            max_connections: count(keys, "max_connections"),
            max_in_flight: count(keys, "max_in_flight"),
            header_timeout: keys.duration("header_timeout", seconds(1, 600)),
            body_timeout: keys.duration("body_timeout", seconds(1, 600)),
            drain_deadline: keys.duration("drain_deadline", seconds(1, 3600)),
        };
        // One listener would put the private API where providers call.
        if section.notify_addr == section.admin_addr && section.notify_addr.port() != 0 {
            keys.problem("admin_addr", "must differ from notify_addr, which is public");
        }
        section
    }
}

fn address(keys: &mut Keys<'_>, key: &str) -> SocketAddr {
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    keys.parsed(key, "IP:PORT, such as \"127.0.0.1:8081\"", |text| {
        text.parse().ok()
    })
    .unwrap_or(nowhere)
}

fn count(keys: &mut Keys<'_>, key: &str) -> usize {
    usize::try_from(keys.integer(key, 1..=1_000_000)).unwrap_or(usize::MAX)
}

fn networks(keys: &mut Keys<'_>, key: &str) -> Vec<IpNet> {
    let mut found = Vec::new();
    for item in keys.list(key) {
        // A lone address is its own network.
        match item
            .text
            .parse::<IpNet>()
            .or_else(|_| item.text.parse::<IpAddr>().map(IpNet::from))
        {
            Ok(network) => found.push(network),
            Err(_) => keys.problem_at(item.path, "must be a network such as \"10.0.0.0/8\""),
        }
    }
    found
}
