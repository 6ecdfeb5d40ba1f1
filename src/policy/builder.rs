//! Collects a policy, and checks it.

use super::actions::{Actions, ActionsDraft, TierDraft};
use super::conduct::ConductRules;
use super::error::PolicyError;
use super::plan::{self, Compiled, OnChange, Plan};
use super::policy::{Policy, TOTAL};
use crate::bounds::{ID_BYTES_MAX, LANE_NAME_BYTES_MAX, LANE_WORDS_MAX, LANES_MAX, PLANS_MAX};
use crate::lane::{Limit, LimitError};

/// Collects lanes and plans; [`build`](PolicyBuilder::build) checks them all.
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder {
    pub(super) lanes: Vec<NamedLimit>,
    pub(super) plans: Vec<(String, Vec<NamedLimit>)>,
    pub(super) outside_total: Vec<String>,
    pub(super) actions: ActionsDraft,
    pub(super) conduct: ConductRules,
    pub(super) on_change: OnChange,
    pub(super) warn_below_percent: u8,
    pub(super) warn_again_percent: Option<u8>,
    pub(super) version: Option<u32>,
    pub(super) exempt: Vec<String>,
}

/// A lane's name and its limit, not checked yet.
pub(super) type NamedLimit = (String, Result<Limit, LimitError>);

impl PolicyBuilder {
    pub(super) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            plans: Vec::new(),
            outside_total: Vec::new(),
            actions: ActionsDraft::default(),
            conduct: ConductRules::default(),
            on_change: OnChange::default(),
            warn_below_percent: 20,
            warn_again_percent: None,
            version: None,
            exempt: Vec::new(),
        }
    }

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
    /// A plan sets it like the limit of a lane:
    /// `.plan("free", [("total", "20/min")])`. In a plan without a total it is
    /// `"unlimited"`, which is also the default. A total is a bucket, a window
    /// or a budget, and comes last among the lanes: its
    /// [state](crate::Limiter::peek), overrides and resets are those of a
    /// lane, but it cannot be charged alone.
    ///
    /// A request that costs 3 takes 3 from its lane and 3 from the total. A
    /// [held](Limit::held) slot is not a request and takes nothing from the
    /// total; nor do lanes that count something else and are
    /// [outside it](PolicyBuilder::outside_total).
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

    /// Leaves these lanes out of the total: those whose costs are not requests,
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

    /// Charges these actions of a channel to its lane of this tier:
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

    /// Sends unknown actions to this tier of their channel. Default: `normal`.
    /// Every channel with actions must have such a lane.
    pub fn unknown_actions_to(mut self, tier: impl Into<String>) -> Self {
        self.actions.unknown_tier = Some(tier.into());
        self
    }

    /// Sets the rules of conduct.
    pub fn conduct(mut self, rules: ConductRules) -> Self {
        self.conduct = rules;
        self
    }

    /// Sets what happens to an agent's debt when its limits change.
    pub fn on_change(mut self, on_change: OnChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Warns when less than this share of the capacity is left. Default: 20; 0
    /// never warns.
    pub fn warn_below_percent(mut self, percent: u8) -> Self {
        self.warn_below_percent = percent;
        self
    }

    /// Warns an agent once per lane, and again only after at least this share
    /// of the capacity was left in between. By default every verdict below the
    /// threshold warns, so an agent near it is warned again and again.
    ///
    /// A share from [`warn_below_percent`](Self::warn_below_percent) to 100.
    /// With the two equal, an agent is warned once per crossing; a larger share
    /// also quiets one that lingers at the threshold.
    ///
    /// The last 65,536 warnings are remembered. If more agents than that linger
    /// near their thresholds, some are warned again. Every check then takes as
    /// long as with [`observe`](crate::LimiterBuilder::observe).
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
    /// // 5 of 10 were left.
    /// assert_eq!(limiter.check_request(Request::new("agent-7", http).cost(4))?.decision(), Decision::Warn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warn_again_percent(mut self, percent: u8) -> Self {
        self.warn_again_percent = Some(percent);
        self
    }

    /// The policy's version, for processes that share a limiter: of two, the higher one is in force.
    /// Raise it with every change of numbers. Default: none, and then the first process decides.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// let policy = Policy::builder().lane("http", "10/s").version(7).build()?;
    /// assert_eq!(policy.version(), Some(7));
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Never limits these agents, whatever is assigned to them at run time.
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
    /// The first mistake, with the lane's or plan's name, the value and what is
    /// allowed.
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
        let Self { conduct, on_change, warn_below_percent, warn_again_percent, version, .. } = self;
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
            version,
            exempt,
            #[cfg(feature = "cluster")]
            clustered: Vec::new(),
        };
        match policy.cell_kinds().len() {
            words if words > LANE_WORDS_MAX => Err(PolicyError::Words { words }),
            _ => Ok(policy),
        }
    }

    /// Adds the lane `total` if a plan names it, and puts it after all others.
    fn put_total_last(&mut self) {
        let is_of_plan = |(_, limits): &(String, Vec<NamedLimit>)| limits.iter().any(|(lane, _)| lane == TOTAL);
        if !self.lanes.iter().any(|(name, _)| name == TOTAL) && self.plans.iter().any(is_of_plan) {
            self.lanes.push((TOTAL.to_owned(), Ok(Limit::unlimited())));
        }
        self.lanes.sort_by_key(|(name, _)| name == TOTAL); // The others stay in their order.
    }
}

/// Whether a lane, plan or channel may have this name.
pub(super) fn is_name(name: &str) -> bool {
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
mod tests;
