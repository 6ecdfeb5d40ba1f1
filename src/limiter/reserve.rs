//! Reservations: for what is known to cost something, but not yet how much.

use super::Limiter;
use super::check::{Ask, Made};
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::kind::Receipt;
use crate::lane::{Decision, Verdict};
use crate::policy::{Kind, LaneId};
use crate::reservations::{Entry, Held};
use crate::sync::{Fault, broken};
use std::time::Duration;

/// The id of a reservation. It works until it is committed or cancelled, or
/// its time has passed, and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId(u64);

impl ReservationId {
    /// The id as a number, for those who pass it on.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The id of this number. One that was made up is answered with
    /// [`Error::UnknownReservation`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// The answer to [`reserve`](Limiter::reserve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether the request may go on, and how to settle it"]
pub struct Reserved {
    verdict: Verdict,
    id: Option<ReservationId>,
}

impl Reserved {
    /// Whether the estimate was charged.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The reservation; `None` if it was denied.
    #[must_use]
    pub const fn id(&self) -> Option<ReservationId> {
        self.id
    }
}

/// What a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// What was charged and is not needed: given back, to the window that it
    /// was charged in if that is not over.
    pub unused: u64,
    /// What was used beyond what was reserved: charged to the present window,
    /// into debt if need be.
    pub overspent: u64,
    /// What is still reserved; 0 once the reservation is closed.
    pub left: u64,
}

impl Limiter {
    /// Charges an estimate now, to be settled when the cost is known: by
    /// [`commit`](Limiter::commit), or by [`cancel`](Limiter::cancel) if
    /// nothing came of it.
    ///
    /// If neither happens within `ttl`, the estimate stays charged: to
    /// disconnect is not free. For buckets, windows and budgets.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at); [`Error::WrongKind`] for a lane that
    /// is held or an exact window; [`Error::ReservationsFull`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy};
    ///
    /// let policy = Policy::builder().lane("llm", "budget 10_000/day").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build()?;
    /// let llm = limiter.lane("llm").expect("named above");
    ///
    /// let reserved = limiter.reserve("user:42", llm, 4_000, Duration::from_secs(120))?;
    /// let id = reserved.id().expect("within the budget");
    /// limiter.commit_part(id, 500)?; // While the answer streams.
    /// let settled = limiter.commit(id, 700)?;
    /// assert_eq!((settled.unused, settled.overspent), (2_800, 0));
    /// assert_eq!(limiter.status("user:42", llm)?.remaining(), 10_000 - 1_200);
    /// assert!(limiter.commit(id, 700).is_err()); // An id works once.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(
        &self,
        agent: impl AsRef<[u8]>,
        lane: LaneId,
        estimate: u64,
        ttl: Duration,
    ) -> Result<Reserved, Error> {
        self.reserve_at(agent, lane, estimate, ttl, self.clock.now())
    }

    /// As [`reserve`](Limiter::reserve), at `now`.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Limiter::reserve).
    pub fn reserve_at(
        &self,
        agent: impl AsRef<[u8]>,
        lane: LaneId,
        estimate: u64,
        ttl: Duration,
        now: Tick,
    ) -> Result<Reserved, Error> {
        let ask = Ask { agent: agent.as_ref(), lane: self.limits.lane(lane)?, cost: estimate, stand_in: None };
        if matches!(self.limits.kinds()[lane.index()], Kind::Held | Kind::Exact { .. }) {
            return Err(Error::WrongKind { lane: lane.number() });
        }
        let hash = self.hash(ask.agent)?;
        let slot = self.reservations.take(now).ok_or(Error::ReservationsFull)?;
        slot.announce(hash);
        let Made { answer, receipt } = self.make(hash, ask, now);
        self.note_answer(ask.agent, lane, &answer);
        match answer {
            Ok(verdict) if verdict.is_allowed() => {
                let Receipt { at, place } = receipt.unwrap_or_default();
                let is_charged = verdict.decision() != Decision::Exempt;
                let expires = now.saturating_add(ttl);
                let id = ReservationId(slot.id());
                let entry = Entry { hash, lane, left: estimate, receipt: place, charged_at: at, expires, is_charged };
                slot.keep(entry);
                Ok(Reserved { verdict, id: Some(id) })
            }
            answer => {
                slot.close(hash);
                answer.map(|verdict| Reserved { verdict, id: None })
            }
        }
    }

    /// Settles a reservation: `used` is what it came to, beyond what
    /// [`commit_part`](Limiter::commit_part) has told already. The rest is
    /// given back; what is more than was reserved is charged, into debt if need
    /// be, and told.
    ///
    /// A bucket that would have been full again since the reservation gets back
    /// only what others cannot have spent meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownReservation`] if the id was settled already, its time
    /// has passed, or it is none. Then nothing has changed.
    pub fn commit(&self, id: ReservationId, used: u64) -> Result<Settlement, Error> {
        self.commit_with(id, used, None)
    }

    /// As [`commit`](Limiter::commit), at `now`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn commit_at(&self, id: ReservationId, used: u64, now: Tick) -> Result<Settlement, Error> {
        self.commit_with(id, used, Some(now))
    }

    fn commit_with(&self, id: ReservationId, used: u64, now: Option<Tick>) -> Result<Settlement, Error> {
        let (slot, entry) = self.reservation(id, now.unwrap_or_else(|| self.clock.now()))?;
        let (unused, overspent) = (entry.left.saturating_sub(used), used.saturating_sub(entry.left));
        self.settle(&entry, unused, overspent, now)?;
        if broken(Fault::StaleId) {
            slot.keep(entry);
        } else {
            slot.close(entry.hash);
        }
        Ok(Settlement { unused, overspent, left: 0 })
    }

    /// Tells that so much of a reservation was used, and keeps the rest
    /// reserved: for answers that stream. What is more than was reserved is
    /// charged at once.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn commit_part(&self, id: ReservationId, used: u64) -> Result<Settlement, Error> {
        self.commit_part_at(id, used, self.clock.now())
    }

    /// As [`commit_part`](Limiter::commit_part), at `now`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn commit_part_at(&self, id: ReservationId, used: u64, now: Tick) -> Result<Settlement, Error> {
        let (slot, entry) = self.reservation(id, now)?;
        let (left, overspent) = (entry.left.saturating_sub(used), used.saturating_sub(entry.left));
        self.settle(&entry, 0, overspent, Some(now))?;
        slot.keep(Entry { left, ..entry });
        Ok(Settlement { unused: 0, overspent, left })
    }

    /// Gives a reservation back, but for what
    /// [`commit_part`](Limiter::commit_part) has told already.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn cancel(&self, id: ReservationId) -> Result<Settlement, Error> {
        self.commit(id, 0)
    }

    /// As [`cancel`](Limiter::cancel), at `now`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn cancel_at(&self, id: ReservationId, now: Tick) -> Result<Settlement, Error> {
        self.commit_at(id, 0, now)
    }

    /// Gives a reservation `ttl` from now, if that is later than it had.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn extend(&self, id: ReservationId, ttl: Duration) -> Result<(), Error> {
        self.extend_at(id, ttl, self.clock.now())
    }

    /// As [`extend`](Limiter::extend), at `now`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Limiter::commit).
    pub fn extend_at(&self, id: ReservationId, ttl: Duration, now: Tick) -> Result<(), Error> {
        let (slot, entry) = self.reservation(id, now)?;
        slot.keep(Entry { expires: entry.expires.max(now.saturating_add(ttl)), ..entry });
        Ok(())
    }

    fn reservation(&self, id: ReservationId, now: Tick) -> Result<(Held<'_>, Entry), Error> {
        let slot = self.reservations.find(id.0, now).ok_or(Error::UnknownReservation)?;
        let entry = slot.entry();
        Ok((slot, entry))
    }

    fn settle(&self, entry: &Entry, unused: u64, overspent: u64, now: Option<Tick>) -> Result<(), Error> {
        if !entry.is_charged {
            return Ok(());
        }
        let lane = self.limits.lane(entry.lane)?;
        if unused > 0 {
            let receipt = Receipt { at: entry.charged_at, place: entry.receipt };
            self.undo(entry.hash, lane, now, receipt, unused);
        }
        if overspent > 0 {
            let now = now.unwrap_or_else(|| self.clock.now());
            // Its record may be gone: a bucket is full again, or a window over.
            self.impose(entry.hash, None, lane, now, |limit, words, at| limit.force(words, at, overspent));
        }
        Ok(())
    }
}
