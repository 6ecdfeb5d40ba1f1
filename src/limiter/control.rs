//! What an operator decides at run time: plans, overrides, exemptions, a new
//! policy.
//!
//! Control calls take turns under one lock, which no check takes. When one
//! returns, its change is in force for every check in every thread; a check
//! that runs meanwhile uses the old limits or the new ones, never a mixture.
//! Why that holds is in [`record`](crate::record), under "Rows".

use super::Limiter;
use super::registry::Entry;
use crate::assignments::{Assignment, Assignments};
use crate::bounds::OVERRIDES_MAX;
use crate::error::Error;
use crate::policy::{LaneId, Limit, LimitError, OnChange, PlanId, Policy};
use crate::record::tag::Row;
use crate::slab::RowChange;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, broken, lock};
use std::fmt;
use std::sync::Arc;

/// What control calls share.
pub(super) struct Control {
    policy: Arc<Policy>,
    /// Rows that no agent's overrides take. There is always one more than
    /// agents may have overrides: a change writes the new row before it frees the old.
    free: Vec<Row>,
    /// Agents with overrides.
    overridden: usize,
}

impl Control {
    pub(super) fn new(policy: Policy) -> Self {
        let mut free: Vec<_> = Row::of_overrides().collect();
        free.reverse(); // The first is taken first: few overrides touch few pages.
        Self { policy: Arc::new(policy), free, overridden: 0 }
    }

    pub(super) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }
}

impl Limiter {
    /// Assigns the agent to a plan of the policy. It stays so when its record
    /// is evicted or forgotten.
    ///
    /// An agent that is assigned to `default` has the lanes' own limits in
    /// [`check_as`](Limiter::check_as) too.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id or the plan is not one.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("api", "20/min").plan("pro", [("api", "500/min")]).build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let (api, pro) = (limiter.lane("api").expect("named above"), limiter.plan("pro").expect("named above"));
    ///
    /// limiter.assign("agent-7", pro)?;
    /// assert_eq!(limiter.check("agent-7", api)?.capacity(), 500);
    /// limiter.set_override("agent-7", "api", "1000/min")?;
    /// assert_eq!(limiter.check("agent-7", api)?.capacity(), 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assign(&self, agent: impl AsRef<[u8]>, plan: PlanId) -> Result<(), ControlError> {
        self.limits.check_plan(plan)?;
        self.edit(agent.as_ref(), |_, entry| {
            entry.plan = Some(plan);
            Ok(())
        })
    }

    /// Takes the agent's plan away; its overrides and its exemption stay.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is not one.
    pub fn unassign(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.edit(agent.as_ref(), |_, entry| {
            entry.plan = None;
            Ok(())
        })
    }

    /// Gives the agent a limit of its own for a lane, or for a tier in every
    /// channel: `heavy` stands for `ws/heavy` and `http/heavy`.
    ///
    /// # Errors
    ///
    /// If there is no such lane or tier, the limit makes no sense, or
    /// [`OVERRIDES_MAX`] agents have overrides already.
    pub fn set_override<L>(&self, agent: impl AsRef<[u8]>, lane_or_tier: &str, limit: L) -> Result<(), ControlError>
    where
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        let limit: Limit = limit.try_into().map_err(|problem| ControlError::Limit(problem.into()))?;
        limit.validate().map_err(ControlError::Limit)?;
        self.edit(agent.as_ref(), |policy, entry| {
            entry.overrides.extend(lanes_of(policy, lane_or_tier)?.into_iter().map(|lane| (lane, limit)));
            Ok(())
        })
    }

    /// Takes the agent's own limit for a lane or tier away.
    ///
    /// # Errors
    ///
    /// If the id is not one, or there is no such lane or tier.
    pub fn remove_override(&self, agent: impl AsRef<[u8]>, lane_or_tier: &str) -> Result<(), ControlError> {
        self.edit(agent.as_ref(), |policy, entry| {
            for lane in lanes_of(policy, lane_or_tier)? {
                entry.overrides.remove(&lane);
            }
            Ok(())
        })
    }

    /// Takes all of the agent's own limits away.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is not one.
    pub fn remove_overrides(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.edit(agent.as_ref(), |_, entry| {
            entry.overrides.clear();
            Ok(())
        })
    }

    /// Never limits the agent from now on: every check of it is answered with
    /// [`Decision::Exempt`](crate::Decision::Exempt) and charges nothing.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is not one.
    pub fn exempt(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.edit(agent.as_ref(), |_, entry| {
            entry.exempt = true;
            Ok(())
        })
    }

    /// Limits the agent again, by its overrides and its plan.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is not one.
    pub fn unexempt(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.edit(agent.as_ref(), |_, entry| {
            entry.exempt = false;
            Ok(())
        })
    }

    /// What was decided about the agent.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn assignment(&self, agent: impl AsRef<[u8]>) -> Result<Assignment, Error> {
        let agent = agent.as_ref();
        let hash = self.hash(agent, LaneId::new(0))?;
        let entry = self.registry.get(hash, agent).unwrap_or_default();
        Ok(named(&entry, &self.policy()))
    }

    /// Whether the agent is never limited.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn is_exempt(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.assignment(agent)?.is_exempt())
    }

    /// Every agent about which something was decided, in the order of the
    /// ids. Copies them all.
    #[must_use]
    pub fn assignments(&self) -> Assignments {
        let policy = self.policy();
        let named = |(id, entry): (Box<[u8]>, Entry)| (id.into_vec(), named(&entry, &policy));
        self.registry.list().into_iter().map(|(_, registered)| named((registered.id, registered.entry))).collect()
    }

    /// The agent's limit for a lane: its override, or else its plan's.
    /// `None` if it is exempt.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn limit_of(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Option<Limit>, Error> {
        let agent = agent.as_ref();
        let hash = self.hash(agent, lane)?;
        let entry = self.registry.get(hash, agent).unwrap_or_default();
        Ok(if entry.exempt { None } else { effective_limit(&entry, &self.policy(), lane) })
    }

    /// Puts another policy in force: other numbers for the same lanes, and
    /// perhaps more plans. Assignments stay.
    ///
    /// Walks all records, so that when it returns every check uses the new
    /// numbers; checks go on meanwhile. What becomes of debt, the new policy
    /// says ([`OnChange`]).
    ///
    /// # Errors
    ///
    /// If the lanes are not the same in the same order, or a plan is missing:
    /// plans keep their numbers, so they can be added but not taken away.
    /// Then nothing has changed.
    pub fn replace_policy(&self, policy: Policy) -> Result<(), ControlError> {
        let mut control = lock(&self.control);
        let policy = Arc::new(numbered_like(policy, &control.policy)?);
        let before = self.limits.epoch();
        let epoch = before + u64::from(!broken(Fault::RowsInPlace));
        self.limits.write_policy(&policy, epoch);
        self.limits.enter(epoch);
        control.policy = Arc::clone(&policy);
        // Every record moves on to the new rows of its plan, and its overrides
        // to a row that is made of the new numbers.
        let change = |next: &dyn Fn(&RowChange<'_>)| self.with_change(policy.on_change(), next);
        change(&|change| {
            self.slab.change_rows(change, |row| if row.is_of_plan() { row.in_epoch(epoch) } else { row });
        });
        for (hash, registered) in self.registry.list() {
            if registered.entry.override_row.is_some() {
                let entry = Entry { override_row: None, ..registered.entry.clone() };
                self.put(&mut control, hash, &registered.id, &registered.entry, entry)?;
            }
        }
        self.limits.admit_plans(policy.plans().len());
        Ok(())
    }

    /// Edits what was decided about an agent. An error leaves it as it was.
    fn edit(
        &self,
        agent: &[u8],
        edit: impl FnOnce(&Policy, &mut Entry) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let hash = self.hash(agent, LaneId::new(0))?;
        let mut control = lock(&self.control);
        let before = self.registry.get(hash, agent).ok_or(ControlError::SameHash)?;
        let mut after = before.clone();
        edit(&control.policy, &mut after)?;
        if after == before {
            return Ok(());
        }
        after.override_row = None;
        self.put(&mut control, hash, agent, &before, after)
    }

    /// Puts `after`, which has no row for its overrides yet, in the place of
    /// `before`.
    fn put(
        &self,
        control: &mut Control,
        hash: AgentHash,
        agent: &[u8],
        before: &Entry,
        mut after: Entry,
    ) -> Result<(), ControlError> {
        let overridden =
            control.overridden + usize::from(!after.overrides.is_empty()) - usize::from(before.override_row.is_some());
        if !after.overrides.is_empty() {
            let row = control.free.last().filter(|_| overridden <= OVERRIDES_MAX);
            let row = *row.ok_or(ControlError::TooManyOverrides)?;
            let policy = &control.policy;
            let numbers = policy.lanes().filter_map(|(lane, _)| effective_limit(&after, policy, lane)?.compile().ok());
            self.limits.write_numbers(row, policy.warn_below_percent(), numbers);
            after.override_row = Some(row);
            control.free.pop();
        }
        control.overridden = overridden;
        let epoch = self.limits.epoch();
        self.with_change(control.policy.on_change(), |change| {
            self.slab.change_row(hash, change, || self.registry.set(hash, agent, after, epoch));
        });
        control.free.extend(before.override_row);
        Ok(())
    }

    fn with_change(&self, on_change: OnChange, apply: impl FnOnce(&RowChange<'_>)) {
        let depth_of = |row, lane| self.limits.limit(row, lane).depth();
        apply(&RowChange { on_change, clock: self.clock.now(), depth_of: &depth_of });
    }
}

/// The same policy with the numbers that plans have in `known`, its new plans
/// after those.
fn numbered_like(policy: Policy, known: &Policy) -> Result<Policy, ControlError> {
    if !policy.lanes().eq(known.lanes()) {
        return Err(ControlError::OtherLanes { known: lane_names(known) });
    }
    let number = |(_, name): (PlanId, &str)| {
        policy.plan(name).ok_or_else(|| ControlError::PlanMissing { plan: name.to_owned() })
    };
    let first = known.plans().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(policy.with_plans_first(&first))
}

fn lane_names(policy: &Policy) -> String {
    policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// The lanes that a name stands for.
fn lanes_of(policy: &Policy, lane_or_tier: &str) -> Result<Vec<LaneId>, ControlError> {
    let lanes = policy.lanes_of(lane_or_tier);
    if lanes.is_empty() {
        let lane = lane_or_tier.chars().take(80).collect();
        return Err(ControlError::UnknownLane { lane, known: lane_names(policy) });
    }
    Ok(lanes)
}

/// A lane's limit: the agent's own, or else its plan's.
fn effective_limit(entry: &Entry, policy: &Policy, lane: LaneId) -> Option<Limit> {
    let of_plan = || policy.plan_limit(entry.plan.unwrap_or(PlanId::DEFAULT), lane);
    entry.overrides.get(&lane).copied().or_else(of_plan)
}

/// An entry in the names of the policy.
fn named(entry: &Entry, policy: &Policy) -> Assignment {
    let mut assignment = Assignment::default();
    let plan_name = |id| policy.plans().find(|(plan, _)| *plan == id).map(|(_, name)| name.to_owned());
    assignment.set_plan(entry.plan.and_then(plan_name));
    assignment.set_exempt(entry.exempt);
    for (lane, name) in policy.lanes() {
        if let Some(limit) = entry.overrides.get(&lane) {
            assignment.set_override(name, *limit);
        }
    }
    assignment
}

/// Why a control call changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// The agent's id or the plan's number is out of range.
    Agent(Error),
    /// The policy has neither a lane nor a tier of this name.
    UnknownLane {
        /// The name as given, its first 80 characters.
        lane: String,
        /// The lanes that there are.
        known: String,
    },
    /// The limit makes no sense.
    Limit(LimitError),
    /// [`OVERRIDES_MAX`] agents have overrides already.
    TooManyOverrides,
    /// Another agent with an assignment has the same hash: a chance of 1 in 2^64.
    SameHash,
    /// The new policy has other lanes than the one in force.
    OtherLanes {
        /// The lanes of the policy in force.
        known: String,
    },
    /// The new policy lacks a plan of the one in force.
    PlanMissing {
        /// The plan.
        plan: String,
    },
}

impl From<Error> for ControlError {
    fn from(error: Error) -> Self {
        ControlError::Agent(error)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Agent(error) => error.fmt(f),
            ControlError::UnknownLane { lane, known } => {
                write!(f, "there is no lane or tier {lane:?}; the lanes are {known}")
            }
            ControlError::Limit(problem) => problem.fmt(f),
            ControlError::TooManyOverrides => write!(
                f,
                "{OVERRIDES_MAX} agents have overrides already; put agents with the same limits into a plan, or remove some"
            ),
            ControlError::SameHash => {
                write!(f, "another assigned agent has the same hash; build the limiter anew, with another key")
            }
            ControlError::OtherLanes { known } => {
                write!(f, "the new policy has other lanes; give it these, in this order: {known}")
            }
            ControlError::PlanMissing { plan } => {
                write!(f, "the new policy lacks the plan {plan:?}; keep it, since callers may use its number")
            }
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Agent(error) => Some(error),
            ControlError::Limit(problem) => Some(problem),
            _ => None,
        }
    }
}
