use crate::clock::hook;
use crate::{Error, LaneId, Limiter, ManualClock, OnFull, Policy, Request, Tick};
use std::sync::Arc;

const LANE: LaneId = LaneId::new(0);
const TOKEN: u64 = 1_000_000;

/// One record is vacant; the others are held by agents that are never idle.
fn nearly_full() -> (Arc<Limiter>, ManualClock) {
    let clock = ManualClock::new();
    let policy = Policy::builder().lane("bucket", "1/ms burst 4").lane("slots", "held 1").build().unwrap();
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny).build().unwrap();
    for tenant in 1..limiter.stats().records {
        assert!(
            limiter
                .check_request(Request::new(&format!("tenant-{tenant}"), LaneId::new(1)).at(Tick::ZERO))
                .unwrap()
                .is_allowed()
        );
    }
    (Arc::new(limiter), clock)
}

/// Two newcomers, of whom the second finds no record: the first is charged, and
/// its charge is taken back. At whichever reading of the clock somebody else
/// charges it as well, and time goes on by then, it is full no sooner than
/// after that charge alone.
#[test]
fn a_charge_is_taken_back_as_of_an_instant_after_every_charge_seen() {
    let newcomers = ["newcomer-1", "newcomer-2"];
    let parts = newcomers.map(|agent| Request::new(agent, LANE).cost(2).at(Tick::ZERO));
    let later = Tick::from_nanos(TOKEN / 2);
    let mut charges_seen = 0;
    for reading in 1.. {
        let (limiter, clock) = nearly_full();
        let other = Arc::clone(&limiter);
        hook::at_reading(reading, move || {
            clock.set(later);
            for agent in newcomers {
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
            newcomers.map(|agent| limiter.peek(Request::new(agent, LANE).at(later)).unwrap().full_in().as_nanos());
        let full_in = full_in.into_iter().max().unwrap() as u64;
        charges_seen += u32::from(full_in > 0);
        assert!(full_in == 0 || full_in >= TOKEN, "reading {reading}: {full_in} ns after {later:?}");
    }
    assert!(charges_seen >= 1, "nobody charged between a charge and its rollback");
}
