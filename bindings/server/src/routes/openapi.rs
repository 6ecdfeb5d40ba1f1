//! `/openapi.json`: every path, what it takes and what it answers, as OpenAPI 3.1.

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

/// Written by hand. Tests compare it with the router, and with what the server answers.
const DOCUMENT: &str = include_str!("../../openapi.json");

pub(super) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, Settings, Source};
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use tollgate::Policy;

    #[test]
    fn the_document_has_the_paths_of_the_router_and_no_others() {
        let policy = Policy::builder().lane("http", "1/minute").build().unwrap();
        let settings = Settings { admin_token: Some("admin-token-0123456789".to_owned()), ..Settings::default() };
        let app = App::new(settings, Source::Policy(Box::new(policy)), None).unwrap();
        // axum lists a router's paths in its debug output, and nowhere else.
        let shown = format!("{:?}", crate::routes::router(Arc::new(app)));
        let paths = shown.split('"').filter(|text| text.starts_with('/') && !text.contains("__private__axum"));
        let routed: BTreeSet<_> = paths.collect();
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        // The gate answers before the router, at every path below its own.
        let written = document["paths"].as_object().unwrap().keys().map(String::as_str);
        let written: BTreeSet<_> = written.filter(|path| *path != "/v1/gate").collect();
        assert_eq!(routed, written);
    }
}
