//! Calls that see what a limiter does.

use super::arguments::{Agent, Raw, UNTOUCHED};
use super::oracle::Watched;
use super::{World, call};
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn observe(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        match self.bytes.below(6) {
            0 => self.snapshot(to, watched, faults),
            1 => self.view(to, faults),
            2 => self.list(to, faults),
            3 => self.offenders(to, faults),
            4 => self.poll(to, faults),
            _ => {
                let mut len = usize::MAX;
                let status = call!(self, tollgate_report(to, null_mut(), 0, &mut len));
                assert_eq!(self.judge(status, &faults), len != usize::MAX);
            }
        }
    }

    fn snapshot(&mut self, to: *mut Limiter, watched: &Watched, mut faults: Vec<Status>) {
        let mut raw = Raw::<256>::tagged_from(224, &mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<LimiterView>(), &mut faults);
        let mut lanes = [Raw::<32>::blank(); 8];
        let (start, size) = self.room(&mut lanes, &mut faults);
        let status = call!(self, tollgate_snapshot(to, place, start.cast(), size));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && lanes.iter().all(Raw::is_blank));
        }
        let known = raw.tag();
        assert!(raw.0[known..].iter().all(|byte| *byte == UNTOUCHED), "written beyond what the caller knows of");
        let seen = raw.read::<LimiterView>();
        if known == size_of::<LimiterView>() {
            assert_eq!((seen.processes, seen.shared_fd >= 0), (watched.shared.into(), watched.shared), "{seen:?}");
            assert_eq!((seen.takeovers, seen.busy, seen.policy_differs, seen.detached), (0, 0, 0, 0), "{seen:?}");
        }
        assert_eq!(seen.lane_count as usize, watched.lanes.len());
        assert!(seen.agents <= seen.records && seen.agents <= watched.agents.len() as u64, "{seen:?}");
        assert!(seen.observed <= 1 && seen.memory >= 4096, "{seen:?}");
        assert!(!watched.deny_on_full || seen.lossy_evictions == 0, "{seen:?}");
        let written = Self::written(&lanes, start, size, watched.lanes.len());
        let lanes = lanes[..written].iter().map(Raw::read::<LaneCounts>);
        assert!(lanes.map(|lane| lane.denied).sum::<u64>() <= seen.denied, "{seen:?}");
    }

    fn view(&mut self, to: *mut Limiter, mut faults: Vec<Status>) {
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let (at, _) = self.instant();
        let mut raw = Raw::<64>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<AgentView>(), &mut faults);
        let mut lanes = [Raw::<48>::blank(); 8];
        let (start, size) = self.room(&mut lanes, &mut faults);
        let status = call!(self, tollgate_agent(to, agent.id(), agent.len, at, place, start.cast(), size));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && lanes.iter().all(Raw::is_blank));
        }
        let seen = raw.read::<AgentView>();
        assert!(seen.known <= 1 && seen.exempt <= 1 && seen.violations_in_window <= 63, "{seen:?}");
        let written = Self::written(&lanes, start, size, seen.lane_count as usize);
        for lane in &lanes[..written] {
            let lane = lane.read::<LaneView>();
            assert!(lane.remaining <= lane.capacity && (0.0..=100.0).contains(&lane.used_percent), "{lane:?}");
        }
    }

    fn list(&mut self, to: *mut Limiter, mut faults: Vec<Status>) {
        let prefix = Agent::draw(&mut self.bytes);
        let mut query = AgentQuery {
            struct_size: 48,
            sort: i32::from(self.bytes.below(4)),
            prefix: prefix.id(),
            prefix_len: prefix.len,
            part: prefix.id(),
            part_len: prefix.len.min(1),
            page: u64::from(self.bytes.below(3)),
        };
        let asked = if self.bytes.once_in(4) { null() } else { &raw const query };
        if self.bytes.once_in(24) {
            query.struct_size = 47;
        }
        if !asked.is_null() {
            faults.extend((query.struct_size < 48).then_some(Status::StructSize));
            faults.extend((query.sort > 2).then_some(Status::InvalidOption));
            faults.extend(prefix.fault().filter(|fault| *fault == Status::IdTooLong));
        }
        let mut raw = Raw::<24>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<AgentPage>(), &mut faults);
        let mut rows = [Raw::<312>::blank(); 4];
        let (start, size) = self.room(&mut rows, &mut faults);
        let status = call!(self, tollgate_agents(to, asked, start.cast(), size, place));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && rows.iter().all(Raw::is_blank));
        }
        let page = raw.read::<AgentPage>();
        assert!(page.count as usize <= size && u64::from(page.count) <= page.matched, "{page:?}");
        let written = Self::written(&rows, start, size, page.count as usize);
        for row in &rows[..written] {
            let row = row.read::<AgentRow>();
            let id = &row.id.bytes[..row.id.len as usize];
            assert!(!id.is_empty() && (0.0..=100.0).contains(&row.used_percent) && row.exempt <= 1);
            assert!(asked.is_null() || prefix.null || id.starts_with(&prefix.bytes[..prefix.len]));
        }
    }

    fn offenders(&mut self, to: *mut Limiter, mut faults: Vec<Status>) {
        let mut raw = Raw::<32>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<OffenderTotals>(), &mut faults);
        let mut offenders = [Raw::<280>::blank(); 3];
        let (start, size) = self.room(&mut offenders, &mut faults);
        let status = call!(self, tollgate_top_offenders(to, start.cast(), size, place));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && offenders.iter().all(Raw::is_blank));
        }
        let totals = raw.read::<OffenderTotals>();
        let written = Self::written(&offenders, start, size, totals.count as usize);
        for offender in &offenders[..written] {
            let offender = offender.read::<Offender>();
            assert!(offender.id.len > 0 && offender.error <= totals.error_max, "{totals:?}");
        }
    }

    fn poll(&mut self, to: *mut Limiter, mut faults: Vec<Status>) {
        let mut raw = Raw::<472>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<Event>(), &mut faults);
        let status = call!(self, tollgate_poll_event(to, place));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched());
        }
        let event = raw.read::<Event>();
        assert!((EventType::None as i32..=EventType::Checked as i32).contains(&event.kind));
        assert!(event.agent.len as usize <= TOLLGATE_ID_BYTES_MAX && event.channel.contains(&0));
    }

    /// What needs no limiter.
    pub(super) fn log_and_show(&mut self) {
        let mut log = null_mut();
        assert_eq!(call!(self, tollgate_log_throttle_new(&mut log)), Status::Ok);
        for _ in 0..self.bytes.below(8) {
            let mut faults = Vec::new();
            let to = self.handle(log, &mut faults);
            let (at, _) = self.instant();
            if at == TOLLGATE_NOW {
                faults.push(Status::InvalidOption);
            }
            if self.bytes.once_in(3) {
                self.ask_text(&faults, &[], |world, place, size, len| {
                    call!(world, tollgate_log_throttle_line(to, at, place, size, len))
                });
                continue;
            }
            let agent = Agent::draw(&mut self.bytes);
            faults.extend(agent.fault());
            let line = self.ask(faults, |world, place: *mut u8| {
                call!(world, tollgate_log_throttle_denied(to, agent.id(), agent.len, at, place.cast()))
            });
            assert!(line.is_none_or(|line| line <= 1));
        }
        call!(self, tollgate_log_throttle_free(log));
        let agent = Agent::draw(&mut self.bytes);
        let mut faults: Vec<Status> = agent.fault().filter(|fault| *fault != Status::EmptyId).into_iter().collect();
        let shown = i32::from(self.bytes.below(6));
        if shown > 4 {
            faults.push(Status::InvalidOption);
        }
        self.ask_text(&faults, &[], |world, place, size, len| {
            call!(world, tollgate_id_shown(agent.id(), agent.len, shown, place, size, len))
        });
    }
}
