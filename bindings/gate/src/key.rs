//! Keys: where a request has its agent's id.

use crate::address::Group;
use crate::head::Head;
use crate::inline::Inline;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use tollgate::bounds::ID_BYTES_MAX;

/// One way to find the agent's id in a request.
///
/// Add several to fall back from one to the next: the first that finds an id wins.
///
/// **Use an id that the client cannot choose.** A header is one only if something
/// in front of the service has verified it, and a claim of a token only after its
/// signature was checked. A client that invents ids gets a fresh bucket for every
/// request.
///
/// ```
/// use tollgate_gate::Key;
/// # #[derive(Clone)] struct User { id: u64 }
///
/// // `user:42` if an earlier layer has authenticated the client, else `ip:192.0.2.7`.
/// let keys = [
///     Key::function("a signed-in user", |head| head.extensions.get::<User>().map(|user| user.id)).prefix("user:"),
///     Key::address(),
/// ];
/// ```
#[derive(Clone)]
pub struct Key {
    source: Source,
    prefix: String,
    is_secret: bool,
}

/// Writes the id and returns true, or returns false if there is none.
type WriteId = dyn Fn(&Head<'_>, &mut Inline<ID_BYTES_MAX>) -> bool + Send + Sync;

#[derive(Clone)]
enum Source {
    Header(Result<HeaderName, String>),
    Function { what: String, write_id: Arc<WriteId> },
    Address { ipv6_prefix: u8 },
    Shared,
}

impl Key {
    /// The value of a header, for example `x-agent-id`.
    ///
    /// An empty value counts as a missing one. A header that is sent twice or is
    /// longer than [`ID_BYTES_MAX`] is refused with status 400.
    #[must_use]
    pub fn header(name: &str) -> Self {
        let name = HeaderName::try_from(name).map_err(|_| name.chars().take(80).collect());
        Self::new(Source::Header(name), "")
    }

    /// The value of a header that only its sender may see, for example `x-api-key`:
    /// like [`header`](Key::header), but never shown in a response.
    #[must_use]
    pub fn secret_header(name: &str) -> Self {
        Self { is_secret: true, ..Self::header(name) }
    }

    /// What a function finds in the request's head, for example the subject of a
    /// token that an earlier layer has verified. Errors call it `what`: "a verified
    /// token".
    #[must_use]
    pub fn function<T: fmt::Display>(
        what: impl Into<String>,
        function: impl Fn(&Head<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        // Writing to `Inline` never fails: it counts what does not fit.
        let write_id = move |head: &Head<'_>, id: &mut Inline<ID_BYTES_MAX>| {
            function(head).map(|found| _ = write!(id, "{found}")).is_some()
        };
        Self::new(Source::Function { what: what.into(), write_id: Arc::new(write_id) }, "")
    }

    /// The client's address: `ip:192.0.2.7`, or for IPv6 its /64, `ip:2001:db8:1:2::/64`.
    ///
    /// Use it as a last resort, because many clients may share an address.
    #[must_use]
    pub fn address() -> Self {
        Self::new(Source::Address { ipv6_prefix: 64 }, "ip:")
    }

    /// One id for all requests: a common bucket, for example for requests in which no other key finds an id.
    #[must_use]
    pub fn shared(id: impl Into<String>) -> Self {
        Self::new(Source::Shared, id)
    }

    /// Puts a text before the id, so that ids of different keys differ.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Groups the IPv6 addresses of [`address`](Key::address) by another number of
    /// bits than 64: many households get a /56; 128 groups nothing.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        match self.source {
            Source::Address { .. } => Self { source: Source::Address { ipv6_prefix: bits }, ..self },
            _ => self,
        }
    }

    fn new(source: Source, prefix: impl Into<String>) -> Self {
        Self { source, prefix: prefix.into(), is_secret: false }
    }
}

/// What a request needs for this key to find an id: "the header x-agent-id".
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.source {
            Source::Header(Ok(name)) => return write!(f, "the header {name}"),
            Source::Header(Err(text)) | Source::Function { what: text, .. } => text,
            Source::Address { .. } => "an address",
            Source::Shared => &self.prefix,
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("what", &self.to_string()).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Keys in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<Key>,
    /// What the error for a request without an id asks for.
    wanted: Arc<str>,
}

impl Keys {
    /// Takes keys in the order in which they are tried.
    ///
    /// # Errors
    ///
    /// If the list is empty, or a key can never work.
    pub fn new(keys: Vec<Key>) -> Result<Self, KeysError> {
        if keys.is_empty() {
            return Err(KeysError::None);
        }
        for key in &keys {
            match &key.source {
                Source::Header(Err(name)) => return Err(KeysError::HeaderName { name: name.clone() }),
                Source::Address { ipv6_prefix: bits @ (0 | 129..) } => {
                    return Err(KeysError::Ipv6Prefix { bits: *bits });
                }
                Source::Shared if key.prefix.is_empty() || key.prefix.len() > ID_BYTES_MAX => {
                    return Err(KeysError::SharedId { bytes: key.prefix.len() });
                }
                _ => {}
            }
        }
        let wanted = keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" or ").into();
        Ok(Self { keys, wanted })
    }

    /// Whether one of them needs the client's address.
    #[must_use]
    pub fn need_address(&self) -> bool {
        self.keys.iter().any(|key| matches!(key.source, Source::Address { .. }))
    }

    /// The headers that they read.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.keys.iter().filter_map(|key| match &key.source {
            Source::Header(name) => name.as_ref().ok(),
            _ => None,
        })
    }

    /// The agent of a request. `address` finds the client's address; it is called
    /// only if no earlier key finds an id.
    ///
    /// # Errors
    ///
    /// If no key finds an id, or the first one found is invalid.
    pub fn agent(&self, head: &Head<'_>, address: impl Fn() -> Option<IpAddr>) -> Result<AgentId, KeyError> {
        for key in &self.keys {
            let mut text = Inline::new();
            text.push(key.prefix.as_bytes());
            let found = match &key.source {
                Source::Header(Ok(name)) => match only_value(head, name)? {
                    Some(value) => {
                        text.push(value.as_bytes());
                        true
                    }
                    None => false,
                },
                // `new` refuses it.
                Source::Header(Err(_)) => false,
                Source::Function { write_id, .. } => write_id(head, &mut text),
                Source::Address { ipv6_prefix } => {
                    let address = address().ok_or(KeyError::NoAddress)?;
                    write!(text, "{}", Group::of(address, *ipv6_prefix)).is_ok()
                }
                Source::Shared => true,
            };
            if found && text.len() > ID_BYTES_MAX {
                return Err(KeyError::TooLong { what: key.to_string(), bytes: text.len() });
            }
            if found && text.len() > key.prefix.len() || matches!(key.source, Source::Shared) {
                return Ok(AgentId { text, is_secret: key.is_secret });
            }
        }
        Err(KeyError::Missing { wanted: Arc::clone(&self.wanted) })
    }
}

/// The header's value. Of two values nobody could say which one was verified.
fn only_value<'a>(head: &Head<'a>, name: &HeaderName) -> Result<Option<&'a HeaderValue>, KeyError> {
    let mut values = head.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(KeyError::Twice { name: name.clone() }),
        (value, _) => Ok(value),
    }
}

/// An agent's id, stored inline, so that finding one allocates nothing.
#[derive(Clone)]
pub struct AgentId {
    text: Inline<ID_BYTES_MAX>,
    is_secret: bool,
}

impl AgentId {
    /// The id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The id, if a response may contain it.
    #[must_use]
    pub fn shown(&self) -> Option<&[u8]> {
        (!self.is_secret).then(|| self.as_bytes())
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown() {
            Some(id) => write!(f, "AgentId({})", id.escape_ascii()),
            None => f.write_str("AgentId(secret)"),
        }
    }
}

/// Why a request's agent could not be identified.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The request has nothing that the keys look for.
    Missing {
        /// What they look for.
        wanted: Arc<str>,
    },
    /// A header that names the agent was sent more than once.
    Twice {
        /// The header.
        name: HeaderName,
    },
    /// The id is longer than [`ID_BYTES_MAX`].
    TooLong {
        /// What it came from.
        what: String,
        /// How long it is.
        bytes: usize,
    },
    /// The server did not provide the client's address.
    NoAddress,
}

impl KeyError {
    /// The status of the response: whether the client or the server is at fault.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoAddress => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { wanted } => write!(f, "the request does not identify its agent; it needs {wanted}"),
            Self::Twice { name } => write!(f, "the header {name} was sent more than once; send it once"),
            Self::TooLong { what, bytes } => {
                write!(f, "the agent id from {what} has {bytes} bytes; at most {ID_BYTES_MAX} are allowed")
            }
            Self::NoAddress => write!(
                f,
                "the client's address is unknown; with axum, serve the app's \
                 into_make_service_with_connect_info::<SocketAddr>(), with hyper, insert a Peer into the request's \
                 extensions"
            ),
        }
    }
}

impl std::error::Error for KeyError {}

/// Why keys can never work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeysError {
    /// The list is empty.
    None,
    /// A text is not a header name.
    HeaderName {
        /// The text, its first 80 characters.
        name: String,
    },
    /// IPv6 addresses are grouped by 1 to 128 bits.
    Ipv6Prefix {
        /// The number as given.
        bits: u8,
    },
    /// A shared id has 1 to [`ID_BYTES_MAX`] bytes.
    SharedId {
        /// The length of the one given.
        bytes: usize,
    },
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => {
                write!(f, "no key identifies the agent of a request; add a key, such as Key::header(\"x-agent-id\")")
            }
            Self::HeaderName { name } => write!(f, "{name:?} is not a header name; write one such as \"x-agent-id\""),
            Self::Ipv6Prefix { bits } => write!(f, "IPv6 addresses grouped by {bits} bits; allowed: 1 to 128"),
            Self::SharedId { bytes } => {
                write!(f, "a shared agent id of {bytes} bytes; allowed: 1 to {ID_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for KeysError {}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const USER: fn(&Head<'_>) -> Option<u64> = |head| head.extensions.get::<u64>().copied();

    fn chain() -> Vec<Key> {
        vec![Key::header("x-agent-id"), Key::function("a signed-in user", USER).prefix("user:"), Key::address()]
    }

    fn agent(keys: Vec<Key>, request: &Request<()>, address: Option<&str>) -> Result<String, String> {
        let keys = Keys::new(keys).unwrap();
        let id = keys.agent(&Head::from(request), || address.map(|address| address.parse().unwrap()));
        id.map(|id| String::from_utf8(id.as_bytes().to_vec()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_key_that_finds_an_id_wins() {
        let mut request = Request::new(());
        assert_eq!(agent(chain(), &request, Some("192.0.2.7")), Ok("ip:192.0.2.7".into()));
        assert_eq!(agent(chain(), &request, Some("2001:db8:1:2:3::7")), Ok("ip:2001:db8:1:2::/64".into()));
        let wide = vec![Key::address().ipv6_prefix(48)];
        assert_eq!(agent(wide, &request, Some("2001:db8:1:2:3::7")), Ok("ip:2001:db8:1::/48".into()));
        request.extensions_mut().insert(42_u64);
        assert_eq!(agent(chain(), &request, Some("192.0.2.7")), Ok("user:42".into()));
        request.headers_mut().insert("x-agent-id", "agent-7".parse().unwrap());
        assert_eq!(agent(chain(), &request, None), Ok("agent-7".into()));
        request.headers_mut().insert("x-agent-id", "".parse().unwrap());
        assert_eq!(agent(chain(), &request, None), Ok("user:42".into()), "an empty header does not count");
    }

    #[test]
    fn a_request_without_a_key_gets_an_error_that_lists_what_it_needs() {
        let request = Request::new(());
        let keys = || vec![Key::header("x-agent-id"), Key::function("a signed-in user", USER)];
        assert_eq!(
            agent(keys(), &request, None),
            Err("the request does not identify its agent; it needs the header x-agent-id or a signed-in user".into())
        );
        let last = Key::shared("strangers");
        assert_eq!(agent([keys(), vec![last]].concat(), &request, None), Ok("strangers".into()));
    }

    #[test]
    fn a_server_that_provides_no_address_gets_an_error_that_says_how() {
        let error = Keys::new(chain()).unwrap().agent(&Head::from(&Request::new(())), || None).unwrap_err();
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(error.to_string().contains("into_make_service_with_connect_info::<SocketAddr>()"), "{error}");
    }

    #[test]
    fn ids_that_are_ambiguous_or_too_long_are_refused() {
        let mut request = Request::new(());
        request.headers_mut().append("x-agent-id", "a".parse().unwrap());
        request.headers_mut().append("x-agent-id", "b".parse().unwrap());
        assert_eq!(
            agent(chain(), &request, None),
            Err("the header x-agent-id was sent more than once; send it once".into())
        );
        for (bytes, is_allowed) in [(ID_BYTES_MAX, true), (ID_BYTES_MAX + 1, false), (5_000, false)] {
            let value = "a".repeat(bytes - 2);
            request.headers_mut().insert("x-agent-id", value.parse().unwrap());
            let actual = agent(vec![Key::header("x-agent-id").prefix("a:")], &request, None);
            let error = format!("the agent id from the header x-agent-id has {bytes} bytes; at most 256 are allowed");
            assert_eq!(actual, if is_allowed { Ok(format!("a:{value}")) } else { Err(error) });
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut request = Request::new(());
        request.headers_mut().insert("x-api-key", "s3cret".parse().unwrap());
        let id = |key| Keys::new(vec![key]).unwrap().agent(&Head::from(&request), || None).unwrap();
        let (secret, open) = (id(Key::secret_header("x-api-key")), id(Key::header("x-api-key")));
        assert_eq!((secret.as_bytes(), secret.shown()), (b"s3cret".as_slice(), None));
        assert_eq!(open.shown(), Some(b"s3cret".as_slice()));
        assert_eq!((format!("{secret:?}"), format!("{open:?}")), ("AgentId(secret)".into(), "AgentId(s3cret)".into()));
    }

    #[test]
    fn keys_that_can_never_work_are_refused_with_advice() {
        let refused = |keys: Vec<Key>| Keys::new(keys).unwrap_err().to_string();
        assert!(refused(vec![]).contains("add a key"));
        assert_eq!(
            refused(vec![Key::header("agent id")]),
            "\"agent id\" is not a header name; write one such as \"x-agent-id\""
        );
        for bits in [0, 129] {
            assert!(refused(vec![Key::address().ipv6_prefix(bits)]).ends_with("allowed: 1 to 128"));
        }
        assert!(refused(vec![Key::shared("")]).ends_with("allowed: 1 to 256"));
    }
}
