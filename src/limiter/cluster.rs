//! Limits that machines share through a store, such as Redis.
//!
//! - `operators.rs`: what operators change here, and what follows from other machines
//! - `secret.rs`: the secret that these machines have
//! - `status.rs`: what an operator reads of the lanes that are shared

mod operators;
mod secret;
mod status;

pub use operators::Operators;
pub use secret::SECRET_BYTES_MIN;
pub use status::{ClusterStatus, SharedLane};

use super::{Limiter, LimiterBuilder};
use crate::engine::{Ask, Due, Engine, Settled};
use crate::error::BuildError;
use crate::lane::Numbers;
use crate::lane::clustered::{self, Clustered, LinkState, LinkWord, WhenLost};
use crate::policy::{Kind, LaneId, PlanId, Policy};
use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

/// How machines share the lanes of a limiter: the settings of
/// [`LimiterBuilder::cluster`].
///
/// ```
/// use tollgate::cluster::{Cluster, ClusterLane, Link, WhenLost};
/// use tollgate::{Limiter, Policy};
///
/// let policy = Policy::builder()
///     .lane("http", "1000/s")
///     .lane("login", "5/min")
///     .lane("llm", "budget 1_000_000/day")
///     .lane("ws", "held 3")
///     .build()?;
/// let cluster = Cluster::new([7; 16]) // The same secret key on every machine.
///     .slack_percent(5)
///     .lane("login", ClusterLane::new().exact().when_lost(WhenLost::Closed))
///     .except("ws");
/// let limiter = Limiter::builder(policy).agents(1_000).cluster(cluster).build()?;
/// assert!(Link::of(&limiter).is_some_and(|link| !link.is_connected()), "until an engine says otherwise");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Cluster {
    key: [u8; 16],
    slack_percent: u8,
    when_lost: WhenLost,
    lanes: Vec<(String, ClusterLane)>,
    excepted: Vec<String>,
}

/// How machines share one lane, where it differs from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ClusterLane {
    slack_percent: Option<u8>,
    is_exact: bool,
    when_lost: Option<WhenLost>,
}

/// The default slack.
const SLACK_PERCENT: u8 = 10;

/// The longest time that the bucket of a shared lane may take to refill: the store keeps debts as numbers that are
/// exact below 2^53 ns, and some of that is for overdraft.
const REFILL_MAX_NS: u64 = 1 << 51;

impl Cluster {
    /// All lanes are shared, with a slack of 10 %, and each machine allows its share while the store is lost.
    ///
    /// The key is secret and the same on every machine: the store knows an agent by a hash of its id with this key.
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key, slack_percent: SLACK_PERCENT, when_lost: WhenLost::Share, lanes: Vec::new(), excepted: Vec::new() }
    }

    /// How much of a lane's capacity all machines together may hold in credit and owe in advance, in percent. More lets
    /// more checks be answered without the store, and lets more pass: of a bucket the capacity, that much more, and
    /// what is refilled, in any window; of a budget half of that much more.
    pub const fn slack_percent(mut self, percent: u8) -> Self {
        self.slack_percent = percent;
        self
    }

    /// What machines do while the store does not answer. Default: each allows its share.
    pub const fn when_lost(mut self, when_lost: WhenLost) -> Self {
        self.when_lost = when_lost;
        self
    }

    /// Shares a lane in another way than the others.
    pub fn lane(mut self, name: impl Into<String>, lane: ClusterLane) -> Self {
        self.lanes.push((name.into(), lane));
        self
    }

    /// Leaves a lane to each machine. Only buckets and budgets can be shared, so lanes of other kinds have to be named
    /// here.
    pub fn except(mut self, name: impl Into<String>) -> Self {
        self.excepted.push(name.into());
        self
    }

    /// Whether machines can share this lane of a policy in this way.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn can_share(&self, policy: &Policy, name: &str) -> Result<(), ClusterError> {
        let lane = policy.lane(name).ok_or_else(|| ClusterError::UnknownLane { lane: name.to_owned() })?;
        self.lane_of(policy, lane, name).map(drop)
    }

    /// The policy with its shared lanes.
    pub(super) fn apply(&self, policy: Policy) -> Result<Policy, ClusterError> {
        for name in self.lanes.iter().map(|(name, _)| name).chain(&self.excepted) {
            if policy.lane(name).is_none() {
                return Err(ClusterError::UnknownLane { lane: name.clone() });
            }
        }
        let shared = |(_, name): &(LaneId, &str)| !self.excepted.iter().any(|excepted| excepted == name);
        let clustered = |(lane, name)| Ok((lane, self.lane_of(&policy, lane, name)?));
        let lanes: Vec<_> = policy.lanes().filter(shared).map(clustered).collect::<Result<_, _>>()?;
        Ok(policy.with_clustered(lanes))
    }

    /// How a lane is shared.
    fn lane_of(&self, policy: &Policy, lane: LaneId, name: &str) -> Result<Clustered, ClusterError> {
        let of = |plan: PlanId| policy.plan_limit(plan, lane).map(|limit| limit.to_string()).unwrap_or_default();
        let kind = policy.kinds().nth(lane.index());
        if !matches!(kind, Some(Kind::Bucket | Kind::Budget(_))) || policy.total() == Some(lane) {
            return Err(ClusterError::Kind { lane: name.to_owned(), limit: of(PlanId::DEFAULT) });
        }
        for (plan, _) in policy.plans() {
            match policy.numbers(plan).nth(lane.index()) {
                Some(Numbers::Count(count)) if count > clustered::BUDGET_MAX => {
                    return Err(ClusterError::TooLarge { lane: name.to_owned(), limit: of(plan) });
                }
                Some(numbers @ Numbers::Bucket(_)) if !clustered::fits(numbers, REFILL_MAX_NS) => {
                    return Err(ClusterError::TooSlow { lane: name.to_owned(), limit: of(plan) });
                }
                _ => {}
            }
        }
        let own = self.lanes.iter().rev().find(|(named, _)| named == name).map(|(_, own)| *own).unwrap_or_default();
        let percent = own.slack_percent.unwrap_or(self.slack_percent);
        if !(1..=100).contains(&percent) {
            return Err(ClusterError::Slack { lane: name.to_owned(), percent });
        }
        Ok(Clustered {
            slack_permille: u16::from(percent) * 10,
            is_exact: own.is_exact,
            when_lost: own.when_lost.unwrap_or(self.when_lost),
            link: LinkWord::LOST,
        })
    }

    /// The key that it was made with.
    #[must_use]
    pub const fn key(&self) -> [u8; 16] {
        self.key
    }
}

impl fmt::Debug for Cluster {
    /// The key stays secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("slack_percent", &self.slack_percent)
            .field("when_lost", &self.when_lost)
            .field("lanes", &self.lanes)
            .field("excepted", &self.excepted)
            .finish_non_exhaustive()
    }
}

impl ClusterLane {
    /// Like the other lanes.
    pub const fn new() -> Self {
        Self { slack_percent: None, is_exact: false, when_lost: None }
    }

    /// See [`Cluster::slack_percent`].
    pub const fn slack_percent(mut self, percent: u8) -> Self {
        self.slack_percent = Some(percent);
        self
    }

    /// Nothing is spent in advance: a machine without credit denies, with the short wait that an answer of the store
    /// takes.
    pub const fn exact(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// See [`Cluster::when_lost`].
    pub const fn when_lost(mut self, when_lost: WhenLost) -> Self {
        self.when_lost = Some(when_lost);
        self
    }
}

/// Why machines cannot share the lanes of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterError {
    /// The policy has no such lane.
    UnknownLane {
        /// Its name as given.
        lane: String,
    },
    /// The lane is neither a bucket nor a budget, or it is the total.
    Kind {
        /// The lane.
        lane: String,
        /// Its limit.
        limit: String,
    },
    /// The lane's bucket takes too long to refill.
    TooSlow {
        /// The lane.
        lane: String,
        /// The limit that takes too long.
        limit: String,
    },
    /// The lane's budget is too large.
    TooLarge {
        /// The lane.
        lane: String,
        /// The limit that is too large.
        limit: String,
    },
    /// A slack is 1 to 100 percent.
    Slack {
        /// The lane.
        lane: String,
        /// The percentage as given.
        percent: u8,
    },
    /// The secret is shorter than [`SECRET_BYTES_MIN`].
    Secret {
        /// How long it is.
        bytes: usize,
    },
    /// The limiter is one that processes share.
    Shared,
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::UnknownLane { lane } => write!(f, "the policy has no lane {lane:?} to share"),
            ClusterError::Kind { lane, limit } => write!(
                f,
                "lane {lane:?} is {limit:?}, and machines share only buckets such as \"60/min\" and budgets such as \"budget 1000/day\"; make it one of them, or leave it to each machine"
            ),
            ClusterError::TooLarge { lane, limit } => write!(
                f,
                "lane {lane:?}: {limit:?} is too much for machines to share; take at most {}, or leave it to each machine",
                clustered::BUDGET_MAX
            ),
            ClusterError::TooSlow { lane, limit } => write!(
                f,
                "lane {lane:?}: {limit:?} takes {} days or more to refill, too long for machines to share; take a smaller burst or a faster rate, or leave it to each machine",
                REFILL_MAX_NS / 86_400_000_000_000
            ),
            ClusterError::Slack { lane, percent } => {
                write!(f, "lane {lane:?}: a slack of {percent} percent; allowed: 1 to 100")
            }
            ClusterError::Secret { bytes } => write!(
                f,
                "the cluster's secret has {bytes} bytes, and {SECRET_BYTES_MIN} at least are needed: let them be random"
            ),
            ClusterError::Shared => f.write_str(
                "a limiter that processes share cannot be shared by machines too; leave out shared(..) or cluster(..)",
            ),
        }
    }
}

impl std::error::Error for ClusterError {}

impl From<ClusterError> for BuildError {
    fn from(error: ClusterError) -> Self {
        BuildError::Cluster(error)
    }
}

impl LimiterBuilder {
    /// Shares lanes with other machines through a store. Needs the feature `cluster`, and an engine that settles with
    /// the store, such as that of the crate `tollgate-redis`. Default: a limiter of this machine alone.
    ///
    /// A check never waits for the store: it spends credit that the store was debited for, or a bounded advance that is
    /// paid at once, or it denies by what the store last reported. A shared bucket cannot be
    /// [reserved](Limiter::reserve); a budget can.
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.cluster = Some(cluster);
        self
    }
}

/// A limiter's side of the link to a store: asks to settle come out, and answers go in. One engine at a time uses it.
#[derive(Clone, Copy)]
pub struct Link<'a>(&'a Engine);

impl<'a> Link<'a> {
    /// The longest that credit is spent without being renewed.
    pub const CREDIT_LIVES: Duration = clustered::CREDIT_LIVES;

    /// That of a limiter. `None` unless it was built with [`cluster`](LimiterBuilder::cluster).
    #[must_use]
    pub fn of(limiter: &'a Limiter) -> Option<Self> {
        limiter.engine.has_asks().then_some(Self(&limiter.engine))
    }

    /// Takes the questions out that checks have asked, up to this many.
    pub fn asks(&self, most: usize) -> impl Iterator<Item = Ask> + use<'a> {
        self.0.take_asks(most)
    }

    /// What a lane has to settle; `None` if there is nothing. What is to be given back comes off with this call.
    pub fn due(&self, ask: &Ask) -> Option<Due> {
        self.0.take_due(ask)
    }

    /// Adds what the store has granted to a lane, and shows it the level that the store reported: the debt of a bucket
    /// in nanoseconds of refill, or how much of a budget is used. Call it once for each [`due`](Self::due) that the
    /// store has answered, and not if the answer is unknown: what was owed is then paid twice, and a grant is lost, so
    /// that nothing is admitted that the store does not know of.
    pub fn settle(&self, ask: &Ask, due: &Due, granted: u64, level: u64) -> Settled {
        self.0.settle_due(ask, due, granted, level)
    }

    /// Says that the store answers, for about a second. `nodes` machines share it, and a question takes about `wait`.
    pub fn connected(&self, nodes: NonZeroU16, wait: Duration) {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.0.set_link(LinkWord::connected(nodes, wait_us, self.0.clock.now()));
    }

    /// Says that the store does not answer, from the next check on.
    pub fn lost(&self, nodes: NonZeroU16) {
        self.0.set_link(LinkWord::lost(nodes));
    }

    /// Says that the engine ends: as [`lost`](Self::lost), and no credit is spent any more. All of it comes off with
    /// the next [`due`](Self::due), to be given back.
    pub fn ended(&self, nodes: NonZeroU16) {
        self.0.set_link(LinkWord::ended(nodes.get()));
    }

    /// Whether this process was forked from one whose engine settled. Checks take the store for lost, and spend none of
    /// the credit that came with the copy, until an engine of this process [adopts](Self::adopt) the link.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.0.limits.has_link_of_parent()
    }

    /// The engine of this process settles from now on. After a fork, call it once the credit that came with the copy
    /// has ended: after [`Link::CREDIT_LIVES`]. That credit is dropped: it is the parent's.
    pub fn adopt(&self) {
        self.0.adopt_link();
    }

    /// Whether checks take the store for connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.limits.link().state(self.0.clock.now()) == LinkState::Connected
    }

    /// How many questions were asked, and how many were not, because too many were waiting.
    #[must_use]
    pub fn asked(&self) -> (u64, u64) {
        self.0.ask_counts()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
