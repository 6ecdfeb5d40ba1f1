//! Several charges, all or none: what a denied call takes back.

use super::*;

/// Charges one for each of two agents, all or none.
fn both(model: &Model, first: &'static str, second: &'static str) -> bool {
    let part = |agent: &'static str| crate::Request::new(agent, FIRST);
    model.0.check_all(&[part(first), part(second)].map(|part| part.at(Tick::ZERO))).unwrap().is_allowed()
}

model! {
    /// Two callers charge one for each of two agents, one of which has only one
    /// left: at most one caller gets both, and in the end exactly what it got
    /// is charged.
    all_or_none, Some(2), breaks with [NoRollback], || {
        let policy = Policy::builder().lane("lane-0", "2/ms").build().unwrap();
        let model = Model::at(2, policy, OnFull::Deny, 0);
        // They are charged in the order of their hashes: the one that is short comes last.
        let mut agents = [A, B];
        agents.sort_by_key(|agent| fixed_key(KEY).hash(agent.as_bytes()));
        let [plenty, short] = agents;
        assert!(model.allows(short, FIRST, Tick::ZERO) && model.allows(plenty, FIRST, Tick::ZERO));
        model.0.reset(Agent::new(plenty).at(Tick::ZERO)).unwrap();
        let rival = model.spawn(move |model| both(model, short, plenty));
        let mine = both(&model, plenty, short);
        let admitted = u64::from(mine) + u64::from(rival.join().unwrap());
        assert!(admitted <= 1);
        assert_eq!(model.remaining(plenty, FIRST, Tick::ZERO), 2 - admitted);
        assert_eq!(model.remaining(short, FIRST, Tick::ZERO), 1 - admitted);
    }
}

model! {
    /// A call is denied the slot that was free when it looked, and takes back
    /// its charge of a bucket that another caller has charged meanwhile, at a
    /// later instant: the bucket is full no sooner than without the call.
    rollback_against_check, Some(3), breaks with [NoRollback, RollbackAtCharge], || {
        const LATER: u64 = 5;
        let bucket = Limit::new(1, Duration::from_nanos(TOKEN)).burst(4);
        let policy = Policy::builder().lane("lane-0", bucket).lane("lane-1", "held 1").build().unwrap();
        let clock = ManualClock::new();
        let model = Model::on_clock(1, policy, OnFull::Deny, clock.clone());
        assert!(model.allows(A, SECOND, Tick::ZERO) && model.0.release(Request::new(A, SECOND)).is_ok());
        let rival = model.spawn(move |model| {
            let held = model.allows(A, SECOND, Tick::ZERO);
            clock.set(Tick::from_nanos(LATER));
            model.allows(A, FIRST, Tick::from_nanos(LATER)) && held
        });
        let part = |lane, cost| crate::Request::new(A, lane).cost(cost);
        let parts = [part(FIRST, 2), part(SECOND, 1)].map(|part| part.at(Tick::ZERO));
        let mine = model.0.check_all(&parts).unwrap().is_allowed();
        assert!(mine ^ rival.join().unwrap(), "one of them has the slot");
        let full_in = model.0.peek(Request::new(A, FIRST).at(Tick::from_nanos(LATER))).unwrap().full_in();
        // What is left of the two charged at 0, or nothing, or at most the time
        // of the call; plus the other's one.
        let admitted = if mine { 3 * TOKEN - LATER } else { TOKEN };
        let most = if mine { admitted } else { admitted + LATER };
        assert!((admitted..=most).contains(&(full_in.as_nanos() as u64)), "{full_in:?} of {admitted}");
    }
}

/// A call is denied the slot that was free when it looked, and takes back its
/// charge of a lane that another caller has reset and spent meanwhile: what was
/// forgiven does not come back.
fn rollback_against_reset(limit: &'static str) -> impl Fn() + Sync + Send + 'static {
    move || {
        let policy = Policy::builder().lane("lane-0", limit).lane("lane-1", "held 1").build().unwrap();
        let model = Model::at(1, policy, OnFull::Deny, 0);
        assert!(model.allows(A, SECOND, Tick::ZERO) && model.0.release(Request::new(A, SECOND)).is_ok());
        let rival = model.spawn(|model| {
            let _ = model.allows(A, SECOND, Tick::ZERO);
            model.0.reset_lane(Agent::new(A).at(Tick::ZERO), FIRST).unwrap();
            u64::from(model.allows(A, FIRST, Tick::ZERO)) + u64::from(model.allows(A, FIRST, Tick::ZERO))
        });
        let part = |lane| crate::Request::new(A, lane).at(Tick::ZERO);
        let _ = model.0.check_all(&[part(FIRST), part(SECOND)]).unwrap();
        // If mine passed, before the reset or after it, that is stricter.
        let spent = rival.join().unwrap();
        assert!(spent + model.remaining(A, FIRST, Tick::ZERO) <= 2);
    }
}

model! {
    rollback_against_reset_of_a_budget, Some(3), breaks with [ForgivenTakenBack, ForgivenTooSoon], rollback_against_reset("budget 2/day")
}

model! {
    rollback_against_reset_of_a_window, Some(3), breaks with [ForgivenTakenBack, ForgivenTooSoon], rollback_against_reset("window 2/ms")
}
