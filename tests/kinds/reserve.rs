//! Reservations.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Error, Request, ReservationId, Settle, Settlement};

const TTL: Duration = Duration::from_secs(60);
const ONE_DAY: Duration = Duration::from_secs(86_400);

fn left(limiter: &Limiter) -> u64 {
    limiter.peek(Request::new(AGENT, LANE)).expect("a lane").remaining()
}

fn reserve(limiter: &Limiter, estimate: u64) -> ReservationId {
    limiter.reserve(Request::new(AGENT, LANE).cost(estimate), TTL).expect("room for it").id().expect("within the limit")
}

#[test]
fn what_is_not_used_comes_back_and_an_id_works_once() {
    for limit in ["budget 1000/day", "window 1000/day", "1000/day"] {
        let (limiter, _) = limiter(limit);
        let id = reserve(&limiter, 400);
        assert_eq!(left(&limiter), 600, "{limit}");
        assert_eq!(limiter.settle(id, Settle::used(150)), Ok(Settlement { unused: 250, overspent: 0, left: 0 }));
        assert_eq!(left(&limiter), 850, "{limit}");
        let made_up = [id, ReservationId::from_number(id.number() + (1 << 24)), ReservationId::from_number(u64::MAX)];
        for id in made_up {
            assert_eq!(limiter.settle(id, Settle::used(1)), Err(Error::UnknownReservation));
            assert_eq!(limiter.settle(id, Settle::used_so_far(1)), Err(Error::UnknownReservation));
            assert_eq!(limiter.settle(id, Settle::cancelled()), Err(Error::UnknownReservation));
            assert_eq!(limiter.extend(id, TTL), Err(Error::UnknownReservation));
        }
        assert_eq!(left(&limiter), 850, "{limit}");
        let id = reserve(&limiter, 850);
        assert!(limiter.reserve(Request::new(AGENT, LANE), TTL).unwrap().id().is_none());
        assert_eq!(limiter.settle(id, Settle::cancelled()), Ok(Settlement { unused: 850, overspent: 0, left: 0 }));
        assert_eq!(left(&limiter), 850, "{limit}");
    }
}

#[test]
fn a_stream_settles_in_pieces() {
    let (limiter, clock) = limiter("budget 1000/day");
    let id = reserve(&limiter, 300);
    assert_eq!(limiter.settle(id, Settle::used_so_far(100)), Ok(Settlement { unused: 0, overspent: 0, left: 200 }));
    clock.advance(Duration::from_secs(50));
    limiter.extend(id, TTL).unwrap();
    clock.advance(Duration::from_secs(50));
    assert_eq!(limiter.settle(id, Settle::used_so_far(150)), Ok(Settlement { unused: 0, overspent: 0, left: 50 }));
    assert_eq!(left(&limiter), 700);
    assert_eq!(limiter.settle(id, Settle::used_so_far(80)), Ok(Settlement { unused: 0, overspent: 30, left: 0 }));
    assert_eq!(left(&limiter), 670);
    assert_eq!(limiter.settle(id, Settle::used(5)), Ok(Settlement { unused: 0, overspent: 5, left: 0 }));
    assert_eq!(left(&limiter), 665);
}

#[test]
fn an_expired_estimate_stays_charged() {
    let (limiter, clock) = limiter("budget 1000/day");
    let id = reserve(&limiter, 300);
    clock.advance(TTL - Duration::from_nanos(1));
    assert_eq!(limiter.settle(id, Settle::used_so_far(100)).unwrap().left, 200);
    clock.advance(Duration::from_nanos(1));
    for used in [0, 50, 1_000] {
        assert_eq!(limiter.settle(id, Settle::used(used)), Err(Error::UnknownReservation));
    }
    assert_eq!(left(&limiter), 700);
}

#[test]
fn overspending_goes_into_debt_and_is_reported() {
    for (limit, after) in [("budget 1000/day", ONE_DAY), ("window 1000/day", 3 * ONE_DAY), ("1000/day", 3 * ONE_DAY)] {
        let (limiter, clock) = limiter(limit);
        let id = reserve(&limiter, 900);
        assert_eq!(limiter.settle(id, Settle::used(2_500)), Ok(Settlement { unused: 0, overspent: 1_600, left: 0 }));
        assert_eq!(left(&limiter), 0, "{limit}");
        assert!(!limiter.check(AGENT, LANE).unwrap().is_allowed(), "{limit}");
        clock.advance(after);
        assert_eq!(left(&limiter), 1_000, "{limit}");
    }
    // A bucket pays its debt back before anything passes.
    let (limiter, clock) = limiter("1000/day");
    limiter.settle(reserve(&limiter, 1_000), Settle::used(2_000)).unwrap();
    assert_eq!(limiter.check(AGENT, LANE).unwrap().retry_after(), Some(ONE_DAY + ONE_DAY / 1_000));
    clock.advance(ONE_DAY);
    assert_eq!(left(&limiter), 0);
}

/// By the time of the settlement the bucket was full again, or the window over,
/// and the record swept: the overspent part was never charged.
#[test]
fn overspending_is_charged_even_if_the_record_is_gone() {
    for (limit, wait) in [("1000/min", 61), ("window 1000/min", 121), ("budget 1000/hour", 3_601)] {
        let (limiter, clock) = limiter(limit);
        let id = limiter.reserve(Request::new(AGENT, LANE).cost(900), 2 * ONE_DAY).unwrap().id().unwrap();
        clock.advance(Duration::from_secs(wait));
        assert_eq!(limiter.sweep(Duration::ZERO), 1, "{limit}");
        assert_eq!(limiter.settle(id, Settle::used(1_300)).unwrap().overspent, 400);
        assert_eq!(left(&limiter), 600, "{limit}");
    }
}

#[test]
fn a_settlement_after_midnight_settles_the_day_of_the_reservation() {
    let (limiter, clock) = limiter("budget 1000/day");
    clock.advance(ONE_DAY - Duration::from_secs(10));
    let (first, second, third) = (reserve(&limiter, 400), reserve(&limiter, 400), reserve(&limiter, 100));
    clock.advance(Duration::from_secs(20));
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(300)).unwrap().is_allowed());
    limiter.settle(first, Settle::used(100)).unwrap();
    limiter.settle(second, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 700, "what is unused belongs to yesterday");
    assert_eq!(limiter.settle(third, Settle::used(150)).unwrap().overspent, 50);
    assert_eq!(left(&limiter), 650, "what is overspent belongs to today");
}

/// A client that reserves a whole bucket, waits until it has refilled, spends
/// it and then cancels must not get it a third time.
#[test]
fn a_bucket_gives_back_nothing_that_has_already_refilled() {
    let (limiter, clock) = limiter("60/min");
    let id = reserve(&limiter, 60);
    clock.advance(TTL - Duration::from_secs(1));
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(59)).unwrap().is_allowed());
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert!(left(&limiter) <= 1, "{} left", left(&limiter));
    // At once, all of it comes back.
    clock.advance(Duration::from_secs(60));
    limiter.settle(reserve(&limiter, 60), Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 60);
}

#[test]
fn the_table_is_bounded_and_expired_slots_are_reused() {
    let policy = Policy::builder().lane("lane", "budget 1000/day").lane("held", "held 3").build().unwrap();
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(10).reservations(3).clock(clock.clone()).build().unwrap();
    let old = [0; 3].map(|_| reserve(&limiter, 10));
    assert_eq!(limiter.reserve(Request::new(AGENT, LANE).cost(10), TTL), Err(Error::ReservationsFull));
    assert_eq!(left(&limiter), 970, "nothing was charged for it");
    limiter.settle(old[1], Settle::cancelled()).unwrap();
    let _ = reserve(&limiter, 10);
    clock.advance(TTL);
    let new = [0; 3].map(|_| reserve(&limiter, 10));
    for id in old {
        assert_eq!(limiter.settle(id, Settle::used(0)), Err(Error::UnknownReservation));
    }
    for id in new {
        assert!(limiter.settle(id, Settle::used(0)).is_ok());
    }
    assert_eq!(limiter.reserve(Request::new(AGENT, LaneId::new(1)), TTL), Err(Error::WrongKind { lane: 1 }));
}

#[test]
fn an_exempt_agents_reservation_charges_nothing() {
    let (limiter, _) = limiter("budget 10/day");
    limiter.exempt(AGENT).unwrap();
    let id = reserve(&limiter, 1_000);
    limiter.unexempt(AGENT).unwrap();
    assert!(limiter.settle(id, Settle::used(5_000)).is_ok());
    assert_eq!(left(&limiter), 10);
}

#[test]
fn a_record_with_an_open_reservation_is_not_given_up() {
    let policy = Policy::builder().lane("lane", "10/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Evict);
    let tenants: Vec<_> = (0..limiter.stats().records).map(|tenant| format!("tenant-{tenant}")).collect();
    let ids: Vec<_> =
        tenants.iter().map(|agent| limiter.reserve(Request::new(agent, LANE), TTL).unwrap().id().unwrap()).collect();
    assert_eq!(limiter.check("newcomer", LANE), Err(Error::Full));
    for id in ids {
        limiter.settle(id, Settle::cancelled()).unwrap();
    }
    assert!(limiter.check("newcomer", LANE).unwrap().is_allowed());
}

/// A hundred threads on one budget: what is reserved and used never exceeds it,
/// and in the end exactly the used part is charged.
#[test]
fn a_hundred_threads_never_exceed_a_budget() {
    const BUDGET: u64 = 50_000;
    let (limiter, _) = limiter(&format!("budget {BUDGET}/day"));
    let (open, used, most, denied) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..100_u64 {
            let (limiter, open, used, most, denied) = (&limiter, &open, &used, &most, &denied);
            scope.spawn(move || {
                for call in 0..40_u64 {
                    let estimate = 100 + (thread * 37 + call * 101) % 900;
                    let Some(id) = limiter.reserve(Request::new(AGENT, LANE).cost(estimate), TTL).unwrap().id() else {
                        denied.fetch_add(1, Ordering::SeqCst);
                        continue;
                    };
                    let both = open.fetch_add(estimate, Ordering::SeqCst) + estimate;
                    most.fetch_max(both, Ordering::SeqCst);
                    let spent = estimate * (call % 5) / 8;
                    used.fetch_add(spent, Ordering::SeqCst);
                    open.fetch_sub(estimate, Ordering::SeqCst);
                    limiter.settle(id, Settle::used(spent)).unwrap();
                }
            });
        }
    });
    assert!(most.into_inner() <= BUDGET);
    assert!(denied.into_inner() > 0, "the budget was never short");
    assert_eq!(left(&limiter) + used.into_inner(), BUDGET);
}

/// A reservation in the simplest model.
struct Open {
    id: ReservationId,
    day: u64,
    left: u64,
    expires: u64,
}

proptest! {
    /// Any order of reserving, settling in pieces, closing, extending and
    /// waiting, over days: what is used of each day matches a ledger.
    #[test]
    fn reservations_equal_a_ledger(
        acts in prop::collection::vec((0..7_u8, 1..600_u64, 0..8_usize, 0..30_u64), 1..80),
    ) {
        const BUDGET: u64 = 1_000;
        let (limiter, clock) = limiter("budget 1000/day");
        let (mut used, mut open, mut closed) = (std::collections::BTreeMap::new(), Vec::<Open>::new(), Vec::new());
        for (act, amount, which, hours) in acts {
            clock.advance(Duration::from_secs(hours * 600));
            let now = clock.now().as_nanos() / 1_000_000_000;
            let today = now / 86_400;
            // Expired ones stay charged, and their ids are invalid.
            closed.extend(open.iter().filter(|open| open.expires <= now).map(|open| open.id));
            open.retain(|open| open.expires > now);
            let place = (!open.is_empty()).then(|| which % open.len().max(1));
            match (act, place) {
                (0..=2, _) => {
                    let request = Request::new(AGENT, LANE).cost(amount);
                    let reserved = limiter.reserve(request, Duration::from_secs(7_200)).unwrap();
                    let used = used.entry(today).or_insert(0);
                    prop_assert_eq!(reserved.id().is_some(), *used + amount <= BUDGET);
                    if let Some(id) = reserved.id() {
                        *used += amount;
                        open.push(Open { id, day: today, left: amount, expires: now + 7_200 });
                    }
                }
                (3 | 4, Some(place)) => {
                    let Open { id, day, left, .. } = open.swap_remove(place);
                    let (spent, unused) = if act == 3 { (amount, left.saturating_sub(amount)) } else { (0, left) };
                    let overspent = spent.saturating_sub(left);
                    let settle = if act == 3 { Settle::used(spent) } else { Settle::cancelled() };
                    let settled = limiter.settle(id, settle);
                    prop_assert_eq!(settled, Ok(Settlement { unused, overspent, left: 0 }));
                    *used.entry(day).or_insert(0) -= unused;
                    *used.entry(today).or_insert(0) += overspent;
                    closed.push(id);
                }
                (5, Some(place)) => {
                    let open = &mut open[place];
                    let overspent = amount.saturating_sub(open.left);
                    open.left = open.left.saturating_sub(amount);
                    let expected = Settlement { unused: 0, overspent, left: open.left };
                    prop_assert_eq!(limiter.settle(open.id, Settle::used_so_far(amount)), Ok(expected));
                    *used.entry(today).or_insert(0) += overspent;
                }
                (_, Some(place)) => {
                    let open = &mut open[place];
                    limiter.extend(open.id, Duration::from_secs(amount * 60)).unwrap();
                    open.expires = open.expires.max(now + amount * 60);
                }
                (_, None) => {}
            }
            for id in &closed {
                prop_assert_eq!(limiter.settle(*id, Settle::used(1)), Err(Error::UnknownReservation));
            }
            let used = used.get(&today).copied().unwrap_or(0);
            prop_assert_eq!(left(&limiter), BUDGET.saturating_sub(used));
        }
    }
}
