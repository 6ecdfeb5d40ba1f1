//! Every profile with every style: these bytes and no others.

mod common;

use common::{AGENT, app, by_header, request, send, wall_clock};
use std::time::Duration;
use tollgate_tower::{Profile, Style};

/// The refusal's body, byte for byte.
fn body(profile: Profile) -> &'static str {
    match profile {
        Profile::Standard => concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","#,
            r#""status":429,"detail":"http/heavy has 0 of 2 left, too few for this request. Retry after 6 seconds.","#,
            r#""instance":"/run","violated-policies":["http/heavy"],"policy":"http/heavy","tier":"heavy","#,
            r#""limit":2,"remaining":0,"retry_after":6,"retry_after_ms":5001,"agent_id":"agent-7"}"#,
        ),
        Profile::Hub => r#"{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}"#,
        Profile::Platform => concat!(
            r#"{"error":{"code":"RATE_LIMITED","message":"Too many requests. Please retry after 6 seconds.","#,
            r#""retry_after":6}}"#,
        ),
        Profile::Adr => r#"{"error":"RATE_LIMITED","message":"Too many requests. Retry after 6 seconds."}"#,
        Profile::Citizen => concat!(
            r#"{"error":"Rate limit exceeded","message":"Too many requests from this agent","retry_after":6,"#,
            r#""agent_id":"agent-7"}"#,
        ),
        _ => "a profile without a row here",
    }
}

/// The headers of an admitted request with 1 of 2 left, and of a refusal.
fn headers(style: Style) -> [&'static [(&'static str, &'static str)]; 2] {
    match style {
        Style::Draft10 => [
            &[("ratelimit-policy", r#""http/heavy";q=2;w=12"#), ("ratelimit", r#""http/heavy";r=1;t=6"#)],
            &[
                ("ratelimit-policy", r#""http/heavy";q=2;w=12"#),
                ("ratelimit", r#""http/heavy";r=0;t=6"#),
                ("retry-after", "6"),
            ],
        ],
        // The wall clock is at 1,000.250; the lane is full in 6 s, and in 12 s less 0.999 s.
        Style::Legacy => [
            &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "1007")],
            &[
                ("x-ratelimit-limit", "2"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1012"),
                ("retry-after", "6"),
            ],
        ],
        Style::Off => [&[], &[("retry-after", "6")]],
        _ => [&[("a style", "without a row here")]; 2],
    }
}

#[tokio::test]
async fn every_profile_and_style_sends_exactly_this() {
    for profile in Profile::all() {
        for style in Style::all() {
            let (layer, clock) = by_header(&[("http/heavy", "10/min burst 2")]);
            let app = app(layer.profile(profile).style(style).wall_clock(wall_clock));
            let post = || request("POST", "/run", &[(AGENT, "agent-7")]);
            let [first, _] = [send(&app, post()).await, send(&app, post()).await];
            clock.advance(Duration::from_micros(999_001));
            let refused = send(&app, post()).await;

            let [admitted_headers, refused_headers] = headers(style);
            for (answer, status, body, content_type, headers) in [
                (&first, 200, "hello", "text/plain; charset=utf-8", admitted_headers),
                (&refused, 429, body(profile), profile.content_type(), refused_headers),
            ] {
                assert_eq!((answer.status.as_u16(), answer.text()), (status, body), "{profile} {style}");
                let length = body.len().to_string();
                let mut expected = vec![("content-type", content_type), ("content-length", length.as_str())];
                expected.extend(headers);
                let mut sent: Vec<_> = answer
                    .headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.to_str().expect("a text")))
                    .collect();
                expected.sort_unstable();
                sent.sort_unstable();
                assert_eq!(sent, expected, "{profile} {style}");
            }
        }
    }
}

#[tokio::test]
async fn a_profile_uses_its_own_style_unless_another_is_chosen() {
    for (profile, name) in [
        (Profile::Standard, "ratelimit"),
        (Profile::Hub, "x-ratelimit-remaining"),
        (Profile::Platform, "x-ratelimit-remaining"),
        (Profile::Adr, "x-ratelimit-remaining"),
        (Profile::Citizen, "x-ratelimit-remaining"),
    ] {
        let get = || request("GET", "/", &[(AGENT, "agent-7")]);
        let layer = || by_header(&[("api", "1/min")]).0.profile(profile);
        assert!(send(&app(layer()), get()).await.header(name).is_some(), "{profile}");
        let off = send(&app(layer().style(Style::Off)), get()).await;
        assert_eq!(off.header(name), None, "{profile}");
    }
}

#[tokio::test]
async fn a_lane_that_denies_everything_promises_nothing() {
    for profile in Profile::all() {
        for style in Style::all() {
            let (layer, _) = by_header(&[("api", "deny")]);
            let app = app(layer.profile(profile).style(style).wall_clock(wall_clock));
            let refused = send(&app, request("GET", "/", &[(AGENT, "agent-7")])).await;
            assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, None), "{profile} {style}");
            assert!(!refused.text().contains("Retry after"), "{}", refused.text());
            let reset = refused.header("ratelimit").or(refused.header("x-ratelimit-reset"));
            assert!(
                matches!(
                    (style, reset),
                    (Style::Draft10, Some(r#""api";r=0"#)) | (Style::Legacy, Some("1001")) | (Style::Off, None)
                ),
                "{reset:?}"
            );
        }
    }
}
