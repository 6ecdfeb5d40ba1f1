//! Calls that charge several lanes, all or none.

use super::arguments::{Agent, Raw};
use super::oracle::{Lane, TIME_MAX, Watched};
use super::{World, call};
use std::collections::BTreeMap;
use tollgate::ffi::*;

/// A part, with the limit and the price that the oracle knows for it.
struct Part {
    agent: Agent,
    lane: u32,
    cost: u64,
    plan: u32,
    price: Option<(Lane, u64)>,
}

impl World<'_> {
    pub(super) fn check_all(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let most = if self.bytes.once_in(8) { TOLLGATE_PARTS_MAX as u8 } else { 4 };
        let mut count = 1 + usize::from(self.bytes.below(most));
        let mut unknown = false;
        let parts: Vec<Part> = (0..count)
            .map(|_| {
                // The same few agents, so that parts meet.
                let agent = match self.bytes.once_in(2) {
                    true => Agent { bytes: vec![self.bytes.below(3)], null: false, len: 1 },
                    false => Agent::draw(&mut self.bytes),
                };
                let lanes = if self.bytes.once_in(8) { 5 } else { 2 };
                let lane = u32::from(self.bytes.below(lanes));
                let cost =
                    if self.bytes.once_in(12) { self.bytes.number() } else { 1 + u64::from(self.bytes.below(2)) };
                let mut found: Vec<Status> = agent.fault().into_iter().collect();
                if found.is_empty() {
                    Self::note(watched, agent.key());
                }
                let plan = self.plan(&mut found);
                let price = Self::price(watched, &agent, lane, cost, &mut found);
                unknown |= found.is_empty() && price.is_none();
                faults.extend(found);
                Part { agent, lane, cost, plan, price }
            })
            .collect();
        let request = |part: &Part| part.agent.request(part.lane, part.cost, part.plan);
        let requests: Vec<Request> = parts.iter().map(request).collect();
        if self.bytes.once_in(24) {
            count = if self.bytes.once_in(2) { 0 } else { (TOLLGATE_PARTS_MAX + 1).max(self.bytes.number() as usize) };
            faults.push(Status::Parts);
        }
        let mut verdicts = vec![Raw::<72>::blank(); parts.len()];
        let is_wanted = !self.bytes.once_in(4);
        let verdicts_out = if is_wanted { verdicts.as_mut_ptr().cast::<Verdict>() } else { std::ptr::null_mut() };
        let mut raw = Raw::<24>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<AllVerdict>(), &mut faults);
        let asked = self.handle(requests.as_ptr().cast_mut(), &mut faults);
        let ((at, now), flags) = (self.instant(), self.flags(TOLLGATE_COUNTED, &mut faults));
        let status = call!(self, tollgate_check_all(limiter, asked, count, at, flags, verdicts_out, place));
        let untouched = raw.is_untouched() && verdicts.iter().all(Raw::is_blank);
        // What came to nothing may have been charged and taken back.
        watched.at(now, self.now);
        assert!(status == Status::Ok || untouched, "written in spite of {status:?}");
        // What is wrong with a part that nobody here can read, or that finds no room.
        if status != Status::Ok && (unknown || Self::may_be_full(watched, status)) {
            *self.report.statuses.entry(status as i32).or_default() += 1;
            return;
        }
        // Parts of one lane are added up, and may never pass together.
        let known: Vec<&Part> = parts.iter().filter(|part| part.agent.fault().is_none()).collect();
        let meet = known.iter().enumerate().any(|(place, part)| {
            known[..place].iter().any(|other| other.lane == part.lane && other.agent.key() == part.agent.key())
        });
        if status == Status::CostAboveCapacity && meet {
            *self.report.statuses.entry(status as i32).or_default() += 1;
            return;
        }
        if !self.judge(status, &faults) {
            return;
        }
        let verdict = raw.read::<AllVerdict>();
        assert_eq!(verdict.struct_size, 24);
        let answers: Vec<Verdict> = if is_wanted { verdicts.iter().map(Raw::read).collect() } else { Vec::new() };
        answers.iter().for_each(|verdict| self.fits(verdict, flags));
        Self::hold_together(&verdict, &answers);
        self.judge_all(watched, &parts, unknown, now, &verdict, &answers);
    }

    /// The verdict says what its answers say.
    fn hold_together(verdict: &AllVerdict, answers: &[Verdict]) {
        let is_denied = verdict.decision == Decision::Deny;
        assert_eq!(is_denied, verdict.blocking != 0, "{verdict:?}");
        assert!(is_denied || verdict.retry_after_ns == 0, "{verdict:?}");
        if answers.is_empty() {
            return;
        }
        let in_the_way = |answer: &&Verdict| answer.decision == Decision::Deny;
        let wait = answers.iter().filter(in_the_way).map(|answer| answer.retry_after_ns).max().unwrap_or(0);
        assert_eq!(verdict.retry_after_ns, wait, "{verdict:?}");
        for (part, answer) in answers.iter().enumerate() {
            assert_eq!(answer.status, Status::Ok);
            assert_eq!(in_the_way(&answer), verdict.blocking >> part & 1 == 1, "{verdict:?}, {answers:?}");
        }
        let all = |decision| answers.iter().all(|answer| answer.decision == decision);
        assert_eq!(verdict.decision == Decision::Exempt, all(Decision::Exempt));
    }

    /// Holds a verdict against the oracle, and charges the oracle along if all was charged.
    fn judge_all(
        &mut self,
        watched: &mut Watched,
        parts: &[Part],
        unknown: bool,
        now: u64,
        verdict: &AllVerdict,
        answers: &[Verdict],
    ) {
        let is_allowed = verdict.decision != Decision::Deny;
        let (judged, exact) = (watched.is_judged(), watched.is_exact());
        let mut next: BTreeMap<(&[u8], u32), u64> = BTreeMap::new();
        let mut sums: BTreeMap<(&[u8], u32), u64> = BTreeMap::new();
        let mut passes = true;
        for (place, part) in parts.iter().enumerate() {
            let Some((limit, price)) = part.price else { continue };
            let (key, answer) = ((part.agent.key(), part.lane), answers.get(place));
            let before = watched.full_at(key.0, key.1);
            let alone = limit.check(before, now, price, watched.warn_percent).0;
            let (expected, full_at) =
                limit.check(next.get(&key).copied().unwrap_or(before), now, price, watched.warn_percent);
            // Parts of one lane stand in the way together.
            let sum = sums.entry(key).and_modify(|sum| *sum = sum.saturating_add(price)).or_insert(price);
            let together = limit.check(before, now, (*sum).min(TIME_MAX), watched.warn_percent).0;
            passes &= expected.decision != Decision::Deny;
            next.insert(key, full_at);
            self.report.denied += u64::from(!is_allowed);
            self.report.verdicts += u64::from(judged);
            self.report.exact += u64::from(exact);
            if judged && is_allowed {
                assert!(expected.decision != Decision::Deny, "too much: {verdict:?}, at most {expected:?}");
            }
            let Some(answer) = answer.filter(|_| exact) else { continue };
            assert_eq!(answer.capacity, expected.capacity);
            if is_allowed {
                let found = (answer.decision, answer.full_in_ns, answer.token_ns);
                assert_eq!(found, (expected.decision, expected.full_in_ns, expected.token_ns));
            } else if answer.decision == Decision::Deny {
                let blocks = [alone, expected, together].iter().any(|verdict| verdict.decision == Decision::Deny);
                assert!(blocks, "part {place} is not in the way: {expected:?}, {answer:?}");
            } else {
                assert!(alone.decision != Decision::Deny, "part {place} is in the way: {alone:?}, {answer:?}");
            }
        }
        if !is_allowed {
            return assert!(unknown || !exact || !passes, "denied, but nothing is in the way: {verdict:?}");
        }
        let charged: Vec<_> = next.into_iter().map(|((id, lane), full_at)| (id.to_vec(), lane, full_at)).collect();
        for (id, lane, full_at) in charged {
            watched.set(&id, lane, full_at);
        }
    }
}
