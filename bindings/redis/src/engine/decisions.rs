//! The thread that carries what operators decide to the store, and from there.
//!
//! It has a connection of its own, to the master that has the keys of decisions: so settlements never wait for
//! thousands of assignments, and a user that may not touch these keys still settles.

use super::builder::Settings;
use super::connection::{Connector, Decider};
use super::problem::Problem;
use super::status::Shared;
use super::thread::Held;
use crate::decisions::{Decisions, StoreRequest};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tollgate::ControlError;
use tollgate::cluster::Operators;

/// How often it looks whether an operator has decided anything.
const TICK: Duration = Duration::from_millis(10);

const RECONNECT_FIRST: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_millis(500);

pub(super) struct Carrier {
    limiter: Held,
    connector: Connector,
    timeout: Duration,
    shared: Arc<Shared>,
    begin: Instant,
}

impl Carrier {
    pub(super) fn new(limiter: Held, settings: &Settings, shared: Arc<Shared>) -> Self {
        let connector = Connector::new(settings.ways.clone());
        Self { limiter, connector, timeout: settings.timeout, shared, begin: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Carries decisions until the engine is dropped.
    pub(super) fn run(&mut self) {
        let limiter = Arc::clone(&self.limiter);
        let Some(operators) = Operators::of((*limiter).as_ref()) else { return };
        let mut name = [0; 16];
        if let Err(problem) = getrandom::fill(&mut name) {
            self.shared.show_decisions(|status| {
                status.last_problem = Some(format!("the system gives no random bytes: {problem}"));
            });
            return;
        }
        let mut decisions = Decisions::new(operators.key(), u128::from_le_bytes(name));
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut pause = RECONNECT_FIRST;
        while !self.shared.ends() {
            let connection = self.connector.decider(&decisions.tag(), &name, self.timeout);
            let problem = connection.and_then(|mut decider| {
                decisions.connected();
                pause = RECONNECT_FIRST;
                self.carry(&operators, &mut decisions, &mut decider)
            });
            decisions.lost();
            self.show(&decisions);
            if let Err(problem) = problem {
                self.shared.show_decisions(|status| status.last_problem = Some(problem.to_string()));
            }
            let until = self.now() + pause;
            while self.now() < until && !self.shared.ends() {
                sleep(TICK);
            }
            pause = (2 * pause).min(RECONNECT_MAX);
        }
    }

    /// Carries them over a connection. Ends well if the engine is dropped: then what was decided here before is in the
    /// store, as far as that gets in the time that an answer may take.
    fn carry(
        &self,
        operators: &Operators<'_>,
        decisions: &mut Decisions,
        decider: &mut Decider,
    ) -> Result<(), Problem> {
        let mut ends_at = None;
        // Ends: once the engine is dropped, when nothing waits any more or time is up.
        loop {
            let ends = self.shared.ends();
            decisions.tend(operators).map_err(|problem: ControlError| Problem::Limiter(problem.to_string()))?;
            let request = decisions.next(operators, self.now());
            let is_idle = request.is_none();
            if let Some(request) = request {
                let reply = decider.ask(&request)?;
                decisions.answered(operators, self.now(), reply);
                if request != StoreRequest::Head {
                    self.show(decisions);
                }
            }
            if ends {
                let until = *ends_at.get_or_insert(self.now() + self.timeout);
                if decisions.status().waiting == 0 || self.now() >= until {
                    return Ok(());
                }
            }
            if is_idle {
                self.show(decisions);
                sleep(TICK);
            }
        }
    }

    fn show(&self, decisions: &Decisions) {
        self.shared.show_decisions(|status| {
            let last_problem = status.last_problem.take();
            *status = decisions.status();
            status.last_problem = last_problem;
        });
    }
}
