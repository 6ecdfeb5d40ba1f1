//! A thread of a round: calls everything, and logs what passed.

use super::judge::{Charge, Cut, Refund, Span};
use super::random::Random;
use super::run::{AGENTS, BUCKET, BUDGET, DEBT, EXACT, HELD, Mix, OTHER, PLAIN, Round, Total, WINDOW};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tollgate::{Error, HeldSlot, LaneId, Limiter, Request, ReservationId, Settle, Tick};

const CALLS: u64 = 250;
/// How old a stale instant can be, in nanoseconds.
const STALE: u64 = 4_000_000;
/// Agents that come and go, so that records change hands.
const CROWD: u64 = 400;

/// A thread of a round.
pub(super) struct Worker<'a> {
    pub(super) round: &'a Round,
    pub(super) mix: Mix,
    pub(super) random: Random,
    /// How far the clock moves at once, at the most: in some rounds buckets
    /// are mostly empty, in others mostly full.
    pub(super) step: u64,
    /// Whether agents use nothing that keeps their record when they are idle.
    pub(super) keeps_no_record: bool,
    pub(super) charges: Vec<Charge>,
    pub(super) refunds: Vec<Refund>,
    pub(super) cuts: Vec<Cut>,
    /// Open reservations, and which charge each made.
    pub(super) reserved: Vec<(ReservationId, usize)>,
    pub(super) slots: Vec<(usize, HeldSlot<&'a Limiter>)>,
}

impl<'a> Worker<'a> {
    pub(super) fn work(mut self) -> (Vec<Charge>, Vec<Refund>, Vec<Cut>) {
        for _ in 0..CALLS {
            self.call();
            if self.random.below(3) == 0 {
                let step = self.random.below(self.step);
                self.round.clock.advance(Duration::from_nanos(step));
            }
        }
        while let Some((agent, slot)) = self.slots.pop() {
            self.release(agent, slot);
        }
        (self.charges, self.refunds, self.cuts)
    }

    fn call(&mut self) {
        let mix = self.mix;
        match self.random.below(16) {
            0..=2 if mix.all => self.all(),
            3..=8 if mix.all && !mix.settle => self.all(),
            3 | 4 if mix.settle => self.reserve(),
            5 | 6 if mix.settle => self.settle(),
            7 if mix.refund => self.refund(),
            8 if mix.hold => self.hold(),
            9 if mix.hold => {
                if let Some((agent, slot)) = self.slots.pop() {
                    self.release(agent, slot);
                }
            }
            10 if mix.control => self.control(),
            11 | 12 if mix.crowd => self.crowd(),
            13 => self.batch(),
            _ => self.check(),
        }
    }

    /// Between the first and the last call of its span.
    fn spanned<T>(&mut self, call: impl FnOnce(&'a Limiter) -> T) -> (T, Span) {
        let tick = || self.round.calls.fetch_add(1, Ordering::SeqCst);
        let began = tick();
        let answer = call(&self.round.limiter);
        (answer, Span { began, ended: tick() })
    }

    /// An instant for a call: `None` for the clock's own.
    fn instant(&mut self) -> Option<Tick> {
        let now = self.round.clock.now().as_nanos();
        match self.random.below(4) {
            0 => Some(Tick::from_nanos(now)),
            1 if self.mix.stale => Some(Tick::from_nanos(now - self.random.below(STALE))),
            _ => None,
        }
    }

    /// Makes a call as of some instant, and says between which two that was.
    fn timed<T>(&mut self, call: impl FnOnce(&'a Limiter, Option<Tick>) -> T) -> (T, u64, u64, Span) {
        let at = self.instant();
        let low = self.round.clock.now();
        let (answer, span) = self.spanned(|limiter| call(limiter, at));
        let high = self.round.clock.now();
        (answer, at.unwrap_or(low).as_nanos(), at.unwrap_or(high).as_nanos(), span)
    }

    fn agent(&mut self) -> usize {
        self.random.below(AGENTS as u64) as usize
    }

    /// A lane, and what it may be asked for.
    fn lane(&mut self, lanes: &[u32]) -> (u32, u64) {
        let lane = lanes[self.random.below(lanes.len() as u64) as usize];
        // An agent that has used its budget keeps its record all day.
        let lane = if lane == BUDGET && self.keeps_no_record { BUCKET } else { lane };
        let most = match lane {
            BUCKET => 12,
            WINDOW => 4,
            EXACT => 1,
            // What is more than the total ever holds can never pass.
            DEBT if self.random.below(4) == 0 && self.mix.total == Total::None => 4 * PLAIN.capacity,
            DEBT if self.random.below(4) == 0 => OTHER.total,
            DEBT => 12,
            _ => 30,
        };
        (lane, 1 + self.random.below(most))
    }

    fn note(&mut self, agent: usize, (lane, cost): (u32, u64), (low, high): (u64, u64), span: Span) {
        let length = PLAIN.length.div_ceil(3);
        let third = self.round.clock.now().as_nanos() / length * length;
        self.charges.push(Charge { agent, lane, low, high, third, asked: cost, cost, span });
    }

    fn check(&mut self) {
        let (agent, (lane, cost)) = (self.agent(), self.lane(&[BUCKET, BUCKET, WINDOW, EXACT, BUDGET, DEBT]));
        let (answer, low, high, span) = self.timed(|limiter, at| match at {
            Some(at) => limiter.check_request(Request::new(&id(agent), LaneId::new(lane)).cost(cost).at(at)),
            None => limiter.check_request(Request::new(&id(agent), LaneId::new(lane)).cost(cost)),
        });
        match answer {
            Ok(verdict) if verdict.is_allowed() => self.note(agent, (lane, cost), (low, high), span),
            Ok(_) => {}
            Err(error) => assert_eq!(error, Error::Full),
        }
    }

    fn batch(&mut self) {
        let parts: [_; 4] = std::array::from_fn(|_| (self.agent(), self.lane(&[BUCKET, WINDOW, EXACT, BUDGET, DEBT])));
        let ids = parts.map(|(agent, _)| id(agent));
        let requests: Vec<_> =
            parts.iter().zip(&ids).map(|((_, (lane, cost)), id)| request(id, *lane, *cost)).collect();
        let mut answers = [const { Err(Error::ZeroCost) }; 4];
        let (_, low, high, span) = self.timed(|limiter, at| match at {
            Some(at) => limiter.check_many(&all_at(&requests, at), &mut answers).expect("room for every answer"),
            None => limiter.check_many(&requests, &mut answers).expect("room for every answer"),
        });
        for ((agent, part), answer) in parts.into_iter().zip(answers) {
            if answer.is_ok_and(|verdict| verdict.is_allowed()) {
                self.note(agent, part, (low, high), span);
            }
        }
    }

    fn all(&mut self) {
        let parts: [_; 3] =
            std::array::from_fn(|_| (self.agent(), self.lane(&[BUCKET, BUCKET, WINDOW, EXACT, BUDGET, DEBT])));
        let ids = parts.map(|(agent, _)| id(agent));
        let requests: Vec<_> =
            parts.iter().zip(&ids).map(|((_, (lane, cost)), id)| request(id, *lane, *cost)).collect();
        let (answer, low, high, span) = self.timed(|limiter, at| match at {
            Some(at) => limiter.check_all(&all_at(&requests, at)),
            None => limiter.check_all(&requests),
        });
        match answer {
            Ok(verdict) if verdict.is_allowed() => {
                parts.into_iter().for_each(|(agent, part)| self.note(agent, part, (low, high), span));
            }
            Ok(_) => {}
            Err(error) => assert!(matches!(error, Error::Full | Error::CostAboveCapacity { .. }), "{error}"),
        }
    }

    fn reserve(&mut self) {
        let (agent, (lane, cost)) = (self.agent(), self.lane(&[BUCKET, BUCKET, WINDOW, BUDGET, DEBT]));
        let ttl = Duration::from_nanos(self.random.below(3_000_000));
        let (answer, low, high, span) = self.timed(|limiter, at| match at {
            Some(at) => limiter.reserve(Request::new(&id(agent), LaneId::new(lane)).cost(cost).at(at), ttl),
            None => limiter.reserve(Request::new(&id(agent), LaneId::new(lane)).cost(cost), ttl),
        });
        let Ok(reserved) = answer else { return };
        if let Some(reservation) = reserved.id() {
            self.reserved.push((reservation, self.charges.len()));
            self.note(agent, (lane, cost), (low, high), span);
        }
    }

    fn settle(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let index = self.random.below(self.reserved.len() as u64) as usize;
        let (reservation, charge) = self.reserved[index];
        let used = self.random.below(self.charges[charge].cost + 1);
        let in_part = self.random.below(4) == 0;
        let (answer, ..) = self.timed(|limiter, at| match (in_part, at) {
            (true, Some(at)) => limiter.settle(reservation, Settle::used_so_far(used.min(1)).at(at)),
            (true, None) => limiter.settle(reservation, Settle::used_so_far(used.min(1))),
            (false, Some(at)) => limiter.settle(reservation, Settle::used(used).at(at)),
            (false, None) => limiter.settle(reservation, Settle::used(used)),
        });
        let Ok(settlement) = answer else {
            self.reserved.swap_remove(index); // Its time has passed: all of it stays charged.
            return;
        };
        self.charges[charge].cost -= settlement.unused;
        if !in_part {
            self.reserved.swap_remove(index);
        }
    }

    fn refund(&mut self) {
        let (agent, (lane, cost)) = (self.agent(), self.lane(&[BUCKET, WINDOW, EXACT, BUDGET, DEBT]));
        let (answer, .., span) = self.timed(|limiter, at| match at {
            Some(at) => limiter.refund(Request::new(&id(agent), LaneId::new(lane)).cost(cost).at(at)),
            None => limiter.refund(Request::new(&id(agent), LaneId::new(lane)).cost(cost)),
        });
        if answer.is_ok() {
            self.refunds.push(Refund { agent, lane, cost, span });
        }
    }

    fn hold(&mut self) {
        let agent = self.agent();
        let (answer, _) = self.spanned(|limiter| Limiter::hold(limiter, Request::new(&id(agent), LaneId::new(HELD))));
        if let Some(slot) = answer.ok().and_then(tollgate::Hold::into_slot) {
            let held = self.round.held[agent].fetch_add(1, Ordering::SeqCst) + 1;
            self.round.held_most[agent].fetch_max(held, Ordering::SeqCst);
            self.slots.push((agent, slot));
        }
    }

    fn release(&mut self, agent: usize, slot: HeldSlot<&'a Limiter>) {
        self.round.held[agent].fetch_sub(1, Ordering::SeqCst);
        drop(slot);
    }

    fn control(&mut self) {
        let agent = self.agent();
        let round = self.round;
        let mut numbers = round.numbers[agent].lock().expect("nobody panicked");
        let act = self.random.below(6);
        let lanes = if self.mix.total == Total::None { 4 } else { 7 };
        let lane = LaneId::new(self.random.below(lanes) as u32);
        let (next, span) = self.spanned(|limiter| {
            let id = id(agent);
            match act {
                0 => limiter.reset(&id).map(|()| *numbers).expect("a valid id"),
                1 => limiter.reset_lane(&id, lane).map(|()| *numbers).expect("a valid lane"),
                2 => limiter.forget(&id).map(|_| *numbers).expect("a valid id"),
                3 => {
                    let plan = limiter.plan("other").expect("in the policy");
                    limiter.assign(id, plan).expect("a valid plan");
                    OTHER
                }
                4 => {
                    limiter.unassign(id).expect("a valid id");
                    PLAIN
                }
                _ => {
                    // There and back: rows of limits are written over others'.
                    let status = |_| limiter.peek(Request::new(&id, LaneId::new(WINDOW))).expect("a valid lane");
                    (0..4).for_each(|round| {
                        limiter.set_override("another", "window", "window 9/ms").expect("a valid limit");
                        let _ = status(round);
                        limiter.remove_overrides("another").expect("a valid id");
                    });
                    *numbers
                }
            }
        });
        if act < 5 {
            *numbers = next;
            self.cuts.push(Cut { agent, numbers: next, span });
        }
    }

    fn crowd(&mut self) {
        let stranger = AGENTS as u64 + self.random.below(CROWD);
        let (sweep, clock) = (self.random.below(8) == 0, &self.round.clock);
        let _ = self.timed(|limiter, at| {
            if sweep {
                // Now everybody is idle.
                clock.advance(Duration::from_nanos(STALE / 2));
                limiter.sweep(Duration::ZERO);
            } else {
                let at = at.unwrap_or_else(|| limiter.now());
                let _ = limiter.check_request(Request::new(&stranger.to_le_bytes(), LaneId::new(BUCKET)).at(at));
            }
        });
    }
}

fn id(agent: usize) -> [u8; 8] {
    (agent as u64).to_le_bytes()
}

fn request(id: &[u8], lane: u32, cost: u64) -> Request<'_> {
    Request::new(id, LaneId::new(lane)).cost(cost)
}

fn all_at<'a>(requests: &[Request<'a>], now: Tick) -> Vec<Request<'a>> {
    requests.iter().map(|request| request.at(now)).collect()
}
