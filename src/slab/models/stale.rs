//! Calls that read the clock and stalled, while idle records are evicted.

use super::*;

model! {
    /// A caller read the clock at 5, before A was idle, and stalled. A is
    /// evicted as idle at 10: the caller is denied as it was before, and does
    /// not get a fresh bucket at 5, and with it another token at 15.
    stale_instant_against_eviction, UNBOUNDED, breaks with [NoFloor], || {
        // A is in the second record; the first is vacant and knows nothing of it.
        let model = Model::vacant(2, 1, 1, OnFull::Deny);
        assert!(model.allows(B, FIRST, Tick::ZERO) && model.allows(A, FIRST, Tick::ZERO));
        assert_eq!(model.0.forget(Agent::new(B).at(Tick::ZERO)), Ok(true));
        let swept = model.spawn(|model| model.0.sweep_at(Duration::ZERO, PAID));
        let stale = model.allows(A, FIRST, Tick::from_nanos(5));
        swept.join().unwrap();
        assert!(!stale && model.allows(A, FIRST, Tick::from_nanos(15)));
    }
}

model! {
    /// B is new, reads the clock at 9 and stalls; A is evicted as idle at 10. B
    /// has done nothing to be denied for.
    newcomer_against_eviction_of_another, UNBOUNDED, breaks with [ClockNotReadAgain], || {
        let (limit, clock) = (Limit::new(1, Duration::from_nanos(TOKEN)), ManualClock::new());
        let policy = Policy::builder().lane("lane-0", limit).build().unwrap();
        let model = Model::on_clock(2, policy, OnFull::Deny, clock.clone());
        assert!(model.allows(A, FIRST, Tick::ZERO));
        clock.set(Tick::from_nanos(TOKEN - 1));
        let swept = model.spawn(move |model| {
            clock.set(PAID);
            model.0.sweep(Duration::ZERO)
        });
        assert!(model.0.check(B, FIRST).unwrap().is_allowed());
        assert_eq!(swept.join().unwrap(), 1);
    }
}
