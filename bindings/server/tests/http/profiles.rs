//! Every profile with every header style.

use crate::common::{TestServer, header, json};
use tollgate_tower::{Profile, Style};

const ADMITTED: &str = r#"{"agent": "agent-7", "lane": "http/heavy", "cost": 10}"#;
const REFUSED: &str = r#"{"agent": "agent-7", "lane": "http/heavy"}"#;

/// The body of a refusal, byte for byte: a wait of 6 s on a lane of 10 a minute.
fn body(profile: Profile) -> &'static str {
    match profile {
        Profile::Standard => concat!(
            r#"{"allowed":false,"verdict":"deny","lane_wait_ms":6000,"conduct_wait_ms":1000,"#,
            r#""type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","#,
            r#""status":429,"#,
            r#""detail":"http/heavy has 0 of 10 left, too few for this request. Retry after 6 seconds.","#,
            r#""instance":"/v1/check","violated-policies":["http/heavy"],"policy":"http/heavy","tier":"heavy","#,
            r#""limit":10,"remaining":0,"retry_after":6,"retry_after_ms":6000,"agent_id":"agent-7"}"#,
        ),
        Profile::Hub => r#"{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}"#,
        Profile::Platform => concat!(
            r#"{"error":{"code":"RATE_LIMITED","message":"Too many requests. Please retry after 6 seconds.","#,
            r#""retry_after":6}}"#,
        ),
        Profile::Adr => r#"{"error":"RATE_LIMITED","message":"Too many requests. Retry after 6 seconds."}"#,
        Profile::Citizen => concat!(
            r#"{"error":"Rate limit exceeded","message":"Too many requests from this agent","#,
            r#""retry_after":6,"agent_id":"agent-7"}"#,
        ),
        other => panic!("no body for {other}"),
    }
}

/// The fields of a style with their values; `None` if a field is missing.
fn fields(style: Style, refused: bool) -> [(&'static str, Option<&'static str>); 4] {
    let (draft, legacy) = (style == Style::Draft10, style == Style::Legacy);
    [
        ("ratelimit-policy", draft.then_some(r#""http/heavy";q=10;w=60"#)),
        ("ratelimit", draft.then_some(r#""http/heavy";r=0;t=6"#)),
        ("x-ratelimit-remaining", legacy.then_some("0")),
        ("retry-after", refused.then_some("6")),
    ]
}

#[tokio::test]
async fn each_profile_and_style_answers_as_specified() {
    for profile in Profile::all() {
        for style in Style::all() {
            let policy = super::common::counting().lane("http/heavy", "10/min").build().expect("a policy");
            let server = TestServer::with(policy, |settings| {
                settings.profile = profile;
                settings.headers = Some(style);
            })
            .await;
            let admitted = server.check(ADMITTED).await;
            let refused = server.check(REFUSED).await;
            assert_eq!((admitted.status.as_u16(), refused.status.as_u16()), (200, 429));
            assert_eq!(json(&admitted)["remaining"], 0);
            assert_eq!(std::str::from_utf8(&refused.body), Ok(body(profile)), "{profile} {style}");
            assert_eq!(header(&refused, "content-type"), Some(profile.content_type()));
            for (answer, is_refused) in [(&admitted, false), (&refused, true)] {
                for (name, value) in fields(style, is_refused) {
                    assert_eq!(header(answer, name), value, "{profile} {style} {name}");
                }
                assert_eq!(header(answer, "x-ratelimit-reset").is_some(), style == Style::Legacy);
            }
        }
    }
}

#[tokio::test]
async fn a_profile_uses_its_own_style() {
    let policy = super::common::counting().lane("http/heavy", "10/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.profile = Profile::Hub).await;
    assert_eq!(header(&server.check(ADMITTED).await, "x-ratelimit-limit"), Some("10"));
}

/// The body of another profile, for a client that requests it.
#[tokio::test]
async fn a_client_chooses_the_body_with_its_accept_header() {
    let policy = super::common::counting().lane("http/heavy", "10/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.profile = Profile::Adr).await;
    server.check(ADMITTED).await;
    for (accept, profile) in [
        ("application/json", Profile::Adr),
        ("application/problem+json", Profile::Standard),
        ("application/json;profile=hub", Profile::Hub),
        ("application/json; profile=\"platform\"", Profile::Platform),
    ] {
        let all = format!(r#"{{"requests": [{REFUSED}]}}"#);
        for (path, body) in [("/v1/check", REFUSED), ("/v1/check/all", all.as_str())] {
            let refused = server.send("POST", path, &[("accept", accept)], body).await;
            assert_eq!(refused.status, 429);
            assert_eq!(header(&refused, "content-type"), Some(profile.content_type()), "{accept} {path}");
            let body = json(&refused);
            let has = ["retry_after_ms", "message", "verdict"].map(|member| body.get(member).is_some());
            let expected = match profile {
                Profile::Standard => [true, false, true],
                Profile::Hub => [true, false, false],
                Profile::Platform => [false, false, false],
                _ => [false, true, false],
            };
            assert_eq!(has, expected, "{accept} {path}: {body}");
        }
        server.limiter().reset_violations("agent-7").expect("an id");
    }
}
