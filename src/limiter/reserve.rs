//! Charge an estimate now, settle the real cost later.

use super::Limiter;
use crate::clock::Tick;
use crate::engine::{Request, Reservation, ReservationId, Settle, Settlement};
use crate::error::Error;
use std::time::Duration;

impl Limiter {
    /// Charges an estimate now, the cost of the request; [settle](Limiter::settle) the real cost
    /// later.
    ///
    /// If nobody settles it within `ttl`, the estimate stays charged: disconnecting is not free.
    /// Works for buckets, windows and budgets. A [total](crate::PolicyBuilder::total) is charged
    /// and settled along with the lane.
    ///
    /// A reservation belongs to the charge that it made. If the agent is [reset](Limiter::reset),
    /// that charge is forgiven, and there is nothing left to give back. If its limits change, the
    /// charge keeps its worth: for a bucket, the time that the estimate took to refill. If the
    /// agent is [forgotten](Limiter::forget), its reservations are closed.
    ///
    /// # Errors
    ///
    /// As [`check_request`](Limiter::check_request); [`Error::WrongKind`] for a held lane or an
    /// exact window; [`Error::TooManyReservations`] if the agent has as many open as [one agent
    /// may](crate::LimiterBuilder::reservations_per_agent); [`Error::ReservationsFull`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy, Request, Settle};
    ///
    /// let policy = Policy::builder().lane("llm", "budget 10_000/day").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build()?;
    /// let llm = limiter.lane("llm").expect("named above");
    ///
    /// let estimate = Request::new("user:42", llm).cost(4_000);
    /// let reserved = limiter.reserve(estimate, Duration::from_secs(120))?;
    /// let id = reserved.id().expect("within the budget");
    /// limiter.settle(id, Settle::used_so_far(500))?; // While the answer streams.
    /// let settled = limiter.settle(id, Settle::used(700))?;
    /// assert_eq!((settled.unused, settled.overspent), (2_800, 0));
    /// assert_eq!(limiter.peek(estimate)?.remaining(), 10_000 - 1_200);
    /// assert!(limiter.settle(id, Settle::used(700)).is_err()); // An id works once.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, request: Request<'_>, ttl: Duration) -> Result<Reservation, Error> {
        self.engine.reserve(request, ttl)
    }

    /// Settles a reservation, or a part of it.
    ///
    /// What was reserved and not used is given back. What was used beyond it is charged, into debt
    /// if need be. A bucket that would have been full again since the reservation gets back only
    /// what others cannot have spent meanwhile.
    ///
    /// # Errors
    ///
    /// After any of these nothing has changed, and an open reservation stays open:
    ///
    /// - [`Error::UnknownReservation`] if the id was settled already, has expired, or never existed;
    /// - [`Error::UsedTooLarge`] if more than [`OVERSPEND_MAX`](crate::bounds::OVERSPEND_MAX) times the
    ///   lane's capacity would be overspent;
    /// - [`Error::Full`] if something is overspent and there is no record to charge it to, because the
    ///   agent's was idle and has been taken. Settle again later.
    pub fn settle(&self, id: ReservationId, settle: Settle) -> Result<Settlement, Error> {
        self.engine.settle(id, settle)
    }

    /// Lets a reservation expire `ttl` from now, if that is later than before.
    ///
    /// # Errors
    ///
    /// As [`settle`](Limiter::settle).
    pub fn extend(&self, id: ReservationId, ttl: Duration) -> Result<(), Error> {
        self.extend_at(id, ttl, self.engine.clock.now())
    }

    /// Extends a reservation at `now`.
    pub(crate) fn extend_at(&self, id: ReservationId, ttl: Duration, now: Tick) -> Result<(), Error> {
        self.engine.extend(id, ttl, now)
    }
}
