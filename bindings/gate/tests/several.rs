//! What a gate does beyond one lane for one request: several lanes, messages, held slots.

#![allow(clippy::panic, reason = "a panic here is a failure that names its line")]

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use std::time::Duration;
use tollgate::{LaneId, Limiter, ManualClock, Policy};
use tollgate_gate::{Asked, Delivery, Gate, Head, Holding, Key, Question, Ruling, Style};

fn gate(style: Style, lanes: &[(&str, &str)]) -> (Gate, ManualClock, Vec<LaneId>) {
    let policy = lanes.iter().fold(Policy::builder(), |policy, (name, limit)| policy.lane(*name, *limit));
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy.build().expect("valid lanes")).agents(100).clock(clock.clone());
    let gate = Gate::builder(limiter.build().expect("a small slab")).key(Key::header("x-agent-id")).pass_others();
    let gate = gate.style(style).build().expect("a valid gate");
    let ids = lanes.iter().map(|(name, _)| gate.limiter().lane(name).expect("named above")).collect();
    (gate, clock, ids)
}

fn request() -> Request<()> {
    Request::get("/run").header("x-agent-id", "agent-7").body(()).expect("a request")
}

fn question<'g>(gate: &'g Gate, head: &Head<'_>, lanes: &'g [LaneId], cost: u64) -> Question<'g> {
    match gate.ask_on(head, lanes, |_| cost) {
        Asked::Decide(question) => question,
        other => panic!("{other:?}"),
    }
}

fn admitted(gate: &Gate, lanes: &[LaneId], cost: u64) -> HeaderMap {
    let request = request();
    let head = Head::from(&request);
    let mut headers = HeaderMap::new();
    match gate.decide(&head, &question(gate, &head, lanes, cost)) {
        Ruling::Pass(Some(limits)) => gate.write_headers(&mut headers, &limits),
        other => panic!("{other:?}"),
    }
    headers
}

fn refused(gate: &Gate, lanes: &[LaneId], cost: u64) -> Response<Bytes> {
    let request = request();
    let head = Head::from(&request);
    match gate.decide(&head, &question(gate, &head, lanes, cost)) {
        Ruling::Answer(response) => response,
        other @ Ruling::Pass(_) => panic!("{other:?}"),
    }
}

#[test]
fn several_lanes_are_charged_together_or_not_at_all() {
    let (gate, clock, lanes) = gate(Style::Draft10, &[("minute", "3/min"), ("hour", "4/hour")]);
    let headers = admitted(&gate, &lanes, 3);
    let limits: Vec<_> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(limits, [r#""minute";r=0;t=20"#, r#""hour";r=1;t=900"#]);

    // The lane that keeps the agent waiting longest is the one that the refusal names.
    let refusal = refused(&gate, &lanes, 2);
    assert_eq!((refusal.status().as_u16(), &refusal.headers()["retry-after"]), (429, &"900".parse().expect("a text")));
    assert!(refusal.body().starts_with(b"{\"type\""));
    assert!(String::from_utf8_lossy(refusal.body()).contains(r#""policy":"hour""#));

    // It charged neither: a minute later the first is full, and the second has its one and no more.
    clock.advance(Duration::from_secs(60));
    assert!(String::from_utf8_lossy(refused(&gate, &lanes, 4).body()).contains(r#""policy":"minute""#));
    assert_eq!(admitted(&gate, &lanes, 1).get_all("ratelimit").iter().count(), 2);
    assert!(String::from_utf8_lossy(refused(&gate, &lanes, 1).body()).contains(r#""policy":"hour""#));
}

#[test]
fn headers_with_room_for_one_limit_have_the_tightest() {
    let (gate, _, lanes) = gate(Style::Legacy, &[("minute", "3/min"), ("hour", "2/hour")]);
    assert_eq!(admitted(&gate, &lanes, 1)["x-ratelimit-limit"], "2");
}

#[test]
fn a_message_that_costs_too_much_is_refused_and_charges_nothing() {
    let (gate, _, lanes) = gate(Style::Draft10, &[("ws/messages", "10/min")]);
    let [lane] = lanes[..] else { panic!("one lane") };
    let refusal = r#"{"type":"rate_limited","retry_after_ms":60000,"tier":"messages"}"#;
    assert_eq!(gate.message(b"agent-7", lane, 11, None), Ok(Delivery::Refuse(refusal.to_owned())));
    assert_eq!(gate.message(b"agent-7", lane, 8, None), Ok(Delivery::Deliver));
    let warning = r#"{"type":"rate_limit_warning","tier":"messages","remaining":1,"capacity":10}"#;
    assert_eq!(gate.message(b"agent-7", lane, 1, None), Ok(Delivery::Warn(warning.to_owned())));
}

#[test]
fn a_slot_is_free_again_when_its_connection_has_ended() {
    let (gate, _, lanes) = gate(Style::Draft10, &[("ws/connections", "held 1")]);
    let [lane] = lanes[..] else { panic!("one lane") };
    let request = request();
    let head = Head::from(&request);
    let question = question(&gate, &head, &lanes, 1);
    let hold = || gate.hold(&head, &question, lane);
    let Holding::Slot(Some(slot)) = hold() else { panic!("a slot") };
    match hold() {
        Holding::Answer(response) => assert_eq!(response.status(), 429),
        other => panic!("{other:?}"),
    }
    drop(slot);
    assert!(matches!(hold(), Holding::Slot(Some(_))));
}
