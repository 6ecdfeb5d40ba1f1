//! What the commands of all clients share: the limiter, the lane, the tokens.

use super::counts::Counts;
use super::throttle::{Answer, Throttle};
use crate::app::App;
use crate::auth::Right;
use http::HeaderMap;
use std::net::IpAddr;
use std::time::Duration;
use tollgate::{CallLimit, LaneId, Request};

/// The version that clients are shown: they look for the commands that it has.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// The limiter as clients of Redis see it.
pub(super) struct Service<'a> {
    pub(super) app: &'a App,
    pub(super) lane: LaneId,
    /// Whether clients need no token.
    pub(super) is_open: bool,
}

/// Why a password is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// None is asked for.
    Open,
    Wrong,
    TooMany,
}

impl Denied {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Open => {
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?"
            }
            Self::Wrong => {
                "WRONGPASS invalid username-password pair or user is disabled; the password is the server's check \
                 token, its admin token, or one of its tokens that may check this lane"
            }
            Self::TooMany => "WRONGPASS too many wrong passwords came from this address; wait a second",
        }
    }
}

impl Service<'_> {
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn counts(&self) -> &Counts {
        self.app.meter().resp()
    }

    /// Whether a password is a token that may check the lane.
    pub(super) fn may_check(&self, password: &[u8], peer: IpAddr) -> Result<(), Denied> {
        if self.is_open {
            return Err(Denied::Open);
        }
        let policy = self.app.limiter().policy();
        let lane = policy.lanes().find(|(lane, _)| *lane == self.lane).map_or("", |(_, name)| name);
        match self.app.keys().right_of_token(password, &HeaderMap::new(), peer) {
            Ok((right, scope)) if right >= Right::Check && scope.has(lane) => Ok(()),
            Ok(_) => Err(Denied::Wrong),
            Err(_) => Err(Denied::TooMany),
        }
    }

    /// Decides about a call, and counts it.
    pub(super) fn decide(&self, throttle: &Throttle<'_>) -> Result<Answer, String> {
        let answer = throttle.decide(self.app.limiter(), self.lane).map_err(|error| format!("ERR {error}"))?;
        match answer.is_limited {
            // The limit is the call's, whatever the agent's plan.
            true => self.app.meter().count_denial(self.lane, "default"),
            false => self.app.meter().add_cost(self.lane, throttle.quantity),
        }
        Ok(answer)
    }

    /// Forgets what a key has used of the lane, and returns whether that was anything.
    pub(super) fn delete(&self, key: &[u8]) -> Result<bool, String> {
        let limiter = self.app.limiter();
        let problem = |error: tollgate::Error| format!("ERR {error}");
        // Any limit shows whether there is a debt.
        let any = CallLimit::new(1, 1, Duration::from_secs(1)).ok();
        let used = limiter.peek(Request::new(key, self.lane).limit(any)).map_err(problem)?;
        limiter.reset_lane(key, self.lane).map_err(problem)?;
        Ok(!used.full_in().is_zero())
    }

    /// The reply to `INFO`: what clients look for in it, and how much there is.
    pub(super) fn info(&self) -> String {
        let (commands, errors) = self.counts().commands();
        let total: u64 = commands.iter().map(|(_, count)| count).sum();
        let clients = self.counts().clients();
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\ntollgate_version:{version}\r\nredis_mode:standalone\r\n\
             \r\n# Clients\r\nconnected_clients:{clients}\r\n\r\n# Persistence\r\nloading:0\r\n\r\n# Stats\r\n\
             total_commands_processed:{total}\r\ntotal_error_replies:{errors}\r\n\r\n# Replication\r\nrole:master\r\n"
        )
    }
}
