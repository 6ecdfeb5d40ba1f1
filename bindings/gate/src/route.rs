//! Routes: which requests a rule covers, by method and path.
//!
//! Templates are written as in axum: `/agents/{id}/run`, `/files/{*path}`. The
//! path is compared as it was sent, without decoding it. axum's router does the
//! same, so a request that no rule matches reaches no route of the same template.

use http::Method;
use matchit::InsertError;
use std::fmt;

/// Values by method and path template.
///
/// A rule with a method takes precedence over one without. A rule for `GET` also
/// covers `HEAD`, unless `HEAD` has its own: otherwise `HEAD` would be a way
/// around it.
///
/// ```
/// use http::Method;
/// use tollgate_gate::route::Routes;
///
/// let mut routes = Routes::default();
/// routes.insert("POST /agents/{id}/run", "heavy")?;
/// routes.insert("/agents/{id}", "light")?;
/// assert_eq!(routes.at(&Method::POST, "/agents/7/run"), Some(&"heavy"));
/// assert_eq!(routes.at(&Method::GET, "/agents/7"), Some(&"light"));
/// assert_eq!(routes.at(&Method::GET, "/agents/7/run"), None);
/// # Ok::<(), tollgate_gate::route::RouteError>(())
/// ```
#[derive(Clone)]
pub struct Routes<T> {
    /// One router for each method that a rule names; `None` is for all methods.
    by_method: Vec<(Option<Method>, matchit::Router<T>)>,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self { by_method: Vec::new() }
    }
}

impl<T> Routes<T> {
    /// Adds a rule: `POST /agents/{id}/run`, or a template alone for all methods.
    ///
    /// # Errors
    ///
    /// If the text is not a rule, or another rule covers the same requests.
    pub fn insert(&mut self, rule: &str, value: T) -> Result<(), RouteError> {
        let refuse = |problem| RouteError { rule: rule.chars().take(200).collect(), problem };
        let (method, path) = match rule.split_once(' ') {
            Some((method, path)) => (Some(method), path),
            None => (None, rule),
        };
        // Methods are case-sensitive, so one in lower case would match nothing.
        let method = match method.map(|name| (name, Method::from_bytes(name.as_bytes()))) {
            Some((name, Ok(method))) if !name.contains(|c: char| c.is_ascii_lowercase()) => Some(method),
            Some(_) => return Err(refuse(Problem::Method)),
            None => None,
        };
        if !path.starts_with('/') || path.contains([' ', '?', '#']) {
            return Err(refuse(Problem::Path));
        }
        let index = self.by_method.iter().position(|(known, _)| *known == method).unwrap_or_else(|| {
            self.by_method.push((method, matchit::Router::new()));
            self.by_method.len() - 1
        });
        self.by_method[index].1.insert(path, value).map_err(|error| refuse(Problem::Template(error)))
    }

    /// The value of the rule that covers this request.
    #[must_use]
    pub fn at(&self, method: &Method, path: &str) -> Option<&T> {
        let covered_by = (method == Method::HEAD).then_some(Method::GET);
        self.find(Some(method), path)
            .or_else(|| covered_by.and_then(|get| self.find(Some(&get), path)))
            .or_else(|| self.find(None, path))
    }

    fn find(&self, method: Option<&Method>, path: &str) -> Option<&T> {
        let (_, router) = self.by_method.iter().find(|(known, _)| known.as_ref() == method)?;
        router.at(path).ok().map(|found| found.value)
    }
}

impl<T> fmt::Debug for Routes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

/// An invalid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteError {
    rule: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Method,
    Path,
    Template(InsertError),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {:?}: ", self.rule)?;
        match &self.problem {
            Problem::Method => write!(f, "the method has to be in capitals, with one space after it: \"POST /run\""),
            Problem::Path => write!(f, "the path has to begin with /, without a query or a space: \"POST /run\""),
            Problem::Template(InsertError::Conflict { with }) => {
                write!(f, "it covers the same requests as {with:?}; keep one of them")
            }
            Problem::Template(_) => {
                write!(f, "a parameter is a name in braces, one for each segment, and {{*rest}} only at the end")
            }
        }
    }
}

impl std::error::Error for RouteError {}

/// Whether a path begins with these segments: `/static` and `/static/` are
/// prefixes of `/static/a.css`, but not of `/statically`.
#[must_use]
pub fn has_prefix(path: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether every server reads a path the same way: no `.` or `..`, no empty
/// segment, no backslash, and none of these percent-encoded.
///
/// A server further in may normalise any other path. So `/static/../run` must not
/// count as a path below `/static/`.
#[must_use]
pub fn is_plain(path: &str) -> bool {
    let encoded = ["%2e", "%2f", "%5c", "%25"];
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let has_odd_segment = !inner.is_empty() && inner.split('/').any(|segment| matches!(segment, "" | "." | ".."));
    let has_encoded =
        path.as_bytes().windows(3).any(|found| encoded.iter().any(|odd| found.eq_ignore_ascii_case(odd.as_bytes())));
    !has_odd_segment && !has_encoded && !path.contains('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(rules: &[(&str, &'static str)]) -> Routes<&'static str> {
        let mut routes = Routes::default();
        for (rule, value) in rules {
            routes.insert(rule, *value).unwrap();
        }
        routes
    }

    #[test]
    fn templates_match_as_in_axum() {
        let routes = routes(&[
            ("POST /api/v1/agents/{id}/run", "run"),
            ("POST /api/v1/agents/{id}/run/stream", "stream"),
            ("GET /api/v1/agents", "list"),
            ("POST /api/v1/agents", "create"),
            ("/api/v1/files/{*path}", "files"),
            ("POST /api/v1/files/{name}", "upload"),
        ]);
        for (method, path, expected) in [
            (Method::POST, "/api/v1/agents/7/run", Some("run")),
            (Method::POST, "/api/v1/agents/7/run/stream", Some("stream")),
            (Method::POST, "/api/v1/agents/7/run/", None),
            (Method::POST, "/api/v1/agents//run", None),
            (Method::GET, "/api/v1/agents/7/run", None),
            (Method::GET, "/api/v1/agents", Some("list")),
            (Method::HEAD, "/api/v1/agents", Some("list")),
            (Method::POST, "/api/v1/agents", Some("create")),
            (Method::PUT, "/api/v1/files/a/b", Some("files")),
            (Method::POST, "/api/v1/files/a", Some("upload")),
            (Method::POST, "/api/v1/files/a/b", Some("files")),
            (Method::GET, "*", None),
            (Method::GET, "", None),
        ] {
            assert_eq!(routes.at(&method, path).copied(), expected, "{method} {path}");
        }
    }

    #[test]
    fn head_can_have_its_own_rule() {
        let routes = routes(&[("GET /a", "get"), ("HEAD /a", "head"), ("/b", "any"), ("GET /b", "get")]);
        assert_eq!(routes.at(&Method::HEAD, "/a"), Some(&"head"));
        assert_eq!(routes.at(&Method::HEAD, "/b"), Some(&"get"));
        assert_eq!(routes.at(&Method::PUT, "/b"), Some(&"any"));
    }

    #[test]
    fn invalid_rules_are_refused_with_advice() {
        for (rule, problem) in [
            ("post /run", "in capitals"),
            ("POST  /run", "begin with /"),
            ("POST run", "begin with /"),
            ("run", "begin with /"),
            ("", "begin with /"),
            ("/run?fast", "without a query"),
            ("GET /{}", "a name in braces"),
            ("GET /{*rest}/more", "only at the end"),
            ("P(ST /run", "in capitals"),
        ] {
            let error = Routes::default().insert(rule, ()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("route {rule:?}: ")) && error.contains(problem), "{error}");
        }
        let mut routes = routes(&[("POST /agents/{id}", "a")]);
        let error = routes.insert("POST /agents/{name}", "b").unwrap_err().to_string();
        assert_eq!(
            error,
            "route \"POST /agents/{name}\": it covers the same requests as \"/agents/{id}\"; keep one of them"
        );
        assert_eq!(routes.insert("GET /agents/{name}", "b"), Ok(()));
    }

    #[test]
    fn prefixes_end_at_a_segment() {
        for (path, prefix, expected) in [
            ("/static/a.css", "/static/", true),
            ("/static/a.css", "/static", true),
            ("/static", "/static/", true),
            ("/statically", "/static", false),
            ("/api/static/a", "/static", false),
            ("/anything", "/", true),
        ] {
            assert_eq!(has_prefix(path, prefix), expected, "{path} {prefix}");
        }
    }

    #[test]
    fn paths_that_another_server_may_read_differently_are_not_plain() {
        for path in ["/", "/static/a.css", "/static/", "/a%20b", "/a/..b/...", ""] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "/static/../run",
            "/static/..",
            "/./run",
            "/static//run",
            "//run",
            "/static/%2E%2e/run",
            "/static/..%2frun",
            "/static\\..\\run",
            "/static/%5C..",
            "/static/%252e%252e/run",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
