//! The scripts beside the oracle, call by call, in virtual time.
//!
//! No server's clock can be set. So the one line of a script that reads it is
//! replaced by one that takes the time from the last two arguments; everything
//! else is the text as it is.

use crate::calls::{Limits, any_size};
use crate::oracle::{Answer, Oracle};
use crate::random::Random;
use redis::{Connection, Value, pipe};
use std::time::{Duration, Instant};
use tollgate_redis::{AgentKey, LaneKey, Script, Scripts};

/// The keys of a round, and how often each is settled with.
const KEYS: usize = 64;
const STEPS: usize = 16;

/// A key lives a second longer than its debt by the server's own clock. A round
/// that took longer, on a busy machine, says nothing.
const ROUND_MAX: Duration = Duration::from_millis(900);

/// The latest instant, in microseconds: the year 2255. Beyond 2^53 no script could go.
const NOW_MAX: u64 = 9_000_000_000_000_000;

/// A call that differs from the oracle, to be printed.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug alone")]
pub(crate) struct Difference {
    pub(crate) call: String,
    pub(crate) expected: Answer,
    pub(crate) came: String,
}

/// The text with its clock replaced. A budget reads none.
pub(crate) fn in_virtual_time(script: Script) -> String {
    let (clock, text) = ("redis.call('TIME')", script.text());
    let has_clock = matches!(script, Script::Bucket | Script::BucketMany);
    assert_eq!(text.matches(clock).count(), usize::from(has_clock), "{script:?} reads the clock in one place");
    text.replace(clock, "{ARGV[#ARGV - 1], ARGV[#ARGV]}")
}

/// Loads texts in the place of the scripts.
pub(crate) fn load(connection: &mut Connection, text: impl Fn(Script) -> String) -> Scripts {
    let replies: Vec<Value> = Script::ALL
        .iter()
        .map(|&script| redis::cmd("SCRIPT").arg("LOAD").arg(text(script)).query(connection).expect("a script"))
        .collect();
    Scripts::loaded(&replies).expect("four digests")
}

/// A clock that stands still, goes on, jumps and steps back.
fn step(random: &mut Random, now_us: u64, scale_us: u64) -> u64 {
    let by = match random.below(64) {
        // Seldom, or the clock would stand at an end of its range.
        0 => any_size(random, NOW_MAX / 8),
        1..20 => 0,
        20..36 => random.below(1_000),
        _ => any_size(random, scale_us),
    };
    // Seldom back, or no debt would ever shrink.
    if random.below(5) == 0 { now_us.saturating_sub(by) } else { (now_us + by).min(NOW_MAX) }
}

/// One round: `KEYS` lanes, `STEPS` calls of each, half of the steps in batches.
fn round<O: Oracle>(connection: &mut Connection, scripts: &Scripts, random: &mut Random) -> Result<usize, Difference>
where
    O::Asked: Limits + std::fmt::Debug,
{
    let lane = LaneKey::new("exact");
    let bits = || (u128::from(random.next()) << 64) | u128::from(random.next());
    let keys: Vec<String> =
        std::iter::repeat_with(bits).take(KEYS).map(|bits| AgentKey::from_bits(bits).bucket(&lane)).collect();
    // Two limits a key: nodes need not agree.
    let limits: Vec<[O::Asked; 2]> = keys.iter().map(|_| [O::Asked::any(random), O::Asked::any(random)]).collect();
    let mut oracles: Vec<O> = keys.iter().map(|_| O::default()).collect();
    let mut now_us = 1_790_000_000_000_000;
    let (mut commands, mut expected) = (pipe(), Vec::new());
    let next = |random: &mut Random, key: usize| {
        let which = usize::from(random.below(8) == 0);
        limits[key][which].operations(random)
    };
    for at in 0..STEPS {
        let scale = limits[random.below(KEYS as u64) as usize][0].time_us();
        now_us = step(random, now_us, scale);
        let calls: Vec<(&str, O::Asked)> = (0..KEYS).map(|key| (keys[key].as_str(), next(random, key))).collect();
        let is_batch = at % 2 == 0;
        if is_batch {
            let mut command = scripts.settle_many(&calls).expect("calls within their ranges");
            command.arg(now_us / 1_000_000).arg(now_us % 1_000_000);
            commands.add_command(command);
        }
        for (key, (name, asked)) in calls.iter().enumerate() {
            if !is_batch {
                now_us = step(random, now_us, limits[key][0].time_us());
                let mut command = scripts.settle(name, asked).expect("a call within its ranges");
                command.arg(now_us / 1_000_000).arg(now_us % 1_000_000);
                commands.add_command(command);
            }
            let answer = oracles[key].settle(i128::from(now_us), asked);
            let call = (answer, format!("{name} at {now_us}: {asked:?}"));
            match expected.last_mut() {
                Some(batch) if is_batch && key > 0 => Vec::push(batch, call),
                _ => expected.push(vec![call]),
            }
        }
    }
    let begin = Instant::now();
    // An error stands among the replies, so that it is compared like any answer.
    let replies: Vec<Value> = commands.ignore_errors().query(connection).expect("replies");
    if begin.elapsed() > ROUND_MAX {
        return Ok(0);
    }
    assert_eq!(replies.len(), expected.len(), "a reply to each command");
    let mut count = 0;
    for (calls, reply) in expected.iter().zip(&replies) {
        let came = match reply {
            Value::Array(came) if came.len() == 2 * calls.len() => came.as_slice(),
            other => std::slice::from_ref(other),
        };
        for ((answer, call), came) in calls.iter().zip(came.chunks(2)) {
            let is_same = matches!(came, [Value::Int(granted), Value::Int(level)]
                if (i128::from(*granted), i128::from(*level)) == *answer);
            if !is_same {
                return Err(Difference { call: call.clone(), expected: *answer, came: format!("{came:?}") });
            }
            count += 1;
        }
    }
    Ok(count)
}

/// Makes at least so many calls and compares every answer. Returns how many there were.
pub(crate) fn compare<O: Oracle>(
    connection: &mut Connection,
    scripts: &Scripts,
    calls: usize,
    seed: u64,
) -> Result<usize, Difference>
where
    O::Asked: Limits + std::fmt::Debug,
{
    // The same seed has the same keys.
    redis::cmd("FLUSHALL").exec(connection).expect("an empty server");
    let mut random = Random::new(seed);
    let (mut done, mut rounds) = (0, 0);
    // Ends: at most every second round may be one that took too long.
    while done < calls {
        done += round::<O>(connection, scripts, &mut random)?;
        rounds += 1;
        assert!(rounds <= 10 + 2 * calls / (KEYS * STEPS), "the machine is too busy: {done} calls in {rounds} rounds");
    }
    Ok(done)
}
