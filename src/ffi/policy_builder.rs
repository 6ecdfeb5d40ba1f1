//! A policy in the making.

use super::error::guard_told;
use super::guard::guard;
use super::pointers::{Tagged, borrow, borrow_mut, hand_over, out, tagged_in, take_back, text};
use super::{Error, Policy, Status};
use crate as tollgate;
use std::ffi::c_char;
use std::time::Duration;
use tollgate::{ConductRules as Rules, Limit, LimitError};

/// The most bytes of a text handed in, such as a limit.
pub const TOLLGATE_TEXT_BYTES_MAX: usize = 1_048_576;
/// The most waits of a curve.
pub const TOLLGATE_CURVE_STEPS_MAX: usize = 15;

const _: () = assert!(TOLLGATE_CURVE_STEPS_MAX == tollgate::bounds::CURVE_STEPS_MAX);

/// Collects lanes, plans, actions and rules; tollgate_policy_builder_build
/// checks them all.
///
/// One thread at a time may use it.
pub struct PolicyBuilder {
    builder: tollgate::PolicyBuilder,
    /// Rust names a plan and its limits at once, C one after the other.
    plans: Vec<PlanDraft>,
}

#[derive(Clone)]
struct PlanDraft {
    name: String,
    limits: Vec<(String, GivenLimit)>,
}

impl PolicyBuilder {
    fn change(&mut self, change: impl FnOnce(tollgate::PolicyBuilder) -> tollgate::PolicyBuilder) {
        self.builder = change(std::mem::replace(&mut self.builder, tollgate::Policy::builder()));
    }

    fn build(&self) -> Result<tollgate::Policy, tollgate::PolicyError> {
        let plans = self.plans.iter().cloned();
        plans.fold(self.builder.clone(), |builder, plan| builder.plan(plan.name, plan.limits)).build()
    }
}

/// A limit as text or in numbers, one type for both.
#[derive(Clone)]
pub(super) struct GivenLimit(Result<Limit, LimitError>);

impl GivenLimit {
    pub(super) fn text(text: &str) -> Self {
        Self(text.parse())
    }

    pub(super) fn bucket(tokens: u64, per_ns: u64, capacity: u64) -> Self {
        Self(Ok(Limit::new(tokens, Duration::from_nanos(per_ns)).burst(capacity)))
    }
}

impl TryFrom<GivenLimit> for Limit {
    type Error = LimitError;

    fn try_from(given: GivenLimit) -> Result<Self, LimitError> {
        given.0
    }
}

/// What becomes of an agent's debt when its limits change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OnChange {
    /// The time until a lane is full again stays as it is, but no longer than
    /// the new limit takes to refill a whole bucket.
    KeepDebt = 0,
    /// Every lane of the agent is filled.
    Reset = 1,
}

/// What a violation is, and what follows from it. All zero, but for
/// struct_size, is the default, and so is each member that is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConductRules {
    /// Set it to sizeof(tollgate_conduct_rules).
    pub struct_size: u32,
    /// How many waits the curve has, up to TOLLGATE_CURVE_STEPS_MAX. By default
    /// none: waits are those of the lanes.
    pub curve_steps: u32,
    /// The wait after the first, second, ... violation in a row; the last one
    /// stands for all that follow. No wait that is told is shorter than the first.
    pub curve_ns: [u64; TOLLGATE_CURVE_STEPS_MAX],
    /// After this long without a violation the next one is the first again. By
    /// default 60 seconds.
    pub quiet_ns: u64,
    /// Within how long of the first the violations of abuse_violations are
    /// sustained abuse. By default 5 minutes.
    pub abuse_window_ns: u64,
    /// So many violations are sustained abuse. By default 10.
    pub abuse_violations: u32,
    /// 1 if every denial is a violation. By default it is one to come back
    /// before a wait is over, and be denied again; parallel requests of one
    /// moment count once, and up to 15 that may have been under way not at all.
    pub every_denial: u32,
    /// 1 if the wait of a violation is a block: until it is over,
    /// tollgate_limiter_admit denies on every lane.
    pub enforce_wait: u32,
    /// Must be 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ConductRules>() == 160);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for ConductRules {
    const SIZE_MIN: u32 = 160;
}

impl ConductRules {
    fn rules(&self) -> Result<Rules, Status> {
        let flag = |flag: u32| if flag <= 1 { Ok(flag == 1) } else { Err(Status::InvalidOption) };
        if self.reserved != 0 {
            return Err(Status::InvalidOption);
        }
        let mut rules = Rules::default();
        if self.curve_steps != 0 {
            let curve = self.curve_ns.get(..self.curve_steps as usize).ok_or(Status::InvalidOption)?;
            rules = rules.with_curve(curve.iter().copied().map(Duration::from_nanos));
        }
        if self.quiet_ns != 0 {
            rules = rules.with_quiet_period(Duration::from_nanos(self.quiet_ns));
        }
        let (violations, window) = rules.abuse_threshold();
        let violations = if self.abuse_violations == 0 { violations } else { self.abuse_violations };
        let window = if self.abuse_window_ns == 0 { window } else { Duration::from_nanos(self.abuse_window_ns) };
        rules = rules.with_abuse_threshold(violations, window);
        Ok(rules.with_every_denial(flag(self.every_denial)?).with_enforced_wait(flag(self.enforce_wait)?))
    }

    pub(super) fn new(struct_size: u32, rules: &Rules) -> Self {
        let nanos = crate::clock::nanos_saturating;
        let (abuse_violations, abuse_window) = rules.abuse_threshold();
        let mut curve_ns = [0; TOLLGATE_CURVE_STEPS_MAX];
        for (place, step) in curve_ns.iter_mut().zip(rules.curve()) {
            *place = nanos(step);
        }
        Self {
            struct_size,
            curve_steps: rules.curve().len() as u32, // A built policy has at most 15.
            curve_ns,
            quiet_ns: nanos(rules.quiet_period()),
            abuse_window_ns: nanos(abuse_window),
            abuse_violations,
            every_denial: rules.counts_every_denial().into(),
            enforce_wait: rules.enforces_wait().into(),
            reserved: 0,
        }
    }
}

/// A whole call that changes a builder.
///
/// # Safety
///
/// `builder` is NULL, or alive and used by no other thread.
unsafe fn change(builder: *mut PolicyBuilder, change: impl FnOnce(&mut PolicyBuilder) -> Result<(), Status>) -> Status {
    // SAFETY: NULL, or alive and used by us alone, as the caller guarantees.
    guard(|| change(unsafe { borrow_mut(builder) }?))
}

/// Starts a policy without lanes.
///
/// The caller owns the builder and gives it back with tollgate_policy_builder_free.
///
/// # Safety
///
/// `builder_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_new(builder_out: *mut *mut PolicyBuilder) -> Status {
    guard(|| {
        let builder_out = out(builder_out)?;
        let builder = PolicyBuilder { builder: tollgate::Policy::builder(), plans: Vec::new() };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(builder_out, builder) };
        Ok(())
    })
}

/// Gives a builder back. NULL is fine.
///
/// # Safety
///
/// `builder` is NULL, or came from tollgate_policy_builder_new, was not freed
/// yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_free(builder: *mut PolicyBuilder) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(builder) }
}

/// Adds a lane whose limit is given as text: "10/second burst 20", "60/min",
/// "5 per 5 minutes" or "deny".
///
/// Lanes are numbered from 0 in the order in which they are added. What makes
/// no sense is told when the policy is built. Neither text is kept.
///
/// The lane "total" is a limit over all others: a check charges its lane and the
/// total, both or neither. It has the last number wherever it is added, and is
/// "unlimited" in plans that go without it. It is a bucket, a window or a
/// budget, and never charged alone: such calls answer WRONG_KIND.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `name` and
/// `limit` are NULL or readable for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_lane(
    builder: *mut PolicyBuilder,
    name: *const c_char,
    name_len: usize,
    limit: *const c_char,
    limit_len: usize,
) -> Status {
    let add = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let name = unsafe { text(name, name_len) }?;
        // SAFETY: NULL, or readable for `limit_len` bytes, by this function's contract.
        let limit = GivenLimit::text(unsafe { text(limit, limit_len) }?);
        builder.change(|builder| builder.lane(name, limit));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, add) }
}

/// Adds a lane whose limit is given in numbers: a bucket that holds `capacity`
/// tokens and gets `tokens` of them back every `per_ns` nanoseconds.
///
/// Otherwise as tollgate_policy_builder_lane.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `name` is
/// NULL or readable for `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_lane_bucket(
    builder: *mut PolicyBuilder,
    name: *const c_char,
    name_len: usize,
    tokens: u64,
    per_ns: u64,
    capacity: u64,
) -> Status {
    let add = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let name = unsafe { text(name, name_len) }?;
        builder.change(|builder| builder.lane(name, GivenLimit::bucket(tokens, per_ns, capacity)));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, add) }
}

/// Adds a plan in which every lane has its own limit, until
/// tollgate_policy_builder_plan_lane says otherwise.
///
/// Plans are numbered from 1 in the order in which they are added; 0 is
/// "default", which every policy has. What makes no sense is told when the
/// policy is built.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `name` is
/// NULL or readable for `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_plan(
    builder: *mut PolicyBuilder,
    name: *const c_char,
    name_len: usize,
) -> Status {
    let add = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let name = unsafe { text(name, name_len) }?.to_owned();
        builder.plans.push(PlanDraft { name, limits: Vec::new() });
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, add) }
}

/// A whole call that gives a lane another limit in a plan.
///
/// # Safety
///
/// As [`tollgate_policy_builder_plan_lane`].
unsafe fn plan_lane(
    builder: *mut PolicyBuilder,
    plan: (*const c_char, usize),
    lane: (*const c_char, usize),
    limit: impl FnOnce() -> Result<GivenLimit, Status>,
) -> Status {
    let add = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for as many bytes as stated, as the caller guarantees.
        let plan = unsafe { text(plan.0, plan.1) }?;
        // SAFETY: as above.
        let lane = unsafe { text(lane.0, lane.1) }?;
        let limit = limit()?;
        // The last one of a name: it is the one that was just added, should there be two.
        let known = builder.plans.iter_mut().rev().find(|known| known.name == plan);
        known.ok_or(Status::UnknownPlan)?.limits.push((lane.to_owned(), limit));
        Ok(())
    };
    // SAFETY: as the caller guarantees.
    unsafe { change(builder, add) }
}

/// Gives a lane another limit in a plan that was added before.
///
/// Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `plan`,
/// `lane` and `limit` are NULL or readable for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_plan_lane(
    builder: *mut PolicyBuilder,
    plan: *const c_char,
    plan_len: usize,
    lane: *const c_char,
    lane_len: usize,
    limit: *const c_char,
    limit_len: usize,
) -> Status {
    // SAFETY: NULL, or readable for `limit_len` bytes, by this function's contract.
    let limit = || Ok(GivenLimit::text(unsafe { text(limit, limit_len) }?));
    // SAFETY: as this function's contract has it.
    unsafe { plan_lane(builder, (plan, plan_len), (lane, lane_len), limit) }
}

/// As tollgate_policy_builder_plan_lane, with the limit in numbers; see
/// tollgate_policy_builder_lane_bucket.
///
/// Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `plan` and
/// `lane` are NULL or readable for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_plan_lane_bucket(
    builder: *mut PolicyBuilder,
    plan: *const c_char,
    plan_len: usize,
    lane: *const c_char,
    lane_len: usize,
    tokens: u64,
    per_ns: u64,
    capacity: u64,
) -> Status {
    let limit = || Ok(GivenLimit::bucket(tokens, per_ns, capacity));
    // SAFETY: as this function's contract has it.
    unsafe { plan_lane(builder, (plan, plan_len), (lane, lane_len), limit) }
}

/// Says that an action of a channel is charged to its lane of this tier: "ping"
/// of the channel "ws" and the tier "light" to the lane "ws/light".
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `channel`,
/// `tier` and `action` are NULL or readable for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_action(
    builder: *mut PolicyBuilder,
    channel: *const c_char,
    channel_len: usize,
    tier: *const c_char,
    tier_len: usize,
    action: *const c_char,
    action_len: usize,
) -> Status {
    let add = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let channel = unsafe { text(channel, channel_len) }?;
        // SAFETY: as above.
        let tier = unsafe { text(tier, tier_len) }?;
        // SAFETY: as above.
        let action = unsafe { text(action, action_len) }?;
        builder.change(|builder| builder.actions(channel, tier, [action]));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, add) }
}

/// Sends actions that are not named to this tier of their channel; "normal" if
/// nothing is said.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `tier` is
/// NULL or readable for `tier_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_unknown_actions_to(
    builder: *mut PolicyBuilder,
    tier: *const c_char,
    tier_len: usize,
) -> Status {
    let set = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for `tier_len` bytes, by this function's contract.
        let tier = unsafe { text(tier, tier_len) }?;
        builder.change(|builder| builder.unknown_actions_to(tier));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, set) }
}

/// Leaves a lane out of the total, which counts all but those that are held
/// otherwise: one whose costs are not requests, such as LLM tokens. A lane that
/// is not there is reported when the policy is built.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `lane` is
/// NULL or readable for `lane_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_outside_total(
    builder: *mut PolicyBuilder,
    lane: *const c_char,
    lane_len: usize,
) -> Status {
    let set = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for `lane_len` bytes, by this function's contract.
        let lane = unsafe { text(lane, lane_len) }?;
        builder.change(|builder| builder.outside_total([lane]));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, set) }
}

/// Sets the rules of conduct. What is out of range is told when the policy is
/// built.
///
/// Status: INVALID_OPTION for a curve of too many steps, or a flag that is
/// neither 0 nor 1; STRUCT_SIZE.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `rules` is
/// NULL or readable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_conduct(
    builder: *mut PolicyBuilder,
    rules: *const ConductRules,
) -> Status {
    let set = |builder: &mut PolicyBuilder| {
        // SAFETY: NULL, or readable for as many bytes as its tag says, by this function's contract.
        let rules = unsafe { tagged_in(rules) }?.rules()?;
        builder.change(|builder| builder.conduct(rules));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, set) }
}

/// Sets what becomes of an agent's debt when its limits change: one of
/// TOLLGATE_ON_CHANGE_KEEP_DEBT, the default, and TOLLGATE_ON_CHANGE_RESET.
///
/// Status: INVALID_OPTION.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_on_change(builder: *mut PolicyBuilder, on_change: i32) -> Status {
    let set = |builder: &mut PolicyBuilder| {
        let on_change = match on_change {
            on_change if on_change == OnChange::KeepDebt as i32 => tollgate::OnChange::KeepDebt,
            on_change if on_change == OnChange::Reset as i32 => tollgate::OnChange::Reset,
            _ => return Err(Status::InvalidOption),
        };
        builder.change(|builder| builder.on_change(on_change));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, set) }
}

/// Warns when less than this share of a lane's capacity is left, in percent:
/// 20 if nothing is said, 0 for never.
///
/// Status: INVALID_OPTION above 100.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_warn_below_percent(
    builder: *mut PolicyBuilder,
    percent: u32,
) -> Status {
    let set = |builder: &mut PolicyBuilder| {
        let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100).ok_or(Status::InvalidOption)?;
        builder.change(|builder| builder.warn_below_percent(percent));
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { change(builder, set) }
}

/// Checks everything and makes the policy.
///
/// The caller owns the policy and gives it back with tollgate_policy_free. The
/// builder stays as it is and may be used again. `error_out` may be NULL.
///
/// Status: INVALID_POLICY, with the first thing that makes no sense in the
/// error's message; STRUCT_SIZE of the error.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `policy_out`
/// is NULL or writable; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_build(
    builder: *const PolicyBuilder,
    policy_out: *mut *mut Policy,
    error_out: *mut Error,
) -> Status {
    let build = || {
        let policy_out = out(policy_out)?;
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let builder = unsafe { borrow(builder) }?;
        let policy = Policy(builder.build()?);
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(policy_out, policy) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, build) }
}
