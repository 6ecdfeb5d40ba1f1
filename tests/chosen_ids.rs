//! Ids chosen without knowledge of the key are as good as random ones: as many
//! find room, and no two share a record.
//!
//! Every test fills a limiter with exactly as many agents as it was built for,
//! all in debt, and refuses agents that find no room. At that load fewer than
//! one in 10,000 random ids is refused; one in 1,000 leaves room for noise.

#[expect(dead_code, reason = "the stress tests use the rest of it")]
#[path = "common/random.rs"]
mod random;

use random::Random;
use tollgate::{Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy};

const LANE: LaneId = LaneId::new(0);

/// Fills a limiter with these distinct ids, and returns how many were refused.
fn refused<Id: AsRef<[u8]>>(ids: impl ExactSizeIterator<Item = Id>) -> u64 {
    let agents = ids.len() as u64;
    let policy = Policy::builder().lane("lane", Limit::per_day(10)).build().expect("valid");
    let limiter = Limiter::builder(policy).agents(agents).clock(ManualClock::new()).on_full(OnFull::Deny);
    let limiter = limiter.build().expect("some megabytes");
    let mut refused = 0;
    for id in ids {
        match limiter.check(&id, LANE) {
            // An agent that shared a record with an earlier one would find 8 left.
            Ok(verdict) => assert_eq!(verdict.remaining(), 9, "{:?} shares a record", id.as_ref()),
            Err(error) => {
                assert_eq!(error, Error::Full);
                refused += 1;
            }
        }
    }
    assert_eq!(limiter.stats().agents, agents - refused);
    refused
}

/// Asserts that a family of ids is spread like random ones.
fn spread_like_random<Id: AsRef<[u8]>>(family: &str, ids: impl ExactSizeIterator<Item = Id>) {
    let count = ids.len();
    let refused = refused(ids);
    eprintln!("{family}: {refused} of {count} refused");
    assert!(refused * 1_000 < count as u64, "{family}: {refused} of {count} refused");
}

const COUNT: u32 = 100_000;

#[test]
fn random_ids_nearly_all_find_room() {
    let mut random = Random::new(1);
    spread_like_random("random", (0..COUNT).map(|_| [random.next(), random.next()].map(u64::to_le_bytes).concat()));
}

#[test]
fn sequential_ids_are_spread_like_random_ones() {
    spread_like_random("decimal", (0..COUNT).map(|i| format!("agent-{i}")));
    spread_like_random("decimal, short", (0..COUNT).map(|i| format!("{i}")));
    spread_like_random("little endian", (0..COUNT).map(u32::to_le_bytes));
    spread_like_random("big endian", (0..COUNT).map(|i| u64::from(i).to_be_bytes()));
    let address = |i: u32| format!("ip:10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255);
    spread_like_random("addresses", (0..COUNT).map(address));
}

#[test]
fn ids_with_a_long_common_part_are_spread_like_random_ones() {
    let common = "tenant/01hf3w8k9e6m5r2t7y4u1i0p3a/region/eu-central-1/service/inference/".repeat(3);
    spread_like_random("common prefix", (0..COUNT).map(|i| format!("{common}{i:06}")));
    spread_like_random("common suffix", (0..COUNT).map(|i| format!("{i:06}{common}")));
    // These differ only in the number of zero bytes and one counter.
    spread_like_random(
        "zeros",
        (0..COUNT).map(|i| [vec![0; 4 + (i % 250) as usize], (i / 250).to_le_bytes()[..2].to_vec()].concat()),
    );
}

/// An attacker who knows how the hash reads an id, 8 bytes at a time, but not
/// the key, varies only what a weak mixing would lose: the high bits of every
/// character, multiples of powers of two, and sums that cancel.
#[test]
fn a_million_crafted_ids_are_spread_like_random_ones() {
    let characters = |characters: &[u64]| characters.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>();
    let crafted = |i: u32| {
        let n = u64::from(i / 8);
        match i % 8 {
            0 => characters(&[n << 47]),
            1 => characters(&[n << 32, 1]),
            2 => characters(&[(n & 511) << 55, (n >> 9) << 55]),
            3 => characters(&[n << 40, n << 40, n << 40]),
            // The sum of the characters is always the same.
            4 => characters(&[n, u64::MAX - n, 4]),
            5 => characters(&[n << 20, (1 << 40) - (n << 20), 5, 5]),
            // Two characters, each with one of the id's bits.
            6 => characters(&[n & 0x5555_5555, n & 0xaaaa_aaaa, 6, 6, 6]),
            _ => characters(&[n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 7, 7, 7, 7, 7]),
        }
    };
    spread_like_random("crafted", (0..1_000_000).map(crafted));
}
