//! Reservations across changes: what was forgiven or repriced does not come
//! back a second time, and older instants gain nothing.

use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Error, OnChange, Request, ReservationId, Settle, Settlement};

pub(super) const TTL: Duration = Duration::from_secs(600);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Limits of 100 that do not refill during a test.
const KINDS: [&str; 3] = ["100/day", "window 100/day", "budget 100/day"];

pub(super) fn left(limiter: &Limiter) -> u64 {
    limiter.peek(Request::new(AGENT, LANE)).expect("a lane").remaining()
}

pub(super) fn reserve(limiter: &Limiter, estimate: u64) -> ReservationId {
    limiter.reserve(Request::new(AGENT, LANE).cost(estimate), TTL).expect("room for it").id().expect("within the limit")
}

fn spend(limiter: &Limiter, cost: u64) {
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(cost)).expect("within the capacity").is_allowed());
}

/// A hundred were reserved, forgiven by a reset, and spent; then the cancel
/// gave them back: two hundred out of a hundred.
#[test]
fn what_a_reset_has_forgiven_does_not_come_back_again() {
    let resets: [fn(&Limiter); 2] =
        [|limiter| limiter.reset(AGENT).unwrap(), |limiter| limiter.reset_lane(AGENT, LANE).unwrap()];
    for limit in KINDS {
        for reset in resets {
            let (limiter, _) = limiter(limit);
            let (first, second) = (reserve(&limiter, 60), reserve(&limiter, 40));
            reset(&limiter);
            spend(&limiter, 100);
            assert_eq!(
                limiter.settle(first, Settle::cancelled()),
                Ok(Settlement { unused: 60, overspent: 0, left: 0 })
            );
            assert_eq!(limiter.settle(second, Settle::used(10)).unwrap().unused, 30);
            assert_eq!(left(&limiter), 0, "{limit}");
            // A reservation made after the reset is returned whole.
            reset(&limiter);
            let third = reserve(&limiter, 70);
            assert_eq!((limiter.settle(third, Settle::cancelled()).is_ok(), left(&limiter)), (true, 100), "{limit}");
        }
    }
}

/// The generation of a word has four bits: sixteen resets bring it back.
#[test]
fn sixteen_resets_forgive_as_much_as_one() {
    for limit in KINDS {
        for resets in 1..=33 {
            let (limiter, _) = limiter(limit);
            let id = reserve(&limiter, 100);
            (0..resets).for_each(|_| limiter.reset_lane(AGENT, LANE).unwrap());
            spend(&limiter, 100);
            limiter.settle(id, Settle::cancelled()).unwrap();
            assert_eq!(left(&limiter), 0, "{limit}, {resets} resets");
        }
    }
}

#[test]
fn a_reset_of_another_lane_forgives_nothing() {
    let policy = Policy::builder().lane("lane", "budget 100/day").lane("other", "100/day").build().unwrap();
    let (limiter, _) = of_policy(policy);
    let id = reserve(&limiter, 40);
    limiter.reset_lane(AGENT, LaneId::new(1)).unwrap();
    limiter.reset("another").unwrap();
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 100);
}

#[test]
fn forgetting_an_agent_closes_its_reservations() {
    for limit in KINDS {
        let (limiter, _) = limiter(limit);
        let (id, other) =
            (reserve(&limiter, 100), limiter.reserve(Request::new("other", LANE).cost(50), TTL).unwrap().id().unwrap());
        assert_eq!(limiter.forget(AGENT), Ok(true));
        spend(&limiter, 100);
        assert_eq!(limiter.settle(id, Settle::cancelled()), Err(Error::UnknownReservation), "{limit}");
        assert_eq!(left(&limiter), 0, "{limit}");
        assert!(limiter.settle(other, Settle::cancelled()).is_ok());
        assert_eq!(limiter.peek(Request::new("other", LANE)).unwrap().remaining(), 100);
    }
}

/// Forty tokens of a fast plan, 0.4 s of debt, came back as forty tokens of a slow one, 40 s.
#[test]
fn a_bucket_gives_back_time_and_not_tokens_of_another_plan() {
    let policy = Policy::builder().lane("lane", "100/s").plan("slow", [("lane", "1/s burst 100")]);
    let (limiter, _) = of_policy(policy.build().unwrap());
    let id = reserve(&limiter, 40);
    limiter.assign(AGENT, limiter.plan("slow").unwrap()).unwrap();
    spend(&limiter, 99);
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 1, "99 of 100 are spent");
    spend(&limiter, 1);
    assert_eq!(left(&limiter), 0);
}

/// A change to a faster plan cuts the debt to what the new bucket can hold.
/// What was cut is forgiven, and all of it may have been the reservation's.
#[test]
fn what_a_change_of_plan_has_cut_does_not_come_back() {
    let policy = || Policy::builder().lane("lane", "1/s burst 100").plan("fast", [("lane", "100/s")]).build().unwrap();
    for (others, back) in [(0, 100), (60, 0)] {
        let (limiter, _) = of_policy(policy());
        if others > 0 {
            spend(&limiter, others);
        }
        let id = reserve(&limiter, 100 - others);
        limiter.assign(AGENT, limiter.plan("fast").unwrap()).unwrap();
        assert_eq!(left(&limiter), 0);
        limiter.settle(id, Settle::cancelled()).unwrap();
        assert_eq!(left(&limiter), back);
    }
    // Once it has refilled and others have spent it, nothing of it is left.
    let (limiter, clock) = of_policy(policy());
    let id = reserve(&limiter, 100);
    limiter.assign(AGENT, limiter.plan("fast").unwrap()).unwrap();
    clock.advance(SECOND);
    spend(&limiter, 100);
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 0);
}

#[test]
fn a_change_of_limits_leaves_a_reservation_its_worth() {
    let plan = |limit: &str| limit.replace("100", "90");
    for limit in KINDS {
        let policy = |on_change| {
            let policy = Policy::builder().lane("lane", limit).plan("other", [("lane", plan(limit).as_str())]);
            policy.on_change(on_change).build().unwrap()
        };
        let by_assigning: fn(&Limiter, Policy) =
            |limiter, _| limiter.assign(AGENT, limiter.plan("other").unwrap()).unwrap();
        let by_replacing: fn(&Limiter, Policy) = |limiter, policy| limiter.replace_policy(policy).unwrap();
        for change in [by_assigning, by_replacing] {
            let (limiter, _) = of_policy(policy(OnChange::KeepDebt));
            let id = reserve(&limiter, 30);
            (0..6).for_each(|_| {
                change(&limiter, policy(OnChange::KeepDebt));
                limiter.unassign(AGENT).unwrap();
            });
            limiter.settle(id, Settle::cancelled()).unwrap();
            assert_eq!(left(&limiter), 100, "{limit}");
            // Nothing of it comes back if the change fills all lanes.
            let (limiter, _) = of_policy(policy(OnChange::Reset));
            let id = reserve(&limiter, 90);
            change(&limiter, policy(OnChange::Reset));
            spend(&limiter, 90);
            let before = left(&limiter);
            limiter.settle(id, Settle::cancelled()).unwrap();
            assert_eq!(left(&limiter), before, "{limit}");
        }
    }
}

/// An agent that is exempt for a while keeps its debt, and so what is reserved.
#[test]
fn an_exemption_in_between_changes_nothing() {
    for limit in KINDS {
        let (limiter, _) = limiter(limit);
        let id = reserve(&limiter, 70);
        limiter.exempt(AGENT).unwrap();
        limiter.settle(id, Settle::cancelled()).unwrap();
        limiter.unexempt(AGENT).unwrap();
        assert_eq!(left(&limiter), 100, "{limit}");
    }
}

/// A hundred were reserved at 0, and fifty spent at 50 s. A cancel at the old
/// instant ignored the time in between, and gave back a hundred.
#[test]
fn an_older_instant_gives_back_no_more() {
    let spent = |cancel: fn(&Limiter, ReservationId)| {
        let (limiter, clock) = limiter("1/s burst 100");
        let id = reserve(&limiter, 100);
        clock.advance(50 * SECOND);
        spend(&limiter, 50);
        cancel(&limiter, id);
        left(&limiter)
    };
    let at_present = spent(|limiter, id| limiter.settle(id, Settle::cancelled()).map(drop).unwrap());
    assert_eq!(at_present, 50);
    assert_eq!(
        spent(|limiter, id| limiter.settle(id, Settle::cancelled().at(Tick::ZERO)).map(drop).unwrap()),
        at_present
    );
    assert_eq!(spent(|limiter, id| limiter.settle(id, Settle::used(0).at(Tick::ZERO)).map(drop).unwrap()), at_present);
}

#[test]
fn an_older_instant_does_not_revive_a_reservation() {
    let (limiter, clock) = limiter("budget 100/day");
    let id = reserve(&limiter, 40);
    clock.advance(TTL);
    let old = Tick::ZERO;
    assert_eq!(limiter.settle(id, Settle::cancelled().at(old)), Err(Error::UnknownReservation));
    assert_eq!(limiter.settle(id, Settle::used(1).at(old)), Err(Error::UnknownReservation));
    assert_eq!(limiter.settle(id, Settle::used_so_far(1).at(old)), Err(Error::UnknownReservation));
    assert_eq!(limiter.extend(id, TTL), Err(Error::UnknownReservation));
    assert_eq!(left(&limiter), 60);
}

/// Another caller gave five back, so that without the reservation the bucket
/// would have been full for four seconds. Those seconds refill nothing, but
/// were counted as if they had.
#[test]
fn refunds_by_others_count_too() {
    let (limiter, clock) = limiter("1/s burst 20");
    spend(&limiter, 5);
    let id = reserve(&limiter, 5);
    let _ = limiter.refund(Request::new(AGENT, LANE).cost(5)).unwrap();
    clock.advance(4 * SECOND);
    spend(&limiter, 1);
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 19);
}

/// Calls that take longer than their estimate takes to refill get all of it
/// back, as long as the bucket stays in debt.
#[test]
fn a_busy_bucket_gives_all_of_it_back() {
    let (limiter, clock) = limiter("1/s burst 100");
    spend(&limiter, 60);
    let (first, second) = (reserve(&limiter, 10), reserve(&limiter, 10));
    clock.advance(20 * SECOND);
    spend(&limiter, 5);
    limiter.settle(first, Settle::used(2)).unwrap();
    limiter.settle(second, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 100 - (60 + 5 + 2 - 20));
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Wait(u64),
    Spend(u64),
    Refund(u64),
    Reserve(u64),
    Cancel(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..40_u64).prop_map(Act::Wait),
        (1..8_u64).prop_map(Act::Spend),
        (1..4_u64).prop_map(Act::Refund),
        (1..8_u64).prop_map(Act::Reserve),
        (0..8_usize).prop_map(Act::Cancel),
    ]
}

proptest! {
    /// Any order of spending, refunding, reserving and cancelling: once all reservations are cancelled, no more is left
    /// than if none had ever been made; and at any time no more can be spent with them than without.
    #[test]
    fn cancelled_reservations_leave_no_more_than_none(acts in prop::collection::vec(act(), 1..16)) {
        let ((with, clock), (without, other)) = (limiter("1/10ns burst 20"), limiter("1/10ns burst 20"));
        let mut open = Vec::new();
        for act in acts {
            match act {
                Act::Wait(nanos) => {
                    clock.advance(Duration::from_nanos(nanos));
                    other.advance(Duration::from_nanos(nanos));
                }
                Act::Spend(cost) => {
                    if with.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap().is_allowed() {
                        prop_assert!(without.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap().is_allowed());
                    }
                }
                Act::Refund(cost) => {
                    let _ = with.refund(Request::new(AGENT, LANE).cost(cost)).unwrap();
                    let _ = without.refund(Request::new(AGENT, LANE).cost(cost)).unwrap();
                }
                Act::Reserve(estimate) => {
                    let request = Request::new(AGENT, LANE).cost(estimate);
                    open.extend(with.reserve(request, TTL).unwrap().id());
                }
                Act::Cancel(_) if open.is_empty() => {}
                Act::Cancel(which) => {
                    with.settle(open.swap_remove(which % open.len()), Settle::cancelled()).unwrap();
                }
            }
            let full_in = |limiter: &Limiter| limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in();
            prop_assert!(full_in(&with) >= full_in(&without), "{:?} < {:?}", full_in(&with), full_in(&without));
        }
        for id in open {
            with.settle(id, Settle::cancelled()).unwrap();
        }
        let full_in = |limiter: &Limiter| limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in();
        prop_assert!(full_in(&with) >= full_in(&without), "{:?} < {:?}", full_in(&with), full_in(&without));
    }
}

/// A refund of more than others had charged took from what was reserved, and
/// the cancel gave that back once more.
#[test]
fn a_refund_takes_nothing_that_is_reserved() {
    let (limiter, _) = limiter("1/s burst 20");
    let id = reserve(&limiter, 8);
    spend(&limiter, 2);
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(5)).unwrap().remaining(), 12);
    spend(&limiter, 12);
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 8);
}

/// The later of two reservations has the first slot: a refund moved it down
/// past the other, and time paid for both at once.
#[test]
fn a_refund_moves_reservations_down_one_below_the_other() {
    let (limiter, clock) = limiter("1/s burst 100");
    let before = reserve(&limiter, 1);
    spend(&limiter, 20);
    let earlier = reserve(&limiter, 10);
    limiter.settle(before, Settle::cancelled()).unwrap();
    let later = reserve(&limiter, 10);
    let _ = limiter.refund(Request::new(AGENT, LANE).cost(20)).unwrap();
    clock.advance(10 * SECOND);
    spend(&limiter, 10);
    let _ = [later, earlier].map(|id| limiter.settle(id, Settle::cancelled()).unwrap());
    assert_eq!(left(&limiter), 90);
}

/// Two at once, on an otherwise full bucket: whichever is cancelled first, all of both comes back.
#[test]
fn reservations_do_not_interfere_with_each_other() {
    for order in [[0, 1], [1, 0]] {
        let (limiter, clock) = limiter("1/s burst 20");
        let ids = [reserve(&limiter, 10), reserve(&limiter, 6)];
        clock.advance(3 * SECOND);
        for which in order {
            limiter.settle(ids[which], Settle::cancelled()).unwrap();
        }
        assert_eq!(left(&limiter), 20);
    }
}

/// A settlement of `u64::MAX` left an agent in debt for 36 years.
#[test]
fn a_settlement_has_a_maximum() {
    for limit in KINDS {
        let (limiter, clock) = limiter(limit);
        let id = reserve(&limiter, 40);
        for used in [40 + 100 * 100 + 1, u64::MAX] {
            let refused = Err(Error::UsedTooLarge { used, most: 40 + 100 * 100 });
            assert_eq!(limiter.settle(id, Settle::used(used)), refused, "{limit}");
            assert_eq!(limiter.settle(id, Settle::used_so_far(used)), refused, "{limit}");
        }
        assert_eq!(left(&limiter), 60, "nothing has changed");
        assert_eq!(limiter.settle(id, Settle::used_so_far(40 + 100 * 100)).unwrap().overspent, 10_000);
        // However often: no bucket's debt exceeds a hundred times its capacity.
        for _ in 0..10 {
            assert_eq!(limiter.settle(id, Settle::used_so_far(10_000)).unwrap().overspent, 10_000);
        }
        clock.advance(Duration::from_secs(86_400 * 101));
        assert_eq!(left(&limiter), 100, "{limit}");
    }
}

/// The agent's record was idle, and was taken. What it overspent was never
/// charged, and nothing reported that.
#[test]
fn what_is_overspent_does_not_vanish() {
    let policy = Policy::builder().lane("lane", "10/min").build().unwrap();
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).build().unwrap();
    let id = reserve(&limiter, 5);
    clock.advance(Duration::from_secs(60));
    let tenants: Vec<_> = (0..limiter.stats().records).map(|tenant| format!("tenant-{tenant}")).collect();
    assert!(tenants.iter().all(|tenant| limiter.check(tenant, LANE).unwrap().is_allowed()));
    assert_eq!(limiter.settle(id, Settle::used(8)), Err(Error::Full));
    assert_eq!(limiter.settle(id, Settle::used_so_far(8)), Err(Error::Full));
    limiter.forget(&tenants[0]).unwrap();
    assert_eq!(limiter.settle(id, Settle::used(8)).unwrap().overspent, 3, "it stayed open");
    assert_eq!(left(&limiter), 7);
}
