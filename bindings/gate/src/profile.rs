//! The bodies of refusals.
//!
//! | profile | body | content type | header style |
//! |---|---|---|---|
//! | `standard` | an RFC 9457 problem that has every member below too | `application/problem+json` | `draft-10` |
//! | `hub` | `{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}` | `application/json` | `legacy` |
//! | `platform` | `{"error":{"code":"RATE_LIMITED","message":"...","retry_after":6}}` | `application/json` | `legacy` |
//! | `adr` | `{"error":"RATE_LIMITED","message":"..."}` | `application/json` | `legacy` |
//! | `citizen` | `{"error":"Rate limit exceeded","message":"...","retry_after":6,"agent_id":"agent-7"}` | `application/json` | `legacy` |
//!
//! `retry_after` is in whole seconds and `retry_after_ms` in milliseconds,
//! both rounded up; `hub` rounds its milliseconds up to whole seconds. Where
//! waiting does not help they are `null`. A lane that denies everything is 60000
//! in `hub`, because an operator may open it; a cost above the capacity is
//! `null` there too.

use crate::headers::{Style, UnknownName};
use crate::json::Object;
use crate::refusal::{Reason, Refusal};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::str::FromStr;

/// The format of a refusal's body.
///
/// ```
/// use tollgate_gate::{Profile, Style};
///
/// assert_eq!("platform".parse(), Ok(Profile::Platform));
/// assert_eq!(Profile::default(), Profile::Standard);
/// assert_eq!(Profile::Platform.style(), Style::Legacy);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// An RFC 9457 problem.
    #[default]
    Standard,
    /// The message hub's: flat, in milliseconds, with the tier.
    Hub,
    /// The agent platform's: an error object with code and message.
    Platform,
    /// The decision record's: flat, with a code in capitals.
    Adr,
    /// The client contract's: flat, with the agent's id.
    Citizen,
}

/// A profile: its name in settings, and what it sends.
struct Row {
    profile: Profile,
    name: &'static str,
    content_type: &'static str,
    style: Style,
    body: fn(&Refusal<'_>) -> Object,
}

/// The problem types that are registered for rate limits.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
pub(crate) const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

const JSON: &str = "application/json";
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

static PROFILES: [Row; 5] = [
    Row {
        profile: Profile::Standard,
        name: "standard",
        content_type: PROBLEM_JSON,
        style: Style::Draft10,
        body: standard,
    },
    Row { profile: Profile::Hub, name: "hub", content_type: JSON, style: Style::Legacy, body: hub },
    Row { profile: Profile::Platform, name: "platform", content_type: JSON, style: Style::Legacy, body: platform },
    Row { profile: Profile::Adr, name: "adr", content_type: JSON, style: Style::Legacy, body: adr },
    Row { profile: Profile::Citizen, name: "citizen", content_type: JSON, style: Style::Legacy, body: citizen },
];

impl Profile {
    /// Every profile, in the order of the table.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        PROFILES.iter().map(|row| row.profile)
    }

    /// The header style that goes with it unless another is chosen.
    #[must_use]
    pub fn style(self) -> Style {
        self.row().style
    }

    /// The content type of its body.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        self.row().content_type
    }

    /// The profile that a client requests with its `Accept` header, or else this one.
    ///
    /// `application/problem+json` requests `standard`, and `application/json;profile=hub`
    /// that profile. It need not be the only type that the client accepts; the first
    /// one named wins.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, header::ACCEPT};
    /// use tollgate_gate::Profile;
    ///
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(Profile::Hub.accepted(&headers), Profile::Hub);
    /// headers.insert(ACCEPT, HeaderValue::from_static("application/problem+json, */*;q=0.1"));
    /// assert_eq!(Profile::Hub.accepted(&headers), Profile::Standard);
    /// ```
    #[must_use]
    pub fn accepted(self, headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
        accepted.flat_map(|accept| accept.split(',')).find_map(requested).unwrap_or(self)
    }

    /// Whether an `Accept` may request a profile: `application/problem+json` has a `+`, and `profile=` a `=`.
    pub(crate) fn may_be_requested(accept: &[u8]) -> bool {
        accept.contains(&b'+') || accept.contains(&b'=')
    }

    /// The body of a refusal.
    #[must_use]
    pub fn body(self, refusal: &Refusal<'_>) -> String {
        (self.row().body)(refusal).end()
    }

    fn row(self) -> &'static Row {
        // The rows are in the order of the declaration; a test checks it.
        &PROFILES[self as usize]
    }
}

/// The profile that a media range requests.
fn requested(range: &str) -> Option<Profile> {
    let mut pieces = range.split(';').map(str::trim);
    let kind = pieces.next()?;
    if kind.eq_ignore_ascii_case(PROBLEM_JSON) {
        return Some(Profile::Standard);
    }
    let profile =
        pieces.find_map(|piece| piece.strip_prefix("profile=")).filter(|_| kind.eq_ignore_ascii_case(JSON))?;
    profile.trim_matches('"').parse().ok()
}

fn standard(refusal: &Refusal<'_>) -> Object {
    let quota = refusal.quota;
    let (kind, title) = match refusal.reason {
        Reason::Quota | Reason::Cost(_) | Reason::Held | Reason::Pending => (QUOTA_EXCEEDED, "Quota exceeded"),
        Reason::Conduct => (ABNORMAL_USAGE, "Abnormal usage detected"),
    };
    let mut problem = problem(kind, title, StatusCode::TOO_MANY_REQUESTS, &refusal.detail());
    if let Some(instance) = refusal.instance {
        problem = problem.text("instance", instance);
    }
    problem = problem
        .list_of("violated-policies", refusal.lane)
        .text("policy", refusal.lane)
        .text("tier", tier(refusal.lane))
        .number("limit", quota.capacity)
        .number("remaining", quota.remaining)
        .optional("retry_after", quota.retry_after_seconds())
        .optional("retry_after_ms", quota.retry_after_ms());
    match refusal.agent {
        Some(agent) => problem.agent("agent_id", Some(agent)),
        None => problem,
    }
}

/// The members of every problem.
pub(crate) fn problem(kind: &str, title: &str, status: StatusCode, detail: &str) -> Object {
    let status = status.as_u16().into();
    Object::new().text("type", kind).text("title", title).number("status", status).text("detail", detail)
}

fn hub(refusal: &Refusal<'_>) -> Object {
    let ms = match refusal.reason {
        Reason::Cost(_) => None,
        _ => Some(crate::frame::whole_seconds_ms(refusal.quota.retry_after)),
    };
    Object::new().text("error", "rate_limited").optional("retry_after_ms", ms).text("tier", tier(refusal.lane))
}

fn platform(refusal: &Refusal<'_>) -> Object {
    let error = Object::new()
        .text("code", "RATE_LIMITED")
        .text("message", &with_wait("Too many requests.", " Please retry after ", refusal))
        .optional("retry_after", refusal.quota.retry_after_seconds());
    Object::new().object("error", error)
}

fn adr(refusal: &Refusal<'_>) -> Object {
    Object::new()
        .text("error", "RATE_LIMITED")
        .text("message", &with_wait("Too many requests.", " Retry after ", refusal))
}

fn citizen(refusal: &Refusal<'_>) -> Object {
    Object::new()
        .text("error", "Rate limit exceeded")
        .text("message", "Too many requests from this agent")
        .optional("retry_after", refusal.quota.retry_after_seconds())
        .agent("agent_id", refusal.agent)
}

fn with_wait(text: &str, retry: &str, refusal: &Refusal<'_>) -> String {
    match refusal.quota.retry_after_seconds() {
        Some(seconds) => format!("{text}{retry}{seconds} seconds."),
        None => text.to_string(),
    }
}

/// The tier of a lane: `heavy` in `http/heavy`, or the whole name of a lane without a channel.
#[must_use]
pub fn tier(lane: &str) -> &str {
    lane.rsplit_once('/').map_or(lane, |(_, tier)| tier)
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl FromStr for Profile {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let row = PROFILES.iter().find(|row| row.name == name);
        row.map(|row| row.profile).ok_or_else(|| UnknownName::new("profile", name, Self::all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use std::time::Duration;

    const REFUSAL: Refusal<'static> = Refusal {
        agent: Some(b"agent-7"),
        lane: "http/heavy",
        instance: Some("/run"),
        reason: Reason::Quota,
        quota: Quota {
            capacity: 10,
            remaining: 0,
            window: Some(Duration::from_secs(60)),
            next_in: Some(Duration::from_micros(5_000_001)),
            full_in: Duration::from_micros(59_000_001),
            denied: true,
            retry_after: Some(Duration::from_micros(5_000_001)),
        },
    };

    /// The same where waiting does not help.
    fn never() -> Refusal<'static> {
        Refusal { quota: Quota { retry_after: None, ..REFUSAL.quota }, ..REFUSAL }
    }

    #[test]
    fn every_profile_has_its_row_and_its_name() {
        for profile in Profile::all() {
            assert_eq!(profile.row().profile, profile);
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        let error = "hub2".parse::<Profile>().unwrap_err().to_string();
        assert_eq!(error, "there is no profile \"hub2\"; there are standard, hub, platform, adr, citizen");
    }

    #[test]
    fn bodies_are_these_bytes() {
        for (profile, body) in [
            (
                Profile::Standard,
                concat!(
                    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                    r#""title":"Quota exceeded","status":429,"#,
                    r#""detail":"http/heavy has 0 of 10 left, too few for this request. Retry after 6 seconds.","#,
                    r#""instance":"/run","violated-policies":["http/heavy"],"policy":"http/heavy","tier":"heavy","#,
                    r#""limit":10,"remaining":0,"retry_after":6,"retry_after_ms":5001,"agent_id":"agent-7"}"#,
                ),
            ),
            (Profile::Hub, r#"{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}"#),
            (
                Profile::Platform,
                concat!(
                    r#"{"error":{"code":"RATE_LIMITED","message":"Too many requests. Please retry after 6 seconds.","#,
                    r#""retry_after":6}}"#,
                ),
            ),
            (Profile::Adr, r#"{"error":"RATE_LIMITED","message":"Too many requests. Retry after 6 seconds."}"#),
            (
                Profile::Citizen,
                concat!(
                    r#"{"error":"Rate limit exceeded","message":"Too many requests from this agent","#,
                    r#""retry_after":6,"agent_id":"agent-7"}"#,
                ),
            ),
        ] {
            assert_eq!(profile.body(&REFUSAL), body, "{profile}");
        }
    }

    #[test]
    fn bodies_promise_nothing_where_waiting_does_not_help() {
        for (profile, body) in [
            (Profile::Hub, r#"{"error":"rate_limited","retry_after_ms":60000,"tier":"heavy"}"#),
            (
                Profile::Platform,
                r#"{"error":{"code":"RATE_LIMITED","message":"Too many requests.","retry_after":null}}"#,
            ),
            (Profile::Adr, r#"{"error":"RATE_LIMITED","message":"Too many requests."}"#),
        ] {
            assert_eq!(profile.body(&never()), body, "{profile}");
        }
        let too_dear = Refusal { reason: Reason::Cost(11), ..never() };
        assert_eq!(Profile::Hub.body(&too_dear), r#"{"error":"rate_limited","retry_after_ms":null,"tier":"heavy"}"#);
        let body = Profile::Standard.body(&never());
        assert!(body.contains("No wait will help.") && body.contains(r#""retry_after":null"#), "{body}");
    }

    #[test]
    fn a_client_gets_the_body_that_it_requests() {
        for (accept, profile) in [
            ("*/*", Profile::Adr),
            ("application/json", Profile::Adr),
            ("text/html, application/problem+json;q=0.5", Profile::Standard),
            ("Application/JSON; charset=utf-8; profile=\"hub\"", Profile::Hub),
            ("application/json;profile=citizen, application/problem+json", Profile::Citizen),
            ("application/json;profile=nobody", Profile::Adr),
            ("text/plain;profile=hub", Profile::Adr),
            (";,;profile=hub,\"", Profile::Adr),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(Profile::Adr.accepted(&headers), profile, "{accept}");
        }
    }

    #[test]
    fn a_hidden_agent_is_not_in_the_body() {
        let hidden = Refusal { agent: None, ..REFUSAL };
        assert!(!Profile::Standard.body(&hidden).contains("agent"));
        assert!(Profile::Citizen.body(&hidden).ends_with(r#""agent_id":null}"#));
        let bytes = Refusal { agent: Some(b"\xff\xfe"), ..REFUSAL };
        assert!(Profile::Citizen.body(&bytes).ends_with(r#""agent_id":{"base64":"//4="}}"#));
    }

    #[test]
    fn a_refusal_for_conduct_is_its_own_problem_type() {
        let body = Profile::Standard.body(&Refusal { reason: Reason::Conduct, ..REFUSAL });
        assert!(body.contains("#abnormal-usage-detected"), "{body}");
    }

    #[test]
    fn a_tier_is_what_follows_the_channel() {
        assert_eq!([tier("http/heavy"), tier("api"), tier("http/v1/run")], ["heavy", "api", "run"]);
    }
}
