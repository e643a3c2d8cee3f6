//! Where a notification came from: the peer, or what trusted proxies say of it. For the operator only; nothing
//! is decided by it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// The address nearest to us that no trusted proxy has. `X-Forwarded-For` grows on the right, so it is read
/// from there, and only while whoever wrote the entry is trusted: everything further left is hearsay.
pub(super) fn origin(peer: Option<IpAddr>, headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut nearest = peer?.to_canonical();
    let entries = headers.get_all("x-forwarded-for").iter().rev();
    for entry in entries.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
        if !trusted.iter().any(|net| net.contains(&nearest)) {
            break;
        }
        let Some(addr) = std::str::from_utf8(entry).ok().and_then(address) else {
            break;
        };
        nearest = addr.to_canonical();
    }
    Some(nearest)
}

/// `192.0.2.7`, `2001:db8::7`, either with a port.
fn address(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(entry);
    bare.parse()
        .ok()
        .or_else(|| entry.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: &str, lines: &[&str]) -> String {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        origin(Some(peer.parse().unwrap()), &headers, &trusted)
            .unwrap()
            .to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        assert_eq!(seen("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(seen("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(seen("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("::ffff:10.0.0.1", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(
            seen("10.0.0.1", &["1.1.1.1, 198.51.100.7, 10.9.9.9"]),
            "198.51.100.7"
        );
        assert_eq!(
            seen("10.0.0.1", &["1.1.1.1, 198.51.100.7", "[2001:db8::5]:80"]),
            "198.51.100.7"
        );
        assert_eq!(seen("10.0.0.1", &["1.1.1.1, nonsense, 10.9.9.9"]), "10.9.9.9");
        assert_eq!(seen("10.0.0.1", &["10.1.1.1,10.2.2.2"]), "10.1.1.1");
    }
}
