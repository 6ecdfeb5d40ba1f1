//! Calls that pass assignments in and out as data.

use super::arguments::{Agent, Place, Raw, UNTOUCHED, fresh};
use super::control::LIMITS;
use super::oracle::Watched;
use super::{World, call};
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

/// More overrides than this are not drawn.
const OVERRIDES: usize = 4;

impl World<'_> {
    /// Room for this many elements: none now and then, and then NULL will do.
    pub(super) fn room<P, const M: usize>(&mut self, places: &mut [P; M], faults: &mut Vec<Status>) -> (*mut P, usize) {
        let size = usize::from(self.bytes.below(M as u8 + 1));
        if self.bytes.once_in(8) {
            faults.extend((size > 0).then_some(Status::NullPointer));
            return (null_mut(), size);
        }
        (places.as_mut_ptr(), size)
    }

    /// The first of the places were written, and no others.
    pub(super) fn written<P: Place>(places: &[P], start: *const P, size: usize, count: usize) -> usize {
        let written = if start.is_null() { 0 } else { size.min(count) };
        assert!(places[..written].iter().all(|place| !place.is_blank()), "not written");
        assert!(places[written..].iter().all(Place::is_blank), "written beyond {written} of {count}");
        written
    }

    pub(super) fn look_at_assignment(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let mut raw = Raw::<16>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<AssignmentState>(), &mut faults);
        let mut overrides = [Raw::<96>::blank(); OVERRIDES];
        let (start, size) = self.room(&mut overrides, &mut faults);
        let status = call!(self, tollgate_assignment(to, agent.id(), agent.len, place, start.cast(), size));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && overrides.iter().all(Raw::is_blank));
        }
        let seen = raw.read::<AssignmentState>();
        let is_decided = watched.is_decided(&agent);
        assert!(seen.exempt <= 1 && (is_decided || (seen.exempt, seen.override_count) == (0, 0)), "{seen:?}");
        let written = Self::written(&overrides, start, size, seen.override_count as usize);
        for own in &overrides[..written] {
            let own = own.read::<Override>();
            assert!((own.lane as usize) < watched.lanes.len() && own.limit[0] != 0 && own.limit.contains(&0));
        }
    }

    pub(super) fn look_at_assigned(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let after = Agent::draw(&mut self.bytes);
        faults.extend(after.fault().filter(|fault| *fault == Status::IdTooLong));
        let mut ids = [fresh::<AgentId>(); 4];
        let (start, size) = self.room(&mut ids, &mut faults);
        let count = self.ask(faults, |world, place: *mut usize| {
            call!(world, tollgate_assigned(to, after.id(), after.len, start, size, place))
        });
        let Some(count) = count else { return assert!(ids.iter().all(Place::is_blank)) };
        assert!(count <= watched.decided.len());
        let written = Self::written(&ids, start, size, count);
        let mut last = if after.null { Vec::new() } else { after.bytes[..after.len].to_vec() };
        for id in &ids[..written] {
            let bytes = id.bytes[..id.len as usize].to_vec();
            assert!(bytes > last && watched.decided.contains(&bytes), "in order, and decided");
            last = bytes;
        }
    }

    pub(super) fn set_assignments(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let (count, lanes) = (usize::from(self.bytes.below(4)), watched.lanes.len() as u32);
        let agents: Vec<Agent> = (0..count).map(|_| Agent::draw(&mut self.bytes)).collect();
        let overrides: Vec<Vec<Override>> = (0..count).map(|_| self.overrides()).collect();
        let mut entries = Vec::new();
        for (agent, overrides) in agents.iter().zip(&overrides) {
            faults.extend(agent.fault());
            let mut entry = AssignmentEntry {
                id: agent.id(),
                id_len: agent.len,
                overrides: overrides.as_ptr(),
                override_count: overrides.len(),
                plan: self.plan(&mut faults),
                exempt: u32::from(self.bytes.below(2)),
            };
            match self.bytes.below(48) {
                0 => entry.exempt = 2 + self.bytes.number() as u32 % 1_000,
                1 => entry.overrides = null(),
                2 => entry.override_count = TOLLGATE_LANES_MAX + 1 + self.bytes.number() as usize % (1 << 40),
                _ => {}
            }
            faults.extend((entry.exempt > 1).then_some(Status::InvalidOption));
            faults.extend((entry.override_count > TOLLGATE_LANES_MAX).then_some(Status::BatchSize));
            let is_missing = entry.overrides.is_null() && entry.override_count > 0;
            faults.extend(is_missing.then_some(Status::NullPointer));
            faults.extend(overrides.iter().any(|own| own.lane >= lanes).then_some(Status::UnknownLane));
            entries.push(entry);
        }
        let mut given = count;
        let mut start = entries.as_ptr();
        if self.bytes.once_in(16) {
            start = null();
            faults.extend((count > 0).then_some(Status::NullPointer));
        } else if self.bytes.once_in(16) {
            given = TOLLGATE_BATCH_MAX + 1 + self.bytes.number() as usize % (usize::MAX / 2);
            faults.push(Status::BatchSize);
        }
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_set_assignments(to, start, given, error));
        let found = [Status::InvalidLimit, Status::NotUtf8];
        if self.judge_error(status, &faults, &found, &raw, !error.is_null()) {
            watched.decided.extend(agents.iter().map(|agent| agent.key().to_vec()));
        }
    }

    fn overrides(&mut self) -> Vec<Override> {
        let one = |world: &mut Self| {
            let text = LIMITS[usize::from(world.bytes.below(LIMITS.len() as u8))];
            // Not terminated, now and then.
            let rest = if world.bytes.once_in(32) { UNTOUCHED } else { 0 };
            let bytes = text.bytes().chain(std::iter::repeat(rest));
            let mut limit = [0; TOLLGATE_LIMIT_BYTES];
            limit.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as std::ffi::c_char);
            Override { lane: world.lane(), limit }
        };
        (0..self.bytes.below(OVERRIDES as u8)).map(|_| one(self)).collect()
    }
}
