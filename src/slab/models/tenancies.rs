//! Operations while a record changes hands: claim, evict, refund, reset, forget, sweep.

use super::*;

/// An idle tenant returns while a newcomer takes its record: one of them has
/// it in the end, with exactly its own charge.
fn check_against_eviction(lanes: usize, lane: LaneId) -> impl Fn() + Sync + Send + 'static {
    move || {
        let model = Model::new(1, lanes, 2, OnFull::Deny);
        let newcomer = model.spawn(move |model| model.check(B, FIRST, PAID));
        let tenant = model.check(A, lane, PAID);
        let newcomer = newcomer.join().unwrap();
        assert!(tenant.is_ok() ^ newcomer.is_ok(), "{tenant:?} {newcomer:?}");
        assert_eq!(model.remaining(A, lane, PAID), if tenant.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(B, FIRST, PAID), if newcomer.is_ok() { 1 } else { 2 });
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// The eviction gives up on the only lane there is. Bounded, since all of
    /// its 1,469,346 executions take minutes; they hold as well.
    check_against_eviction_of_one_lane, Some(5),
    breaks with [NoLookAfterLoad, NoClose, IdleUnchecked, StayClosed, RelaxedLane],
    check_against_eviction(1, FIRST)
}

model! {
    /// The eviction gives up halfway: one lane has moved on, the other was
    /// charged. Bounded; all of its 177,647 executions hold as well.
    check_against_eviction_of_two_lanes, Some(5),
    breaks with [NoLookAfterLoad, NoClose, IdleUnchecked, StayClosed],
    check_against_eviction(2, SECOND)
}

model! {
    /// A check stalls while its agent is forgotten and the record passes to C
    /// with the very word that the check has loaded. Without generations its
    /// exchange would land on C.
    check_stalled_across_two_tenancies, Some(3), breaks with [NoLookAfterLoad, SameGeneration], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
        let others = model.spawn(|model| {
            model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap() && model.allows(C, FIRST, Tick::ZERO)
        });
        let _ = model.check(A, FIRST, Tick::ZERO);
        let third = others.join().unwrap();
        assert_eq!(model.remaining(C, FIRST, Tick::ZERO), if third { 1 } else { 2 });
    }
}

/// Something is given back to A while a newcomer takes its record, in debt as
/// it is: the newcomer has what its answer said.
fn giving_back_against_eviction(give_back: fn(&Limiter)) -> impl Fn() + Sync + Send + 'static {
    move || {
        let model = Model::at_origin(2, OnFull::Evict);
        let newcomer = model.spawn(|model| model.check(B, FIRST, Tick::ZERO).map_or(2, |verdict| verdict.remaining()));
        give_back(&model.0);
        let left = newcomer.join().unwrap();
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), left);
    }
}

model! {
    /// A refund stalls while a newcomer takes the record. Bounded, since all
    /// of its 349,610 executions take a minute; they hold as well.
    refund_against_eviction, Some(4), breaks with [NoLookAfterLoad, ChargeByStore],
    giving_back_against_eviction(|limiter| {
        assert_eq!(limiter.refund(Request::new(A, FIRST).at(Tick::ZERO)).unwrap().remaining(), 2);
    })
}

model! {
    /// A reset stalls while a newcomer takes the record; as for a refund.
    reset_against_eviction, Some(4), breaks with [NoLookAfterLoad, ChargeByStore],
    giving_back_against_eviction(|limiter| limiter.reset(Agent::new(A).at(Tick::ZERO)).unwrap())
}

model! {
    /// The tenant is forgotten while a newcomer evicts it.
    forget_against_eviction, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, PAID));
        model.0.forget(Agent::new(A).at(PAID)).unwrap();
        assert!(newcomer.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, PAID), 2);
        assert_eq!(model.remaining(B, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// A sweep and a newcomer are after the same idle record.
    sweep_against_eviction, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, PAID));
        let swept = model.0.sweep_at(Duration::ZERO, PAID);
        assert!(newcomer.join().unwrap() && swept <= 1);
        assert_eq!(model.remaining(B, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// Each refund gives back one token, whatever is charged meanwhile.
    refund_against_check, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::at_origin(2, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let _ = model.0.refund(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert!(rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 1);
    }
}

model! {
    /// A check comes before a reset and is wiped out, or after and stays.
    reset_against_check, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap().remaining());
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
        let before = rival.join().unwrap() == 0;
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), if before { 2 } else { 1 });
    }
}

model! {
    /// A check comes before forgetting and is wiped out, or after and stays.
    forget_against_check, UNBOUNDED, breaks with [NoLookAfterLoad, NoClose], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap().remaining());
        model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap();
        let before = rival.join().unwrap() == 0;
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), if before { 2 } else { 1 });
    }
}

model! {
    /// A sweep takes an idle record while its tenant returns: the charge stays.
    sweep_against_check, UNBOUNDED, breaks with [NoLookAfterLoad, NoClose, IdleUnchecked], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let tenant = model.spawn(|model| model.allows(A, FIRST, PAID));
        let _ = model.0.sweep_at(Duration::ZERO, PAID);
        assert!(tenant.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// A newcomer claims the vacant record of an agent that is being forgotten.
    forget_against_claim, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        assert_eq!(model.0.forget(Agent::new(A).at(Tick::ZERO)), Ok(true));
        assert!(newcomer.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// The only record, in debt, passes back and forth: its last token is given
    /// out once. Bounded, since all of its 2,394,610 executions take minutes;
    /// they hold as well.
    lossy_eviction_inherits, Some(5), breaks with [NothingInherited, ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Evict);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let tenant = model.allows(A, FIRST, Tick::ZERO);
        assert!(tenant ^ newcomer.join().unwrap());
    }
}

model! {
    /// A check stalls while its record is vacated and claimed by B, whose lane
    /// is lifted to the instant of the eviction by a plain store.
    check_against_claim_of_a_vacated_record, Some(3), breaks with [RelaxedSettling], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let later = Tick::from_nanos(2 * TOKEN);
        let others = model.spawn(move |model| {
            model.0.sweep_at(Duration::ZERO, later) == 1 && model.check(B, FIRST, later).is_ok()
        });
        let _ = model.check(A, FIRST, later);
        if others.join().unwrap() {
            assert_eq!(model.remaining(B, FIRST, later), 1);
        }
    }
}

model! {
    /// A is looked at while it is forgotten, B spends everything in its record
    /// and is forgotten, and A returns: A's own lane never had less than 1 left.
    status_is_never_of_a_stranger, Some(3), breaks with [NoLastLook], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let others = model.spawn(|model| {
            let _ = model.0.forget(Agent::new(A).at(Tick::ZERO));
            let _ = model.0.check_request(Request::new(B, FIRST).cost(2).at(Tick::ZERO));
            let _ = model.0.forget(Agent::new(B).at(Tick::ZERO));
            let _ = model.check(A, FIRST, Tick::ZERO);
        });
        assert!(model.remaining(A, FIRST, Tick::ZERO) >= 1);
        others.join().unwrap();
    }
}

model! {
    /// A returns while two newcomers look for a record: each that is let in has
    /// exactly its own charge. Two preemptions: with three, the two that wait
    /// for the lock give way to each other until loom's branches run out.
    check_against_two_claims, Some(2), breaks with [NoLookAfterLoad, NoClose], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomers = [B, C].map(|agent| model.spawn(move |model| model.check(agent, FIRST, PAID).is_ok()));
        let tenant = model.check(A, FIRST, PAID).is_ok();
        let [second, third] = newcomers.map(|newcomer| newcomer.join().unwrap());
        assert_eq!([tenant, second, third].iter().filter(|let_in| **let_in).count(), 1);
        for (agent, let_in) in [(A, tenant), (B, second), (C, third)] {
            assert_eq!(model.remaining(agent, FIRST, PAID), if let_in { 1 } else { 2 });
        }
    }
}

model! {
    /// The only record is so far in debt that B would be denied in it, while
    /// its tenant is reset: if B is allowed, then B has the record, charged.
    refusal_against_reset, UNBOUNDED, breaks with [], || {
        let model = Model::new(1, 1, 1, OnFull::Evict);
        let reset = model.spawn(|model| model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap());
        let allowed = model.allows(B, FIRST, Tick::ZERO);
        reset.join().unwrap();
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), u64::from(!allowed));
    }
}
