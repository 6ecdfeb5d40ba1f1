//! What happens on a connection after its request was admitted: messages, and slots held while it lasts.

use crate::frame;
use crate::gate::{Gate, Question};
use crate::head::Head;
use crate::quota::Quota;
use crate::refusal::Reason;
use crate::verdicts::reason;
use bytes::Bytes;
use http::Response;
use std::sync::Arc;
use tollgate::{Decision, Error, HeldSlot, LaneId, Limiter, PlanId, Request};

/// What happens to a message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The service gets it.
    Deliver,
    /// The service gets it, and the client this frame: it is near its limit.
    Warn(String),
    /// The service does not get it, and the client gets this frame. The connection stays.
    Refuse(String),
}

/// What happens to a connection that needs a slot.
#[derive(Debug)]
pub enum Holding {
    /// It gets one; an exempt agent needs none.
    Slot(Option<HeldSlot<Arc<Limiter>>>),
    /// It gets none, and the gate answers it.
    Answer(Response<Bytes>),
}

impl Gate {
    /// Rules on a message that an agent sends on a connection, and charges `cost` if it is delivered.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::check_request`](tollgate::Limiter::check_request); a cost above the
    /// capacity is refused.
    ///
    /// ```
    /// use tollgate::{Limiter, ManualClock, Policy};
    /// use tollgate_gate::{Delivery, Gate, Key};
    ///
    /// let policy = Policy::builder().lane("ws/messages", "10/min burst 1").build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
    /// let gate = Gate::builder(limiter).key(Key::header("x-agent-id")).build()?;
    /// let lane = gate.limiter().lane("ws/messages").ok_or("named above")?;
    ///
    /// assert!(matches!(gate.message(b"agent-7", lane, 1, None)?, Delivery::Warn(_)));
    /// let frame = r#"{"type":"rate_limited","retry_after_ms":6000,"tier":"messages"}"#;
    /// assert_eq!(gate.message(b"agent-7", lane, 1, None)?, Delivery::Refuse(frame.to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message(&self, agent: &[u8], lane: LaneId, cost: u64, plan: Option<PlanId>) -> Result<Delivery, Error> {
        let request = Request::new(agent, lane).cost(cost).plan(plan);
        let request = if self.counts_violations { request.counted() } else { request };
        let name = self.lanes.name(lane);
        match self.limiter.check_request(request) {
            Ok(verdict) => Ok(match verdict.decision() {
                Decision::Warn => Delivery::Warn(frame::warning(name, &Quota::from(&verdict))),
                Decision::Deny => Delivery::Refuse(frame::denial(name, &Quota::from(&verdict))),
                _ => Delivery::Deliver,
            }),
            Err(Error::CostAboveCapacity { .. }) => {
                let state = self.limiter.peek(Request::new(agent, lane).plan(plan))?;
                Ok(Delivery::Refuse(frame::denial(name, &Quota { denied: true, ..Quota::from(&state) })))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a slot of a held lane for as long as a connection lasts: until the guard is dropped,
    /// however the connection ends.
    pub fn hold(&self, head: &Head<'_>, question: &Question<'_>, lane: LaneId) -> Holding {
        let request = Request::new(question.agent.as_bytes(), lane).plan(question.plan);
        match Limiter::hold(Arc::clone(&self.limiter), request) {
            Ok(hold) if hold.verdict().is_allowed() => Holding::Slot(hold.into_slot()),
            Ok(hold) => {
                let verdict = hold.verdict();
                let quota = Quota::from(&verdict);
                let reason = match reason(&verdict, &quota, 1) {
                    Reason::Quota => Reason::Held,
                    other => other,
                };
                Holding::Answer(self.refuse(head, &question.agent, lane, reason, quota))
            }
            Err(error) => Holding::Answer(self.answer_error(head, question, error)),
        }
    }
}
