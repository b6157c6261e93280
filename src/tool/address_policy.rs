//! Restricts MCP over HTTP to public addresses unless the configuration allows private ones (X5).
//!
//! Host names are checked after each resolution, so a name that later resolves to a private address is
//! rejected too. Used by `connector`.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The reason why a URL is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    // Does not contain the URL, which may contain a secret.
    #[error("the URL is invalid: {0}")]
    Malformed(String),
    #[error("the URL scheme must be http or https, not `{0}`")]
    Scheme(String),
    #[error("{0} is a private address; set `allow_private = true` on the server to allow it")]
    Private(String),
}

/// Validates the scheme of a URL, and its host if it is an IP address.
pub(super) fn validate_url(url: &str, allow_private: bool) -> Result<(), AddressError> {
    let parsed = reqwest::Url::parse(url);
    let parsed = parsed.map_err(|error| AddressError::Malformed(error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(AddressError::Scheme(parsed.scheme().to_owned()));
    }
    let host = parsed.host_str();
    let host = host.ok_or_else(|| AddressError::Malformed("it has no host".to_owned()))?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(address) if !allow_private && is_private(address) => {
            Err(AddressError::Private(host.to_owned()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Resolves host names to public addresses only.
pub(super) struct PublicAddressResolver;

impl Resolve for PublicAddressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<_> =
                addresses.iter().copied().filter(|address| !is_private(address.ip())).collect();
            if public.is_empty() && !addresses.is_empty() {
                return Err(AddressError::Private(name.as_str().to_owned()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// True if an address is not a public internet address.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        // 0.0.0.0/8, shared address space, protocol assignments, benchmarking, reserved.
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_private_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Unspecified, loopback, IPv4-mapped and IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        // NAT64, local-use NAT64, and 6to4 contain an IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => true,
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, ORCHID, documentation.
        [0x2001, 0, ..] | [0x2001, 0x10..=0x2f, ..] | [0x2001, 0xdb8, ..] => true,
        [first, ..] => {
            // Unique local, link local, site local, multicast, and unassigned addresses.
            (first & 0xfe00) == 0xfc00 || (first & 0xff80) == 0xfe80 || (first & 0xe000) != 0x2000
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x5_private_addresses_are_recognized() {
        for private in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:a00:1::",
            "2001:db8::1",
            "::127.0.0.1",
            "4000::1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "2606:4700::1111",
            "2002:101:101::",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn x5_private_and_invalid_urls_are_rejected() {
        let private = |host: &str| Err(AddressError::Private(host.to_owned()));
        assert_eq!(validate_url("http://127.0.0.1:80/mcp", false), private("127.0.0.1"));
        // The URL parser normalizes alternative notations of an address.
        assert_eq!(validate_url("http://0x7f.1/mcp", false), private("127.0.0.1"));
        assert_eq!(validate_url("http://2130706433/", false), private("127.0.0.1"));
        assert_eq!(validate_url("https://[::1]/mcp", false), private("[::1]"));
        assert_eq!(validate_url("http://127.0.0.1:80/mcp", true), Ok(()));
        assert_eq!(validate_url("https://example.com/mcp", false), Ok(()));
        assert_eq!(
            validate_url("file:///etc/passwd", true),
            Err(AddressError::Scheme("file".into()))
        );
        assert!(matches!(validate_url("no url", true), Err(AddressError::Malformed(..))));
    }
}
