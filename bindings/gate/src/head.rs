//! A request without its body: everything that a decision may depend on.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri};
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
