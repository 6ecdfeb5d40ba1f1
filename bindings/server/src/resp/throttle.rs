//! `CL.THROTTLE`: what redis-cell's command means to the limiter, and what its
//! reply says.
//!
//! redis-cell keeps the instant at which a key has nothing in use, as a bucket
//! does, and takes the limit with each call, as a dynamic lane does. So the key
//! is the agent, and the numbers agree: a token takes `period / count`, in
//! whole nanoseconds and rounded down as there; the capacity is the burst and
//! one more.

use super::words::number;
use std::time::Duration;
use tollgate::{CallLimit, Error, LaneId, LaneState, Limiter, Request, Verdict};

/// What a call asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttle<'a> {
    pub(super) key: &'a [u8],
    limit: CallLimit,
    /// How many tokens; 0 looks and takes nothing.
    pub(super) quantity: u64,
}

/// How to call it.
pub(super) const USAGE: &str =
    "ERR write CL.THROTTLE <key> <max_burst> <count per period> <period in seconds> [<quantity>]";

impl<'a> Throttle<'a> {
    /// Reads the words after the command's name.
    pub(super) fn read(mut words: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Self, String> {
        if !(4..=5).contains(&words.len()) {
            return Err(USAGE.to_owned());
        }
        let mut next = || words.next().unwrap_or_default();
        let key = next();
        let [burst, count, period] = [("max_burst", next()), ("count", next()), ("period", next())];
        let (burst, count, period) = (whole(burst)?, whole(count)?, whole(period)?);
        let quantity = words.next().map_or(Ok(1), |quantity| whole(("quantity", quantity)))?;
        let nanos = period.checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_div(count));
        let Some(nanos) = nanos.filter(|nanos| *nanos > 0) else {
            return Err(format!(
                "ERR {count} per {period} seconds is no rate; give a count from 1 and a period from 1 second, \
                 at most one token per nanosecond"
            ));
        };
        match CallLimit::new(burst.saturating_add(1), 1, Duration::from_nanos(nanos)) {
            Ok(limit) => Ok(Self { key, limit, quantity }),
            Err(error) => Err(format!("ERR {error}")),
        }
    }

    /// Decides, and charges if allowed. The reply: whether it was limited; the limit; what is left; the seconds to
    /// wait, -1 if there are none or no wait helps; the seconds until nothing is in use.
    pub(super) fn decide(&self, limiter: &Limiter, lane: LaneId) -> Result<Answer, Error> {
        let request = Request::new(self.key, lane).limit(self.limit);
        if self.quantity == 0 {
            return limiter.peek(request).map(|state| self.looked(&state));
        }
        match limiter.check_request(request.cost(self.quantity)) {
            Ok(verdict) => Ok(self.decided(&verdict)),
            // It can never pass.
            Err(Error::CostAboveCapacity { .. }) => limiter.peek(request).map(|state| {
                let Answer { reply: [_, limit, left, _, reset], .. } = self.looked(&state);
                Answer { is_limited: true, reply: [1, limit, left, NO_WAIT, reset] }
            }),
            Err(error) => Err(error),
        }
    }

    fn decided(&self, verdict: &Verdict) -> Answer {
        let is_limited = !verdict.is_allowed();
        let wait = verdict.retry_after().filter(|_| is_limited).map_or(NO_WAIT, seconds);
        self.answer(is_limited, verdict.capacity(), verdict.remaining(), wait, verdict.full_in())
    }

    /// A look passes, unless more is in use than this limit has.
    fn looked(&self, state: &LaneState) -> Answer {
        let window = state.window();
        let over = state.full_in().saturating_sub(window);
        let is_limited = !over.is_zero() && !state.is_exempt();
        let wait = if is_limited { seconds(over) } else { NO_WAIT };
        self.answer(is_limited, state.capacity(), state.remaining(), wait, state.full_in())
    }

    fn answer(&self, is_limited: bool, capacity: u64, left: u64, wait: i64, reset: Duration) -> Answer {
        let [capacity, left] = match capacity {
            // Exempt: all of what was asked for is left.
            u64::MAX => [self.limit.capacity(); 2],
            _ => [capacity, left],
        };
        // Lossless: a capacity is at most 10^12.
        let reply = [i64::from(is_limited), capacity as i64, left as i64, wait, seconds(reset)];
        Answer { is_limited, reply }
    }
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_limited: bool,
    pub(super) reply: [i64; 5],
}

const NO_WAIT: i64 = -1;

/// Whole seconds as redis-cell reports them: one more if whole milliseconds are left over.
fn seconds(span: Duration) -> i64 {
    let whole = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    if span.subsec_millis() > 0 { whole.saturating_add(1) } else { whole }
}

fn whole((name, text): (&str, &[u8])) -> Result<u64, String> {
    let number = number(text).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| format!("ERR {name} is not a whole number from 0 to {}", i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{ManualClock, Policy};

    fn limiter() -> (Limiter, ManualClock) {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("any", "dynamic").build().unwrap();
        (Limiter::builder(policy).agents(100).clock(clock.clone()).build().unwrap(), clock)
    }

    fn ask(limiter: &Limiter, line: &str) -> [i64; 5] {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let throttle = Throttle::read(words.into_iter()).unwrap();
        throttle.decide(limiter, LaneId::new(0)).unwrap().reply
    }

    /// The example of redis-cell's own documentation: `CL.THROTTLE user123 15 30 60 1`.
    #[test]
    fn the_documented_example_gets_the_documented_reply() {
        let (limiter, _) = limiter();
        assert_eq!(ask(&limiter, "user123 15 30 60 1"), [0, 16, 15, -1, 2]);
        assert_eq!(ask(&limiter, "user123 15 30 60"), [0, 16, 14, -1, 4]);
    }

    #[test]
    fn the_burst_and_one_more_pass_and_then_one_every_interval() {
        let (limiter, clock) = limiter();
        for left in (0..=15).rev() {
            assert_eq!(ask(&limiter, "user 15 30 60 1"), [0, 16, left, -1, 2 * (16 - left)]);
        }
        assert_eq!(ask(&limiter, "user 15 30 60 1"), [1, 16, 0, 2, 32]);
        clock.advance(Duration::from_millis(1_999));
        // A millisecond is a second, and less than one is nothing.
        assert_eq!(ask(&limiter, "user 15 30 60 1"), [1, 16, 0, 1, 31]);
        clock.advance(Duration::from_micros(500));
        assert_eq!(ask(&limiter, "user 15 30 60 1"), [1, 16, 0, 0, 30]);
        clock.advance(Duration::from_micros(500));
        assert_eq!(ask(&limiter, "user 15 30 60 1"), [0, 16, 0, -1, 32]);
    }

    #[test]
    fn a_quantity_of_nothing_looks_and_more_than_the_limit_never_passes() {
        let (limiter, _) = limiter();
        assert_eq!(ask(&limiter, "user 4 10 10 0"), [0, 5, 5, -1, 0]);
        assert_eq!(ask(&limiter, "user 4 10 10 3"), [0, 5, 2, -1, 3]);
        assert_eq!(ask(&limiter, "user 4 10 10 3"), [1, 5, 2, 1, 3]);
        assert_eq!(ask(&limiter, "user 4 10 10 6"), [1, 5, 2, -1, 3]);
        assert_eq!(ask(&limiter, "user 4 10 10 0"), [0, 5, 2, -1, 3]);
    }

    /// The time that a key has in use is the same under every limit.
    #[test]
    fn a_changed_limit_applies_at_once() {
        let (limiter, _) = limiter();
        assert_eq!(ask(&limiter, "user 9 10 10 8"), [0, 10, 2, -1, 8]);
        assert_eq!(ask(&limiter, "user 4 10 10"), [1, 5, 0, 4, 8]);
        assert_eq!(ask(&limiter, "user 4 10 10 0"), [1, 5, 0, 3, 8]);
        assert_eq!(ask(&limiter, "user 99 10 10"), [0, 100, 91, -1, 9]);
    }

    /// A third of a second is rounded down, as there: three pass in a second, and no more.
    #[test]
    fn an_interval_is_rounded_down() {
        let (limiter, clock) = limiter();
        assert_eq!(ask(&limiter, "user 2 3 1 3"), [0, 3, 0, -1, 1]);
        clock.advance(Duration::from_nanos(333_333_332));
        assert_eq!(ask(&limiter, "user 2 3 1")[0], 1);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(ask(&limiter, "user 2 3 1")[0], 0);
    }

    #[test]
    fn an_exempt_agent_always_has_all() {
        let (limiter, _) = limiter();
        limiter.exempt("user").unwrap();
        assert_eq!(ask(&limiter, "user 4 10 10 99"), [0, 5, 5, -1, 0]);
        assert_eq!(ask(&limiter, "user 4 10 10 0"), [0, 5, 5, -1, 0]);
    }

    #[test]
    fn what_is_no_call_is_named() {
        let read = |line: &str| {
            let words: Vec<_> = line.split(' ').map(|word| word.to_owned().into_bytes()).collect();
            let read = Throttle::read(words.iter().map(Vec::as_slice)).map(|_| ());
            read.unwrap_err()
        };
        assert_eq!((read("user 1 1"), read("user 1 1 1 1 1")), (USAGE.to_owned(), USAGE.to_owned()));
        for (line, name) in [
            ("user x 1 1", "max_burst"),
            ("user 1 -1 1", "count"),
            ("user 1 1 1.5", "period"),
            ("user 1 1 1 +1", "quantity"),
            ("user 1 1 99999999999999999999", "period"),
        ] {
            assert!(read(line).starts_with(&format!("ERR {name} is not")), "{line}: {}", read(line));
        }
        for line in ["user 1 0 60", "user 1 1 0", "user 1 2000000000 1", "user 1 1 9223372036854775807"] {
            assert!(read(line).contains("is no rate"), "{line}: {}", read(line));
        }
        assert!(read("user 9223372036854775807 1 1").contains("capacity"), "{}", read("user 9223372036854775807 1 1"));
        assert!(read("user 1 1 315576000").contains("ten years"), "{}", read("user 1 1 315576000"));
    }
}
