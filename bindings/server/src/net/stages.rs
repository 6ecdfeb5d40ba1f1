//! The stages of a shutdown, for everything that listens.
//!
//! Load balancers learn of the shutdown first, clients next, and the system last:
//!
//! 1. *Notice*: `/readyz` answers 503, and everything else is served as before.
//! 2. *Draining*: each response is the last on its connection.
//! 3. *Closing*: what waits to be accepted is accepted, and the listeners close. Requests
//!    that were sent are answered, and idle connections end.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use tokio::sync::watch;

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// There is none.
    Serving,
    Notice,
    Draining,
    Closing,
}

/// The stage, and who waits for the next one.
pub(crate) struct Stages {
    /// For those who ask with every response.
    now: AtomicU8,
    changes: watch::Sender<Stage>,
}

impl Stages {
    pub(crate) fn new() -> Self {
        Self { now: AtomicU8::new(Stage::Serving as u8), changes: watch::Sender::new(Stage::Serving) }
    }

    /// Begins a stage.
    pub(crate) fn begin(&self, stage: Stage) {
        self.now.store(stage as u8, Relaxed);
        self.changes.send_replace(stage);
    }

    /// Whether this stage has begun.
    pub(crate) fn has_begun(&self, stage: Stage) -> bool {
        self.now.load(Relaxed) >= stage as u8
    }

    pub(crate) fn subscribe(&self) -> Stop {
        Stop(self.changes.subscribe())
    }
}

/// The shutdown, as a listener or a connection sees it.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<Stage>);

impl Stop {
    /// Waits until a stage has begun. A server that is gone has begun all of them.
    pub(crate) async fn reaches(&mut self, stage: Stage) {
        _ = self.0.wait_for(|now| *now >= stage).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_begins_with_all_before_it() {
        let stages = Stages::new();
        let mut stop = stages.subscribe();
        let mut is_reached = |stage| {
            let mut reaches = Box::pin(stop.reaches(stage));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            reaches.as_mut().poll(&mut cx).is_ready()
        };
        assert!(is_reached(Stage::Serving) && !is_reached(Stage::Notice) && !stages.has_begun(Stage::Notice));
        stages.begin(Stage::Draining);
        assert!(is_reached(Stage::Notice) && is_reached(Stage::Draining) && !is_reached(Stage::Closing));
        assert!(stages.has_begun(Stage::Draining) && !stages.has_begun(Stage::Closing));
        drop(stages);
        assert!(is_reached(Stage::Closing));
    }
}
