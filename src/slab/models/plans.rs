//! Changes of limits while checks run.
//!
//! The two limits that are used here have nothing in common, so that a check
//! that mixed them would be visible: see [`whole`]. Debt is kept as it is: the
//! models' clock is so far ahead that no debt is longer than a limit allows.

use super::*;
use crate::{Decision, OnChange, PlanId};

/// A token of the plan `other` takes this long, and there are [`OTHER_CAPACITY`] of them.
const OTHER_TOKEN: u64 = 100;
const OTHER_CAPACITY: u64 = 7;
const OTHER: PlanId = PlanId::new(1);

fn other_limit() -> Limit {
    Limit::new(1, Duration::from_nanos(OTHER_TOKEN)).burst(OTHER_CAPACITY)
}

/// A third one, for overrides.
fn third_limit() -> Limit {
    Limit::new(1, Duration::from_nanos(1_000)).burst(30)
}

fn policy(first: Limit, other: Limit) -> Policy {
    Policy::builder()
        .lane("lane-0", first)
        .plan("other", [("lane-0", other)])
        .on_change(OnChange::KeepDebt)
        .build()
        .unwrap()
}

fn first_limit() -> Limit {
    Limit::new(1, Duration::from_nanos(TOKEN)).burst(2)
}

/// A limiter with the plan `other`, in which A has a record without debt if it is `known`.
fn model(known: bool) -> Model {
    let model = Model::with_policy(1, policy(first_limit(), other_limit()), OnFull::Deny);
    if known {
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
    }
    model
}

/// Which limit gave the verdict on a first token: its capacity, and the time a token takes.
fn whole(verdict: Verdict) -> (u64, u64) {
    let pair = (verdict.capacity(), verdict.full_in().as_nanos() as u64);
    assert!([(2, TOKEN), (OTHER_CAPACITY, OTHER_TOKEN), (30, 1_000)].contains(&pair), "a mixture of limits: {pair:?}");
    pair
}

model! {
    /// A is assigned to another plan while it is checked: one row applies, and
    /// afterwards the new one does, with the charge.
    assign_against_check, UNBOUNDED, breaks with [], || {
        let model = model(true);
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.assign(A, OTHER).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (OTHER_CAPACITY, charged));
    }
}

model! {
    /// A's row of overrides is freed and written for B during a check of A: it
    /// does not mix the rows.
    row_reuse_against_a_stalled_check, Some(3), breaks with [RowWithoutBump, BumpBeforeRow, RelaxedRow], || {
        let model = model(true);
        model.0.set_override(A, "lane-0", other_limit()).unwrap();
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.remove_overrides(A).unwrap();
        model.0.set_override(B, "lane-0", third_limit()).unwrap();
        let (capacity, charged) = check.join().unwrap();
        assert_ne!(capacity, 30, "A was checked by B's limit");
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!(status.capacity(), 2);
        assert_eq!(status.full_in().as_nanos() as u64, charged);
    }
}

model! {
    /// A new policy comes into force, then another, whose rows replace those
    /// that a check may be reading.
    replace_policy_against_check, Some(3), breaks with [RowsInPlace, RowWithoutBump], || {
        let model = model(true);
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.replace_policy(policy(other_limit(), other_limit())).unwrap();
        model.0.replace_policy(policy(third_limit(), other_limit())).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (30, charged));
    }
}

model! {
    /// The same for a check under a plan given in place of an assignment.
    replace_policy_against_check_as, Some(3), breaks with [RowsInPlace], || {
        let model = model(true);
        let check = model.spawn(|model| {
            let request = Request::new(A, FIRST).plan(OTHER).at(Tick::ZERO);
            whole(model.0.check_request(request).unwrap())
        });
        model.0.replace_policy(policy(first_limit(), third_limit())).unwrap();
        model.0.replace_policy(policy(first_limit(), first_limit())).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!(status.full_in().as_nanos() as u64, charged);
    }
}

model! {
    /// A is assigned while a newcomer takes its record, or fails to: either way A has its plan.
    assign_against_eviction, Some(3), breaks with [NoChangeLock], || {
        let model = Model::with_policy(1, policy(first_limit(), other_limit()), OnFull::Deny);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let newcomer = model.spawn(|model| model.check(B, FIRST, PAID).is_ok());
        model.0.assign(A, OTHER).unwrap();
        let evicted = newcomer.join().unwrap();
        assert_eq!(model.0.peek(Request::new(A, FIRST).at(PAID)).unwrap().capacity(), OTHER_CAPACITY);
        assert_eq!(model.0.peek(Request::new(B, FIRST).at(PAID)).unwrap().capacity(), 2);
        assert_eq!(model.remaining(B, FIRST, PAID), if evicted { 1 } else { 2 });
    }
}

model! {
    /// A is assigned during its first check: afterwards it has its plan.
    assign_against_claim, Some(3), breaks with [StaleAssignment, NoChangeLock], || {
        let model = model(false);
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.assign(A, OTHER).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (OTHER_CAPACITY, charged));
    }
}

model! {
    /// A new policy comes into force during an agent's first check.
    replace_policy_against_claim, Some(3), breaks with [], || {
        let model = model(false);
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.replace_policy(policy(third_limit(), other_limit())).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (30, charged));
    }
}

model! {
    /// An exemption, once the call has returned, holds for a check that starts
    /// after it, whatever a check did meanwhile.
    exempt_against_check, Some(4), breaks with [], || {
        let model = model(true);
        let check = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap());
        model.0.exempt(A).unwrap();
        assert_eq!(model.check(A, FIRST, Tick::ZERO).unwrap().decision(), Decision::Exempt);
        assert!(check.join().unwrap().is_allowed());
    }
}

model! {
    /// A becomes exempt during its first check: it is charged and has a record,
    /// or neither. Either way the next check is exempt.
    exempt_against_claim, UNBOUNDED, breaks with [StaleAssignment, NoChangeLock, ExemptClaims], || {
        let model = model(false);
        let check = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap().decision());
        model.0.exempt(A).unwrap();
        assert_eq!(model.check(A, FIRST, Tick::ZERO).unwrap().decision(), Decision::Exempt);
        let is_charged = check.join().unwrap() == Decision::Allow;
        assert_eq!(model.agents(), u64::from(is_charged));
        assert_eq!(model.check(A, FIRST, Tick::ZERO).unwrap().decision(), Decision::Exempt);
        model.0.unexempt(A).unwrap();
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2 - u64::from(is_charged));
    }
}

model! {
    /// The exemption of A, which has no record, ends while A is checked: each
    /// check is exempt or charged, in this order, and the next is charged.
    unexempt_against_checks, Some(3), breaks with [ExemptionStays], || {
        let model = model(false);
        model.0.assign(B, OTHER).unwrap(); // Otherwise no lookup would search the assignments.
        model.0.exempt(A).unwrap();
        let checks = model.spawn(|model| [(); 2].map(|()| model.check(A, FIRST, Tick::ZERO).unwrap().decision()));
        model.0.unexempt(A).unwrap();
        let mine = model.check(A, FIRST, Tick::ZERO).unwrap().decision();
        let theirs = checks.join().unwrap();
        assert_ne!(mine, Decision::Exempt, "it is over");
        assert!(theirs[0] == Decision::Exempt || theirs[1] != Decision::Exempt, "it came back");
        // The last token comes with a warning.
        let is_charged = |seen: &Decision| matches!(seen, Decision::Allow | Decision::Warn);
        let limited = theirs.into_iter().chain([mine]).filter(|seen| *seen != Decision::Exempt).count();
        let charged = theirs.into_iter().chain([mine]).filter(is_charged).count();
        assert_eq!(charged, limited.min(2));
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2 - charged as u64);
    }
}

model! {
    /// A's row of overrides is freed and written for B while A, which has no
    /// record, is checked: it does not mix the rows.
    row_reuse_against_a_stranger, Some(3), breaks with [], || {
        let model = model(false);
        model.0.set_override(A, "lane-0", other_limit()).unwrap();
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.remove_overrides(A).unwrap();
        model.0.set_override(B, "lane-0", third_limit()).unwrap();
        let (capacity, charged) = check.join().unwrap();
        assert_ne!(capacity, 30, "A was checked by B's limit");
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (2, charged));
    }
}

model! {
    /// A denial exchanges nothing. The row that it was read from is freed and
    /// written for B meanwhile: it does not mix the rows either.
    row_reuse_against_a_stalled_denial, Some(3), breaks with [RowWithoutBump, RelaxedRow, NoLastLook], || {
        let model = model(true);
        model.0.set_override(A, "lane-0", first_limit()).unwrap();
        let _ = model.0.check_request(Request::new(A, FIRST).cost(2).at(Tick::ZERO)).unwrap();
        let check = model.spawn(|model| model.0.check_request(Request::new(A, FIRST).cost(2).at(Tick::ZERO)).unwrap());
        model.0.remove_overrides(A).unwrap();
        model.0.set_override(B, "lane-0", third_limit()).unwrap();
        let verdict = check.join().unwrap();
        let answer = (verdict.is_allowed(), verdict.capacity(), verdict.retry_after());
        assert_eq!(answer, (false, 2, Some(Duration::from_nanos(2 * TOKEN))));
    }
}

model! {
    /// A is checked under a plan that a new policy adds: either there is no
    /// such plan yet, or it has the limits of the new policy.
    new_plan_against_check_as, Some(3), breaks with [], || {
        let old = Policy::builder().lane("lane-0", first_limit()).on_change(OnChange::KeepDebt).build().unwrap();
        let model = Model::with_policy(1, old, OnFull::Deny);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let check = model.spawn(|model| match model.0.check_request(Request::new(A, FIRST).plan(OTHER).at(Tick::ZERO)) {
            Ok(verdict) => assert_eq!(verdict.capacity(), OTHER_CAPACITY),
            Err(error) => assert!(matches!(error, Error::UnknownPlan { .. }), "{error}"),
        });
        model.0.replace_policy(policy(first_limit(), other_limit())).unwrap();
        check.join().unwrap();
    }
}

model! {
    /// A's override is replaced by another while A is checked: one of the two applies, whole.
    override_against_override, Some(3), breaks with [], || {
        let model = model(true);
        model.0.set_override(A, "lane-0", other_limit()).unwrap();
        let check = model.spawn(|model| whole(model.check(A, FIRST, Tick::ZERO).unwrap()));
        model.0.set_override(A, "lane-0", third_limit()).unwrap();
        let (_, charged) = check.join().unwrap();
        let status = model.0.peek(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert_eq!((status.capacity(), status.full_in().as_nanos() as u64), (30, charged));
    }
}
