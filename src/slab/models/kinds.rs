//! Lanes that are not buckets: what is idle, inherited and given up differs for each kind.

use super::*;
use crate::engine::Settle;
use crate::engine::reservations::{Entry, Reservations};
use crate::slab::hash::AgentHash;

/// A millisecond: the shortest window.
const WINDOW: u64 = 1_000_000;

/// When nothing that was charged at instant 0 counts any more.
const QUIET: Tick = Tick::from_nanos(2 * WINDOW);

/// The start of a third of a window.
const fn third(index: u64) -> Tick {
    Tick::from_nanos(index * WINDOW.div_ceil(3))
}

/// A limiter with one record and one lane, on which A has charged 1 at instant 0.
fn model(limit: &str, on_full: OnFull) -> Model {
    let model = Model::at(1, Policy::builder().lane("lane-0", limit).build().unwrap(), on_full, 10 * WINDOW);
    assert!(model.allows(A, FIRST, Tick::ZERO));
    model
}

model! {
    /// Two callers race for the last of a window: exactly one gets it.
    last_of_a_window, UNBOUNDED, breaks with [PermitByStore], || {
        let model = model("window 2/ms", OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
    }
}

model! {
    /// Two callers race for the last of a window whose first word has to move
    /// on: what is dropped from it still counts, and exactly one gets it.
    last_of_a_window_that_moves_on, Some(3), breaks with [MovedOnUnrecorded, PermitByStore], || {
        let model = model("window 2/ms", OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, third(2)));
        let mine = model.allows(A, FIRST, third(2));
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, third(3)), 0);
        // The charge of instant 0 has expired, that of third 2 has not.
        assert_eq!(model.remaining(A, FIRST, third(4)), 1);
    }
}

model! {
    /// More is charged while another caller moves the window on: what it
    /// records includes that charge.
    window_is_charged_while_it_moves_on, Some(3), breaks with [MovedOnUnrecorded], || {
        let model = model("window 3/ms", OnFull::Deny);
        let late = model.spawn(|model| model.allows(A, FIRST, third(2)));
        assert!(model.allows(A, FIRST, third(1)), "there is room for both");
        assert!(late.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, third(2)), 0);
        assert_eq!(model.remaining(A, FIRST, third(3)), 0);
    }
}

model! {
    /// A caller with an older instant finds a window that is about to move on,
    /// from which a third has been dropped: it is charged in the later third,
    /// not in the one that expires too soon.
    older_caller_meets_a_record, Some(3), breaks with [RecordIgnored], || {
        let model = model("window 3/ms", OnFull::Deny);
        let charge = |model: &Model, index, cost| {
            model.0.check_request(Request::new(A, FIRST).cost(cost).at(third(index))).unwrap().is_allowed()
        };
        // Two in third 0, one in third 2: it is full until third 4.
        assert!(charge(&model, 0, 1) && charge(&model, 2, 1));
        let older = model.spawn(move |model| charge(model, 2, 2));
        let mine = charge(&model, 4, 2);
        assert!(mine ^ older.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, third(6)), 1);
    }
}

model! {
    /// A window is reset while it moves on: what was charged before does not
    /// come back.
    window_moves_on_against_reset, Some(3), breaks with [NoLookBack], || {
        let model = model("window 3/ms", OnFull::Deny);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let reset = model.spawn(|model| model.0.reset_lane(Agent::new(A).at(third(2)), FIRST).unwrap());
        let _ = model.allows(A, FIRST, third(2));
        reset.join().unwrap();
        assert!(model.remaining(A, FIRST, third(2)) >= 2);
    }
}

model! {
    /// A newcomer takes over a window that moves on, and inherits what counts:
    /// the last of it is given out once.
    lossy_eviction_inherits_a_window_that_moves_on, Some(2), breaks with [NothingInherited], || {
        let model = model("window 2/ms", OnFull::Evict);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, third(2)));
        let tenant = model.allows(A, FIRST, third(2));
        assert!(!(tenant && newcomer.join().unwrap()));
    }
}

model! {
    /// A newcomer takes over an idle window while its tenant returns.
    window_against_eviction, Some(3), breaks with [NoLookAfterLoad, NoClose, IdleUnchecked], || {
        let model = model("window 2/ms", OnFull::Deny);
        let newcomer = model.spawn(|model| model.check(B, FIRST, QUIET));
        let tenant = model.check(A, FIRST, QUIET);
        let newcomer = newcomer.join().unwrap();
        assert!(tenant.is_ok() ^ newcomer.is_ok(), "{tenant:?} {newcomer:?}");
        assert_eq!(model.remaining(A, FIRST, QUIET), if tenant.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(B, FIRST, QUIET), if newcomer.is_ok() { 1 } else { 2 });
    }
}

model! {
    /// A check stalls while its agent is forgotten and the record passes to C,
    /// within one window: only the generation distinguishes the words.
    window_stalled_across_two_tenancies, Some(3), breaks with [SameGeneration], || {
        let model = model("window 2/ms", OnFull::Deny);
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
        let others = model.spawn(|model| {
            model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap() && model.allows(C, FIRST, Tick::ZERO)
        });
        let _ = model.check(A, FIRST, Tick::ZERO);
        let third = others.join().unwrap();
        assert_eq!(model.remaining(C, FIRST, Tick::ZERO), if third { 1 } else { 2 });
    }
}

model! {
    /// The only record passes back and forth: the last of its window is given out once.
    lossy_eviction_inherits_a_window, Some(3), breaks with [NothingInherited], || {
        let model = model("window 2/ms", OnFull::Evict);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let tenant = model.allows(A, FIRST, Tick::ZERO);
        assert!(tenant ^ newcomer.join().unwrap());
    }
}

/// When a permit that was used at instant 0 has rested.
const RESTED: Tick = Tick::from_nanos(WINDOW);

model! {
    /// Two callers race for the only permit that has rested: exactly one gets it.
    one_rested_permit, UNBOUNDED, breaks with [PermitByStore], || {
        let model = model("exact 2/ms", OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
    }
}

model! {
    /// One permit is given back and the other taken: at each moment one has
    /// rested, so no caller may be denied.
    permits_change_places, Some(3), breaks with [NoLastScan], || {
        // The permit that is given back has rested less long than the other.
        const LATER: Tick = Tick::from_nanos(5);
        let policy = Policy::builder().lane("lane-0", "exact 2/ms").build().unwrap();
        // A refund is made no earlier than the clock's time.
        let model = Model::at(1, policy, OnFull::Deny, LATER.as_nanos());
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let other = model.spawn(|model| {
            let _ = model.0.refund(Request::new(A, FIRST).at(LATER)).unwrap();
            model.allows(A, FIRST, LATER)
        });
        let mine = model.0.peek(Request::new(A, FIRST).at(LATER)).unwrap().remaining();
        assert!(other.join().unwrap());
        assert!(mine > 0, "a permit had rested all the time");
    }
}

model! {
    /// A newcomer takes over a record whose permits have all rested, while its tenant returns.
    permits_against_eviction, Some(3), breaks with [NoLookAfterLoad, IdleUnchecked], || {
        let model = model("exact 2/ms", OnFull::Deny);
        let newcomer = model.spawn(|model| model.check(B, FIRST, RESTED));
        let tenant = model.check(A, FIRST, RESTED);
        let newcomer = newcomer.join().unwrap();
        assert!(tenant.is_ok() ^ newcomer.is_ok(), "{tenant:?} {newcomer:?}");
        assert_eq!(model.remaining(A, FIRST, RESTED), if tenant.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(B, FIRST, RESTED), if newcomer.is_ok() { 1 } else { 2 });
    }
}

/// The only record, in debt on its first lane, is given up for a newcomer while
/// its tenant charges the second: that charge is not lost, or is made again.
fn kept_against_lossy_eviction(limit: &'static str) -> impl Fn() + Sync + Send + 'static {
    move || {
        let policy = Policy::builder().lane("lane-0", "2/ms").lane("lane-1", limit).build().unwrap();
        let model = Model::at(1, policy, OnFull::Evict, 10 * WINDOW);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let kept = model.allows(A, SECOND, Tick::ZERO);
        let _ = newcomer.join().unwrap();
        assert_eq!(model.remaining(A, SECOND, Tick::ZERO), if kept { 1 } else { 2 });
    }
}

model! {
    /// A slot that is held is never lost.
    held_slot_against_lossy_eviction, Some(3), breaks with [KeptUnchecked], kept_against_lossy_eviction("held 2")
}

model! {
    /// The used part of a budget is never lost.
    used_budget_against_lossy_eviction, Some(3), breaks with [KeptUnchecked], kept_against_lossy_eviction("budget 2/day")
}

model! {
    /// Two callers release the only held slot: one of them learns that none is held.
    slot_is_released_once, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = model("held 2", OnFull::Deny);
        let rival = model.spawn(|model| model.0.release(Request::new(A, FIRST)).is_ok());
        let mine = model.0.release(Request::new(A, FIRST)).is_ok();
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2);
    }
}

/// What A has left on each of two lanes, and of the total.
fn left(model: &Model) -> Vec<u64> {
    let view = model.0.agent(Agent::new(A).at(Tick::ZERO)).unwrap();
    view.lanes.iter().map(|lane| lane.state.remaining()).collect()
}

fn with_total(lane: &str, total: &str) -> Model {
    let policy = Policy::builder().lane("lane-0", lane).lane("lane-1", lane).total(total).build().unwrap();
    let model = Model::at(1, policy, OnFull::Deny, 0);
    assert!(model.allows(A, FIRST, Tick::ZERO));
    model
}

model! {
    /// Two callers race on different lanes for the last token of their total:
    /// exactly one passes, and the other's lane is as it was.
    last_token_of_a_total, Some(3), breaks with [LaneKept, ChargeByStore], || {
        let model = with_total("9/ms", "2/ms");
        let rival = model.spawn(|model| model.allows(A, SECOND, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        let theirs = rival.join().unwrap();
        assert!(mine ^ theirs);
        assert_eq!(left(&model), [8 - u64::from(mine), 9 - u64::from(theirs), 0]);
    }
}

model! {
    /// The same for the last token of one lane, in requests of several parts: a
    /// caller that passes has charged everything, one that does not has charged
    /// nothing.
    total_of_several_parts, Some(3), breaks with [NoRollback], || {
        let model = with_total("window 9/ms", "window 3/ms");
        let part = |lane| crate::Request::new(A, lane);
        let rival = model.spawn(|model| model.allows(A, SECOND, Tick::ZERO));
        let parts = [part(FIRST), part(SECOND)].map(|part| part.at(Tick::ZERO));
        let mine = model.0.check_all(&parts).unwrap().is_allowed();
        let (mine, theirs) = (u64::from(mine), u64::from(rival.join().unwrap()));
        assert_eq!(mine + theirs, 1);
        assert_eq!(left(&model), [8 - mine, 9 - mine - theirs, 2 - 2 * mine - theirs]);
    }
}

model! {
    /// A reservation is cancelled while its total is reset and spent: what was
    /// forgiven does not come back, though its lane does.
    cancel_against_reset_of_a_total, Some(3), breaks with [OtherCharge], || {
        let model = with_total("window 9/ms", "window 5/ms");
        let total = LaneId::new(2);
        let reserved = model.0.reserve(Request::new(A, FIRST).cost(4).at(Tick::ZERO), Duration::from_secs(1)).unwrap();
        let id = reserved.id().unwrap();
        let rival = model.spawn(move |model| model.0.settle(id, Settle::cancelled().at(Tick::ZERO)).is_ok());
        model.0.reset_lane(Agent::new(A).at(Tick::ZERO), total).unwrap();
        assert!(model.0.check_request(Request::new(A, SECOND).cost(5).at(Tick::ZERO)).unwrap().is_allowed());
        assert!(rival.join().unwrap());
        assert_eq!(left(&model), [8, 4, 0]);
    }
}

model! {
    /// The only record is given up for a newcomer while its tenant reserves: an
    /// agent with a reservation has a record that contains its charge.
    reservation_against_lossy_eviction, Some(3), breaks with [ReservedUnchecked], || {
        let model = model("4/ms", OnFull::Evict);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let reserved = model.0.reserve(Request::new(A, FIRST).at(Tick::ZERO), Duration::from_secs(1));
        let _ = newcomer.join().unwrap();
        if reserved.is_ok_and(|reserved| reserved.id().is_some()) {
            assert!(model.remaining(A, FIRST, Tick::ZERO) < 3, "its record is gone, or its reservation's charge is");
        }
    }
}

model! {
    /// Two callers settle one reservation: one of them succeeds.
    reservation_is_settled_once, Some(3), breaks with [StaleId], || {
        let policy = Policy::builder().lane("lane-0", "budget 9/day").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 10 * WINDOW);
        assert!(model.0.check_request(Request::new(A, FIRST).cost(4).at(Tick::ZERO)).unwrap().is_allowed());
        let reserved = model.0.reserve(Request::new(A, FIRST).cost(4).at(Tick::ZERO), Duration::from_secs(1)).unwrap();
        let id = reserved.id().unwrap();
        let rival = model.spawn(move |model| model.0.settle(id, Settle::used(1).at(Tick::ZERO)).is_ok());
        let mine = model.0.settle(id, Settle::used(1).at(Tick::ZERO)).is_ok();
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 9 - 4 - 1);
    }
}

model! {
    /// An expired reservation is extended, at an instant before its expiry,
    /// while its slot is taken for another: one of the two has it.
    extension_against_expiry, Some(3), breaks with [], || {
        let table = Arc::new(Reservations::new(1, 1, false));
        let hash = AgentHash::from_bits(1);
        let held = table.take(hash, Tick::ZERO).unwrap();
        assert!(held.announce(hash, FIRST, 0, Tick::ZERO));
        let (id, entry) = (held.id(), held.entry());
        held.keep(Entry { expires: Tick::from_nanos(10), ..entry });
        let other = Arc::clone(&table);
        let taken = thread::spawn(move || {
            let now = Tick::from_nanos(50);
            let taken = other.take(hash, now).map(|held| {
                assert!(held.announce(hash, FIRST, 0, now));
                held.close(hash);
            });
            taken.is_some()
        });
        let extended = table.find(id, Tick::from_nanos(5)).map(|held| {
            let entry = held.entry();
            held.keep(Entry { expires: Tick::from_nanos(100), ..entry });
        });
        assert!(!(extended.is_ok() && taken.join().unwrap()));
    }
}

model! {
    /// A reservation is cancelled while its lane is reset and spent: what was
    /// forgiven does not come back.
    cancel_against_reset, Some(3), breaks with [OtherCharge], || {
        let policy = Policy::builder().lane("lane-0", "budget 9/day").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 10 * WINDOW);
        let reserved = model.0.reserve(Request::new(A, FIRST).cost(4).at(Tick::ZERO), Duration::from_secs(1)).unwrap();
        let id = reserved.id().unwrap();
        let rival = model.spawn(move |model| model.0.settle(id, Settle::cancelled().at(Tick::ZERO)).is_ok());
        model.0.reset_lane(Agent::new(A).at(Tick::ZERO), FIRST).unwrap();
        assert!(model.0.check_request(Request::new(A, FIRST).cost(9).at(Tick::ZERO)).unwrap().is_allowed());
        assert!(rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
    }
}

model! {
    /// A reservation is made while its lane is reset: it has something to give
    /// back if and only if its charge was not forgiven.
    reservation_against_reset, Some(3), breaks with [OtherCharge], || {
        let policy = Policy::builder().lane("lane-0", "budget 9/day").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 10 * WINDOW);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let reset = model.spawn(|model| model.0.reset_lane(Agent::new(A).at(Tick::ZERO), FIRST).unwrap());
        let reserved = model.0.reserve(Request::new(A, FIRST).cost(4).at(Tick::ZERO), Duration::from_secs(1)).unwrap();
        reset.join().unwrap();
        let left = model.remaining(A, FIRST, Tick::ZERO);
        assert!([9, 5].contains(&left));
        assert!(model.0.check_request(Request::new(A, FIRST).cost(left).at(Tick::ZERO)).unwrap().is_allowed());
        model.0.settle(reserved.id().unwrap(), Settle::cancelled().at(Tick::ZERO)).unwrap();
        // If the reset reaches it after its charge, it may have nothing to give back, which is stricter.
        assert!(model.remaining(A, FIRST, Tick::ZERO) <= 9 - left);
    }
}

model! {
    /// A reservation on a bucket is cancelled while other calls refund and
    /// spend: a refund takes nothing from it, and nothing comes back twice.
    cancel_against_refund, Some(3), breaks with [NotLowered], || {
        let policy = Policy::builder().lane("lane-0", "4/ms").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 0);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let request = Request::new(A, FIRST).at(Tick::ZERO);
        let reserve = || model.0.reserve(request, Duration::from_secs(1)).unwrap().id().unwrap();
        let (lower, upper) = (reserve(), reserve());
        let rival = model.spawn(move |model| model.0.settle(lower, Settle::cancelled().at(Tick::ZERO)).is_ok());
        let _ = model.0.refund(Request::new(A, FIRST).cost(4).at(Tick::ZERO)).unwrap();
        assert!(rival.join().unwrap());
        // Time pays off the rest. Then one charge, and the other reservation is
        // cancelled: no more is left than after that charge alone.
        let paid = Tick::from_nanos(WINDOW / 4);
        assert!(model.allows(A, FIRST, paid));
        model.0.settle(upper, Settle::cancelled().at(paid)).unwrap();
        assert!(model.remaining(A, FIRST, paid) <= 3);
    }
}

model! {
    /// A reservation is made on a budget while another caller refunds all that
    /// was used: the refund takes nothing from the reservation, which gives it
    /// back later.
    reservation_against_refund, Some(2), breaks with [ReservedRefunded], || {
        let policy = Policy::builder().lane("lane-0", "budget 9/day").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 10 * WINDOW);
        assert!(model.0.check_request(Request::new(A, FIRST).cost(2).at(Tick::ZERO)).unwrap().is_allowed());
        let refund = model.spawn(|model| model.0.refund(Request::new(A, FIRST).cost(9).at(Tick::ZERO)).map(|_| ()));
        let reserved = model.0.reserve(Request::new(A, FIRST).cost(4).at(Tick::ZERO), Duration::from_secs(1)).unwrap();
        refund.join().unwrap().unwrap();
        let left = model.remaining(A, FIRST, Tick::ZERO);
        assert!((3..=5).contains(&left), "{left} of 9: 4 are reserved, and 2 may have come back");
        assert!(model.0.check_request(Request::new(A, FIRST).cost(left).at(Tick::ZERO)).unwrap().is_allowed());
        model.0.settle(reserved.id().unwrap(), Settle::cancelled().at(Tick::ZERO)).unwrap();
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 4);
    }
}

model! {
    /// An agent takes a slot while it is forgotten: a slot that it has is counted.
    forget_against_acquire, Some(3), breaks with [NoClose], || {
        let policy = Policy::builder().lane("lane-0", "held 2").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 10 * WINDOW);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model.0.release(Request::new(A, FIRST)).unwrap();
        let forget = model.spawn(|model| model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap());
        assert!(model.allows(A, FIRST, Tick::ZERO));
        forget.join().unwrap();
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 1);
    }
}
