//! Charge an estimate now, settle the real cost later.
//!
//! [`reservations`](super::reservations) explains what may be given back, and
//! why that is never more than what was charged and is still in debt.

use super::charge::LaneCharge;
use super::request::{ResolvedRequest, Target};
use super::reservations::{Entry, TakenSlot};
use super::{Engine, Request};
use crate::bounds::{CAPACITY_MAX, OVERSPEND_MAX};
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::kind::{Receipt, look};
use crate::lane::{CallLimit, Choice, Kind, LaneWord, Verdict, bucket};
use crate::limits::LaneLimits;
use crate::policy::LaneId;
use crate::sync::{Fault, broken};
use std::time::Duration;

/// The id of a reservation. It works until the reservation is settled or
/// expires, and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId(u64);

impl ReservationId {
    /// The id as a number, to pass it on.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The id with this number. A made-up number is answered with
    /// [`Error::UnknownReservation`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// The answer to [`reserve`](crate::Limiter::reserve): a verdict, and the id of
/// the reservation if it was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the verdict decides whether the request may go on, and the id settles it"]
pub struct Reservation {
    verdict: Verdict,
    id: Option<ReservationId>,
}

impl Reservation {
    /// Whether the estimate was charged.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The id of the reservation; `None` if it was denied.
    #[must_use]
    pub const fn id(&self) -> Option<ReservationId> {
        self.id
    }
}

/// What was really used, for [`settle`](crate::Limiter::settle).
///
/// ```
/// use tollgate::Settle;
///
/// Settle::used(700); // The work is done, and used 700.
/// Settle::used_so_far(500); // 500 more are used, and the rest stays reserved: for answers that stream.
/// Settle::cancelled(); // Nothing more is used.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it settles nothing until it is passed to a limiter"]
pub struct Settle {
    used: u64,
    keeps_rest: bool,
    at: Option<Tick>,
}

impl Settle {
    /// The work is done and used this much, beyond what was [used so
    /// far](Self::used_so_far). The rest is given back.
    pub const fn used(used: u64) -> Self {
        Self { used, keeps_rest: false, at: None }
    }

    /// This much more is used, and the rest stays reserved.
    pub const fn used_so_far(used: u64) -> Self {
        Self { used, keeps_rest: true, at: None }
    }

    /// Nothing more is used: what is left is given back.
    pub const fn cancelled() -> Self {
        Self::used(0)
    }

    /// The instant of the call, or the clock's time if that is later.
    /// Default: the limiter reads its clock.
    pub const fn at(mut self, now: Tick) -> Self {
        self.at = Some(now);
        self
    }
}

/// The answer to [`settle`](crate::Limiter::settle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Charged but not used: given back, unless the window that was charged is
    /// over.
    pub unused: u64,
    /// Used beyond what was reserved: charged to the present window, into debt
    /// if need be.
    pub overspent: u64,
    /// Still reserved; 0 once the reservation is closed.
    pub left: u64,
}

impl Engine {
    /// Charges an estimate, and opens a reservation for it.
    pub(crate) fn reserve(&self, request: Request<'_>, ttl: Duration) -> Result<Reservation, Error> {
        let now = request.at.unwrap_or_else(|| self.clock.now());
        let is_counted = request.is_counted;
        let request = self.resolve(request.at(now))?;
        let ResolvedRequest { target: target @ Target { hash, plan, .. }, cost: estimate, agent, .. } = request;
        let lane = request.lane();
        if !self.kind(lane).is_reservable() {
            return Err(Error::WrongKind { lane: lane.number() });
        }
        let blocked = if is_counted { self.blocked(&request)? } else { None };
        if let Some(verdict) = blocked.filter(|verdict| !verdict.is_allowed()) {
            let verdict = self.judged(verdict, &request);
            self.note_answer(agent, lane, &Ok(verdict));
            return Ok(Reservation { verdict, id: None });
        }
        if self.reservations.is_without_seat() {
            return Err(super::in_the_way(&self.memory));
        }
        let Some(slot) = self.reservations.take(hash, now) else {
            self.reservations.count_refusal();
            return Err(Error::ReservationsFull);
        };
        let is_bucket = |lane: LaneId| self.kind(lane).is_bucket();
        let worth_of = |lane: LaneLimits<'_>| {
            let token = if is_bucket(lane.id()) { self.state(&target.with_lane(lane)).token_ns } else { 1 };
            estimate.saturating_mul(token)
        };
        let worth = worth_of(target.lane);
        let total = self.limits.total_with(lane).map(|total| (total.id(), worth_of(total)));
        let entry = |charge: &LaneCharge, lane: LaneId, worth: u64| {
            let verdict = charge.answer.unwrap_or(Verdict::EXEMPT);
            let Receipt { word, place, position, .. } = charge.receipt.unwrap_or_default();
            // The limits may have changed since it was announced.
            let token = if is_bucket(lane) { verdict.token_ns() } else { 1 };
            Entry {
                hash,
                lane,
                plan,
                left: estimate,
                token,
                worth: worth.min(estimate.saturating_mul(token)),
                place,
                position,
                generation: word.generation(),
                expires: now.saturating_add(ttl),
                // Not of an agent that is exempt, nor while a lane is open because its store is lost.
                is_charged: charge.receipt.is_some(),
            }
        };
        slot.announce_total(total);
        if !slot.announce(hash, lane, worth, now) {
            slot.close(hash);
            self.reservations.count_refusal();
            return Err(Error::TooManyReservations { most: self.reservations.per_agent() as u64 });
        }
        let charges = self.charge_both(&request);
        match self.finish(agent, lane, estimate, charges.answer()) {
            Ok(verdict) if verdict.is_allowed() => {
                let id = ReservationId(slot.id());
                #[cfg(feature = "cluster")]
                self.note_reserver(slot.index(), agent, lane);
                slot.keep_total(charges.total.zip(total).map(|(charge, (lane, worth))| entry(&charge, lane, worth)));
                slot.keep(entry(&charges.lane, lane, worth));
                Ok(Reservation { verdict, id: Some(id) })
            }
            answer => {
                slot.close(hash);
                let judged = |verdict| if is_counted { self.judged(verdict, &request) } else { verdict };
                answer.map(|verdict| Reservation { verdict: judged(verdict), id: None })
            }
        }
    }

    /// Settles a reservation, or a part of it.
    pub(crate) fn settle(&self, id: ReservationId, settle: Settle) -> Result<Settlement, Error> {
        let Settle { used, keeps_rest, at } = settle;
        let now = at.map_or_else(|| self.clock.now(), |now| now.max(self.clock.now()));
        let (slot, entry) = self.reservation(id, now)?;
        let (left, overspent) = (entry.left.saturating_sub(used), used.saturating_sub(entry.left));
        let total = slot.total();
        if let Err(error) = self.overspend(&entry, total.as_ref(), overspent, now) {
            slot.keep(entry);
            return Err(error);
        }
        #[cfg(feature = "cluster")]
        if overspent > 0 {
            self.ask_for_reserver(slot.index(), entry.hash, entry.lane, entry.plan);
        }
        if keeps_rest {
            let lessened =
                |entry: Entry| Entry { left, worth: entry.worth.min(left.saturating_mul(entry.token)), ..entry };
            slot.keep_total(total.map(lessened));
            slot.keep(lessened(entry));
            return Ok(Settlement { unused: 0, overspent, left });
        }
        [Some(entry), total].iter().flatten().for_each(|entry| self.give_back(&slot, entry, left, now));
        #[cfg(feature = "cluster")]
        if left > 0 {
            self.ask_for_reserver(slot.index(), entry.hash, entry.lane, entry.plan);
        }
        if broken(Fault::StaleId) {
            slot.keep(entry);
        } else {
            slot.close(entry.hash);
        }
        Ok(Settlement { unused: left, overspent, left: 0 })
    }

    /// Lets a reservation expire `ttl` from `now`, if that is later than before.
    pub(crate) fn extend(&self, id: ReservationId, ttl: Duration, now: Tick) -> Result<(), Error> {
        let (slot, entry) = self.reservation(id, now.max(self.clock.now()))?;
        slot.keep(Entry { expires: entry.expires.max(now.saturating_add(ttl)), ..entry });
        Ok(())
    }

    fn reservation(&self, id: ReservationId, now: Tick) -> Result<(TakenSlot<'_>, Entry), Error> {
        let slot = self.reservations.find(id.0, now)?;
        let entry = slot.entry();
        Ok((slot, entry))
    }

    /// Gives back what was charged for `unused` tokens, as far as it is still in
    /// debt; see [`reservations`](super::reservations).
    fn give_back(&self, slot: &TakenSlot<'_>, entry: &Entry, unused: u64, now: Tick) {
        let worth = unused.saturating_mul(entry.token).min(entry.worth);
        if worth == 0 || !entry.is_charged {
            return;
        }
        let kind = self.kind(entry.lane);
        let step = |words: &[LaneWord]| {
            let word = words[0];
            if word.generation() != entry.generation && !broken(Fault::OtherCharge) {
                return Choice::of(look(()));
            }
            // Read after the word: the caller that charged it read the clock before.
            let at = self.at(now.max(self.clock.now()));
            if !kind.is_bucket() {
                return kind.undo(words, at, entry.place, worth);
            }
            // Also read after the word: others may have lowered it.
            let back = Entry { worth, place: slot.place(entry.lane), ..*entry }.worth_at(at.now);
            let outcome = bucket::give_back(word, at.now, back);
            if let Some(next) = outcome.next {
                self.reservations.lower(entry.hash, entry.lane, next, Some(slot));
            }
            Choice::of(outcome)
        };
        self.update_charged(entry.hash, entry.lane, entry.position, step);
    }

    /// Charges what was used beyond what was reserved, to the lane and to the total.
    fn overspend(&self, entry: &Entry, total: Option<&Entry>, overspent: u64, now: Tick) -> Result<(), Error> {
        if overspent == 0 {
            return Ok(());
        }
        let lane = self.limits.lane(entry.lane)?;
        let total = total.and_then(|entry| Some((entry, self.limits.lane(entry.lane).ok()?)));
        let most_of = |entry: &Entry, lane| match entry.is_charged {
            true => self.overspend_max(entry, lane, now),
            false => CAPACITY_MAX,
        };
        let most = most_of(entry, lane).min(total.map_or(CAPACITY_MAX, |(entry, lane)| most_of(entry, lane)));
        if overspent > most {
            return Err(Error::UsedTooLarge { used: entry.left.saturating_add(overspent), most: entry.left + most });
        }
        if !entry.is_charged {
            return Ok(());
        }
        // Its record may be gone: a bucket is full again, or a window over.
        let charge = |target: &Target<'_>| self.impose(target, |limit, words, at| limit.force(words, at, overspent));
        let target = self.target_at_price(entry, lane, now);
        if charge(&target).is_none() && !self.limit_without_record(&target).is_exempt() {
            return Err(Error::Full);
        }
        // There is a record now. If a newcomer takes it in this moment, the lane's charge is lost with it too.
        if let Some((entry, lane)) = total.filter(|(entry, _)| entry.is_charged) {
            charge(&self.target_at_price(entry, lane, now));
        }
        Ok(())
    }

    /// What a reservation concerns. On a dynamic lane, more is used at the price of the call that reserved.
    fn target_at_price<'a>(&self, entry: &Entry, lane: LaneLimits<'a>, now: Tick) -> Target<'a> {
        let is_dynamic = self.kind(entry.lane) == Kind::Dynamic;
        let limit = if is_dynamic { CallLimit::at_price(entry.token) } else { None };
        Target { limit, ..Target::new(entry.hash, lane, entry.plan, now) }
    }

    fn overspend_max(&self, entry: &Entry, lane: LaneLimits<'_>, now: Tick) -> u64 {
        match self.state(&self.target_at_price(entry, lane, now)).capacity() {
            // It denies everything or is unlimited: it has no number.
            0 | u64::MAX => CAPACITY_MAX,
            capacity => capacity.saturating_mul(OVERSPEND_MAX).min(CAPACITY_MAX),
        }
    }
}
