//! Another policy in force: records move on to its rows, one after the other.

use super::edit::{Edit, unsaved};
use super::lock::ControlState;
use super::names::lane_names;
use super::shared::refusal;
use super::{Control, ControlError};
use crate::engine::registry::table::{AssignmentTable, NoRoom};
use crate::engine::registry::{Entry, RegisteredAgent};
use crate::engine::reservations::MovedRecord;
use crate::limits::Row;
use crate::observe::Note;
use crate::policy::{Limit, OnChange, PlanId, Policy};
use crate::record::Move;
use crate::slab::{FoundRecord, REGION_RECORDS, RowChange};
use crate::sync::{Fault, broken};
use std::sync::Arc;

impl Control<'_> {
    /// Puts another policy in force.
    pub(crate) fn replace_policy(&self, policy: Policy) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        self.put_policy_in_force(&mut control, policy)?;
        #[cfg(feature = "cluster")]
        self.note_policy_changed(&mut control);
        Ok(())
    }

    /// Puts another policy in force, if `replaces` says so of the one that is in force when all other control calls
    /// wait.
    #[cfg_attr(
        not(all(feature = "shared", target_os = "linux", not(loom))),
        allow(dead_code, reason = "for a shared file")
    )]
    pub(crate) fn replace_policy_if(
        &self,
        policy: Policy,
        replaces: impl FnOnce(&Policy) -> bool,
    ) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        if replaces(&control.policy) { self.put_policy_in_force(&mut control, policy) } else { Ok(()) }
    }

    pub(super) fn put_policy_in_force(&self, control: &mut ControlState, policy: Policy) -> Result<(), ControlError> {
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
        self.stage_exempt(&policy).and_then(|()| self.write_policy_text(&policy, &known, epoch)).inspect_err(|_| {
            self.registry.shared().into_iter().for_each(AssignmentTable::unstage_all);
        })?;
        self.limits.write_policy(&policy, epoch);
        self.lock.words().into_iter().for_each(|words| words.set_policy(epoch));
        self.limits.enter(epoch);
        control.policy = Arc::clone(&policy);
        self.set_policy(&policy, epoch);
        self.move_on(control, epoch, None)?;
        self.lock.words().into_iter().for_each(|words| words.set_policy(0));
        self.note(|| Note::PolicyReplaced);
        Ok(())
    }

    /// Moves everything on to the policy in force, which began with this epoch: every record to its plan's new row,
    /// and overrides to a row that is computed from the new numbers. After a process has died at that, `again` is
    /// where it was.
    pub(super) fn move_on(
        &self,
        control: &mut ControlState,
        epoch: u64,
        again: Option<usize>,
    ) -> Result<(), ControlError> {
        let policy = Arc::clone(&control.policy);
        self.move_all_records(policy.on_change(), epoch, again)?;
        self.limits.admit_plans(policy.plans().len());
        for (hash, RegisteredAgent { id, entry }) in self.registry.list() {
            if entry.override_row.is_some() {
                self.put_again(control, Edit { hash, id, after: entry.clone(), before: entry })?;
            }
        }
        let known = self.registry.list().into_iter().filter(|(_, registered)| registered.entry.by_policy);
        let known: Vec<_> = known.map(|(_, registered)| registered.id).collect();
        for agent in known.iter().map(|id| &**id).chain(policy.exempt().map(str::as_bytes)) {
            self.exempt_by_policy(control, agent, policy.exempt().any(|exempt| exempt.as_bytes() == agent))?;
        }
        Ok(())
    }

    /// Puts one edit in force, though it may decide nothing else than before.
    fn put_again(&self, control: &mut ControlState, edit: Edit) -> Result<(), ControlError> {
        match self.registry.shared() {
            Some(table) => self.put_all_shared(control, table, &[edit], &mut unsaved),
            None => {
                self.put_in_force(control, edit);
                Ok(())
            }
        }
    }

    /// Takes entries for the agents that a policy exempts and that have none: nothing may be refused for want of room
    /// when the policy is in force, or neither it nor any later change could be completed. Nothing is staged for them
    /// yet, so if this process dies they are free again.
    fn stage_exempt(&self, policy: &Policy) -> Result<(), ControlError> {
        let Some(table) = self.registry.shared() else { return Ok(()) };
        let hashes = policy.exempt().filter_map(|agent| Some((agent.as_bytes(), self.hash(agent.as_bytes()).ok()?)));
        let is_new = |(id, hash): &(&[u8], _)| self.registry.get(*hash, id).is_some_and(|entry| entry.is_nothing());
        let new: Vec<_> = hashes.filter(is_new).collect();
        let is_last = |entry: &Entry| Entry { by_policy: false, ..entry.clone() }.is_nothing();
        let known =
            self.registry.list().into_iter().filter(|(_, agent)| agent.entry.by_policy && is_last(&agent.entry));
        let less = known.filter(|(_, agent)| !policy.exempt().any(|exempt| exempt.as_bytes() == &*agent.id)).count();
        if !table.has_room(new.len() as u64, less as u64) {
            return Err(ControlError::TooManyAssignments { most: table.most() });
        }
        let stage = |(id, hash)| match table.stage(hash, id, &Entry::default()) {
            // Those that are exempt no more go first, and may make room for it.
            Err(NoRoom::Entries) if less > 0 => Ok(()),
            staged => staged,
        };
        new.into_iter().try_for_each(stage).map_err(|problem| refusal(table, problem))
    }

    /// Sets whether the policy exempts an agent.
    fn exempt_by_policy(&self, control: &mut ControlState, agent: &[u8], by_policy: bool) -> Result<(), ControlError> {
        // With a chance of 1 in 2^64 another agent has the entry, and keeps it.
        let Ok(hash) = self.hash(agent) else { return Ok(()) };
        match self.registry.get(hash, agent).filter(|entry| entry.by_policy != by_policy) {
            None => Ok(()),
            Some(before) => {
                let after = Entry { by_policy, ..before.clone() };
                self.put_again(control, Edit { hash, id: agent.into(), before, after })
            }
        }
    }

    /// Moves every record on to the rows of this epoch; from the part with the region `again` on, also those that
    /// are there already but may have been cut off halfway.
    ///
    /// Reservations are found by the records that they charged. The open ones
    /// are listed part by part, and a part has as many records as there may be
    /// reservations, so the lists take no longer than the walk. A reservation
    /// that is opened after its part was listed, on a record that moves on
    /// later, has nothing left to give back.
    fn move_all_records(&self, on_change: OnChange, epoch: u64, again: Option<usize>) -> Result<(), ControlError> {
        let (regions, length) = (self.slab.regions(), self.reservations.len() / REGION_RECORDS + 1);
        // The parts before it are done, and must not be forgotten if this is cut off too.
        let mut start = again.unwrap_or(0) / length * length;
        while start < regions {
            let part = start..regions.min(start + length);
            start = part.end;
            let words = self.lock.words();
            words.into_iter().for_each(|words| words.set_region(part.start));
            let is_again = again.is_some_and(|region| part.contains(&region));
            let open = self.reservations.open_in(&self.slab.positions_in(&part));
            let moved = |found: FoundRecord<'_>, moves: &[_]| {
                let first = open.partition_point(|(position, _)| *position < found.position);
                let moved = self.moved(found, moves, on_change);
                let theirs = open[first..].iter().take_while(|(position, _)| *position == found.position);
                for (_, slot) in theirs {
                    self.reservations.revise_slot(*slot, None, &|entry| Some(entry.moved(&moved)));
                }
            };
            self.with_change(on_change, &moved, |change| {
                let next = |row: Row| row.is_of_plan().then(|| row.in_epoch(epoch));
                self.slab.change_rows(part.clone(), change, |row| next(row).filter(|next| *next != row || is_again))
            })
            .map_err(|busy| words.map_or(ControlError::Forked, |words| words.busy(busy, true)))?;
        }
        Ok(())
    }

    pub(super) fn moved<'a>(
        &'a self,
        found: FoundRecord<'_>,
        moves: &'a [Move],
        on_change: OnChange,
    ) -> MovedRecord<'a> {
        let is_reset = on_change == OnChange::Reset;
        MovedRecord { position: found.position, moves, kinds: self.limits.kinds(), is_reset, now: self.clock.now() }
    }

    pub(super) fn with_change<T>(
        &self,
        on_change: OnChange,
        moved: &dyn Fn(FoundRecord<'_>, &[Move]),
        apply: impl FnOnce(&RowChange<'_>) -> T,
    ) -> T {
        let debt_max = |row, lane| self.limits.debt_max(row, lane);
        let change = RowChange { on_change, clock: &|| self.at(self.clock.now()), debt_max: &debt_max, moved };
        if on_change == OnChange::Reset { self.slab.forgiven.during(|| apply(&change)) } else { apply(&change) }
    }
}

impl Control<'_> {
    /// Writes the policy that is about to come into force as text, for the other processes of a shared limiter.
    #[cfg(feature = "shared")]
    fn write_policy_text(&self, policy: &Policy, known: &Policy, epoch: u64) -> Result<(), ControlError> {
        let Some(text) = self.policy_text() else { return Ok(()) };
        if policy.warn_again_percent() != known.warn_again_percent() {
            // Each process decides by it which lanes are fast, and would not learn of it in time.
            return Err(ControlError::Fixed { setting: "warn_again_percent" });
        }
        let written = policy.to_toml();
        if written.len() > text.most() {
            return Err(ControlError::PolicyTooLong { bytes: written.len(), most: text.most() });
        }
        if !policy.is_read_from(&written) {
            return Err(ControlError::PolicyText);
        }
        text.write(epoch, &written);
        text.set_asked(Arc::new(policy.clone()), policy);
        Ok(())
    }

    #[cfg(not(feature = "shared"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "there is no other process to read it")]
    fn write_policy_text(&self, _: &Policy, _: &Policy, _: u64) -> Result<(), ControlError> {
        Ok(())
    }
}

/// The same policy, with plans numbered as in `known` and new plans after those.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::{Limiter, Request};
    use std::time::Duration;

    /// A new policy walks all records, which takes a while. It read the clock
    /// once, at the start, and cut the debt of an agent at that instant: what the
    /// agent had spent since was partly given back, though no number changed.
    #[test]
    fn debt_that_is_made_during_a_change_is_not_cut() {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("api", "10/s").plan("twin", [("api", "10/s")]).build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).build().unwrap();
        let (api, twin) = (limiter.lane("api").unwrap(), limiter.plan("twin").unwrap());
        assert!(limiter.check("agent-7", api).unwrap().is_allowed());
        let hash = limiter.engine.hash(b"agent-7").unwrap();
        // The bucket is emptied while the change is under way.
        let debt_max = |row, lane| {
            clock.advance(Duration::from_secs(5));
            assert!(limiter.check_request(Request::new("agent-7", api).cost(10)).unwrap().is_allowed());
            limiter.engine.limits.debt_max(row, lane)
        };
        let change = RowChange {
            on_change: OnChange::KeepDebt,
            clock: &|| limiter.engine.at(clock.now()),
            debt_max: &debt_max,
            moved: &|_, _| {},
        };
        limiter.engine.slab.change_row(hash, &change, || Row::of_plan(twin, 0)).unwrap();
        assert_eq!(limiter.peek(Request::new("agent-7", api)).unwrap().remaining(), 0);
    }
}
