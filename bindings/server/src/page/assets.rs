//! The files of the page. They are in the binary, and nothing else is loaded.
//!
//! A browser revalidates its copies on every visit; if they are up to date, the
//! response is a 304 with the tag of the file.

use crate::problem::Problem;
use axum::body::Body;
use axum::extract::Path;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use siphasher::sip128::SipHasher24;
use std::sync::LazyLock;

/// Only our own files, nothing inline, in no frame; and no text can become a script,
/// even by a mistake in our own code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("assets/index.html");

/// Files by name, with their type.
const FILES: [(&str, &str, &str); 10] = [
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("api.js", SCRIPT, include_str!("assets/api.js")),
    ("chart.js", SCRIPT, include_str!("assets/chart.js")),
    ("cards.js", SCRIPT, include_str!("assets/cards.js")),
    ("agent.js", SCRIPT, include_str!("assets/agent.js")),
    ("events.js", SCRIPT, include_str!("assets/events.js")),
    ("style.css", STYLE, include_str!("assets/style.css")),
    ("uplot.js", SCRIPT, include_str!("assets/uplot/uPlot.iife.min.js")),
    ("uplot.css", STYLE, include_str!("assets/uplot/uPlot.min.css")),
];

/// The tag of each file, a hash of its text; the last one is the page's.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let texts = FILES.iter().map(|(.., text)| *text).chain([PAGE]);
    texts.map(|text| format!("\"{:032x}\"", SipHasher24::new().hash(text.as_bytes()).as_u128())).collect()
});

pub(super) async fn page(headers: HeaderMap) -> Response {
    file(&headers, HTML, PAGE, TAGS.last())
}

pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let found = FILES.iter().zip(TAGS.iter()).find(|((known, ..), _)| *known == name);
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "the page has no such file");
    let ((_, kind, text), tag) = found.ok_or_else(unknown)?;
    Ok(file(&headers, kind, text, Some(tag)))
}

fn file(request: &HeaderMap, kind: &'static str, text: &'static str, tag: Option<&String>) -> Response {
    let is_known = tag.is_some_and(|tag| is_known(request, tag));
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(text) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tags are quotes and hexadecimal digits.
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Whether the browser has the file of this tag.
fn is_known(request: &HeaderMap, tag: &str) -> bool {
    let lists = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    let mut known = lists.flat_map(|list| list.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small() {
        let bytes = PAGE.len() + FILES.iter().map(|(.., text)| text.len()).sum::<usize>();
        assert!(bytes < 150_000, "{bytes} bytes");
    }

    #[test]
    fn nothing_is_inline_or_from_elsewhere() {
        for inline in ["<style", "style=", " onclick", " onload", "javascript:", "http:", "https:"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
        assert_eq!(
            PAGE.matches("<script").count(),
            PAGE.matches("<script src=\"/assets/").count()
                + PAGE.matches("<script type=\"module\" src=\"/assets/").count()
        );
        for (name, _, text) in FILES.iter().filter(|(name, ..)| !name.starts_with("uplot")) {
            for foreign in
                ["//cdn", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(foreign), "{foreign} in {name}");
            }
        }
    }

    #[test]
    fn every_file_that_is_referenced_exists() {
        let texts = FILES.iter().map(|(.., text)| *text).chain([PAGE]);
        for text in texts {
            for named in text.split("\"/assets/").skip(1).chain(text.split("from \"./").skip(1)) {
                let named = named.split('"').next().unwrap();
                assert!(FILES.iter().any(|(name, ..)| *name == named), "{named}");
            }
        }
    }
}
