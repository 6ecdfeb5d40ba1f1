//! What an operator decides at run time: plans, overrides, exemptions, a new
//! policy.
//!
//! Control calls take turns under one lock, which no check takes. When one
//! returns, its change is in force for every check in every thread; a check
//! that runs meanwhile uses the old limits or the new ones, never a mixture.
//! Why that holds is in [`record`](crate::record), under "Rows".

use super::Limiter;
use super::registry::{Entry, Registered};
use crate::assignments::{Assignment, Assignments};
use crate::bounds::OVERRIDES_MAX;
use crate::error::Error;
use crate::machine::process::{self, unforked};
use crate::observe::Note;
use crate::policy::{LaneId, Limit, LimitError, OnChange, PlanId, Policy};
use crate::record::Move;
use crate::record::tag::Row;
use crate::reservations::Moved;
use crate::slab::hash::AgentHash;
use crate::slab::{Found, REGION_RECORDS, RowChange};
use crate::sync::{Counter, Fault, Mutex, MutexGuard, Ordering, broken, try_lock, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

/// What control calls share.
struct Control {
    policy: Arc<Policy>,
    /// Rows that no agent's overrides take. There is always one more than
    /// agents may have overrides: a change writes the new row before it frees the old.
    free: Vec<Row>,
    /// Agents with overrides.
    overridden: usize,
    #[cfg(feature = "persist")]
    file: Option<crate::keep::AssignmentFile>,
}

/// The lock under which control calls take turns.
///
/// A child that is forked while another thread of its parent holds it has
/// nobody to release it, and perhaps a change that is half made. The mark of
/// the holder shows that, and control calls in the child are refused; its
/// checks go on.
pub(super) struct ControlLock {
    control: Mutex<Control>,
    /// The mark of the process that holds the lock; 0 if none does.
    holder: Counter,
}

/// The right to change what was decided, until it is dropped.
struct ControlGuard<'a> {
    /// `None` only while it is being dropped.
    control: Option<MutexGuard<'a, Control>>,
    holder: &'a Counter,
}

impl ControlLock {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        Self { control: Mutex::new(Control::new(policy)), holder: Counter::new(0) }
    }

    /// The wait ends: each holder works through what it was given.
    fn lock(&self) -> Result<ControlGuard<'_>, ControlError> {
        let me = process::mark();
        for round in 0.. {
            let taken = unforked(|| {
                let control = try_lock(&self.control)?;
                self.holder.store(me, Ordering::Relaxed);
                Some(control)
            });
            if taken.is_some() {
                return Ok(ControlGuard { control: taken, holder: &self.holder });
            }
            if ![0, me].contains(&self.holder.load(Ordering::Relaxed)) {
                break;
            }
            wait(round);
        }
        Err(ControlError::Forked)
    }
}

impl Drop for ControlGuard<'_> {
    fn drop(&mut self) {
        unforked(|| {
            self.holder.store(0, Ordering::Relaxed);
            self.control.take();
        });
    }
}

impl Deref for ControlGuard<'_> {
    type Target = Control;

    fn deref(&self) -> &Control {
        self.control.as_ref().expect("present until it is dropped")
    }
}

impl DerefMut for ControlGuard<'_> {
    fn deref_mut(&mut self) -> &mut Control {
        self.control.as_mut().expect("present until it is dropped")
    }
}

/// A change of what was decided about one agent.
struct Edit {
    hash: AgentHash,
    id: Box<[u8]>,
    before: Entry,
    /// Without a row for its overrides yet.
    after: Entry,
}

impl Control {
    fn new(policy: Arc<Policy>) -> Self {
        let mut free: Vec<_> = Row::of_overrides().collect();
        free.reverse(); // The first is taken first: few overrides touch few pages.
        Self {
            policy,
            free,
            overridden: 0,
            #[cfg(feature = "persist")]
            file: None,
        }
    }
}

impl Limiter {
    /// Assigns the agent to a plan of the policy. It stays so when its record
    /// is evicted or forgotten.
    ///
    /// An agent that is assigned to `default` has the lanes' own limits, also
    /// if a request names [a plan](crate::Request::plan).
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
    /// A check that runs meanwhile is answered by the old limits or by the new
    /// ones. One that stalls in its midst while its agent's limits change
    /// sixteen times over may still charge a window, a budget or a held slot by
    /// those it began with, if the lane then holds exactly what it held before.
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
    /// The agent has no bucket and takes no record, and its checks take no
    /// lock. If it has a record when it becomes exempt, it keeps what it has
    /// used until that would have been refilled: an exemption is no reset.
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

    /// Limits the agent again, by its overrides and its plan, unless the
    /// policy [exempts](Policy::exempt) it.
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
        let hash = self.hash(agent)?;
        let entry = self.registry.get(hash, agent).unwrap_or_default();
        Ok(named(&entry, &self.policy()))
    }

    /// Whether the agent is never limited: it was exempted, or the policy
    /// [exempts](Policy::exempt) it.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn is_exempt(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        let agent = agent.as_ref();
        let hash = self.hash(agent)?;
        Ok(self.registry.get(hash, agent).unwrap_or_default().is_exempt())
    }

    /// Every agent about which something was decided, in the order of the
    /// ids. Copies them all.
    #[must_use]
    pub fn assignments(&self) -> Assignments {
        let policy = self.policy();
        let named = |(id, entry): (Box<[u8]>, Entry)| (id.into_vec(), named(&entry, &policy));
        let all = self.registry.list().into_iter().map(|(_, registered)| named((registered.id, registered.entry)));
        all.filter(|(_, assignment)| !assignment.is_empty()).collect() // Some are exempt by policy alone.
    }

    /// Decides about many agents at once: what was decided about each of them
    /// before is replaced, and all others stay as they are. An empty
    /// assignment makes an agent like any other.
    ///
    /// # Errors
    ///
    /// If an id, a plan, a lane or a limit is not one, or there are too many
    /// overrides. Then nothing has changed.
    ///
    /// ```
    /// use tollgate::{Assignment, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("api", "20/min").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let mut exempt = Assignment::default();
    /// exempt.set_exempt(true);
    /// limiter.set_assignments([("dashboard", exempt.clone()), ("probe", exempt)])?;
    /// assert!(limiter.is_exempt("probe")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_assignments<A: AsRef<[u8]>>(
        &self,
        assignments: impl IntoIterator<Item = (A, Assignment)>,
    ) -> Result<(), ControlError> {
        // First, since the iterator may call the limiter.
        let assignments: Vec<_> = assignments.into_iter().collect();
        let mut control = self.control.lock()?;
        let edits = self.edits(&control, assignments.iter().map(|(id, assignment)| (id.as_ref(), assignment)))?;
        #[cfg(feature = "persist")]
        self.save(&mut control, &edits)?;
        self.put_all_in_force(&mut control, edits);
        Ok(())
    }

    /// Keeps assignments in a file from now on, and puts those in force that
    /// it holds already; see [`AssignmentFile`](crate::keep::AssignmentFile). Call
    /// it before the first check, so that no agent is met without its limits.
    ///
    /// What was decided before about other agents is added to the file. A file
    /// in which assignments were kept before stays as it is.
    ///
    /// From then on a control call returns when its change is in the file and
    /// in force. If it cannot be written, the call fails and nothing changes;
    /// but after [`PersistError::NotSynced`](crate::keep::PersistError::NotSynced)
    /// the file has the change already: repeat the call.
    ///
    /// # Errors
    ///
    /// [`ControlError::File`] if the file cannot be read or is in use; the
    /// errors of [`set_assignments`](Limiter::set_assignments) if it holds
    /// what the policy does not know. Then nothing has changed.
    #[cfg(feature = "persist")]
    pub fn keep_assignments_in(&self, path: impl AsRef<std::path::Path>) -> Result<(), ControlError> {
        let (mut file, kept) = crate::keep::AssignmentFile::open(path)?;
        let mut control = self.control.lock()?;
        let edits = self.edits(&control, kept.iter().map(|(id, assignment)| (&**id, assignment)))?;
        let all = self.assignments_after(&edits, &control.policy);
        if all != kept {
            file.save(all.iter().map(|(id, assignment)| (&**id, assignment)))?;
        }
        self.put_all_in_force(&mut control, edits);
        control.file = Some(file);
        Ok(())
    }

    /// Reads the file of assignments again, after somebody has edited it, and
    /// puts what it says in force: about agents that it does not name, nothing is decided.
    ///
    /// # Errors
    ///
    /// As [`keep_assignments_in`](Limiter::keep_assignments_in), and
    /// [`ControlError::NoFile`] if assignments are not kept in a file. After
    /// an error control calls fail until the file is corrected and reloaded,
    /// so that none of them overwrites what was edited.
    #[cfg(feature = "persist")]
    pub fn reload_assignments(&self) -> Result<(), ControlError> {
        let mut control = self.control.lock()?;
        let (mut assignments, stamp) = control.file.as_ref().ok_or(ControlError::NoFile)?.read()?;
        // One by one, here and below: to collect takes a sort of its own, and that is a lot of code.
        let mut named = BTreeSet::new();
        named.extend(assignments.iter().map(|(id, _)| id.clone()));
        let gone = self.registry.list().into_iter().filter(|(_, registered)| !named.contains(&*registered.id));
        assignments.extend(gone.map(|(_, registered)| (registered.id.into_vec(), Assignment::default())));
        let edits = self.edits(&control, assignments.iter().map(|(id, assignment)| (&**id, assignment)))?;
        self.put_all_in_force(&mut control, edits);
        if let Some(file) = &mut control.file {
            file.accept(stamp);
        }
        Ok(())
    }

    /// The agent's limit for a lane: its override, or else its plan's.
    /// `None` if it is exempt.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn limit_of(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Option<Limit>, Error> {
        let agent = agent.as_ref();
        self.limits.lane(lane)?;
        let hash = self.hash(agent)?;
        let entry = self.registry.get(hash, agent).unwrap_or_default();
        Ok(if entry.is_exempt() { None } else { effective_limit(&entry, &self.policy(), lane) })
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
    /// plans keep their numbers, so they can be added but not taken away. The
    /// [total](crate::PolicyBuilder::total) is a lane too: a policy that may get
    /// one later starts with `"unlimited"`, and goes back to that.
    /// Then nothing has changed.
    pub fn replace_policy(&self, policy: Policy) -> Result<(), ControlError> {
        let mut control = self.control.lock()?;
        let known = Arc::clone(&control.policy);
        let policy = Arc::new(numbered_like(policy, &known)?);
        for ((lane, name), (plan, _)) in policy.lanes().flat_map(|lane| policy.plans().map(move |plan| (lane, plan))) {
            let limit = policy.plan_limit(plan, lane).unwrap_or(Limit::deny_all());
            self.is_for(lane, &limit).map_err(|problem| ControlError::OfLane {
                lane: name.to_owned(),
                problem: ControlError::Limit(problem).into(),
            })?;
        }
        let before = self.limits.epoch();
        let epoch = before + u64::from(!broken(Fault::RowsInPlace));
        self.limits.write_policy(&policy, epoch);
        self.limits.enter(epoch);
        control.policy = Arc::clone(&policy);
        self.set_warnings(&policy);
        unforked(|| *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&policy));
        // Every record moves on to the new rows of its plan, and its overrides
        // to a row that is made of the new numbers.
        self.move_all_records(policy.on_change(), epoch);
        for (hash, Registered { id, entry }) in self.registry.list() {
            if entry.override_row.is_some() {
                self.put_in_force(&mut control, Edit { hash, id, after: entry.clone(), before: entry });
            }
        }
        for agent in known.exempt().chain(policy.exempt()) {
            self.exempt_by_policy(&mut control, agent.as_bytes(), policy.exempt().any(|exempt| exempt == agent));
        }
        self.limits.admit_plans(policy.plans().len());
        self.note(|| Note::PolicyReplaced);
        Ok(())
    }

    /// Exempts an agent by policy, or no longer.
    fn exempt_by_policy(&self, control: &mut Control, agent: &[u8], by_policy: bool) {
        // By a chance of 1 in 2^64 another agent has the entry: then that one keeps it.
        let Ok(hash) = self.hash(agent) else { return };
        let Some(before) = self.registry.get(hash, agent).filter(|entry| entry.by_policy != by_policy) else { return };
        let after = Entry { by_policy, ..before.clone() };
        self.put_in_force(control, Edit { hash, id: agent.into(), before, after });
    }

    /// Edits what was decided about an agent. An error leaves it as it was.
    fn edit(
        &self,
        agent: &[u8],
        edit: impl FnOnce(&Policy, &mut Entry) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let mut control = self.control.lock()?;
        let edit = self.prepare(agent, |entry| edit(&control.policy, entry))?;
        let edits = countable(&control, vec![edit])?;
        #[cfg(feature = "persist")]
        self.save(&mut control, &edits)?;
        self.put_all_in_force(&mut control, edits);
        Ok(())
    }

    /// What has to change so that these assignments are in force.
    fn edits<'a>(
        &self,
        control: &Control,
        assignments: impl Iterator<Item = (&'a [u8], &'a Assignment)>,
    ) -> Result<Vec<Edit>, ControlError> {
        let edit = |(agent, assignment)| {
            let after = entry_of(&control.policy, assignment)?;
            self.prepare(agent, |entry| {
                *entry = Entry { by_policy: entry.by_policy, ..after };
                Ok(())
            })
        };
        let edits = assignments.map(|(agent, assignment)| {
            edit((agent, assignment))
                .map_err(|problem| ControlError::Of { agent: shown(agent), problem: problem.into() })
        });
        countable(control, edits.collect::<Result<_, _>>()?)
    }

    fn prepare(
        &self,
        agent: &[u8],
        edit: impl FnOnce(&mut Entry) -> Result<(), ControlError>,
    ) -> Result<Edit, ControlError> {
        let hash = self.hash(agent)?;
        let before = self.registry.get(hash, agent).ok_or(ControlError::SameHash)?;
        let mut after = before.clone();
        edit(&mut after)?;
        for (lane, limit) in &after.overrides {
            self.is_for(*lane, limit).map_err(ControlError::Limit)?;
        }
        Ok(Edit { hash, id: agent.into(), before, after })
    }

    /// Refuses a limit of another kind than the lane's, or one that needs more
    /// words than the lane has.
    fn is_for(&self, lane: LaneId, limit: &Limit) -> Result<(), LimitError> {
        limit.is_for_total(self.limits.is_total(lane))?;
        let room = self.limits.cells(lane).count;
        if self.limits.is_for(lane, limit) {
            let fits = limit.words() <= room;
            return if fits { Ok(()) } else { Err(LimitError::ExactRoom { count: limit.capacity(), room }) };
        }
        // The policy in force shows what kind it is.
        let policy = self.policy();
        let mut known = policy.plans().filter_map(|(plan, _)| policy.plan_limit(plan, lane));
        let known = known.find(|known| known.lane_kind().is_some()).unwrap_or(Limit::deny_all());
        Err(LimitError::OtherKind { limit: limit.to_string(), known: known.to_string() })
    }

    /// Puts edits into the file, if there is one.
    #[cfg(feature = "persist")]
    fn save(&self, control: &mut Control, edits: &[Edit]) -> Result<(), ControlError> {
        let Control { file: Some(file), policy, .. } = control else {
            return Ok(());
        };
        if edits.is_empty() {
            return Ok(());
        }
        let changes: Assignments = edits.iter().map(|edit| (edit.id.to_vec(), named(&edit.after, policy))).collect();
        Ok(file.change(&changes, || self.assignments_after(edits, policy))?)
    }

    /// Every assignment as it will be, sorted by id.
    #[cfg(feature = "persist")]
    fn assignments_after(&self, edits: &[Edit], policy: &Policy) -> Assignments {
        let now = self.registry.list().into_iter().map(|(_, registered)| (registered.id, registered.entry));
        let mut all = BTreeMap::new();
        all.extend(now);
        all.extend(edits.iter().map(|edit| (edit.id.clone(), edit.after.clone())));
        let named = all.into_iter().map(|(id, entry)| (id.into_vec(), named(&entry, policy)));
        named.filter(|(_, assignment)| !assignment.is_empty()).collect()
    }

    /// Puts edits in force that were counted.
    fn put_all_in_force(&self, control: &mut Control, edits: Vec<Edit>) {
        // Those that free a row come first: one spare row is enough for all.
        let (freeing, others): (Vec<_>, Vec<_>) = edits.into_iter().partition(|edit| edit.after.overrides.is_empty());
        let agents = freeing.len() + others.len();
        let first = freeing.first().or(others.first()).map(|edit| edit.id.clone());
        for edit in freeing.into_iter().chain(others) {
            self.put_in_force(control, edit);
        }
        match first {
            Some(agent) if agents == 1 => self.note(|| Note::AssignmentChanged { agent: &agent }),
            Some(_) => self.note(|| Note::AssignmentsChanged { agents: agents as u64 }),
            None => {}
        }
    }

    /// Puts one edit in force. There is a row for its overrides: the caller
    /// has counted.
    fn put_in_force(&self, control: &mut Control, edit: Edit) {
        let Edit { hash, id, before, mut after } = edit;
        after.override_row = None;
        if !after.overrides.is_empty() {
            after.override_row = control.free.pop();
            control.overridden += 1;
        }
        if let Some(row) = after.override_row {
            let policy = &control.policy;
            let numbers = policy.lanes().filter_map(|(lane, _)| effective_limit(&after, policy, lane)?.compile().ok());
            self.limits.write_numbers(row, policy.warn_below_percent(), numbers);
        }
        let epoch = self.limits.epoch();
        let moved = |found: Found<'_>, moves: &[_]| {
            let moved = self.moved(found, moves, control.policy.on_change());
            self.reservations.revise(hash, |entry| Some(entry.moved(&moved)));
        };
        self.with_change(control.policy.on_change(), &moved, |change| {
            self.slab.change_row(hash, change, || self.registry.set(hash, &id, after, epoch));
        });
        // Only now is the row free for others: see "Rows" in `record`.
        if let Some(row) = before.override_row {
            control.free.push(row);
            control.overridden -= 1;
        }
    }

    /// Moves every record on to the rows of this epoch.
    ///
    /// Reservations are found by the records that they charged: those that are
    /// open are listed anew for every so many records as there may be
    /// reservations, so that the lists take no longer than the walk. One that
    /// is opened after its part was listed, on a record that moves on later, is
    /// worth nothing from then on.
    fn move_all_records(&self, on_change: OnChange, epoch: u64) {
        let (regions, mut start) = (self.slab.regions(), 0);
        while start < regions {
            let part = start..regions.min(start + self.reservations.len() / REGION_RECORDS + 1);
            start = part.end;
            let open = self.reservations.open_in(&self.slab.positions_in(&part));
            let moved = |found: Found<'_>, moves: &[_]| {
                let first = open.partition_point(|(position, _)| *position < found.position);
                let moved = self.moved(found, moves, on_change);
                let theirs = open[first..].iter().take_while(|(position, _)| *position == found.position);
                for (_, slot) in theirs {
                    self.reservations.revise_slot(*slot, None, &|entry| Some(entry.moved(&moved)));
                }
            };
            self.with_change(on_change, &moved, |change| {
                let next = |row: Row| if row.is_of_plan() { row.in_epoch(epoch) } else { row };
                self.slab.change_rows(part.clone(), change, next);
            });
        }
    }

    fn moved<'a>(&'a self, found: Found<'_>, moves: &'a [Move], on_change: OnChange) -> Moved<'a> {
        let is_reset = on_change == OnChange::Reset;
        Moved { position: found.position, moves, kinds: self.limits.kinds(), is_reset, now: self.clock.now() }
    }

    fn with_change(&self, on_change: OnChange, moved: &dyn Fn(Found<'_>, &[Move]), apply: impl FnOnce(&RowChange<'_>)) {
        let debt_max = |row, lane| self.limits.debt_max(row, lane);
        let change = RowChange { on_change, clock: &|| self.at(self.clock.now()), debt_max: &debt_max, moved };
        if on_change == OnChange::Reset { self.slab.forgiven.during(|| apply(&change)) } else { apply(&change) }
    }
}

/// Those of the edits that change something, if there are rows for all of them.
fn countable(control: &Control, mut edits: Vec<Edit>) -> Result<Vec<Edit>, ControlError> {
    // Of several edits of one agent, the last one counts.
    let mut seen = BTreeSet::new();
    edits.reverse();
    edits.retain(|edit| seen.insert(edit.hash));
    edits.retain(|Edit { before, after, .. }| !before.decides_as(after));
    let more = edits.iter().filter(|edit| !edit.after.overrides.is_empty()).count();
    let less = edits.iter().filter(|edit| !edit.before.overrides.is_empty()).count();
    if control.overridden + more - less > OVERRIDES_MAX { Err(ControlError::TooManyOverrides) } else { Ok(edits) }
}

/// An id in a message, with nothing in it that a terminal acts upon.
fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(id).chars().take(80).flat_map(char::escape_debug).collect()
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
    if lanes.is_empty() { Err(unknown_lane(policy, lane_or_tier)) } else { Ok(lanes) }
}

fn unknown_lane(policy: &Policy, name: &str) -> ControlError {
    ControlError::UnknownLane { lane: name.chars().take(80).collect(), known: lane_names(policy) }
}

/// A lane's limit: the agent's own, or else its plan's.
fn effective_limit(entry: &Entry, policy: &Policy, lane: LaneId) -> Option<Limit> {
    let of_plan = || policy.plan_limit(entry.plan.unwrap_or(PlanId::DEFAULT), lane);
    entry.overrides.get(&lane).copied().or_else(of_plan)
}

/// An assignment in the numbers of the policy.
fn entry_of(policy: &Policy, assignment: &Assignment) -> Result<Entry, ControlError> {
    let plan = |name: &str| {
        let known = || policy.plans().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        policy
            .plan(name)
            .ok_or_else(|| ControlError::UnknownPlan { plan: name.chars().take(80).collect(), known: known() })
    };
    let mut overrides = BTreeMap::new();
    for (name, limit) in assignment.overrides() {
        limit.validate().map_err(ControlError::Limit)?;
        let lane = policy.lane(name).ok_or_else(|| unknown_lane(policy, name))?;
        overrides.insert(lane, limit);
    }
    Ok(Entry {
        plan: assignment.plan().map(plan).transpose()?,
        overrides,
        exempt: assignment.is_exempt(),
        by_policy: false,
        override_row: None,
    })
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
#[derive(Debug)]
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
    /// The policy has no plan of this name.
    UnknownPlan {
        /// The name as given, its first 80 characters.
        plan: String,
        /// The plans that there are.
        known: String,
    },
    /// The limit makes no sense.
    Limit(LimitError),
    /// One of many assignments makes no sense.
    Of {
        /// The agent's id, its first 80 characters, escaped.
        agent: String,
        /// What is wrong.
        problem: Box<ControlError>,
    },
    /// A lane of a new policy makes no sense in this limiter.
    OfLane {
        /// The lane.
        lane: String,
        /// What is wrong.
        problem: Box<ControlError>,
    },
    /// [`OVERRIDES_MAX`] agents have overrides already.
    TooManyOverrides,
    /// Another agent with an assignment has the same hash: a chance of 1 in 2^64.
    SameHash,
    /// The process was forked while another thread changed something.
    Forked,
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
    /// The file of assignments could not be read or written.
    #[cfg(feature = "persist")]
    File(crate::keep::PersistError),
    /// Assignments are not kept in a file.
    #[cfg(feature = "persist")]
    NoFile,
}

#[cfg(feature = "persist")]
impl From<crate::keep::PersistError> for ControlError {
    fn from(error: crate::keep::PersistError) -> Self {
        ControlError::File(error)
    }
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
            ControlError::UnknownPlan { plan, known } => write!(f, "there is no plan {plan:?}; the plans are {known}"),
            ControlError::Limit(problem) => problem.fmt(f),
            ControlError::Of { agent, problem } => write!(f, "agent \"{agent}\": {problem}"),
            ControlError::OfLane { lane, problem } => write!(f, "lane {lane:?}: {problem}"),
            ControlError::TooManyOverrides => write!(
                f,
                "{OVERRIDES_MAX} agents have overrides already; put agents with the same limits into a plan, or remove some"
            ),
            ControlError::SameHash => {
                write!(f, "another assigned agent has the same hash; build the limiter anew, with another key")
            }
            ControlError::Forked => write!(
                f,
                "this process was forked in the midst of another thread's change; fork earlier, or build a limiter in the child"
            ),
            ControlError::OtherLanes { known } => {
                write!(f, "the new policy has other lanes; give it these, in this order: {known}")
            }
            ControlError::PlanMissing { plan } => {
                write!(f, "the new policy lacks the plan {plan:?}; keep it, since callers may use its number")
            }
            #[cfg(feature = "persist")]
            ControlError::File(error) => error.fmt(f),
            #[cfg(feature = "persist")]
            ControlError::NoFile => write!(f, "assignments are not kept in a file; name one first"),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Agent(error) => Some(error),
            ControlError::Limit(problem) => Some(problem),
            ControlError::Of { problem, .. } | ControlError::OfLane { problem, .. } => Some(problem),
            #[cfg(feature = "persist")]
            ControlError::File(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::limiter::Request;
    use std::time::Duration;

    /// A new policy walks all records, which takes a while. It read the clock
    /// once, at the start, and cut the debt of an agent as of then: what the
    /// agent had spent since was partly given back, though no number changed.
    #[test]
    fn debt_that_is_made_during_a_change_is_not_cut() {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("api", "10/s").plan("twin", [("api", "10/s")]).build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).build().unwrap();
        let (api, twin) = (limiter.lane("api").unwrap(), limiter.plan("twin").unwrap());
        assert!(limiter.check("agent-7", api).unwrap().is_allowed());
        let hash = limiter.hash(b"agent-7").unwrap();
        // The bucket is emptied while the change is under way.
        let debt_max = |row, lane| {
            clock.advance(Duration::from_secs(5));
            assert!(limiter.check_request(Request::new("agent-7", api).cost(10)).unwrap().is_allowed());
            limiter.limits.debt_max(row, lane)
        };
        let change = RowChange {
            on_change: OnChange::KeepDebt,
            clock: &|| limiter.at(clock.now()),
            debt_max: &debt_max,
            moved: &|_, _| {},
        };
        limiter.slab.change_row(hash, &change, || Row::of_plan(twin, 0));
        assert_eq!(limiter.peek(Request::new("agent-7", api)).unwrap().remaining(), 0);
    }
}
