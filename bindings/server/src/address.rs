//! Listen addresses as people write them.

use crate::settings::PORT;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a valid address looks like, for errors.
pub(crate) const WANTED: &str =
    "an address and a port, such as 127.0.0.1:8787, localhost:8787 or 0.0.0.0:8787, or a port alone for loopback";

/// Parses an address with a port. A port alone, `8787` or `:8787`, is on loopback, and so is `localhost`: to be
/// reached from elsewhere, write `0.0.0.0`. Without a port it is the default one. No name is resolved.
///
/// # Errors
///
/// With what a valid address looks like.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("{text:?} is not an address; give {WANTED}");
    // The form that is printed, so that it can be copied.
    let plain = text.strip_prefix("http://").unwrap_or(text);
    let plain = plain.strip_suffix('/').unwrap_or(plain);
    if let Ok(address) = plain.parse() {
        return Ok(address);
    }
    if let Ok(ip) = plain.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let is_number = !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match plain.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None if is_number => ("", Some(plain)),
        None => (plain, None),
    };
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
    let is_loopback = host.eq_ignore_ascii_case("localhost") || host.is_empty() && !plain.is_empty();
    if is_loopback { Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) } else { Err(wrong()) }
}

/// The address at which a client on this machine reaches the server: one that listens everywhere is on loopback too.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_people_write() {
        for (text, address) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("localhost:80", "127.0.0.1:80"),
            ("Localhost", "127.0.0.1:8787"),
            (":80", "127.0.0.1:80"),
            ("80", "127.0.0.1:80"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0", "0.0.0.0:8787"),
            ("[::1]:80", "[::1]:80"),
            ("::1", "[::1]:8787"),
            ("http://127.0.0.1:80/", "127.0.0.1:80"),
        ] {
            assert_eq!(parse(text).map(|address| address.to_string()), Ok(address.to_owned()), "{text}");
        }
        for text in ["", ":", "localhost:", "example.com:80", "80000", "127.0.0.1:80:80", "https://127.0.0.1", "-1"] {
            assert!(parse(text).unwrap_err().contains("0.0.0.0:8787"), "{text}");
        }
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_on_loopback() {
        let reached =
            ["0.0.0.0:80", "[::]:80", "192.0.2.7:80"].map(|text| reachable(text.parse().unwrap()).to_string());
        assert_eq!(reached, ["127.0.0.1:80", "[::1]:80", "192.0.2.7:80"]);
    }
}
