//! Calls about violations and waits.

use super::arguments::{Agent, Raw, UNTOUCHED};
use super::oracle::Watched;
use super::{World, call};
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn judge_conduct(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let (id, len) = (agent.id(), agent.len);
        let (at, now) = self.instant();
        let choice = self.bytes.below(4);
        if choice < 3 {
            faults.extend(agent.fault());
        }
        match choice {
            0 => {
                let mut raw = Raw::<32>::tagged(&mut self.bytes, &mut faults);
                let place = self.handle((&raw mut raw).cast::<Violation>(), &mut faults);
                if faults.is_empty() {
                    Self::note(watched, agent.key());
                }
                let status = call!(self, tollgate_record_violation(to, id, len, at, place));
                if faults.is_empty() {
                    watched.at(now, self.now);
                }
                if faults.is_empty() && Self::may_be_full(watched, status) {
                    self.judge(status, &[status]);
                } else if self.judge(status, &faults) {
                    let seen = raw.read::<Violation>();
                    assert!((1..=15).contains(&seen.violations_in_a_row) && seen.wait_ns >= seen.step_ns, "{seen:?}");
                } else {
                    assert!(raw.is_untouched());
                }
            }
            1 => {
                let mut raw = Raw::<40>::tagged(&mut self.bytes, &mut faults);
                let place = self.handle((&raw mut raw).cast::<ConductState>(), &mut faults);
                let status = call!(self, tollgate_conduct(to, id, len, at, place));
                if self.judge(status, &faults) {
                    let seen = raw.read::<ConductState>();
                    assert!(seen.violations_in_window <= 63 && seen.violations_in_a_row <= 15, "{seen:?}");
                    assert!(seen.rate_limited <= 1, "{seen:?}");
                } else {
                    assert!(raw.is_untouched());
                }
            }
            2 => {
                let had = self.ask(faults, |world, place: *mut u8| {
                    call!(world, tollgate_reset_violations(to, id, len, place.cast()))
                });
                assert!(had.is_none_or(|had| had <= 1));
            }
            _ => self.who_is_assignable(to, at, faults),
        }
    }

    fn who_is_assignable(&mut self, to: *mut Limiter, at: u64, mut faults: Vec<Status>) {
        let agents: Vec<Agent> = (0..self.bytes.below(5)).map(|_| Agent::draw(&mut self.bytes)).collect();
        let ids: Vec<Id> = agents.iter().map(|agent| Id { id: agent.id(), id_len: agent.len }).collect();
        let mut answers = vec![UNTOUCHED; ids.len()];
        let mut count = ids.len();
        if self.bytes.once_in(16) {
            count = TOLLGATE_BATCH_MAX + 1 + self.bytes.number() as usize % (usize::MAX / 2);
            faults.push(Status::BatchSize);
        }
        let given = self.array(ids.as_ptr().cast_mut(), count, &mut faults);
        let place = self.array(answers.as_mut_ptr(), count, &mut faults);
        let status = call!(self, tollgate_assignable(to, given, count, at, place.cast()));
        let answered = self.judge(status, &faults);
        for (agent, answer) in agents.iter().zip(&answers) {
            let expected = if answered { &[0, 1][..] } else { &[UNTOUCHED][..] };
            assert!(expected.contains(answer) && !(answered && *answer == 1 && agent.fault().is_some()));
        }
    }
}
