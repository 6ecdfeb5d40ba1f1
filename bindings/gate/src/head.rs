//! A request without its body: everything that a decision may depend on.

use crate::address::{X_FORWARDED_FOR, X_REAL_IP};
use crate::gate::Gate;
use crate::profile::Profile;
use crate::refusal::Form;
use http::header::{ACCEPT, CONTENT_TYPE, FORWARDED};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, Method, Request, Uri};
use std::net::SocketAddr;
use std::ops::Deref;

/// The method, target, headers and extensions of a request.
///
/// Keys, costs and rules see this and never the body, so a request can be
/// answered before a byte of its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What the server and earlier layers have attached.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self { method: &parts.method, uri: &parts.uri, headers: &parts.headers, extensions: &parts.extensions }
    }
}

/// The address of a connection's peer, for servers that have no type for it:
/// insert it into the extensions of each request, and build the gate with
/// `.peer::<Peer>()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Deref for Peer {
    type Target = SocketAddr;

    fn deref(&self) -> &SocketAddr {
        &self.0
    }
}

/// What an adapter has to convert of a request's headers.
impl Gate {
    /// The headers of a request that the gate's own settings read, so that an adapter
    /// need not convert the others. Functions that you pass to the builder may read more.
    #[must_use]
    pub fn headers_read(&self) -> Vec<HeaderName> {
        // The address of the peer is the client's, whatever a header says, unless a proxy or a network is known.
        let reads_forwarding = !self.proxies.is_empty() || !self.bypass.networks.is_empty();
        let forwarding = reads_forwarding.then_some([FORWARDED, X_FORWARDED_FOR, X_REAL_IP]);
        let fixed = [ACCEPT, CONTENT_TYPE].into_iter().chain(forwarding.into_iter().flatten());
        fixed.chain(self.headers_of_agents()).collect()
    }

    /// Whether one of these headers can make a difference with this value: most `Accept`s and `Content-Type`s choose
    /// nothing, so that an adapter need not convert them either.
    #[must_use]
    pub fn heeds(name: &HeaderName, value: &[u8]) -> bool {
        match () {
            () if *name == ACCEPT => Profile::may_be_requested(value),
            () if *name == CONTENT_TYPE => Form::is_grpc(value),
            () => true,
        }
    }

    /// Those of them that name the agent. A request that has one of these twice is refused.
    #[must_use]
    pub fn headers_of_agents(&self) -> Vec<HeaderName> {
        self.keys.headers().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Peer;
    use crate::address::X_REAL_IP;
    use crate::gate::Gate;
    use crate::key::Key;
    use http::header::{ACCEPT, CONTENT_TYPE};
    use std::sync::Arc;
    use tollgate::{Limiter, Policy};

    #[test]
    fn only_headers_that_may_change_a_ruling_are_read() {
        let policy = Policy::builder().lane("api", "5/min").build().unwrap();
        let limiter = Arc::new(Limiter::builder(policy).agents(10).build().unwrap());
        let builder = || Gate::builder(Arc::clone(&limiter)).peer::<Peer>().key(Key::header("x-agent-id"));
        let read = |gate: Gate| gate.headers_read().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(read(builder().build().unwrap()), "accept content-type x-agent-id");
        let forwarding = "accept content-type forwarded x-forwarded-for x-real-ip x-agent-id";
        assert_eq!(read(builder().trusted_proxies(["10.0.0.1"]).build().unwrap()), forwarding);
        assert_eq!(read(builder().allow_network("10.0.0.1").build().unwrap()), forwarding);
        for (name, value, heeded) in [
            (ACCEPT, "application/json, */*", false),
            (ACCEPT, "application/problem+json", true),
            (ACCEPT, "application/json;profile=hub", true),
            (CONTENT_TYPE, "application/json", false),
            (CONTENT_TYPE, "application/grpc+proto", true),
            (X_REAL_IP, "", true),
        ] {
            assert_eq!(Gate::heeds(&name, value.as_bytes()), heeded, "{name}: {value}");
        }
    }
}
