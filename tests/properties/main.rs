//! Properties of the limiter against exact rational arithmetic.
//!
//! `PROPTEST_CASES=100000 cargo test --test properties` is the long form.

mod exact;
mod inputs;

use exact::Exact;
use inputs::{Amount, Call, Numbers, any_limit, any_move, call, move_ahead};
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Agent, Decision, LaneId, Limit, Limiter, ManualClock, Policy, Request, Tick, Verdict};

const LANE: LaneId = LaneId::new(0);

fn limiter(limit: Limit) -> Limiter {
    let policy = Policy::builder().lane("lane", limit).build().expect("a limit of the allowed range");
    // At its origin, before every instant that calls pass.
    Limiter::builder(policy).agents(1).clock(ManualClock::new()).build().expect("a small slab")
}

/// One bucket of a limiter, driven by instants.
struct Bucket(Limiter);

impl Bucket {
    fn new(numbers: &Numbers) -> Self {
        Self(limiter(numbers.limit()))
    }

    fn check(&self, now: u64, cost: u64) -> Verdict {
        self.0
            .check_request(Request::new("agent-7", LANE).cost(cost).at(Tick::from_nanos(now)))
            .expect("a cost within the capacity")
    }

    fn refund(&self, now: u64, cost: u64) {
        self.0
            .refund(Request::new("agent-7", LANE).cost(cost).at(Tick::from_nanos(now)))
            .expect("a cost within the capacity");
    }

    fn reset(&self, now: u64) {
        self.0.reset_lane(Agent::new("agent-7").at(Tick::from_nanos(now)), LANE).expect("a lane of the policy");
    }

    fn left(&self, now: u64) -> u64 {
        self.0.peek(Request::new("agent-7", LANE).at(Tick::from_nanos(now))).expect("a lane of the policy").remaining()
    }

    fn full_in(&self, now: u64) -> u64 {
        let status =
            self.0.peek(Request::new("agent-7", LANE).at(Tick::from_nanos(now))).expect("a lane of the policy");
        nanos(status.full_in())
    }

    fn next_in(&self, now: u64) -> Option<Duration> {
        self.0.peek(Request::new("agent-7", LANE).at(Tick::from_nanos(now))).expect("a lane of the policy").next_in()
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span within the range")
}

proptest! {
    /// A limit equals exact arithmetic on a token's time, rounded up to a whole
    /// nanosecond once: in verdict, remaining, retry and time until full,
    /// wherever time goes. So if that time is whole to begin with, it equals
    /// the limit as configured.
    #[test]
    fn a_limit_equals_exact_arithmetic_on_whole_token_times(
        numbers in any_limit(),
        calls in prop::collection::vec((any_move(), call()), 1..80),
    ) {
        let bucket = Bucket::new(&numbers);
        let mut exact = if numbers.period % numbers.tokens == 0 {
            Exact::new(numbers.tokens, numbers.period, numbers.capacity)
        } else {
            Exact::new(1, numbers.token_time(), numbers.capacity)
        };
        let (mut now, mut promised, mut resets) = (0, 0, 0);
        for (moved, call) in calls {
            now = moved.from(now, promised, &numbers);
            // At the sixteenth reset the generations wrap around, and the lane is full a nanosecond later: stricter,
            // but not exact.
            resets += usize::from(matches!(call, Call::Reset));
            if resets == 16 {
                break;
            }
            let left = exact.remaining(now);
            prop_assert_eq!(bucket.left(now), left);
            prop_assert_eq!(bucket.full_in(now), exact.full_in(now));
            match call {
                Call::Refund(amount) => {
                    let cost = amount.tokens(left, numbers.capacity);
                    bucket.refund(now, cost);
                    exact.refund(now, cost);
                }
                Call::Reset => {
                    bucket.reset(now);
                    exact.reset(now);
                }
                Call::Check(amount) => {
                    let cost = amount.tokens(left, numbers.capacity);
                    let verdict = bucket.check(now, cost);
                    let mut charged = exact;
                    charged.charge(now, cost);
                    // A charge that would be paid back after the end of the range is refused.
                    let fits = charged.full_in(now) <= Tick::MAX.as_nanos() - now;
                    prop_assert_eq!(verdict.is_allowed(), exact.affords(now, cost) && fits);
                    if verdict.is_allowed() {
                        exact = charged;
                    }
                    prop_assert_eq!(verdict.remaining(), exact.remaining(now));
                    prop_assert_eq!(nanos(verdict.full_in()), exact.full_in(now));
                    prop_assert_eq!(verdict.next_in(), bucket.next_in(now));
                    prop_assert_eq!(nanos(verdict.window()), numbers.capacity * numbers.token_time());
                    let retry_after = (!exact.affords(now, cost)).then(|| exact.retry_after(now, cost));
                    if verdict.is_allowed() {
                        prop_assert_eq!(verdict.retry_after(), None);
                    } else {
                        prop_assert_eq!(verdict.retry_after().map(nanos), retry_after);
                    }
                    let few = u128::from(verdict.remaining()) * 100 < u128::from(numbers.capacity) * 20;
                    let expected = if few { Decision::Warn } else { Decision::Allow };
                    prop_assert!(!verdict.is_allowed() || verdict.decision() == expected);
                    promised = retry_after.unwrap_or(0);
                }
            }
        }
        prop_assert_eq!(bucket.left(now), exact.remaining(now));
    }

    /// Whatever the rounding, nothing passes that the configured limit would
    /// deny, and no answer promises more.
    #[test]
    fn a_limit_is_never_more_permissive_than_configured(
        numbers in any_limit(),
        calls in prop::collection::vec((move_ahead(), call()), 1..80),
    ) {
        let bucket = Bucket::new(&numbers);
        let mut exact = Exact::new(numbers.tokens, numbers.period, numbers.capacity);
        let (mut now, mut promised) = (0, 0);
        for (moved, call) in calls {
            now = moved.from(now, promised, &numbers);
            // Amounts come from the oracle, which holds at least as much, so
            // that requests may exceed what the limiter has.
            let left = exact.remaining(now);
            prop_assert!(bucket.left(now) <= left);
            match call {
                Call::Refund(amount) => {
                    let cost = amount.tokens(left, numbers.capacity);
                    bucket.refund(now, cost);
                    exact.refund(now, cost);
                }
                Call::Reset => {
                    bucket.reset(now);
                    exact.reset(now);
                }
                Call::Check(amount) => {
                    let cost = amount.tokens(left, numbers.capacity);
                    let verdict = bucket.check(now, cost);
                    if verdict.is_allowed() {
                        prop_assert!(exact.affords(now, cost), "{cost} passed at {now} of {left}");
                        exact.charge(now, cost);
                    }
                    let retry_after = verdict.retry_after().map(nanos);
                    prop_assert!(retry_after.is_none_or(|wait| wait >= exact.retry_after(now, cost)));
                    prop_assert!(nanos(verdict.full_in()) >= exact.full_in(now));
                    prop_assert!(verdict.remaining() <= exact.remaining(now));
                    promised = retry_after.unwrap_or(0);
                }
            }
        }
    }

    /// A caller with an older instant gets the same or less, and what it is
    /// granted would be granted at the later instant too.
    #[test]
    fn time_going_back_is_only_stricter(
        numbers in any_limit(),
        calls in prop::collection::vec((any_move(), call(), 0.0..1.0), 1..80),
    ) {
        let bucket = Bucket::new(&numbers);
        let mut exact = Exact::new(numbers.tokens, numbers.period, numbers.capacity);
        let mut now = 0;
        for (moved, call, back) in calls {
            now = moved.from(now, 0, &numbers);
            let earlier = inputs::Move::Back(back).from(now, 0, &numbers);
            prop_assert!(bucket.left(earlier) <= bucket.left(now));
            prop_assert!(bucket.full_in(earlier) >= bucket.full_in(now));
            if let Call::Check(amount) = call {
                let latest = now.max(exact.changed_at());
                let left = exact.remaining(latest);
                let cost = amount.tokens(left, numbers.capacity);
                let entitled = bucket.left(now);
                let verdict = bucket.check(earlier, cost);
                if verdict.is_allowed() {
                    prop_assert!(cost <= entitled, "{cost} passed at {earlier}; {entitled} were left at {now}");
                    prop_assert!(exact.affords(latest, cost), "{cost} passed at {earlier} of {left}");
                    exact.charge(earlier, cost);
                }
            }
        }
    }

    /// No flaw of fixed windows, twice the limit around a boundary: whatever
    /// the phase and the order of calls, a span of any length admits at most
    /// the capacity plus the refill.
    #[test]
    fn no_window_admits_more_than_the_capacity_and_the_refill(
        numbers in any_limit(),
        phase in 0..=(1_u64 << 58),
        calls in prop::collection::vec(
            (any_move(), prop_oneof![Just(Amount::Left), Just(Amount::One), Just(Amount::Capacity)]),
            1..60,
        ),
    ) {
        let bucket = Bucket::new(&numbers);
        let (mut now, mut promised) = (phase, 0);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (moved, amount) in calls {
            now = moved.from(now, promised, &numbers);
            let cost = amount.tokens(bucket.left(now), numbers.capacity);
            let verdict = bucket.check(now, cost);
            if verdict.is_allowed() {
                admitted.push((now, cost));
            }
            promised = verdict.retry_after().map_or(0, nanos);
        }
        for (start, _) in &admitted {
            for (end, _) in admitted.iter().filter(|(end, _)| end >= start) {
                let within = admitted.iter().filter(|(at, _)| (start..=end).contains(&at));
                let sum: u128 = within.map(|(_, cost)| u128::from(*cost)).sum();
                let refilled = u128::from(end - start) * u128::from(numbers.tokens) / u128::from(numbers.period);
                prop_assert!(
                    sum <= u128::from(numbers.capacity) + refilled,
                    "{sum} admitted from {start} to {end}, where {refilled} were refilled",
                );
            }
        }
    }

    /// A minute's worth spent just before any instant leaves nothing just after it.
    #[test]
    fn a_minutes_worth_is_not_given_twice_around_a_boundary(
        capacity in 1..200_u64,
        boundary in 1..1_000_000_000_000_u64,
        gap in 0..1_000_000_000_u64,
    ) {
        let bucket = Bucket::new(&Numbers { tokens: capacity, period: 60_000_000_000, capacity });
        let spend = |now| (0..capacity * 2).filter(|_| bucket.check(now, 1).is_allowed()).count() as u64;
        prop_assert_eq!(spend(boundary - 1), capacity);
        let refilled = (gap + 1) * capacity / 60_000_000_000;
        prop_assert!(spend(boundary + gap) <= refilled);
    }
}

/// A limiter that rounds the refill of every poll to whole tokens, or records
/// the time of a poll that added nothing, starves a caller that polls often.
/// This one counts time in nanoseconds and a denial writes nothing.
#[test]
fn a_drained_bucket_polled_every_millisecond_still_refills() {
    let bucket = Bucket::new(&Numbers { tokens: 10, period: 60_000_000_000, capacity: 10 });
    assert!(bucket.check(0, 10).is_allowed());
    let admitted: Vec<u64> = (1..=12_000).filter(|millis| bucket.check(millis * 1_000_000, 1).is_allowed()).collect();
    assert_eq!(admitted, [6_000, 12_000]);
}
