//! A checked policy.

use super::actions::{Actions, Classification};
use super::builder::PolicyBuilder;
use super::cells::Cells;
use super::conduct::ConductRules;
use super::lane_id::LaneId;
use super::plan::{OnChange, Plan, PlanId};
#[cfg(feature = "cluster")]
use crate::lane::clustered::{BUDGET_WORDS, CLUSTERED_WORDS, Clustered, ClusteredBudget};
use crate::lane::{Kind, Limit, Numbers};

/// The name of the lane whose limit is over all others.
pub(super) const TOTAL: &str = "total";

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
    pub(super) lanes: Vec<String>,
    /// Invariant: at least one, `default`, and each has a limit for every lane.
    pub(super) plans: Vec<Plan>,
    /// A bit for each lane; not for the total.
    pub(super) outside_total: u64,
    pub(super) actions: Actions,
    pub(super) conduct: ConductRules,
    pub(super) on_change: OnChange,
    pub(super) warn_below_percent: u8,
    /// Invariant: no smaller than `warn_below_percent`, at most 100.
    pub(super) warn_again_percent: Option<u8>,
    pub(super) version: Option<u32>,
    /// Invariant: sorted, each once.
    pub(super) exempt: Vec<String>,
    /// The lanes that machines share. No file and no builder of a policy sets them: a limiter's does.
    #[cfg(feature = "cluster")]
    pub(super) clustered: Vec<(LaneId, Clustered)>,
}

impl Policy {
    /// Starts a policy without lanes.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::new()
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<LaneId> {
        self.lanes().find(|(_, known)| *known == name).map(|(lane, _)| lane)
    }

    /// Every lane with its name, in order.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = (LaneId, &str)> + DoubleEndedIterator {
        // Lossless: `build` admits at most `LANES_MAX` lanes.
        self.lanes.iter().enumerate().map(|(index, lane)| (LaneId::new(index as u32), lane.as_str()))
    }

    /// The lane of this name, or all lanes of this tier: `heavy` means
    /// `ws/heavy` and `http/heavy`. Empty if there is neither.
    #[must_use]
    pub fn lanes_of(&self, lane_or_tier: &str) -> Vec<LaneId> {
        let is_of_tier = |name: &str| name.rsplit_once('/').is_some_and(|(_, tier)| tier == lane_or_tier);
        match self.lane(lane_or_tier) {
            Some(lane) => vec![lane],
            None => self.lanes().filter(|(_, name)| is_of_tier(name)).map(|(lane, _)| lane).collect(),
        }
    }

    /// The lane `total`, whose limit is over all others. `None` if no plan has
    /// one; see [`PolicyBuilder::total`].
    #[must_use]
    pub fn total(&self) -> Option<LaneId> {
        // It comes last, so that no other lane's number depends on it.
        self.lanes().next_back().filter(|(_, name)| *name == TOTAL).map(|(lane, _)| lane)
    }

    /// The lanes that were put [outside the total](PolicyBuilder::outside_total).
    pub fn outside_total(&self) -> impl Iterator<Item = LaneId> {
        self.lanes().map(|(lane, _)| lane).filter(|lane| self.is_outside_total(*lane))
    }

    fn is_outside_total(&self, lane: LaneId) -> bool {
        self.outside_total >> lane.index() & 1 == 1
    }

    /// Whether a charge of the lane charges the total too. The total itself, held
    /// lanes and lanes outside the total do not.
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
    /// policy does not name goes to the channel's `normal` lane, or to the tier set
    /// with [`unknown_actions_to`](PolicyBuilder::unknown_actions_to).
    ///
    /// `None` if the channel has no such lane, or the policy names no actions.
    ///
    /// ```
    /// use tollgate::{Classification, Policy};
    ///
    /// let policy = Policy::builder()
    ///     .lane("ws/light", "120/min")
    ///     .lane("ws/normal", "60/min")
    ///     .actions("ws", "light", ["ping", "status"])
    ///     .build()?;
    /// let lane = |name| policy.lane(name).expect("named above");
    /// assert_eq!(policy.lane_for("ws", "ping"), Some(Classification::Known(lane("ws/light"))));
    /// assert_eq!(policy.lane_for("ws", "dance"), Some(Classification::Unknown(lane("ws/normal"))));
    /// assert_eq!(policy.lane_for("http", "ping"), None);
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    #[must_use]
    pub fn lane_for(&self, channel: &str, action: &str) -> Option<Classification> {
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

    /// What happens to an agent's debt when its limits change.
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

    /// Its version, if it has one; see [`PolicyBuilder::version`].
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// Agents that are never limited, whatever their assignments; sorted.
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
    /// A lane that every plan denies is a bucket.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let kind = |lane| self.limits_of(lane).find_map(|limit| limit.lane_kind());
        self.lanes().map(move |(lane, _)| {
            let kind = kind(lane).unwrap_or(Kind::Bucket);
            #[cfg(feature = "cluster")]
            if let Some(settings) = self.clustered(lane) {
                return match kind {
                    Kind::Budget(era) => Kind::ClusteredBudget(ClusteredBudget { settings, era }),
                    _ => Kind::Clustered(settings),
                };
            }
            kind
        })
    }

    /// How machines share a lane, if they do.
    #[cfg(feature = "cluster")]
    fn clustered(&self, lane: LaneId) -> Option<Clustered> {
        self.clustered.iter().find(|(shared, _)| *shared == lane).map(|(_, clustered)| *clustered)
    }

    /// The same policy with lanes that machines share.
    #[cfg(feature = "cluster")]
    pub(crate) fn with_clustered(self, clustered: Vec<(LaneId, Clustered)>) -> Self {
        Self { clustered, ..self }
    }

    /// The words of each lane, in order: an exact window has as many as its
    /// largest limit, a window two, every other kind one.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cells> {
        let mut more = self.lanes.len();
        self.lanes().zip(self.kinds()).map(move |((lane, _), kind)| {
            let words = match kind {
                #[cfg(feature = "cluster")]
                Kind::Clustered(_) => CLUSTERED_WORDS,
                #[cfg(feature = "cluster")]
                Kind::ClusteredBudget(_) => BUDGET_WORDS,
                _ => self.limits_of(lane).map(|limit| limit.words()).max().unwrap_or(1),
            };
            let cells = Cells { own: lane.index(), more, count: words };
            more += words - 1;
            cells
        })
    }

    /// What each word of the lanes means in a limiter that starts with this
    /// policy: those of the lanes, then the further ones.
    pub(crate) fn cell_kinds(&self) -> Box<[Kind]> {
        let further = self
            .kinds()
            .zip(self.cells())
            .flat_map(|(kind, cells)| (1..cells.count).map(move |cell| kind.further(cell)));
        self.kinds().chain(further).collect()
    }

    /// What a plan's lanes compute with, in order.
    pub(crate) fn numbers(&self, plan: PlanId) -> impl Iterator<Item = Numbers> {
        self.plans.get(plan.index()).into_iter().flat_map(|plan| plan.limits.iter().map(|compiled| compiled.numbers))
    }
}
