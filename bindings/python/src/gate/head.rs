//! The head of a request, read from an ASGI scope or a WSGI environ.

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tollgate_gate::{Gate, Head, Peer};

/// The head of a request, as far as a gate reads it.
pub(super) struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    pub(super) extensions: Extensions,
}

impl Request {
    pub(super) fn head(&self) -> Head<'_> {
        Head { method: &self.method, uri: &self.uri, headers: &self.headers, extensions: &self.extensions }
    }

    fn new(method: &str, path: &[u8], peer: Option<&str>) -> PyResult<Self> {
        let invalid = |what: &str| PyValueError::new_err(format!("the server gave an invalid {what}"));
        let mut extensions = Extensions::new();
        if let Some(address) = peer.and_then(address) {
            extensions.insert(Peer(SocketAddr::new(address, 0)));
        }
        Ok(Self {
            method: Method::from_bytes(method.as_bytes()).map_err(|_| invalid("method"))?,
            uri: Uri::try_from(encoded(path)).map_err(|_| invalid("path"))?,
            headers: HeaderMap::new(),
            extensions,
        })
    }

    fn add(&mut self, name: &HeaderName, value: &[u8]) {
        // A server refuses what no header may contain.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.headers.append(name, value);
        }
    }

    /// Reads the scope of an HTTP request or of a WebSocket.
    pub(super) fn of_scope(scope: &Bound<'_, PyDict>, read: &[HeaderName]) -> PyResult<Self> {
        let py = scope.py();
        let item = |name| scope.get_item::<&Bound<'_, PyString>>(name);
        let method = item(intern!(py, "method"))?;
        let method = method.as_ref().map(|method| method.cast::<PyString>()).transpose()?;
        let path = item(intern!(py, "path"))?.ok_or_else(|| PyValueError::new_err("the scope has no path"))?;
        let path = path.cast::<PyString>()?.to_str()?;
        let root = item(intern!(py, "root_path"))?;
        let root = root.as_ref().map(|root| root.cast::<PyString>()).transpose()?;
        let path = below(path, root.map(|root| root.to_str()).transpose()?.unwrap_or_default());
        let client = item(intern!(py, "client"))?.filter(|client| !client.is_none());
        let client = client.map(|client| client.get_item(0)).transpose()?;
        let peer = client.as_ref().map(|host| host.extract::<&str>()).transpose()?;
        // A WebSocket is opened with GET; its scope has no method.
        let method = method.map(|method| method.to_str()).transpose()?.unwrap_or("GET");
        let mut request = Self::new(method, path.as_bytes(), peer)?;
        if let Some(headers) = item(intern!(py, "headers"))? {
            match headers.cast::<PyList>() {
                Ok(headers) => headers.iter().try_for_each(|header| request.add_pair(&header, read))?,
                Err(_) => headers.try_iter()?.try_for_each(|header| request.add_pair(&header?, read))?,
            }
        }
        Ok(request)
    }

    fn add_pair(&mut self, header: &Bound<'_, PyAny>, read: &[HeaderName]) -> PyResult<()> {
        let tuple = header.cast::<PyTuple>().ok();
        let item = |at| tuple.map_or_else(|| header.get_item(at), |pair| pair.get_item(at));
        let name = item(0)?;
        let name = name.cast::<PyBytes>()?.as_bytes();
        let Some(name) = read.iter().find(|read| read.as_str().as_bytes().eq_ignore_ascii_case(name)) else {
            return Ok(());
        };
        let value = item(1)?;
        let value = value.cast::<PyBytes>()?.as_bytes();
        if Gate::heeds(name, value) {
            self.add(name, value);
        }
        Ok(())
    }

    /// Reads the environ of a WSGI request, or Django's `META`, whose path is decoded already.
    pub(super) fn of_environ(
        environ: &Bound<'_, PyDict>,
        path: Option<&str>,
        read: &[(HeaderName, Py<PyString>)],
        single: &[HeaderName],
    ) -> PyResult<Self> {
        let py = environ.py();
        let text = |name: &Bound<'_, PyString>| -> PyResult<Option<String>> {
            environ.get_item(name)?.map(|value| value.extract()).transpose()
        };
        let method = text(intern!(py, "REQUEST_METHOD"))?.unwrap_or_else(|| "GET".to_owned());
        let peer = text(intern!(py, "REMOTE_ADDR"))?;
        let path = match path {
            Some(path) => path.as_bytes().to_vec(),
            None => latin1(&text(intern!(py, "PATH_INFO"))?.unwrap_or_default()),
        };
        let path = if path.is_empty() { b"/".to_vec() } else { path };
        let mut request = Self::new(&method, &path, peer.as_deref())?;
        for (name, variable) in read {
            let Some(value) = environ.get_item(variable)? else { continue };
            let value = latin1(value.cast::<PyString>()?.to_str()?);
            if !Gate::heeds(name, &value) {
                continue;
            }
            // The servers join what a client sent twice, and of two ids nobody could say which one was verified.
            match single.contains(name) {
                true => value.split(|byte| *byte == b',').for_each(|value| request.add(name, value.trim_ascii())),
                false => request.add(name, &value),
            }
        }
        Ok(request)
    }
}

/// The variable of an environ that has a header.
pub(super) fn variable(py: Python<'_>, name: &HeaderName) -> Py<PyString> {
    let name = name.as_str().to_ascii_uppercase().replace('-', "_");
    PyString::intern(py, &if name == "CONTENT_TYPE" { name } else { format!("HTTP_{name}") }).unbind()
}

/// The bytes that a server gave as Latin-1.
fn latin1(text: &str) -> Vec<u8> {
    match text.is_ascii() {
        true => text.as_bytes().to_vec(),
        // A character beyond stands in no Latin-1, and in no path or header that matches a rule.
        false => text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect(),
    }
}

/// An address as a server gives it.
fn address(host: &str) -> Option<IpAddr> {
    // What Starlette's TestClient calls itself.
    host.parse().ok().or_else(|| (host == "testclient").then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// The path without the prefix at which a server has mounted the app.
fn below<'a>(path: &'a str, root: &str) -> &'a str {
    match path.strip_prefix(root) {
        Some(rest) if !root.is_empty() && rest.starts_with('/') => rest,
        Some("") if !root.is_empty() => "/",
        _ => path,
    }
}

/// A decoded path in the form of a URI. Python's routers match decoded paths, so the gate does too: what they take for
/// a slash is one, and what they take for a letter is that letter.
pub(super) fn encoded(path: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain =
        |byte: &u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9') || b"/-._~!$&'()*+,;=:@".contains(byte);
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match is_plain(byte) {
            true => text.push(char::from(*byte)),
            false => {
                text.push('%');
                text.push(char::from(HEX[usize::from(byte >> 4)]));
                text.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    text
}

/// A rule as the gate has it: its literal letters encoded as those of paths are, `{id:int}` as `{id}`, and
/// `{rest:path}` as `{*rest}`.
pub(super) fn encoded_rule(rule: &str) -> String {
    let (method, template) = match rule.split_once(' ') {
        Some((method, template)) => (format!("{method} "), template),
        None => (String::new(), rule),
    };
    let (mut text, mut rest) = (method, template);
    // Ends: each round takes a parameter.
    while let Some((before, parameter, after)) = rest.split_once('{').and_then(|(before, inner)| {
        let (parameter, after) = inner.split_once('}')?;
        Some((before, parameter, after))
    }) {
        text.push_str(&literal(before));
        text.push_str(&match parameter.split_once(':') {
            Some((name, "path")) => format!("{{*{name}}}"),
            Some((name, _)) => format!("{{{name}}}"),
            None => format!("{{{parameter}}}"),
        });
        rest = after;
    }
    text + &literal(rest)
}

/// What a template has between its parameters. What no template may have stays, and is refused.
fn literal(text: &str) -> String {
    if text.contains([' ', '?', '#', '{', '}']) { text.to_owned() } else { encoded(text.as_bytes()) }
}
