//! Addresses as people write them: an address and a port, or the path of a Unix socket.

use crate::settings::PORT;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a valid address looks like, for errors.
pub(crate) const WANTED: &str = "an address and a port, such as 127.0.0.1:8787, localhost:8787 or 0.0.0.0:8787, a port \
                                 alone for loopback, or unix:/run/tollgate.sock";

/// Where a server is by default.
pub(crate) const DEFAULT: Address = Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));

/// How long the path of a Unix socket may be: the system has room for one byte more.
const PATH_BYTES_MAX: usize = 107;

/// Where a server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only clients on this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The same with a relative path starting from this directory.
    pub(crate) fn within(self, directory: &Path) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(directory.join(path)),
            tcp @ Self::Tcp(_) => tcp,
        }
    }

    /// The address at which a client on this machine reaches the server.
    pub(crate) fn reachable(&self) -> Self {
        match self {
            Self::Tcp(address) => Self::Tcp(reachable(*address)),
            Self::Unix(path) => Self::Unix(path.clone()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else { return parse(text).map(Self::Tcp) };
        // `unix:///run/a.sock` is what some proxies write.
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.ends_with('/') || path.contains('\0') {
            return Err(format!("{text:?} has no path of a socket; write unix:/run/tollgate.sock"));
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(format!(
                "the path of a socket has {} bytes, and may have {PATH_BYTES_MAX}; choose a shorter one",
                path.len()
            ));
        }
        Ok(Self::Unix(path.into()))
    }
}

/// All addresses at which a server listens: one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen(Vec<Address>);

impl Listen {
    /// One address, and more.
    #[must_use]
    pub fn new(first: impl Into<Address>, more: impl IntoIterator<Item = Address>) -> Self {
        Self(std::iter::once(first.into()).chain(more).collect())
    }

    /// The addresses, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &Address> {
        self.0.iter()
    }

    /// Whether only clients on this machine can reach the server.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.0.iter().all(Address::is_local)
    }

    /// The address that a command on this machine uses.
    pub(crate) fn reachable(&self) -> Address {
        reachable_of(&self.0)
    }
}

impl FromStr for Listen {
    type Err = String;

    /// Reads one address.
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|address: Address| Self::new(address, []))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(" and "))
    }
}

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

/// Of several addresses the one that a command on this machine uses: a port before a socket.
pub(crate) fn reachable_of(addresses: &[Address]) -> Address {
    let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
    tcp.or(addresses.first()).map_or(DEFAULT, Address::reachable)
}

/// The address at which a client on this machine reaches the server: one that listens everywhere is on loopback too.
fn reachable(mut address: SocketAddr) -> SocketAddr {
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

    #[test]
    fn a_socket_is_named_by_its_path() {
        for text in ["unix:/run/tollgate.sock", "unix:///run/tollgate.sock"] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string(), address.is_local()), ("unix:/run/tollgate.sock".to_owned(), true));
        }
        let relative: Address = "unix:tollgate.sock".parse().unwrap();
        assert_eq!(relative.within(Path::new("/etc")).to_string(), "unix:/etc/tollgate.sock");
        let longest = format!("unix:/{}", "a".repeat(PATH_BYTES_MAX - 1));
        assert_eq!(longest.parse::<Address>().map(|address| address.to_string()), Ok(longest.clone()));
        for (text, problem) in [("unix:", "no path"), ("unix:/run/", "no path"), (&*(longest + "a"), "may have 107")] {
            assert!(text.parse::<Address>().unwrap_err().contains(problem), "{text}");
        }
        assert!("unix".parse::<Address>().unwrap_err().contains("unix:/run/tollgate.sock"));
    }

    #[test]
    fn commands_use_a_port_before_a_socket() {
        let socket: Address = "unix:/run/tollgate.sock".parse().unwrap();
        let everywhere: SocketAddr = "0.0.0.0:80".parse().unwrap();
        let both = Listen::new(socket.clone(), [everywhere.into()]);
        assert_eq!((both.reachable().to_string(), both.is_local()), ("127.0.0.1:80".to_owned(), false));
        assert_eq!(both.to_string(), "unix:/run/tollgate.sock and 0.0.0.0:80");
        assert_eq!(Listen::new(socket.clone(), []).reachable(), socket);
    }
}
