//! The files of the page. They are in the binary, and nothing else is loaded.

use crate::problem::Problem;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};

/// Only files of ours, nothing inline, in no frame; and no text can become a
/// script, also by a mistake in one of ours.
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

pub(super) async fn page() -> Response {
    file(HTML, PAGE)
}

pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "the page has no such file"))?;
    Ok(file(kind, text))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
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
    fn every_file_that_is_named_is_there() {
        let texts = FILES.iter().map(|(.., text)| *text).chain([PAGE]);
        for text in texts {
            for named in text.split("\"/assets/").skip(1).chain(text.split("from \"./").skip(1)) {
                let named = named.split('"').next().unwrap();
                assert!(FILES.iter().any(|(name, ..)| *name == named), "{named}");
            }
        }
    }
}
