use crate::clock::hook;
use crate::policy::OnChange::{self, KeepDebt, Reset};
use crate::{Agent, Error, LaneId, Limiter, ManualClock, OnFull, Policy, Request, Tick};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const LANE: LaneId = LaneId::new(0);
const TOKEN: u64 = 1_000_000;
const NEWCOMERS: [&str; 2] = ["newcomer-1", "newcomer-2"];

/// One record is vacant, or two; the others are occupied by agents that are never idle.
fn nearly_full(limit: &str, on_change: OnChange, vacant: u64) -> (Arc<Limiter>, ManualClock) {
    let clock = ManualClock::new();
    let policy = Policy::builder().lane("lane", limit).lane("slots", "held 1").plan("same", [("lane", limit)]);
    let policy = policy.on_change(on_change).build().unwrap();
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny).build().unwrap();
    for tenant in vacant..limiter.stats().records {
        assert!(
            limiter
                .check_request(Request::new(&format!("tenant-{tenant}"), LaneId::new(1)).at(Tick::ZERO))
                .unwrap()
                .is_allowed()
        );
    }
    (Arc::new(limiter), clock)
}

/// Two newcomers, of which the second finds no record: the first is charged, and
/// its charge is taken back. At whichever reading of the clock another caller
/// charges it too, and time passes, it is full no sooner than after that charge
/// alone.
#[test]
fn a_charge_is_taken_back_as_of_an_instant_after_every_charge_seen() {
    let parts = NEWCOMERS.map(|agent| Request::new(agent, LANE).cost(2).at(Tick::ZERO));
    let later = Tick::from_nanos(TOKEN / 2);
    let mut charges_seen = 0;
    for reading in 1.. {
        let (limiter, clock) = nearly_full("1/ms burst 4", KeepDebt, 1);
        let other = Arc::clone(&limiter);
        hook::at_reading(reading, move || {
            clock.set(later);
            for agent in NEWCOMERS {
                if other.peek(Request::new(agent, LANE).at(Tick::ZERO)).unwrap().remaining() < 4 {
                    assert!(other.check_request(Request::new(agent, LANE).at(later)).unwrap().is_allowed());
                }
            }
        });
        assert_eq!(limiter.check_all(&parts), Err(Error::Full));
        if hook::remove() {
            break; // There are no more readings.
        }
        let full_in =
            NEWCOMERS.map(|agent| limiter.peek(Request::new(agent, LANE).at(later)).unwrap().full_in().as_nanos());
        let full_in = full_in.into_iter().max().unwrap() as u64;
        charges_seen += u32::from(full_in > 0);
        assert!(full_in == 0 || full_in >= TOKEN, "reading {reading}: {full_in} ns after {later:?}");
    }
    assert!(charges_seen >= 1, "nobody charged between a charge and its rollback");
}

/// What is left of the lane at instant 0.
fn left(limiter: &Limiter, agent: &str) -> u64 {
    limiter.peek(Request::new(agent, LANE).at(Tick::ZERO)).unwrap().remaining()
}

/// Charges all that is left, one by one.
fn spend(limiter: &Limiter, agent: &str) {
    while limiter.check_request(Request::new(agent, LANE).at(Tick::ZERO)).unwrap().is_allowed() {}
}

/// Two newcomers, of which the second finds no record. At every reading of the
/// clock in turn, `happens` acts on the agent that was charged, and then all it
/// has is spent: `left_after` is left once the charge was taken back.
fn meanwhile(limit: &str, on_change: OnChange, vacant: u64, happens: fn(&Limiter, &'static str), left_after: u64) {
    let parts = NEWCOMERS.map(|agent| Request::new(agent, LANE).at(Tick::ZERO));
    let mut happened = 0;
    for reading in 1.. {
        let (limiter, _) = nearly_full(limit, on_change, vacant);
        let (other, spent) = (Arc::clone(&limiter), Rc::new(Cell::new(None)));
        let spent_by = Rc::clone(&spent);
        hook::at_reading(reading, move || {
            let charged = NEWCOMERS.into_iter().find(|agent| left(&other, agent) < 4);
            charged.inspect(|agent| {
                happens(&other, agent);
                spend(&other, agent);
            });
            spent_by.set(charged);
        });
        let answer = limiter.check_all(&parts);
        if hook::remove() {
            break; // There are no more readings.
        }
        if let Some(agent) = spent.get() {
            assert_eq!(answer, Err(Error::Full));
            assert_eq!(left(&limiter, agent), left_after, "{limit}, reading {reading}");
            happened += 1;
        }
    }
    assert!(happened >= 1, "nothing happened between a charge and its rollback");
}

const LIMITS: [&str; 4] = ["1/ms burst 4", "window 4/ms", "exact 4/ms", "budget 4/day"];

/// Other limits with the same numbers come into force.
fn assign(limiter: &Limiter, agent: &'static str) {
    limiter.assign(agent, limiter.plan("same").unwrap()).unwrap();
}

/// The budget of a day gave out more than it had: a denied call took back what
/// a reset had forgiven, and others had spent since.
#[test]
fn what_was_forgiven_is_not_taken_back() {
    for limit in LIMITS {
        let meanwhile = |happens| meanwhile(limit, KeepDebt, 1, happens, 0);
        meanwhile(|limiter, agent| limiter.reset(Agent::new(agent).at(Tick::ZERO)).unwrap());
        meanwhile(|limiter, agent| limiter.reset_lane(Agent::new(agent).at(Tick::ZERO), LANE).unwrap());
        meanwhile(|limiter, agent| assert!(limiter.forget(Agent::new(agent).at(Tick::ZERO)).unwrap()));
        self::meanwhile(limit, Reset, 1, assign, 0);
    }
}

/// Counts and permits stay as they are under other limits, and come back.
#[test]
fn what_other_limits_have_left_is_taken_back() {
    for limit in LIMITS {
        // The debt of a bucket may have been cut.
        let is_bucket = limit == LIMITS[0];
        meanwhile(limit, KeepDebt, 1, assign, if is_bucket { 0 } else { 1 });
    }
}

/// The agent is forgotten, another agent has its record, and it has another in
/// which only the position distinguishes its words from those that were charged.
#[test]
fn what_was_charged_to_one_record_is_not_taken_back_from_another() {
    // Strangers do not take the record that was charged in every round.
    for limit in LIMITS.repeat(4) {
        let forget = |limiter: &Limiter, agent| {
            assert!(limiter.forget(Agent::new(agent).at(Tick::ZERO)).unwrap());
            assert!(limiter.check_request(Request::new("stranger", LANE).at(Tick::ZERO)).unwrap().is_allowed());
        };
        meanwhile(limit, KeepDebt, 2, forget, 0);
    }
}
