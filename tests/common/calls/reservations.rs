//! Calls about reservations.

use super::arguments::{Agent, Raw};
use super::oracle::{Lane, TIME_MAX, Watched};
use super::{World, call};
use tollgate::ffi::*;

/// The most that a lane holds.
const CAPACITY_MOST: u64 = tollgate::bounds::CAPACITY_MAX;

/// A reservation that was made.
pub(super) struct Open {
    number: u64,
    agent: Vec<u8>,
    lane: u32,
    /// What it is charged by; `None` if the oracle does not know.
    limit: Option<Lane>,
    left: u64,
    /// When the bucket was to be full after it was charged.
    after: u64,
    expires: u64,
    /// Whether its place may have gone to another since its time had passed to somebody.
    perhaps_gone: bool,
}

impl World<'_> {
    pub(super) fn reserve_or_settle(&mut self, watched: &mut Watched) {
        if watched.open.is_empty() || self.bytes.once_in(3) {
            self.reserve(watched);
        } else {
            self.settle(watched);
        }
    }

    fn reserve(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let lanes = if self.bytes.once_in(8) { 5 } else { 2 };
        let lane = u32::from(self.bytes.below(lanes));
        let estimate = if self.bytes.once_in(8) { self.bytes.number() } else { 1 + u64::from(self.bytes.below(3)) };
        let ttl =
            if self.bytes.once_in(4) { self.bytes.number() } else { 1 + u64::from(self.bytes.byte()) * 1_000_000 };
        let ((at, now), flags) = (self.instant(), self.flags(TOLLGATE_COUNTED, &mut faults));
        let plan = self.plan(&mut faults);
        let mut raw = Raw::<72>::blank();
        let place = self.handle((&raw mut raw).cast::<Verdict>(), &mut faults);
        let mut request = agent.request(lane, estimate, plan);
        let asked = self.handle(&raw mut request, &mut faults);
        let mut number = u64::MAX;
        let number_out = self.handle(&raw mut number, &mut faults);
        faults.extend(agent.fault());
        if faults.is_empty() {
            Self::note(watched, agent.key());
        }
        let price = Self::price(watched, &agent, lane, estimate, &mut faults);
        let unknown = faults.is_empty() && price.is_none();
        if !faults.is_empty() && watched.lanes.get(lane as usize).is_some_and(Option::is_none) {
            faults.push(Status::WrongKind); // Whichever is looked at first.
        }
        let room = watched.reservations_max;
        let is_open = |open: &&Open| !watched.manual || open.expires > now;
        let most = watched.open.iter().filter(is_open).count();
        let is_sure = |open: &&Open| watched.manual && !open.perhaps_gone && open.expires > self.now_max;
        let least = watched.open.iter().filter(is_open).filter(is_sure).count();
        if least >= room {
            faults.push(Status::ReservationsFull);
        }
        let status = call!(self, tollgate_reserve(to, asked, ttl, at, flags, place, number_out));
        for open in &mut watched.open {
            open.perhaps_gone |= open.expires <= now;
        }
        if status != Status::Ok {
            assert!(raw.is_blank() && number == u64::MAX, "written in spite of {status:?}");
            let may_be_full = status == Status::ReservationsFull && most >= room;
            let has_many = status == Status::TooManyReservations && watched.few_per_agent && most > 0;
            if unknown || may_be_full || has_many || Self::may_be_full(watched, status) {
                *self.report.statuses.entry(status as i32).or_default() += 1;
                return watched.at(now, self.now);
            }
        }
        if !self.judge(status, &faults) {
            return;
        }
        watched.at(now, self.now);
        let verdict = raw.read::<Verdict>();
        self.fits(&verdict, flags);
        if let Some(price) = price {
            self.judge_verdict(watched, agent.key(), lane, price, now, &verdict);
        }
        if verdict.decision == Decision::Deny {
            return assert_eq!(number, 0);
        }
        assert!(watched.open.iter().all(|open| open.number != number || open.perhaps_gone), "two of one number");
        watched.open.push(Open {
            number,
            agent: agent.key().to_vec(),
            lane,
            limit: price.map(|(limit, _)| limit),
            left: estimate,
            after: watched.full_at(agent.key(), lane),
            expires: now.saturating_add(ttl).min(TIME_MAX),
            perhaps_gone: !watched.manual,
        });
    }

    /// Settles, cancels or extends what was reserved, what was settled already, or what never was.
    fn settle(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let index = usize::from(self.bytes.below(watched.open.len().min(255) as u8));
        let mut open = watched.open.swap_remove(index);
        // Somebody may have closed it before the clock was set back.
        open.perhaps_gone |= open.expires <= self.now_max;
        let (at, now) = self.instant();
        let choice = self.bytes.below(4);
        let used = match choice {
            0 => 0,
            _ if self.bytes.once_in(8) => self.bytes.number(),
            _ => u64::from(self.bytes.below(4)),
        };
        let made_up = self.bytes.once_in(12);
        let number = if made_up { self.bytes.word() } else { open.number };
        let latest = now.max(self.now);
        if made_up || watched.manual && open.expires <= latest {
            faults.push(Status::UnknownReservation);
        }
        let mut raw = Raw::<32>::new(32);
        let status = if choice == 3 {
            call!(self, tollgate_extend(to, number, used, at))
        } else {
            raw = Raw::tagged(&mut self.bytes, &mut faults);
            let place = self.handle((&raw mut raw).cast::<Settlement>(), &mut faults);
            let flags = match self.bytes.once_in(24) {
                true => {
                    faults.push(Status::InvalidOption);
                    TOLLGATE_COUNTED | self.bytes.number() as u32
                }
                false if choice == 2 => TOLLGATE_SETTLE_SO_FAR,
                false => 0,
            };
            call!(self, tollgate_settle(to, number, used, at, flags, place))
        };
        if status == Status::UnknownReservation && (open.perhaps_gone || !watched.manual) {
            faults.push(status);
        }
        // How much that is, the oracle may not know; and whether there is a record.
        let refused = [Status::UsedTooLarge, Status::Full].contains(&status);
        if choice != 3 && refused && used > open.left && faults.is_empty() {
            faults.push(status);
        }
        if !self.judge(status, &faults) {
            assert!(raw.is_untouched());
            return watched.open.push(open);
        }
        watched.at(now, self.now);
        if choice == 3 {
            assert!(raw.is_untouched());
            open.expires = open.expires.max(now.saturating_add(used).min(TIME_MAX));
            return watched.open.push(open);
        }
        let told = raw.read::<Settlement>();
        let is_part = choice == 2;
        let (rest, overspent) = (open.left.saturating_sub(used), used.saturating_sub(open.left));
        assert_eq!((told.struct_size, told.reserved, told.overspent), (32, 0, overspent));
        assert_eq!((told.unused, told.left), if is_part { (0, rest) } else { (rest, 0) });
        assert!(overspent <= 100 * CAPACITY_MOST, "{overspent} overspent");
        Self::settle_along(watched, &open, told.unused, overspent, latest);
        if is_part {
            open.left = rest;
            watched.open.push(open);
            return;
        }
        // It works once.
        let mut again = Raw::<32>::new(32);
        let place = (&raw mut again).cast::<Settlement>();
        let status = call!(self, tollgate_settle(watched.limiter, number, used, at, 0, place));
        self.judge(status, &[Status::UnknownReservation]);
        assert!(again.is_untouched());
    }

    /// What a settlement does to the oracle's bucket.
    fn settle_along(watched: &mut Watched, open: &Open, unused: u64, overspent: u64, now: u64) {
        let Some(limit) = open.limit.filter(|_| !watched.decided.contains(&open.agent)) else {
            watched.decided.insert(open.agent.clone());
            return;
        };
        let price = |cost: u64| cost.saturating_mul(limit.token_ns);
        if unused > 0 && watched.has_reserved(&open.agent, open.lane) {
            // Several of one bucket: where each of them lies, the oracle does not know.
            watched.decided.insert(open.agent.clone());
        } else if unused > 0 && watched.is_exact() {
            // What time may have paid back of a bucket that others charged since is theirs.
            let worth = price(unused).min(open.after.saturating_sub(now));
            watched.give_back(&open.agent, open.lane, worth, now);
        } else if unused > 0 {
            // Never less than the limiter gives back, whatever its instants.
            let full_at = watched.full_at(&open.agent, open.lane).saturating_sub(price(unused));
            watched.set(&open.agent, open.lane, full_at);
        }
        if overspent > 0 {
            let full_at = watched.full_at(&open.agent, open.lane);
            let wanted = full_at.max(now).saturating_add(price(overspent)).min(TIME_MAX);
            let most = now.saturating_add(limit.depth().saturating_mul(100));
            watched.set(&open.agent, open.lane, wanted.min(most).max(full_at));
        }
    }
}

impl Watched {
    /// Lets go of the reservations of an agent that was forgotten: they are closed.
    pub(super) fn forget_reservations(&mut self, agent: &[u8]) {
        for open in self.open.iter_mut().filter(|open| open.agent == agent) {
            open.expires = 0;
        }
    }

    /// An agent was reset: what its reservations are worth now, the oracle does not know.
    pub(super) fn forgive_reservations(&mut self, agent: &[u8]) {
        for open in self.open.iter_mut().filter(|open| open.agent == agent) {
            open.limit = None;
        }
    }

    /// Whether something of an agent's lane is reserved.
    pub(super) fn has_reserved(&self, agent: &[u8], lane: u32) -> bool {
        self.open.iter().any(|open| open.agent == agent && open.lane == lane)
    }
}
