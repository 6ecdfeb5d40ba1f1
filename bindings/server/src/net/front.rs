//! The front: what is checked first of every request.
//!
//! A page of another site, open in the browser of someone who can reach this
//! server, must not get through to it. So a request has to name one of our hosts,
//! which excludes a name that was rebound to this address; and a request that
//! changes something must not come from another origin.

use crate::problem::Problem;
use http::uri::{Authority, Uri};
use http::{HeaderMap, Method, StatusCode, header};
use std::net::IpAddr;

/// Checks the host and the origin of a request; `is_allowed` if the operator lets pages of its origin in.
pub(crate) fn check(
    method: &Method,
    target: &Uri,
    headers: &HeaderMap,
    hosts: &[String],
    is_allowed: bool,
) -> Result<(), Problem> {
    let mut named = headers.get_all(header::HOST).iter();
    let host = match (named.next().and_then(|host| host.to_str().ok()), named.next()) {
        (Some(host), None) => host,
        (None, None) => return Err(Problem::bad_request("the request has no Host header")),
        // A proxy in front may have checked another one than we would.
        _ => return Err(Problem::bad_request("the request has more than one Host header; send one")),
    };
    // A host in the target takes precedence over the header.
    let is_target_ours = target.authority().is_none_or(|authority| is_ours(authority.as_str(), hosts));
    if !is_target_ours || !is_ours(host, hosts) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not served here; use the address, or add the name to hosts in [server]",
        ));
    }
    if !method.is_safe() && !is_allowed && !is_same_origin(headers, host) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "requests from pages of other origins are refused"));
    }
    Ok(())
}

/// An address or `localhost` cannot be rebound; other names have to be listed.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    // The common case, without parsing.
    if let Some(port) = host.strip_prefix("127.0.0.1:").or_else(|| host.strip_prefix("localhost:")) {
        return port.bytes().all(|byte| byte.is_ascii_digit());
    }
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Browsers send where a request comes from; other clients do not.
fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return false;
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => origin.to_str().is_ok_and(|origin| {
            let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
        }),
        (Some(_), Some(_)) => false,
    }
}

/// Whether the content type is JSON, which a form of another origin cannot send.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, fields: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        match check(&method, &Uri::from_static("/"), &headers, &["limits.example.com".to_owned()], false) {
            Ok(()) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[test]
    fn only_our_own_hosts_are_answered() {
        for (host, expected) in [
            ("127.0.0.1:8787", 200),
            ("127.0.0.1", 200),
            ("localhost:1", 200),
            ("LOCALHOST", 200),
            ("[::1]:8787", 200),
            ("192.0.2.7:80", 200),
            ("limits.example.com", 200),
            ("Limits.Example.com:8443", 200),
            ("evil.example", 421),
            ("evil.example:8787", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("127.0.0.1:8787.evil.example", 421),
            ("localhost:1@evil.example", 421),
            ("localhost:1@evil.example:2", 421),
            ("user@127.0.0.1", 421),
            ("", 421),
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(Method::GET, &[]), 400);
    }

    #[test]
    fn changes_come_from_no_browser_or_from_our_own_page() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:8787");
        for (field, expected) in [
            (("origin", "http://127.0.0.1:8787"), 200),
            (("origin", "https://127.0.0.1:8787"), 200),
            (("origin", "http://127.0.0.1:8788"), 403),
            (("origin", "http://evil.example"), 403),
            (("origin", "null"), 403),
            (("origin", ""), 403),
            (("sec-fetch-site", "same-origin"), 200),
            (("sec-fetch-site", "none"), 200),
            (("sec-fetch-site", "same-site"), 403),
            (("sec-fetch-site", "cross-site"), 403),
        ] {
            assert_eq!(status(Method::POST, &[HOST, field]), expected, "{field:?}");
            assert_eq!(status(Method::DELETE, &[HOST, field]), expected, "{field:?}");
            assert_eq!(status(Method::GET, &[HOST, field]), 200, "{field:?}");
        }
        let ours = ("origin", "http://127.0.0.1:8787");
        assert_eq!(status(Method::POST, &[HOST, ours, ours]), 403);
    }

    #[test]
    fn json_is_recognised_by_its_content_type() {
        for (kind, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("application/jsonp", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            assert_eq!(is_json(&headers), expected, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
