//! What an operator should change.

use super::connection::{Masters, Ready};
use redis::RedisResult;
use std::collections::BTreeSet;
use std::time::Duration;
use tollgate::cluster::SharedLane;

/// A server's clock that differs by more from ours, from one heartbeat to the next, has stepped.
const STEP_MIN_US: i64 = 2_000_000;

/// What was noticed.
#[derive(Default)]
pub(super) struct Warnings {
    /// How the servers evict keys.
    evicting: BTreeSet<String>,
    /// The server's clock and ours at the last heartbeat, in microseconds.
    clocks: Option<(i64, i64)>,
    /// By how much the server's clock has stepped.
    step_us: Option<i64>,
    /// How long questions take, smoothed.
    round_trip: Option<Duration>,
}

impl Warnings {
    /// Asks new connections whether their server evicts keys. One that does not say is not asked again.
    pub(super) fn connected(&mut self, masters: &mut Masters) {
        let evicts = |ready: &mut Ready| {
            let about: RedisResult<String> = redis::cmd("INFO").arg("memory").query(&mut ready.connection);
            let about = about.ok()?;
            let policy = about.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim().to_owned();
            let is_limited = about.lines().find_map(|line| line.strip_prefix("maxmemory:"))?.trim() != "0";
            (is_limited && policy != "noeviction").then_some(policy)
        };
        self.evicting = masters.all().filter_map(evicts).collect();
        // Another server may have another clock: what that means is in the bound of a lost server.
        (self.clocks, self.step_us) = (None, None);
    }

    /// The server's clock, as it was `now`.
    pub(super) fn clock(&mut self, server_us: i64, now: Duration) {
        let own_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        if let Some((server_before, own_before)) = self.clocks.replace((server_us, own_us)) {
            let step_us = (server_us - server_before) - (own_us - own_before);
            if step_us.abs() > STEP_MIN_US {
                self.step_us = Some(step_us);
            }
        }
    }

    /// How long a question took.
    pub(super) fn round_trip(&mut self, took: Duration) {
        // The least of late: what comes from a machine that is busy for a moment is no distance.
        self.round_trip =
            Some(self.round_trip.map_or(took, |known| if took < known { took } else { (15 * known + took) / 16 }));
    }

    /// All of them in words.
    pub(super) fn all(&self, lanes: &[SharedLane]) -> Vec<String> {
        let evicting = self.evicting.iter().map(|policy| {
            format!("the server evicts keys (maxmemory-policy {policy}), and limits would be forgotten; use noeviction")
        });
        let step = self.step_us.iter().map(|step_us| {
            let seconds = *step_us as f64 / 1e6;
            let what = if *step_us > 0 {
                "buckets were refilled for that time"
            } else {
                "what buckets had refilled since they were last settled is lost"
            };
            format!("the server's clock has stepped by {seconds:+.1} s, and {what}; let it be slewed")
        });
        let slack =
            self.round_trip.into_iter().flat_map(|took| lanes.iter().filter_map(move |lane| too_far(lane, took)));
        evicting.chain(step).chain(slack).collect()
    }
}

/// What to say of a lane whose slack is less than what is refilled in four round trips: a machine then waits for
/// credit, and denies what the limit allows.
fn too_far(lane: &SharedLane, round_trip: Duration) -> Option<String> {
    if lane.token_ns == 0 {
        return None; // A budget is not refilled.
    }
    let refilled = 4 * round_trip.as_nanos() / u128::from(lane.token_ns);
    let needed = (100 * refilled).div_ceil(u128::from(lane.capacity.max(1)));
    // A machine spends one token in advance whatever the slack is.
    if refilled < 4 || needed <= u128::from(lane.slack_percent) {
        return None;
    }
    let (name, slack, capacity) = (&lane.name, lane.slack_percent, lane.capacity);
    let way_out = match needed {
        ..=100 => format!("set a slack of {needed}%"),
        _ => "no slack is enough: take a larger burst, or a server that is nearer".to_owned(),
    };
    Some(format!(
        "lane {name:?}: a slack of {slack}% of {capacity} is less than the {refilled} tokens that are refilled in four \
         round trips of {round_trip:.1?}; expect denials below the limit, or {way_out}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::cluster::{Cluster, Link};
    use tollgate::{Limiter, Policy};

    fn lanes() -> Vec<SharedLane> {
        let policy =
            Policy::builder().lane("fast", "1000/s").lane("slow", "60/min").lane("tight", "100000/s burst 100");
        let cluster = Cluster::new([7; 16]);
        let limiter = Limiter::builder(policy.build().unwrap()).agents(10).cluster(cluster).build().unwrap();
        Link::of(&limiter).unwrap().status().lanes
    }

    #[test]
    fn a_slack_that_is_too_small_for_the_distance_is_named_with_one_that_would_do() {
        let warned = |millis| {
            let mut warnings = Warnings::default();
            warnings.round_trip(Duration::from_millis(millis));
            warnings.all(&lanes())
        };
        // 4 x 20 ms x 1000/s are 80 tokens of 1,000.
        let [tight] = &warned(20)[..] else { panic!("{:?}", warned(20)) };
        assert!(tight.contains("no slack is enough"), "{tight}");
        let [fast, _] = &warned(50)[..] else { panic!("{:?}", warned(50)) };
        assert!(fast.starts_with("lane \"fast\": a slack of 10% of 1000 is less than the 200 tokens"), "{fast}");
        assert!(fast.contains("round trips of 50.0ms") && fast.ends_with("set a slack of 20%"), "{fast}");
        assert!(Warnings::default().all(&lanes()).is_empty(), "nothing is known yet");
    }

    #[test]
    fn a_busy_moment_is_no_distance() {
        let mut warnings = Warnings::default();
        warnings.round_trip(Duration::from_micros(300));
        warnings.round_trip(Duration::from_millis(4));
        assert!(warnings.round_trip.unwrap() < Duration::from_millis(1));
        (0..99).for_each(|_| warnings.round_trip(Duration::from_millis(50)));
        assert_eq!(warnings.all(&lanes()).len(), 2);
        warnings.round_trip(Duration::from_micros(300));
        assert_eq!(warnings.all(&lanes()).len(), 1, "the tight one is too tight for any distance");
    }

    #[test]
    fn a_clock_that_steps_is_noticed_and_one_that_is_slewed_is_not() {
        let mut warnings = Warnings::default();
        for (server, own) in [(100_000_000, 5), (101_500_000, 6), (102_000_000, 7)] {
            warnings.clock(server, Duration::from_secs(own));
        }
        assert!(warnings.all(&[]).is_empty());
        warnings.clock(98_000_000, Duration::from_secs(8));
        assert!(
            warnings.all(&[])[0].starts_with("the server's clock has stepped by -5.0 s"),
            "{:?}",
            warnings.all(&[])
        );
    }
}
