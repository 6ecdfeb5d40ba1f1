//! What a gateway says about its client's request, and what its operator wants to know.

use crate::problem::Problem;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use std::borrow::Cow;
use tollgate::{CallLimit, LimitError};

/// The path that gateways ask.
pub(super) const PATH: &str = "/v1/gate";

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");

/// The client's request, as the gateway reports it.
pub(super) struct Target<'a> {
    /// What the client requested; `None` if the gateway does not say.
    uri: Option<Uri>,
    method: Cow<'a, Method>,
    /// Whether the method is the client's for sure: a gateway asks with its own.
    has_method: bool,
    /// The query of the operator's URL.
    query: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Reads it from the path below, as Envoy sends it, or from headers.
    pub(super) fn of(parts: &'a Parts) -> Result<Self, Problem> {
        let below = parts.uri.path().strip_prefix(PATH).unwrap_or_default();
        if !below.is_empty() {
            // The gateway has put its client's path and query after the operator's, so all of the query is the
            // client's: it names no lane, no cost and no plan.
            let whole = parts.uri.path_and_query().map_or(below, |whole| &whole.as_str()[PATH.len()..]);
            let (uri, method) = (Some(read(whole)?), Cow::Borrowed(&parts.method));
            return Ok(Self { uri, method, has_method: true, query: None });
        }
        let uri = either(&parts.headers, &FORWARDED_URI, &ORIGINAL_URI)?.map(text).transpose()?;
        let query = parts.uri.query().filter(|query| !query.is_empty());
        // Caddy, for one, keeps the client's query if the operator's URL has none.
        let clients = uri.and_then(|uri| uri.split_once('?')).map(|(_, query)| query);
        if query.is_some() && query == clients {
            return Err(Problem::bad_request(
                "the query of this request is the client's; let the gateway ask /v1/gate with a query of its own, \
                 such as ?lane=",
            )
            .with_reason("gate"));
        }
        let method = either(&parts.headers, &FORWARDED_METHOD, &ORIGINAL_METHOD)?;
        let named = method.map(|method| Method::from_bytes(method.as_bytes())).transpose();
        let named =
            named.map_err(|_| Problem::bad_request("x-forwarded-method is not a method").with_reason("gate"))?;
        let has_method = named.is_some() || uri.is_none();
        let method = named.map_or(Cow::Borrowed(&parts.method), Cow::Owned);
        Ok(Self { uri: uri.map(read).transpose()?, method, has_method, query })
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// What the client requested; `/` if that is unknown.
    pub(super) fn uri(&self) -> Uri {
        self.uri.clone().unwrap_or_default()
    }

    /// Checks that the gateway has sent what rules look at. Otherwise all requests would look alike.
    pub(super) fn must_be_known(&self, path: bool, method: bool) -> Result<(), Problem> {
        let missing = match (path && self.uri.is_none(), method && !self.has_method) {
            (true, _) => "X-Forwarded-Uri, the path that its client requested,",
            (_, true) => "X-Forwarded-Method, the method of its client's request,",
            (false, false) => return Ok(()),
        };
        let detail = format!("[gate] has rules by path, so let the gateway send {missing} or add ?lane= to its URL");
        Err(Problem::bad_request(detail).with_reason("gate"))
    }
}

/// What the query of the operator's URL asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) lane: Option<String>,
    pub(super) cost: Option<u64>,
    pub(super) plan: Option<String>,
    /// Of a lane that the policy declares dynamic.
    pub(super) limit: Option<CallLimit>,
    /// The status of a refusal.
    deny: Option<StatusCode>,
}

const PARAMETERS: &str = "lane, cost, plan, limit and deny";

impl Asked {
    pub(super) fn of(target: &Target<'_>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        // Each name may stand once, so there are at most as many as names.
        for pair in target.query.iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = |problem: &str| Problem::field(name.to_owned(), problem.to_owned()).with_reason("gate");
            let value = decoded(value).ok_or_else(|| wrong("this is not percent-encoded UTF-8"))?;
            let is_new = match name {
                "lane" => asked.lane.replace(value).is_none(),
                "plan" => asked.plan.replace(value).is_none(),
                "cost" => {
                    let cost = value.parse().map_err(|_| wrong("give a whole number"))?;
                    asked.cost.replace(cost).is_none()
                }
                "limit" => {
                    let limit = value.parse().map_err(|error: LimitError| wrong(&error.to_string()))?;
                    asked.limit.replace(limit).is_none()
                }
                "deny" => {
                    let status = refusal(&value);
                    let status = status.ok_or_else(|| wrong("give a status from 400 to 499, such as 403 for nginx"))?;
                    asked.deny.replace(status).is_none()
                }
                _ => {
                    let shown = super::super::request::short(name);
                    let detail = format!(
                        "the gate has no parameter \"{shown}\"; it has {PARAMETERS}. If this is your client's query, \
                         let the gateway ask /v1/gate with one of its own"
                    );
                    return Err(Problem::bad_request(detail).with_reason("gate"));
                }
            };
            if !is_new {
                return Err(wrong("this is given twice; give it once"));
            }
        }
        Ok(asked)
    }
}

/// The status of every refusal that the operator's URL asks for, even if the rest of it is wrong.
pub(super) fn deny(uri: &Uri) -> Option<StatusCode> {
    let query = uri.query().filter(|_| uri.path() == PATH)?;
    query.split('&').find_map(|pair| refusal(pair.strip_prefix("deny=")?))
}

fn refusal(text: &str) -> Option<StatusCode> {
    text.parse().ok().filter(|status| (400..500).contains(status)).and_then(|status| StatusCode::from_u16(status).ok())
}

/// The value of a header that is there once.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        // One of them may be the client's.
        (Some(_), Some(_)) => {
            let detail = format!("{name} came more than once; let the gateway replace what its client sends");
            Err(Problem::bad_request(detail).with_reason("gate"))
        }
        (value, _) => Ok(value),
    }
}

/// The value of whichever header is there. If both are and differ, one of them may be the client's.
fn either<'h>(
    headers: &'h HeaderMap,
    one: &HeaderName,
    other: &HeaderName,
) -> Result<Option<&'h HeaderValue>, Problem> {
    match (only(headers, one)?, only(headers, other)?) {
        (Some(first), Some(second)) if first != second => {
            let detail = format!("{one} and {other} differ; let the gateway remove the one that it does not set");
            Err(Problem::bad_request(detail).with_reason("gate"))
        }
        (first, second) => Ok(first.or(second)),
    }
}

fn text(value: &HeaderValue) -> Result<&str, Problem> {
    value.to_str().map_err(|_| no_path())
}

fn no_path() -> Problem {
    Problem::bad_request("the client's path is not one of a valid request").with_reason("gate")
}

/// A path with a query, or a whole URL.
fn read(text: &str) -> Result<Uri, Problem> {
    if text.starts_with('/') || text == "*" {
        return text.parse::<PathAndQuery>().map(Uri::from).map_err(|_| no_path());
    }
    text.parse().map_err(|_| no_path())
}

/// A value of a query.
fn decoded(value: &str) -> Option<String> {
    if !value.contains(['%', '+']) {
        return Some(value.to_owned());
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    // Ends: each round takes at least one byte.
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(match byte {
            // Lossless: both digits are below 16.
            b'%' => (digit()? << 4 | digit()?) as u8,
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn target(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(String, String), String> {
        let parts = parts(method, uri, headers);
        let target = Target::of(&parts).map_err(|problem| problem.detail().to_owned())?;
        Ok((target.method().to_string(), target.uri().to_string()))
    }

    #[test]
    fn the_clients_request_is_read_from_headers_or_from_the_path_below() {
        for (method, uri, headers, expected) in [
            ("GET", "/v1/gate", &[] as &[(&str, &str)], ("GET", "/")),
            ("GET", "/v1/gate", &[("x-forwarded-uri", "/a?b=c"), ("x-forwarded-method", "POST")], ("POST", "/a?b=c")),
            ("GET", "/v1/gate?lane=x", &[("x-original-uri", "/a"), ("x-original-method", "PUT")], ("PUT", "/a")),
            ("GET", "/v1/gate", &[("x-original-uri", "/a"), ("x-forwarded-uri", "/a")], ("GET", "/a")),
            ("GET", "/v1/gate", &[("x-forwarded-uri", "http://h/a?b")], ("GET", "http://h/a?b")),
            ("OPTIONS", "/v1/gate", &[("x-forwarded-uri", "*")], ("OPTIONS", "*")),
            ("POST", "/v1/gate/", &[], ("POST", "/")),
            // What stands below is the gateway's word, and a header may be the client's.
            (
                "POST",
                "/v1/gate/a/b?c=d",
                &[("x-forwarded-uri", "/x"), ("x-forwarded-method", "GET")],
                ("POST", "/a/b?c=d"),
            ),
            ("POST", "/v1/gate//a/../b", &[], ("POST", "//a/../b")),
        ] {
            let expected = (expected.0.to_owned(), expected.1.to_owned());
            assert_eq!(target(method, uri, headers), Ok(expected), "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn a_header_that_may_be_the_clients_is_refused() {
        for (uri, headers, problem) in [
            ("/v1/gate", &[("x-forwarded-uri", "/a"), ("x-original-uri", "/b")] as &[(&str, &str)], "differ"),
            ("/v1/gate", &[("x-forwarded-method", "GET"), ("x-original-method", "PUT")], "differ"),
            ("/v1/gate", &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/a")], "more than once"),
            ("/v1/gate?plan=jwt", &[("x-forwarded-uri", "/a?plan=jwt")], "the query of this request is the client's"),
            ("/v1/gate", &[("x-forwarded-uri", "/a b")], "the client's path"),
            ("/v1/gate", &[("x-forwarded-method", "P(ST")], "not a method"),
        ] {
            let error = target("GET", uri, headers).unwrap_err();
            assert!(error.contains(problem), "{headers:?}: {error}");
        }
    }

    #[test]
    fn the_operators_query_is_read_and_a_clients_below_is_not() {
        let asked = |uri: &str| {
            let parts = parts("GET", uri, &[]);
            let target = Target::of(&parts).unwrap();
            Asked::of(&target).map_err(|problem| problem.detail().to_owned())
        };
        let everything = Asked {
            lane: Some("http/read é".into()),
            cost: Some(5),
            plan: Some("pro".into()),
            limit: Some("3/minute burst 5".parse().unwrap()),
            deny: Some(StatusCode::FORBIDDEN),
        };
        assert_eq!(
            asked("/v1/gate?lane=http/read+%C3%A9&cost=5&plan=pro&limit=3/minute+burst+5&deny=403"),
            Ok(everything)
        );
        for uri in ["/v1/gate", "/v1/gate?", "/v1/gate/?cost=0&plan=pro", "/v1/gate/a?lane=x&page=2"] {
            assert_eq!(asked(uri), Ok(Asked::default()), "{uri}");
        }
        for (uri, problem) in [
            ("/v1/gate?page=2", "the gate has no parameter \"page\"; it has lane, cost, plan, limit and deny"),
            ("/v1/gate?cost=many", "give a whole number"),
            ("/v1/gate?cost=-1", "give a whole number"),
            ("/v1/gate?limit=3", "is not a limit"),
            ("/v1/gate?limit=budget+3/day", "bucket"),
            ("/v1/gate?deny=200", "a status from 400 to 499"),
            ("/v1/gate?lane=a&lane=b", "given twice"),
            ("/v1/gate?lane=%ff", "percent-encoded"),
            ("/v1/gate?lane=%f", "percent-encoded"),
        ] {
            let error = asked(uri).unwrap_err();
            assert!(error.contains(problem), "{uri}: {error}");
        }
    }
}
