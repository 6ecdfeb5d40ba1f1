//! What an operator configures, checked once when it is built.

mod actions;
mod cells;
mod conduct;
mod error;
#[cfg(feature = "config")]
mod file;
mod nearest;
mod plan;
pub mod preset;
pub(crate) mod unknown;

#[cfg(feature = "persist")]
pub(crate) use crate::lane::Era;
pub(crate) use crate::lane::Kind;
pub use crate::lane::{Calendar, Limit, LimitError};
pub use actions::Classified;
pub(crate) use cells::Cells;
pub use conduct::{ConductError, ConductRules};
pub use error::PolicyError;
#[cfg(feature = "config")]
pub use file::ConfigError;
pub use plan::{OnChange, PlanId};
pub use unknown::UnknownActionsSnapshot;

use crate::bounds::{ID_BYTES_MAX, LANE_NAME_BYTES_MAX, LANE_WORDS_MAX, LANES_MAX, PLANS_MAX};
use crate::lane::Numbers;
use actions::{Actions, ActionsDraft, TierDraft};
use plan::{Compiled, Plan};

/// The name of the lane whose limit is over all others.
const TOTAL: &str = "total";

/// A lane's number within its policy, in the order the lanes were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u32);

impl LaneId {
    /// The lane with this number. A number the policy does not have is
    /// answered with [`Error::UnknownLane`](crate::Error::UnknownLane).
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Named lanes, each with its limit; plans with other limits for them; the
/// lane of every action; and the rules of conduct: everything an operator
/// decides.
///
/// ```
/// use tollgate::{Limit, Policy};
///
/// let policy = Policy::builder()
///     .lane("ws/light", Limit::per_minute(120))
///     .lane("ws/heavy", "10/min burst 20")
///     .plan("pro", [("ws/heavy", "100/min")])
///     .build()?;
/// let heavy = policy.lane("ws/heavy").expect("named above");
/// let pro = policy.plan("pro").expect("named above");
/// assert_eq!(policy.limit(heavy), Some(Limit::per_minute(10).burst(20)));
/// assert_eq!(policy.plan_limit(pro, heavy), Some(Limit::per_minute(100)));
///
/// let error = Policy::builder().lane("ws/light", "0/min").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "lane \"ws/light\": a rate or burst of 0; give at least 1, or \"deny\" to let nothing through",
/// );
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    lanes: Vec<String>,
    /// Invariant: at least one, `default`, and each has a limit for every lane.
    plans: Vec<Plan>,
    /// A bit for each lane; not for the total.
    outside_total: u64,
    actions: Actions,
    conduct: ConductRules,
    on_change: OnChange,
    warn_below_percent: u8,
    /// Invariant: no smaller than `warn_below_percent`, at most 100.
    warn_again_percent: Option<u8>,
    /// Invariant: sorted, each once.
    exempt: Vec<String>,
}

impl Policy {
    /// Starts a policy without lanes.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder {
            lanes: Vec::new(),
            plans: Vec::new(),
            outside_total: Vec::new(),
            actions: ActionsDraft::default(),
            conduct: ConductRules::default(),
            on_change: OnChange::default(),
            warn_below_percent: 20,
            warn_again_percent: None,
            exempt: Vec::new(),
        }
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<LaneId> {
        self.lanes().find(|(_, known)| *known == name).map(|(lane, _)| lane)
    }

    /// Every lane with its name, in order.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = (LaneId, &str)> + DoubleEndedIterator {
        // Lossless: `build` admits at most `LANES_MAX` lanes.
        self.lanes.iter().enumerate().map(|(index, lane)| (LaneId(index as u32), lane.as_str()))
    }

    /// The lane of this name, or all lanes of this tier: `heavy` stands for
    /// `ws/heavy` and `http/heavy`. Empty if there is neither.
    #[must_use]
    pub fn lanes_of(&self, lane_or_tier: &str) -> Vec<LaneId> {
        let is_of_tier = |name: &str| name.rsplit_once('/').is_some_and(|(_, tier)| tier == lane_or_tier);
        match self.lane(lane_or_tier) {
            Some(lane) => vec![lane],
            None => self.lanes().filter(|(_, name)| is_of_tier(name)).map(|(lane, _)| lane).collect(),
        }
    }

    /// The lane whose limit is over all others: that named `total`. `None` if no
    /// plan has one; see [`PolicyBuilder::total`].
    #[must_use]
    pub fn total(&self) -> Option<LaneId> {
        // It stands last, so that no other lane's number depends on it.
        self.lanes().next_back().filter(|(_, name)| *name == TOTAL).map(|(lane, _)| lane)
    }

    /// The lanes that were put [outside the total](PolicyBuilder::outside_total).
    pub fn outside_total(&self) -> impl Iterator<Item = LaneId> {
        self.lanes().map(|(lane, _)| lane).filter(|lane| self.is_outside_total(*lane))
    }

    fn is_outside_total(&self, lane: LaneId) -> bool {
        self.outside_total >> lane.index() & 1 == 1
    }

    /// Whether the total is charged with the lane: with all but itself, those
    /// that are held and those outside it.
    #[must_use]
    pub fn is_in_total(&self, lane: LaneId) -> bool {
        let is_held = || self.limits_of(lane).any(|limit| limit.lane_kind() == Some(Kind::Held));
        let is_within = |total: LaneId| lane < total && !self.is_outside_total(lane) && !is_held();
        self.total().is_some_and(is_within)
    }

    /// A lane's limit in the plan `default`.
    #[must_use]
    pub fn limit(&self, lane: LaneId) -> Option<Limit> {
        self.plan_limit(PlanId::DEFAULT, lane)
    }

    /// The plan of this name.
    #[must_use]
    pub fn plan(&self, name: &str) -> Option<PlanId> {
        self.plans().find(|(_, known)| *known == name).map(|(plan, _)| plan)
    }

    /// Every plan with its name, in order, `default` first.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = (PlanId, &str)> {
        // Lossless: `build` admits at most `PLANS_MAX` plans.
        self.plans.iter().enumerate().map(|(index, plan)| (PlanId::new(index as u16), plan.name.as_str()))
    }

    /// A lane's limit in a plan.
    #[must_use]
    pub fn plan_limit(&self, plan: PlanId, lane: LaneId) -> Option<Limit> {
        self.plans.get(plan.index())?.limits.get(lane.index()).map(|compiled| compiled.limit)
    }

    /// The lane that an action of a channel is charged to. An action that the
    /// policy does not name goes to the channel's `normal` lane, or to the one
    /// that [`unknown_actions_to`](PolicyBuilder::unknown_actions_to) says.
    ///
    /// `None` if the channel has no such lane, or the policy names no actions.
    ///
    /// ```
    /// use tollgate::{Classified, Policy};
    ///
    /// let policy = Policy::builder()
    ///     .lane("ws/light", "120/min")
    ///     .lane("ws/normal", "60/min")
    ///     .actions("ws", "light", ["ping", "status"])
    ///     .build()?;
    /// let lane = |name| policy.lane(name).expect("named above");
    /// assert_eq!(policy.lane_for("ws", "ping"), Some(Classified::Known(lane("ws/light"))));
    /// assert_eq!(policy.lane_for("ws", "dance"), Some(Classified::Unknown(lane("ws/normal"))));
    /// assert_eq!(policy.lane_for("http", "ping"), None);
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    #[must_use]
    pub fn lane_for(&self, channel: &str, action: &str) -> Option<Classified> {
        self.actions.lane_for(channel, action)
    }

    /// Every action that the policy names: its channel, its name, its lane.
    pub fn actions(&self) -> impl Iterator<Item = (&str, &str, LaneId)> {
        self.actions.iter()
    }

    /// The tier that takes unknown actions; `None` if the policy names no actions.
    #[must_use]
    pub fn unknown_actions_tier(&self) -> Option<&str> {
        self.actions.unknown_tier()
    }

    /// What follows from violations.
    pub fn conduct(&self) -> &ConductRules {
        &self.conduct
    }

    /// What becomes of an agent's debt when its limits change.
    #[must_use]
    pub fn on_change(&self) -> OnChange {
        self.on_change
    }

    /// A verdict warns when less than this share of the capacity is left.
    #[must_use]
    pub fn warn_below_percent(&self) -> u8 {
        self.warn_below_percent
    }

    /// The share of the capacity after which a warned agent is warned again.
    /// `None` if every verdict below the threshold warns.
    #[must_use]
    pub fn warn_again_percent(&self) -> Option<u8> {
        self.warn_again_percent
    }

    /// Agents that are never limited, whatever is decided about them; sorted.
    pub fn exempt(&self) -> impl ExactSizeIterator<Item = &str> {
        self.exempt.iter().map(String::as_str)
    }

    /// The same policy with these plans first, in this order.
    pub(crate) fn with_plans_first(mut self, first: &[PlanId]) -> Self {
        let mut plans: Vec<_> = self.plans.into_iter().map(Some).collect();
        let first: Vec<_> = first.iter().filter_map(|plan| plans.get_mut(plan.index())?.take()).collect();
        self.plans = first.into_iter().chain(plans.into_iter().flatten()).collect(); // The others stay in their order.
        self
    }

    /// Every limit that a plan gives to a lane.
    fn limits_of(&self, lane: LaneId) -> impl Iterator<Item = Limit> {
        self.plans.iter().filter_map(move |plan| Some(plan.limits.get(lane.index())?.limit))
    }

    /// What the lanes' words mean in a limiter that starts with this policy.
    /// Where every plan denies everything, it is a bucket.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let kind = |lane| self.limits_of(lane).find_map(|limit| limit.lane_kind());
        self.lanes().map(move |(lane, _)| kind(lane).unwrap_or(Kind::Bucket))
    }

    /// The words of each lane, in order: an exact window has as many as its
    /// largest limit, a window two.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cells> {
        let mut more = self.lanes.len();
        self.lanes().map(move |(lane, _)| {
            let words = self.limits_of(lane).map(|limit| limit.words()).max().unwrap_or(1);
            let cells = Cells { own: lane.index(), more, count: words };
            more += words - 1;
            cells
        })
    }

    /// What each word of the lanes means in a limiter that starts with this
    /// policy: those of the lanes, then the further ones.
    pub(crate) fn cell_kinds(&self) -> Box<[Kind]> {
        let further =
            self.kinds().zip(self.cells()).flat_map(|(kind, cells)| (1..cells.count).map(move |_| kind.further()));
        self.kinds().chain(further).collect()
    }

    /// What a plan's lanes compute with, in order.
    pub(crate) fn numbers(&self, plan: PlanId) -> impl Iterator<Item = Numbers> {
        self.plans.get(plan.index()).into_iter().flat_map(|plan| plan.limits.iter().map(|compiled| compiled.numbers))
    }
}

/// Collects lanes and plans; [`build`](PolicyBuilder::build) checks them all.
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder {
    lanes: Vec<NamedLimit>,
    plans: Vec<(String, Vec<NamedLimit>)>,
    outside_total: Vec<String>,
    actions: ActionsDraft,
    conduct: ConductRules,
    on_change: OnChange,
    warn_below_percent: u8,
    warn_again_percent: Option<u8>,
    exempt: Vec<String>,
}

/// A lane's name and its limit, not checked yet.
type NamedLimit = (String, Result<Limit, LimitError>);

impl PolicyBuilder {
    /// Adds a lane with its limit: a [`Limit`], or its text.
    pub fn lane<L>(mut self, name: impl Into<String>, limit: L) -> Self
    where
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        self.lanes.push((name.into(), limit.try_into().map_err(Into::into)));
        self
    }

    /// Gives agents one limit over all their lanes: a check charges its lane and
    /// the total, both or neither. The same as a lane named `total`.
    ///
    /// A plan changes it, or has one where others have none, as it changes a
    /// lane: `.plan("free", [("total", "20/min")])`. A plan that goes without is
    /// `"unlimited"`, which is also the default. A total is a bucket, a window
    /// or a budget, and stands last among the lanes: its
    /// [state](crate::Limiter::peek), overrides and resets are those of a
    /// lane, but nobody charges it alone.
    ///
    /// A request that costs 3 takes 3 of its lane and 3 of the total. A slot
    /// that is [held](Limit::held) is no request and takes nothing of the total;
    /// nor do lanes that count something else and are
    /// [outside of it](PolicyBuilder::outside_total).
    ///
    /// ```
    /// use tollgate::{Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder()
    ///     .lane("read", "100/min burst 200")
    ///     .lane("write", "50/min burst 100")
    ///     .plan("free", [("total", "20/min")])
    ///     .build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build()?;
    /// let [read, write] = ["read", "write"].map(|name| limiter.lane(name).expect("named above"));
    /// limiter.assign("user:42", limiter.plan("free").expect("named above"))?;
    ///
    /// assert!(limiter.check_request(Request::new("user:42", read).cost(15))?.is_allowed());
    /// assert_eq!(limiter.check_request(Request::new("user:42", write).cost(3))?.remaining(), 2);
    /// let denied = limiter.check_request(Request::new("user:42", write).cost(3))?;
    /// assert!(!denied.is_allowed());
    /// assert_eq!((denied.remaining(), denied.capacity()), (2, 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn total<L>(self, limit: L) -> Self
    where
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        self.lane(TOTAL, limit)
    }

    /// Leaves these lanes out of the total: those whose costs are no requests,
    /// such as the tokens of a language model.
    pub fn outside_total<N: Into<String>>(mut self, lanes: impl IntoIterator<Item = N>) -> Self {
        self.outside_total.extend(lanes.into_iter().map(Into::into));
        self
    }

    /// Adds a plan: the lanes whose limits differ from the lanes' own.
    pub fn plan<N, L>(mut self, name: impl Into<String>, limits: impl IntoIterator<Item = (N, L)>) -> Self
    where
        N: Into<String>,
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        let limits = limits.into_iter().map(|(lane, limit)| (lane.into(), limit.try_into().map_err(Into::into)));
        self.plans.push((name.into(), limits.collect()));
        self
    }

    /// Says which actions of a channel are charged to its lane of this tier:
    /// `.actions("ws", "light", ["ping"])` sends `ping` to `ws/light`.
    pub fn actions<N: Into<String>>(
        mut self,
        channel: impl Into<String>,
        tier: impl Into<String>,
        actions: impl IntoIterator<Item = N>,
    ) -> Self {
        let actions = actions.into_iter().map(Into::into).collect();
        self.actions.tiers.push(TierDraft { channel: channel.into(), tier: tier.into(), actions });
        self
    }

    /// Sends actions that are not named to this tier of their channel;
    /// `normal` by default. Every channel with actions must have such a lane.
    pub fn unknown_actions_to(mut self, tier: impl Into<String>) -> Self {
        self.actions.unknown_tier = Some(tier.into());
        self
    }

    /// Sets the rules of conduct.
    pub fn conduct(mut self, rules: ConductRules) -> Self {
        self.conduct = rules;
        self
    }

    /// Sets what becomes of an agent's debt when its limits change.
    pub fn on_change(mut self, on_change: OnChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Warns when less than this share of the capacity is left; 20 by
    /// default, 0 for never.
    pub fn warn_below_percent(mut self, percent: u8) -> Self {
        self.warn_below_percent = percent;
        self
    }

    /// Warns an agent once per lane, and again only after at least this share
    /// of the capacity was left in between. By default every verdict below the
    /// threshold warns, and an agent near it gets a warning with every other
    /// answer.
    ///
    /// A share from [`warn_below_percent`](Self::warn_below_percent) to 100.
    /// With the two equal, an agent is warned once per crossing; a larger share
    /// also quiets one that lingers at the threshold.
    ///
    /// The last 65,536 warnings are remembered, so a limiter near whose
    /// thresholds more agents linger repeats some. All checks then take the
    /// road of those that are [watched](crate::LimiterBuilder::observe).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Decision, Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", "10/s").warn_below_percent(20).warn_again_percent(50).build()?;
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    ///
    /// assert_eq!(limiter.check_request(Request::new("agent-7", http).cost(9))?.decision(), Decision::Warn);
    /// clock.advance(Duration::from_millis(100));
    /// assert_eq!(limiter.check("agent-7", http)?.decision(), Decision::Allow); // 1 of 10 left, but warned.
    /// clock.advance(Duration::from_millis(400));
    /// assert_eq!(limiter.check_request(Request::new("agent-7", http).cost(4))?.decision(), Decision::Warn); // There were 5 of 10.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warn_again_percent(mut self, percent: u8) -> Self {
        self.warn_again_percent = Some(percent);
        self
    }

    /// Never limits these agents, whatever is decided about them at run time.
    ///
    /// ```
    /// use tollgate::{Decision, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("http", "1/min").exempt(["dashboard"]).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// limiter.unexempt("dashboard")?; // The policy exempts it all the same.
    /// assert_eq!(limiter.check("dashboard", http)?.decision(), Decision::Exempt);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exempt<N: Into<String>>(mut self, agents: impl IntoIterator<Item = N>) -> Self {
        self.exempt.extend(agents.into_iter().map(Into::into));
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// The first thing that makes no sense, with the lane's or plan's name,
    /// the value and what is allowed.
    pub fn build(mut self) -> Result<Policy, PolicyError> {
        if self.warn_below_percent > 100 {
            return Err(PolicyError::WarnPercent { percent: self.warn_below_percent });
        }
        let below = self.warn_below_percent;
        if let Some(percent) = self.warn_again_percent.filter(|percent| !(below..=100).contains(percent)) {
            return Err(PolicyError::WarnAgainPercent { percent, below });
        }
        self.put_total_last();
        let alone = usize::from(self.lanes.iter().all(|(name, _)| name == TOTAL)); // A total of nothing.
        if alone == 1 || self.lanes.len() > LANES_MAX {
            return Err(PolicyError::Lanes { lanes: self.lanes.len() * (1 - alone) });
        }
        self.conduct.validate().map_err(PolicyError::Conduct)?;
        let mut lanes: Vec<String> = Vec::with_capacity(self.lanes.len());
        let mut limits = Vec::with_capacity(self.lanes.len());
        for (name, limit) in self.lanes {
            if !is_name(&name) {
                return Err(PolicyError::LaneName { lane: name });
            }
            if lanes.contains(&name) {
                return Err(PolicyError::LaneTwice { lane: name });
            }
            match compile(&name, limit) {
                Ok(compiled) => limits.push(compiled),
                Err(problem) => return Err(PolicyError::Limit { lane: name, problem }),
            }
            lanes.push(name);
        }
        let mut plans = vec![Plan { name: plan::DEFAULT.to_owned(), limits }];
        if self.plans.len() >= PLANS_MAX {
            return Err(PolicyError::Plans { plans: self.plans.len() + 1 });
        }
        for (name, changes) in self.plans {
            let plan = build_plan(name, changes, &lanes, &plans)?;
            plans.push(plan);
        }
        const { assert!(LANES_MAX < u64::BITS as usize) };
        let mut outside_total = 0;
        for name in self.outside_total {
            match lanes.iter().position(|known| *known == name && name != TOTAL) {
                Some(index) => outside_total |= 1 << index,
                None => return Err(PolicyError::OutsideTotal { lane: name }),
            }
        }
        let actions = Actions::build(self.actions, &lanes)?;
        let Self { conduct, on_change, warn_below_percent, warn_again_percent, .. } = self;
        let mut exempt = Vec::with_capacity(self.exempt.len());
        for agent in self.exempt {
            // They are few.
            if let Err(place) = exempt.binary_search(&agent) {
                exempt.insert(place, agent);
            }
        }
        if let Some(agent) = exempt.iter().find(|agent| !(1..=ID_BYTES_MAX).contains(&agent.len())) {
            return Err(PolicyError::Exempt { agent: agent.clone() });
        }
        let policy = Policy {
            lanes,
            plans,
            outside_total,
            actions,
            conduct,
            on_change,
            warn_below_percent,
            warn_again_percent,
            exempt,
        };
        match policy.cell_kinds().len() {
            words if words > LANE_WORDS_MAX => Err(PolicyError::Words { words }),
            _ => Ok(policy),
        }
    }

    /// The lane `total` is there if anything names it, behind all others.
    fn put_total_last(&mut self) {
        let is_of_plan = |(_, limits): &(String, Vec<NamedLimit>)| limits.iter().any(|(lane, _)| lane == TOTAL);
        if !self.lanes.iter().any(|(name, _)| name == TOTAL) && self.plans.iter().any(is_of_plan) {
            self.lanes.push((TOTAL.to_owned(), Ok(Limit::unlimited())));
        }
        self.lanes.sort_by_key(|(name, _)| name == TOTAL); // The others stay in their order.
    }
}

fn is_name(name: &str) -> bool {
    let printable = name.chars().all(|c| !c.is_control() && !c.is_whitespace());
    !name.is_empty() && name.len() <= LANE_NAME_BYTES_MAX && printable
}

fn compile(lane: &str, limit: Result<Limit, LimitError>) -> Result<Compiled, LimitError> {
    let limit = limit?;
    limit.is_for_total(lane == TOTAL)?;
    Ok(Compiled { limit, numbers: limit.compile()? })
}

/// A plan: the limits of `default`, which is the first of `plans`, and its own changes.
fn build_plan(name: String, changes: Vec<NamedLimit>, lanes: &[String], plans: &[Plan]) -> Result<Plan, PolicyError> {
    if !is_name(&name) || name == plan::DEFAULT || name == plan::EXEMPT {
        return Err(PolicyError::PlanName { plan: name });
    }
    if plans.iter().any(|known| known.name == name) {
        return Err(PolicyError::PlanTwice { plan: name });
    }
    let mut limits = plans[0].limits.clone();
    let mut named = vec![false; lanes.len()];
    for (lane, limit) in changes {
        let Some(index) = lanes.iter().position(|known| *known == lane) else {
            return Err(PolicyError::PlanLane { plan: name, lane });
        };
        if std::mem::replace(&mut named[index], true) {
            return Err(PolicyError::PlanLaneTwice { plan: name, lane });
        }
        let known = plans.iter().map(|plan| plan.limits[index].limit);
        match compile(&lane, limit).and_then(|compiled| compiled.limit.is_of_kind_of(known).map(|()| compiled)) {
            Ok(compiled) => limits[index] = compiled,
            Err(problem) => return Err(PolicyError::PlanLimit { plan: name, lane, problem }),
        }
    }
    Ok(Plan { name, limits })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn error_of(builder: PolicyBuilder) -> String {
        builder.build().expect_err("must be refused").to_string()
    }

    #[test]
    fn a_policy_has_between_one_and_sixty_two_lanes() {
        let many =
            |count: usize| (0..count).fold(Policy::builder(), |b, i| b.lane(format!("lane/{i}"), Limit::per_second(1)));
        assert_eq!(error_of(many(0)), "a policy of 0 lanes; allowed are 1 to 62");
        assert!(many(62).build().is_ok());
        assert_eq!(error_of(many(63)), "a policy of 63 lanes; allowed are 1 to 62");
    }

    #[test]
    fn errors_name_the_lane_the_value_and_the_range() {
        let lane = |name: &str, limit: Limit| Policy::builder().lane(name, limit);
        assert_eq!(
            error_of(lane("http/read", Limit::per_second(2_000_000_000))),
            "lane \"http/read\": 2000000000 tokens per 1s; at most 1000000000 per second are allowed"
        );
        assert_eq!(
            error_of(lane("http/read", Limit::per_second(1).burst(1 << 50))),
            "lane \"http/read\": capacity 1125899906842624; allowed are 1 to 1000000000000"
        );
        assert_eq!(
            error_of(lane("a", Limit::per_second(1)).lane("a", Limit::per_second(2))),
            "lane \"a\" is named twice; names must differ"
        );
        assert!(error_of(lane("", Limit::per_second(1))).starts_with("lane name \"\""));
        assert!(error_of(lane("a b", Limit::per_second(1))).starts_with("lane name \"a b\""));
        assert!(error_of(lane("a", Limit::per_second(1)).warn_below_percent(101)).contains("101 percent"));
        for percent in [19, 101] {
            let error = error_of(lane("a", Limit::per_second(1)).warn_again_percent(percent));
            assert!(
                error.ends_with(&format!("again after {percent} percent were left; allowed are 20 to 100")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plan_changes_some_limits_and_keeps_the_others() {
        let policy = Policy::builder()
            .lane("ws/heavy", "10/min")
            .lane("http/heavy", "20/min")
            .plan("pro", [("http/heavy", "200/min")])
            .build()
            .unwrap();
        let pro = policy.plan("pro").unwrap();
        assert_eq!(policy.plans().collect::<Vec<_>>(), [(PlanId::DEFAULT, "default"), (pro, "pro")]);
        let limits = |plan| [0, 1].map(|lane| policy.plan_limit(plan, LaneId::new(lane)).unwrap().to_string());
        assert_eq!(limits(PlanId::DEFAULT), ["10/minute", "20/minute"]);
        assert_eq!(limits(pro), ["10/minute", "200/minute"]);
        assert_eq!(policy.plan_limit(PlanId::new(2), LaneId::new(0)), None);
    }

    #[test]
    fn a_tier_stands_for_its_lane_in_every_channel() {
        let policy = ["ws/light", "ws/heavy", "http/heavy", "heavy/x"]
            .into_iter()
            .fold(Policy::builder(), |policy, lane| policy.lane(lane, "1/s"))
            .build()
            .unwrap();
        assert_eq!(policy.lanes_of("heavy"), [LaneId::new(1), LaneId::new(2)]);
        assert_eq!(policy.lanes_of("ws/heavy"), [LaneId::new(1)]);
        assert_eq!(policy.lanes_of("huge"), []);
    }

    #[test]
    fn a_plan_that_makes_no_sense_is_refused() {
        let plan = |name: &str, limits: &[(&str, &str)]| {
            let limits: Vec<_> = limits.iter().map(|(lane, limit)| (*lane, *limit)).collect();
            Policy::builder().lane("a", "1/s").plan(name, limits)
        };
        for name in ["", "default", "exempt", "a b"] {
            assert!(error_of(plan(name, &[])).starts_with(&format!("plan name {name:?}")));
        }
        assert_eq!(error_of(plan("p", &[]).plan("p", [("a", "2/s")])), "plan \"p\" is named twice; names must differ");
        assert!(error_of(plan("p", &[("b", "1/s")])).starts_with("plan \"p\": there is no lane \"b\""));
        assert!(error_of(plan("p", &[("a", "1/s"), ("a", "2/s")])).contains("lane \"a\" is named twice"));
        assert!(error_of(plan("p", &[("a", "0/s")])).starts_with("plan \"p\", lane \"a\": a rate or burst of 0"));
        let many = (0..256).fold(plan("p", &[]), |policy, i| policy.plan(format!("p{i}"), [("a", "1/s")]));
        assert_eq!(error_of(many), "a policy of 258 plans; allowed are 1 to 256");
    }

    #[test]
    fn conduct_rules_that_make_no_sense_are_refused() {
        let second = std::time::Duration::from_secs(1);
        let error = |rules| error_of(Policy::builder().lane("a", "1/s").conduct(rules));
        let rules = ConductRules::default;
        assert_eq!(error(rules().with_curve([second; 16])), "conduct: a curve of 16 waits; allowed are up to 15");
        assert!(error(rules().with_curve([std::time::Duration::ZERO])).contains("a wait of 0ns"));
        assert!(error(rules().with_quiet_period(std::time::Duration::ZERO)).contains("a quiet period of 0ns"));
        assert!(error(rules().with_quiet_period(second * 90_000)).contains("90000s"));
        assert!(error(rules().with_abuse_threshold(0, second)).contains("abuse from 0 violations"));
        assert!(error(rules().with_abuse_threshold(64, second)).contains("allowed are 1 to 63"));
        assert!(error(rules().with_abuse_threshold(1, second * 5_000)).contains("up to 4095s"));
    }
}
