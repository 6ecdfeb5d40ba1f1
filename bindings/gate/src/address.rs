//! The address of a client, also behind proxies.
//!
//! A forwarded address is only as good as the sender of the header. It is read
//! only if the peer is a trusted proxy, and from the right: each proxy appends
//! the address that it saw, so the first entry from the right that is not a
//! trusted proxy is the client. The client may have made up everything to the
//! left of it.

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// A list of networks.
///
/// ```
/// use tollgate_gate::address::Networks;
///
/// let inside = Networks::parse(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"])?;
/// assert!(inside.contains("10.1.2.3".parse()?));
/// // An IPv4-mapped IPv6 address is that IPv4 address.
/// assert!(inside.contains("::ffff:10.1.2.3".parse()?));
/// assert!(!inside.contains("192.0.2.8".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Reads networks such as `10.0.0.0/8`, and single addresses.
    ///
    /// # Errors
    ///
    /// For the first text that is neither.
    pub fn parse(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, NetworkError> {
        texts.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether one of the networks contains this address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks, as [`parse`](Self::parse) reads them.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(IpNet::to_string)
    }

    /// The first network that contains every IPv4 or every IPv6 address, if there is one.
    #[must_use]
    pub fn catch_all(&self) -> Option<String> {
        self.0.iter().find(|network| network.prefix_len() == 0).map(IpNet::to_string)
    }
}

fn network(text: &str) -> Result<IpNet, NetworkError> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address.to_canonical())),
        Err(_) => text.parse().ok(),
    };
    match network {
        // `contains` unmaps addresses first, so the networks must be unmapped too.
        Some(IpNet::V6(mapped)) if mapped.prefix_len() >= 96 && mapped.addr().to_ipv4_mapped().is_some() => {
            let bits = mapped.prefix_len() - 96;
            mapped.addr().to_ipv4_mapped().and_then(|address| Ipv4Net::new(address, bits).ok()).map(IpNet::V4)
        }
        network => network,
    }
    .ok_or_else(|| NetworkError { text: text.chars().take(80).collect() })
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a network; write 10.0.0.0/8, 2001:db8::/32 or a single address", self.text)
    }
}

impl std::error::Error for NetworkError {}

/// The proxies in front of a service that are trusted to report addresses.
///
/// ```
/// use http::HeaderMap;
/// use tollgate_gate::address::{Networks, Proxies};
///
/// let proxies = Proxies::new(Networks::parse(["10.0.0.0/8"])?);
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.0.0.2".parse()?);
///
/// // From a proxy: the first entry from the right that is not a proxy.
/// assert_eq!(proxies.client("10.0.0.1".parse()?, &headers).address.to_string(), "192.0.2.7");
/// // From any other peer: the header is not read.
/// assert_eq!(proxies.client("203.0.113.5".parse()?, &headers).address.to_string(), "203.0.113.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    trusted: Networks,
}

/// The client that sent a request, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address; an IPv4-mapped IPv6 address becomes the IPv4 address.
    pub address: IpAddr,
    /// Whether it is the client's own. `false` if a proxy that is not trusted
    /// forwarded the request, or if a trusted one sent an invalid header: then
    /// any client may be behind the address.
    pub is_certain: bool,
}

impl Proxies {
    /// Trusts the proxies in these networks.
    #[must_use]
    pub fn new(trusted: Networks) -> Self {
        Self { trusted }
    }

    /// Whether no proxy is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    /// The client of a request that came from `peer` with these headers.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Client {
        let mut address = peer.to_canonical();
        if !self.trusted.contains(address) {
            return Client { address, is_certain: !was_forwarded(headers) };
        }
        let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
        let hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        let mut is_certain = !was_forwarded(headers);
        let mut hops = hops.filter(|hop| !hop.is_empty());
        while let Some(hop) = hops.next() {
            match self.hop(hop) {
                Some(hop) if self.trusted.contains(hop) => (address, is_certain) = (hop, true),
                // An entry to the left of it is one that it forwarded, or made up.
                Some(hop) => return Client { address: hop, is_certain: hops.next().is_none() },
                // The proxy to the right of it is the last known address.
                None => return Client { address, is_certain: false },
            }
        }
        Client { address, is_certain }
    }

    /// An entry: an address, with or without a port.
    fn hop(&self, entry: &[u8]) -> Option<IpAddr> {
        let text = std::str::from_utf8(entry).ok()?;
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
        address.ok().map(|address: IpAddr| address.to_canonical())
    }
}

/// Whether a proxy has forwarded the request.
fn was_forwarded(headers: &HeaderMap) -> bool {
    [X_FORWARDED_FOR, FORWARDED, X_REAL_IP].iter().any(|name| headers.contains_key(name))
}

/// The addresses that count as one agent: an IPv4 address, or an IPv6 network.
///
/// Anyone who rents a machine gets a whole /64 of IPv6 addresses, and could use a
/// fresh one for every request.
///
/// ```
/// use tollgate_gate::address::Group;
///
/// assert_eq!(Group::of("192.0.2.7".parse()?, 64).to_string(), "192.0.2.7");
/// assert_eq!(Group::of("::ffff:192.0.2.7".parse()?, 64).to_string(), "192.0.2.7");
/// assert_eq!(Group::of("2001:db8:1:2:3:4:5:6".parse()?, 64).to_string(), "2001:db8:1:2::/64");
/// assert_eq!(Group::of("2001:db8::7".parse()?, 128).to_string(), "2001:db8::7");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(IpNet);

impl Group {
    /// The group of an address, with IPv6 addresses grouped by their first `ipv6_prefix` bits.
    #[must_use]
    pub fn of(address: IpAddr, ipv6_prefix: u8) -> Self {
        let single = IpNet::from(address.to_canonical());
        match single {
            // With a prefix of more than 128 bits, the group is the address itself.
            IpNet::V6(net) => Self(IpNet::new(net.addr().into(), ipv6_prefix).map_or(single, |group| group.trunc())),
            IpNet::V4(_) => Self(single),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], peer: &str, lines: &[&str]) -> (String, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(X_FORWARDED_FOR, line.parse().unwrap());
        }
        let proxies = Proxies::new(Networks::parse(trusted).unwrap());
        let Client { address, is_certain } = proxies.client(peer.parse().unwrap(), &headers);
        (address.to_string(), is_certain)
    }

    #[test]
    fn a_forwarded_address_is_read_from_the_right_and_behind_trusted_proxies_alone() {
        const PROXIES: &[&str] = &["10.0.0.0/8", "fd00::/8"];
        for (trusted, peer, lines, expected, is_certain) in [
            // No proxy, and no claim.
            (PROXIES, "192.0.2.7", &[] as &[&str], "192.0.2.7", true),
            (PROXIES, "::ffff:192.0.2.7", &[], "192.0.2.7", true),
            // A client that claims to be another.
            (PROXIES, "192.0.2.7", &["10.0.0.9"], "192.0.2.7", false),
            (&[], "10.0.0.1", &["192.0.2.7"], "10.0.0.1", false),
            // One proxy, two proxies, and a client that made up a first entry.
            (PROXIES, "10.0.0.1", &["192.0.2.7"], "192.0.2.7", true),
            (PROXIES, "10.0.0.1", &["192.0.2.7, 10.0.0.2"], "192.0.2.7", true),
            (PROXIES, "10.0.0.1", &["6.6.6.6, 192.0.2.7,10.0.0.2"], "192.0.2.7", false),
            (PROXIES, "10.0.0.1", &["6.6.6.6", "192.0.2.7", "10.0.0.2"], "192.0.2.7", false),
            // Two headers, of which the proxy wrote the second.
            (PROXIES, "10.0.0.1", &["10.0.0.3", "192.0.2.7"], "192.0.2.7", false),
            // Ports, brackets, IPv6, IPv4-mapped IPv6, empty entries.
            (PROXIES, "10.0.0.1", &["192.0.2.7:4711"], "192.0.2.7", true),
            (PROXIES, "fd00::1", &["[2001:db8::7]:4711, fd00::2"], "2001:db8::7", true),
            (PROXIES, "fd00::1", &["[2001:db8::7]"], "2001:db8::7", true),
            (PROXIES, "::ffff:10.0.0.1", &["::ffff:192.0.2.7"], "192.0.2.7", true),
            (PROXIES, "10.0.0.1", &["192.0.2.7, ,"], "192.0.2.7", true),
            // Every entry is a proxy: the outermost of them.
            (PROXIES, "10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3", true),
            // A proxy that sends no header, and one that sends nothing usable.
            (PROXIES, "10.0.0.1", &[], "10.0.0.1", true),
            (PROXIES, "10.0.0.1", &["unknown"], "10.0.0.1", false),
            (PROXIES, "10.0.0.1", &["192.0.2.7, unknown, 10.0.0.2"], "10.0.0.2", false),
            (PROXIES, "10.0.0.1", &[" , "], "10.0.0.1", false),
        ] {
            let actual = client(trusted, peer, lines);
            assert_eq!(actual, (expected.to_string(), is_certain), "{peer} with {lines:?}, trusting {trusted:?}");
        }
    }

    #[test]
    fn other_forwarding_headers_make_an_address_uncertain() {
        for name in ["forwarded", "x-real-ip"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, "for=192.0.2.7".parse().unwrap());
            for trusted in [Networks::default(), Networks::parse(["10.0.0.0/8"]).unwrap()] {
                let client = Proxies::new(trusted).client("10.0.0.1".parse().unwrap(), &headers);
                assert_eq!((client.address.to_string(), client.is_certain), ("10.0.0.1".to_string(), false), "{name}");
            }
        }
    }

    #[test]
    fn networks_are_read_or_refused_with_advice() {
        for text in ["10.0.0.0/33", "10.0.0/8", "example.org", "", "2001:db8::/129", "10.0.0.0/8 "] {
            let error = Networks::parse([text]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a network; write ")), "{error}");
        }
        let wrapped = Networks::parse(["::ffff:10.0.0.0/104", "::ffff:192.0.2.7"]).unwrap();
        for (address, inside) in [("10.9.9.9", true), ("11.0.0.1", false), ("192.0.2.7", true), ("192.0.2.8", false)] {
            assert_eq!(wrapped.contains(address.parse().unwrap()), inside, "{address}");
        }
    }
}
