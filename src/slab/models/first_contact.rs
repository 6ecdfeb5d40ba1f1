//! Charges of one lane, and agents that come for the first time.

use super::*;

model! {
    /// Two callers race for the last token: exactly one gets it.
    last_token_of_two, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
    }
}

model! {
    /// Three callers race for the last token: exactly one gets it.
    last_token_of_three, Some(3), breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rivals = [0, 1].map(|_| model.spawn(|model| model.allows(A, FIRST, Tick::ZERO)));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        let others = rivals.map(|rival| rival.join().unwrap());
        assert_eq!([mine, others[0], others[1]].iter().filter(|allowed| **allowed).count(), 1);
    }
}

model! {
    /// Lanes of one agent do not disturb each other.
    different_lanes, UNBOUNDED, breaks with [], || {
        let model = Model::new(1, 2, 2, OnFull::Deny);
        let other = model.spawn(|model| model.allows(A, SECOND, Tick::ZERO));
        assert!(model.allows(A, FIRST, Tick::ZERO) && other.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
        assert_eq!(model.remaining(A, SECOND, Tick::ZERO), 1);
    }
}

model! {
    /// Two threads meet a new agent: it gets one record, and one of them its only token.
    first_contact_of_one_agent, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::vacant(2, 1, 1, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// Two new agents get a record each.
    first_contact_of_two_agents, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::vacant(2, 1, 1, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        assert!(model.allows(A, FIRST, Tick::ZERO) && rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), 0);
        assert_eq!(model.agents(), 2);
    }
}

model! {
    /// Two newcomers want the only record, which is idle: one learns that it is full.
    two_claims_against_one_idle_record, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(C, FIRST, PAID));
        let mine = model.check(B, FIRST, PAID);
        let other = rival.join().unwrap();
        assert!(mine.is_ok() ^ other.is_ok(), "{mine:?} {other:?}");
        assert_eq!(model.remaining(B, FIRST, PAID), if mine.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(C, FIRST, PAID), if other.is_ok() { 1 } else { 2 });
    }
}
