//! Plans, overrides and exemptions: which agent has which limit, and for how long.

use super::*;
use tollgate::bounds::{ID_BYTES_MAX, OVERRIDES_MAX};
use tollgate::{Assignment, ControlError, Decision, Error, PlanId, PolicyBuilder, Request};

pub(crate) const WS: LaneId = LaneId::new(0);
pub(crate) const HTTP: LaneId = LaneId::new(1);
pub(crate) const PING: LaneId = LaneId::new(2);

/// Two lanes of one tier and a third, three plans.
pub(crate) fn plans() -> PolicyBuilder {
    Policy::builder()
        .lane("ws/heavy", "10/min")
        .lane("http/heavy", "20/min")
        .lane("ws/light", "120/min")
        .plan("free", [("ws/heavy", "5/min")])
        .plan("pro", [("ws/heavy", "100/min"), ("http/heavy", "200/min")])
}

fn limiter() -> Limiter {
    build(plans().build().expect("valid"), 100, OnFull::Deny).0
}

pub(crate) fn plan(limiter: &Limiter, name: &str) -> PlanId {
    limiter.plan(name).expect("a plan of the policy")
}

/// What the next check finds.
pub(crate) fn capacities(limiter: &Limiter, agent: &str) -> [u64; 3] {
    [WS, HTTP, PING].map(|lane| check(limiter, agent, lane).capacity())
}

/// What the next check finds under a plan that the request names.
fn capacities_as(limiter: &Limiter, agent: &str, plan: PlanId) -> [u64; 3] {
    [WS, HTTP, PING]
        .map(|lane| limiter.check_request(Request::new(agent, lane).plan(plan)).expect("a valid request").capacity())
}

pub(crate) fn exempt() -> Assignment {
    let mut assignment = Assignment::default();
    assignment.set_exempt(true);
    assignment
}

fn overridden(lane: &str, limit: Limit) -> Assignment {
    let mut assignment = Assignment::default();
    assignment.set_override(lane, limit);
    assignment
}

const DEFAULTS: [u64; 3] = [10, 20, 120];
const UNLIMITED: [u64; 3] = [u64::MAX; 3];

#[test]
fn a_change_applies_to_the_next_check_of_a_known_agent_and_of_a_new_one() {
    let limiter = limiter();
    let [free, pro] = ["free", "pro"].map(|name| plan(&limiter, name));
    assert_eq!(capacities(&limiter, "known"), DEFAULTS);
    for agent in ["known", "stranger"] {
        // The first check of the new agent comes after its first change.
        limiter.assign(agent, pro).unwrap();
        assert_eq!(capacities(&limiter, agent), [100, 200, 120]);
        limiter.assign(agent, free).unwrap();
        assert_eq!(capacities(&limiter, agent), [5, 20, 120]);
        limiter.set_override(agent, "ws/heavy", "7/min").unwrap();
        assert_eq!(capacities(&limiter, agent), [7, 20, 120]);
        limiter.set_override(agent, "ws/heavy", "8/min").unwrap();
        assert_eq!(capacities(&limiter, agent), [8, 20, 120]);
        limiter.set_override(agent, "heavy", "9/min").unwrap();
        assert_eq!(capacities(&limiter, agent), [9, 9, 120]);
        limiter.remove_override(agent, "http/heavy").unwrap();
        assert_eq!(capacities(&limiter, agent), [9, 20, 120]);
        limiter.exempt(agent).unwrap();
        assert_eq!(capacities(&limiter, agent), UNLIMITED);
        limiter.unexempt(agent).unwrap();
        assert_eq!(capacities(&limiter, agent), [9, 20, 120]);
        limiter.set_override(agent, "heavy", Limit::deny_all()).unwrap();
        assert_eq!(capacities(&limiter, agent), [0, 0, 120]);
        assert!(!check(&limiter, agent, HTTP).is_allowed());
        limiter.remove_override(agent, "heavy").unwrap();
        assert_eq!(capacities(&limiter, agent), [5, 20, 120]);
        limiter.set_override(agent, "light", "3/min").unwrap();
        limiter.unassign(agent).unwrap();
        assert_eq!(capacities(&limiter, agent), [10, 20, 3]);
        limiter.remove_overrides(agent).unwrap();
        assert_eq!(capacities(&limiter, agent), DEFAULTS);
    }
    // No other agent is affected.
    assert_eq!(capacities(&limiter, "other"), DEFAULTS);
    assert_eq!(limiter.assignments(), []);
}

#[test]
fn an_exemption_comes_before_an_override_before_a_plan_before_the_plan_of_the_request() {
    let limiter = limiter();
    let [free, pro] = ["free", "pro"].map(|name| plan(&limiter, name));
    let agent = "agent-7";
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, free)), (DEFAULTS, [5, 20, 120]));
    limiter.assign(agent, pro).unwrap();
    let as_pro = [100, 200, 120];
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, free)), (as_pro, as_pro));
    limiter.set_override(agent, "ws/heavy", "7/min").unwrap();
    let own = [7, 200, 120];
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, free)), (own, own));
    limiter.exempt(agent).unwrap();
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, free)), (UNLIMITED, UNLIMITED));
    limiter.unexempt(agent).unwrap();
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, free)), (own, own));
    // Without a plan, its other lanes have their default limits, not those of the request's plan.
    limiter.unassign(agent).unwrap();
    let own = [7, 20, 120];
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, pro)), (own, own));
    limiter.remove_override(agent, "heavy").unwrap();
    assert_eq!((capacities(&limiter, agent), capacities_as(&limiter, agent, pro)), (DEFAULTS, as_pro));
}

#[test]
fn the_plan_of_a_request_applies_to_that_request_only() {
    let limiter = limiter();
    let [free, pro] = ["free", "pro"].map(|name| plan(&limiter, name));
    for agent in ["known", "stranger"] {
        if agent == "known" {
            touch(&limiter, agent, WS);
        }
        assert_eq!(capacities_as(&limiter, agent, pro), [100, 200, 120]);
        assert_eq!(limiter.assignment(agent).unwrap(), Assignment::default());
        assert_eq!(capacities(&limiter, agent), DEFAULTS);
        assert_eq!(capacities_as(&limiter, agent, free), [5, 20, 120]);
        assert_eq!(capacities_as(&limiter, agent, PlanId::DEFAULT), DEFAULTS);
    }
    assert_eq!(limiter.assignments(), []);
    // The lanes are the same under each plan: one token of pro is 0.6 s, one of free 12 s.
    let spent = limiter.check_request(Request::new("one", WS).cost(50).plan(pro)).unwrap();
    assert_eq!(spent.full_in(), SECOND * 30);
    assert_eq!(limiter.check_request(Request::new("one", WS).plan(free)).unwrap().full_in(), SECOND * 42);
    assert_eq!(remaining(&limiter, "one", WS), 3);
    let unknown = limiter.check_request(Request::new("one", WS).plan(PlanId::new(3)));
    assert_eq!(unknown, Err(Error::UnknownPlan { plan: 3, plans: 3 }));
}

#[test]
fn an_agent_assigned_to_default_ignores_the_plan_of_a_request() {
    let limiter = limiter();
    let pro = plan(&limiter, "pro");
    for agent in ["known", "stranger"] {
        if agent == "known" {
            touch(&limiter, agent, WS);
        }
        limiter.assign(agent, PlanId::DEFAULT).unwrap();
        assert_eq!(capacities_as(&limiter, agent, pro), DEFAULTS);
        assert_eq!(limiter.assignment(agent).unwrap().plan(), Some("default"));
        limiter.unassign(agent).unwrap();
        assert_eq!(capacities_as(&limiter, agent, pro), [100, 200, 120]);
    }
}

#[test]
fn assignments_outlive_the_record() {
    let policy = plans().build().expect("valid");
    let (limiter, clock) = build(policy, 1, OnFull::Deny);
    let pro = plan(&limiter, "pro");
    limiter.assign("assigned", pro).unwrap();
    limiter.set_override("overridden", "ws/heavy", "7/min").unwrap();
    limiter.exempt("exempt").unwrap();
    let all_stand = |limiter: &Limiter, how: &str| {
        assert_eq!(capacities(limiter, "assigned"), [100, 200, 120], "{how}");
        assert_eq!(capacities(limiter, "overridden"), [7, 20, 120], "{how}");
        assert_eq!(capacities(limiter, "exempt"), UNLIMITED, "{how}");
    };
    all_stand(&limiter, "at first");
    for (agent, has_record) in [("assigned", true), ("overridden", true), ("exempt", false)] {
        assert_eq!(limiter.forget(agent), Ok(has_record));
    }
    all_stand(&limiter, "forgotten");
    clock.advance(MINUTE);
    assert_eq!(limiter.sweep(Duration::ZERO), 2);
    all_stand(&limiter, "swept");
    clock.advance(MINUTE);
    // Newcomers take the two idle records and all others.
    for newcomer in 0..96 {
        assert_eq!(spend(&limiter, &format!("newcomer-{newcomer}"), WS, 10).remaining(), 0);
    }
    assert_eq!((limiter.stats().agents, limiter.stats().idle_evictions), (96, 4));
    assert_eq!(limiter.check("assigned", WS), Err(Error::Full));
    clock.advance(MINUTE);
    all_stand(&limiter, "evicted");
    assert_eq!(limiter.assignments().len(), 3);
}

/// A full neighbourhood of agents, all in debt: ten of twenty spent.
fn full_of_debt(on_full: OnFull) -> (Limiter, Vec<String>) {
    let (limiter, _) = build(plans().build().expect("valid"), 1, on_full);
    let agents: Vec<String> = (0..96).map(|agent| format!("agent-{agent}")).collect();
    for agent in &agents {
        assert_eq!(spend(&limiter, agent, HTTP, 10).remaining(), 10);
    }
    (limiter, agents)
}

#[test]
fn the_record_of_an_agent_with_an_assignment_is_never_given_up() {
    let (limiter, agents) = full_of_debt(OnFull::Evict);
    let free = plan(&limiter, "free");
    for (number, agent) in agents.iter().enumerate().skip(1) {
        match number % 4 {
            0 => limiter.assign(agent, PlanId::DEFAULT),
            1 => limiter.assign(agent, free),
            2 => limiter.set_override(agent, "ws/light", "1/min"),
            _ => limiter.exempt(agent),
        }
        .unwrap();
    }
    // The agent without an assignment has the most debt, and loses its record.
    assert_eq!(spend(&limiter, &agents[0], HTTP, 9).remaining(), 1);
    assert_eq!(check(&limiter, "newcomer-0", HTTP).remaining(), 0);
    assert_eq!(limiter.stats().lossy_evictions, 1);
    limiter.assign("newcomer-0", free).unwrap();
    let before = limiter.stats();
    for newcomer in 1..100 {
        assert_eq!(limiter.check(format!("newcomer-{newcomer}"), HTTP), Err(Error::Full));
    }
    assert_eq!(limiter.stats(), before);
    for agent in &agents[1..] {
        limiter.unexempt(agent).unwrap();
        assert_eq!(remaining(&limiter, agent, HTTP), 10, "{agent}");
    }
}

#[test]
fn an_exempt_agent_owes_nothing_and_takes_no_record() {
    for on_full in [OnFull::Deny, OnFull::Evict] {
        let (limiter, agents) = full_of_debt(on_full);
        limiter.exempt("stranger").unwrap();
        let before = limiter.stats();
        for _ in 0..100 {
            let verdict = spend(&limiter, "stranger", HTTP, u64::MAX);
            assert_eq!((verdict.decision(), verdict.remaining()), (Decision::Exempt, u64::MAX));
        }
        assert_eq!(limiter.stats(), before);
        limiter.exempt(&agents[0]).unwrap();
        for _ in 0..100_000 {
            assert_eq!(check(&limiter, &agents[0], WS).decision(), Decision::Exempt);
        }
        limiter.unexempt(&agents[0]).unwrap();
        let left = [WS, HTTP, PING].map(|lane| remaining(&limiter, &agents[0], lane));
        assert_eq!(left, [10, 10, 120], "what it owed before, and no more");
        assert!(agents[1..].iter().all(|agent| remaining(&limiter, agent, HTTP) == 10));
        assert_eq!(limiter.check_request(Request::new("stranger", HTTP).cost(0)), Err(Error::ZeroCost));
        limiter.unexempt("stranger").unwrap();
    }
}

#[test]
fn tens_of_thousands_of_agents_have_overrides() {
    let (limiter, _) = build(plans().build().expect("valid"), 100_000, OnFull::Deny);
    let id = |agent: usize| format!("agent-{agent}");
    let own = |agent: usize| 1 + agent as u64 % 997;
    let too_many = |result: Result<(), ControlError>| assert!(matches!(result, Err(ControlError::TooManyOverrides)));
    let check_all = |agents: usize| {
        for agent in 0..agents {
            assert_eq!(check(&limiter, &id(agent), WS).capacity(), own(agent), "{agent}");
        }
    };
    for agent in 0..60_000 {
        limiter.set_override(id(agent), "ws/heavy", Limit::per_minute(own(agent))).unwrap();
    }
    check_all(60_000);
    let round =
        || (60_000..OVERRIDES_MAX).map(|agent| (id(agent), overridden("ws/heavy", Limit::per_minute(own(agent)))));
    for _ in 0..10 {
        limiter.set_assignments(round()).unwrap();
        too_many(limiter.set_override("one more", "ws/heavy", "1/min"));
        too_many(limiter.set_assignments([("one more", overridden("ws/light", Limit::per_minute(1)))]));
        assert_eq!(capacities(&limiter, "one more"), DEFAULTS);
        assert_eq!(limiter.assignment("one more").unwrap(), Assignment::default());
        // An agent that has one may get another, and a replacement needs no room.
        limiter.set_override(id(7), "ws/light", "9/min").unwrap();
        assert_eq!(capacities(&limiter, &id(7)), [own(7), 20, 9]);
        limiter.set_assignments([(id(8), Assignment::default()), (id(70_000), exempt())]).unwrap();
        limiter.set_override(id(8), "ws/heavy", Limit::per_minute(own(8))).unwrap();
        limiter.set_assignments((60_000..OVERRIDES_MAX).map(|agent| (id(agent), Assignment::default()))).unwrap();
        assert_eq!(check(&limiter, &id(60_000), WS).capacity(), 10);
    }
    limiter.set_assignments(round()).unwrap();
    check_all(OVERRIDES_MAX);
    assert_eq!(limiter.assignments().len(), OVERRIDES_MAX + 1);
    let text = limiter.set_override("one more", "ws/heavy", "1/min").unwrap_err().to_string();
    assert!(text.starts_with("65000 agents have overrides already; "), "{text}");
}

#[test]
fn every_row_is_free_again_when_its_overrides_are_gone() {
    let (limiter, _) = build(plans().build().expect("valid"), 100, OnFull::Deny);
    let own = |round: u64| Limit::per_minute(1 + round);
    for round in 0..10 {
        let all = |assignment: Assignment| {
            (0..OVERRIDES_MAX).map(move |agent| (format!("agent-{agent}"), assignment.clone()))
        };
        limiter.set_assignments(all(overridden("ws/heavy", own(round)))).unwrap();
        assert_eq!(limiter.limit_of("agent-0", WS), Ok(Some(own(round))));
        assert_eq!(limiter.limit_of(format!("agent-{}", OVERRIDES_MAX - 1), WS), Ok(Some(own(round))));
        limiter.set_assignments(all(Assignment::default())).unwrap();
    }
    assert_eq!(limiter.assignments(), []);
}

#[test]
fn many_assignments_are_set_all_or_none() {
    let limiter = limiter();
    let mut pro = overridden("ws/light", Limit::per_minute(3));
    pro.set_plan(Some("pro".into()));
    limiter.exempt("a").unwrap();
    limiter.exempt("z").unwrap();
    limiter.set_assignments([("a", pro.clone()), ("b", exempt()), ("c", exempt()), ("c", pro.clone())]).unwrap();
    let set = |id: &str, assignment: &Assignment| (id.as_bytes().to_vec(), assignment.clone());
    let all = [set("a", &pro), set("b", &exempt()), set("c", &pro), set("z", &exempt())];
    assert_eq!(limiter.assignments(), all);
    // An assignment replaces the previous one, and the last entry of an agent counts.
    assert_eq!(capacities(&limiter, "a"), [100, 200, 3]);
    assert_eq!(capacities(&limiter, "c"), [100, 200, 3]);

    let mut no_plan = Assignment::default();
    no_plan.set_plan(Some("gold".into()));
    let refused = |last: (&str, Assignment), expected: &str| {
        let error = limiter.set_assignments([("a", exempt()), ("new", exempt()), last]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(limiter.assignments(), all);
        assert_eq!((capacities(&limiter, "a"), capacities(&limiter, "new")), ([100, 200, 3], DEFAULTS));
    };
    refused(("d", no_plan), "there is no plan \"gold\"; the plans are default, free, pro");
    refused(
        ("d", overridden("heavy", Limit::per_minute(1))),
        "there is no lane or tier \"heavy\"; the lanes are ws/heavy,",
    );
    refused(("d", overridden("ws/heavy", Limit::per_minute(0))), "a rate or burst of 0");
    refused(("", exempt()), "the agent id is empty");
}

#[test]
fn assignments_can_be_read_back() {
    let limiter = limiter();
    limiter.assign("agent-7", plan(&limiter, "pro")).unwrap();
    limiter.set_override("agent-7", "heavy", "7/min").unwrap();
    let decided = limiter.assignment("agent-7").unwrap();
    assert_eq!((decided.plan(), decided.is_exempt()), (Some("pro"), false));
    assert!(decided.overrides().eq([("http/heavy", Limit::per_minute(7)), ("ws/heavy", Limit::per_minute(7))]));
    let limits = |agent| [WS, HTTP, PING].map(|lane| limiter.limit_of(agent, lane).unwrap());
    assert_eq!(limits("agent-7"), [7, 7, 120].map(|rate| Some(Limit::per_minute(rate))));
    assert_eq!(limits("stranger"), [10, 20, 120].map(|rate| Some(Limit::per_minute(rate))));
    limiter.exempt("agent-7").unwrap();
    assert_eq!((limits("agent-7"), limiter.is_exempt("agent-7")), ([None; 3], Ok(true)));
    assert_eq!((limiter.is_exempt("stranger"), limiter.stats().claims), (Ok(false), 0));
    assert_eq!(limiter.limit_of("agent-7", LaneId::new(3)), Err(Error::UnknownLane { lane: 3, lanes: 3 }));
}

#[test]
fn an_invalid_control_call_is_an_error_and_changes_nothing() {
    let limiter = limiter();
    let long = "a".repeat(ID_BYTES_MAX + 1);
    let text = |result: Result<(), ControlError>| result.unwrap_err().to_string();
    assert!(text(limiter.assign("", PlanId::DEFAULT)).starts_with("the agent id is empty"));
    assert!(text(limiter.exempt(&long)).starts_with("the agent id has 257 bytes"));
    assert_eq!(text(limiter.assign("a", PlanId::new(3))), "there is no plan 3; this policy has 3, numbered from 0");
    let lanes = "the lanes are ws/heavy, http/heavy, ws/light";
    assert_eq!(text(limiter.set_override("a", "huge", "1/s")), format!("there is no lane or tier \"huge\"; {lanes}"));
    assert_eq!(text(limiter.remove_override("a", "ws/")), format!("there is no lane or tier \"ws/\"; {lanes}"));
    assert!(text(limiter.set_override("a", "heavy", "0/s")).starts_with("a rate or burst of 0"));
    assert!(text(limiter.set_override("a", "heavy", Limit::per_second(0))).starts_with("a rate or burst of 0"));
    assert!(text(limiter.set_override("a", "heavy", "lots")).starts_with("\"lots\" is not a limit"));
    let error = limiter.exempt("").unwrap_err();
    assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some(error.to_string()));
    assert_eq!(limiter.assignments(), []);
    assert_eq!(capacities(&limiter, "a"), DEFAULTS);
}

/// The policy's exemptions come and go with it, independently of assignments.
#[test]
fn a_policy_exempts_agents_whatever_is_assigned() {
    let policy = |exempt: &[&str]| {
        Policy::builder().lane("lane", "2/min").exempt(exempt.iter().copied()).build().expect("a valid policy")
    };
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy(&["a", "b", "a"])).agents(10).clock(clock).build().expect("a small slab");
    let exempt = || ["a", "b", "c"].map(|agent| limiter.is_exempt(agent).expect("a valid id"));
    assert_eq!(exempt(), [true, true, false]);
    assert!(limiter.assignments().is_empty(), "nothing is assigned");
    limiter.unexempt("a").unwrap();
    limiter.exempt("b").unwrap();
    limiter.set_override("a", "lane", "9/min").unwrap();
    assert_eq!(exempt(), [true, true, false]);
    assert_eq!(limiter.limit_of("a", LaneId::new(0)), Ok(None));
    limiter.replace_policy(policy(&["c"])).unwrap();
    assert_eq!(exempt(), [false, true, true]);
    assert_eq!(limiter.check("a", LaneId::new(0)).unwrap().capacity(), 9);
    assert_eq!(limiter.check("c", LaneId::new(0)).unwrap().decision(), Decision::Exempt);
    limiter.replace_policy(policy(&[])).unwrap();
    assert_eq!(exempt(), [false, true, false]);
    assert_eq!(limiter.check("c", LaneId::new(0)).unwrap().capacity(), 2);
    let error = Policy::builder().lane("lane", "2/min").exempt([""]).build().unwrap_err();
    assert_eq!(error.to_string(), "exempt: an id of 0 bytes; allowed: 1 to 256");
}
