//! The table of limits: a row per plan, a column per lane.

use super::bucket::BucketLimit;
use crate::policy::{LaneId, Policy};
use crate::record::tag::PlanId;

/// Limits ready to compute with, found by plan and lane.
pub(crate) struct LimitTable {
    lanes: usize,
    /// Invariant: whole rows of `lanes` limits.
    limits: Box<[BucketLimit]>,
}

impl LimitTable {
    pub(crate) fn new(policy: &Policy) -> Self {
        let warn_below_percent = policy.warn_below_percent();
        let limits: Box<[_]> = policy
            .numbers(crate::policy::PlanId::DEFAULT)
            .map(|numbers| BucketLimit::new(numbers, warn_below_percent))
            .collect();
        Self { lanes: limits.len(), limits }
    }

    /// A lane's limit; the lane is the policy's, the plan is one of the table's.
    #[inline]
    pub(crate) fn limit(&self, plan: PlanId, lane: LaneId) -> &BucketLimit {
        &self.limits[plan.index() * self.lanes + lane.index()]
    }

    /// A plan's row.
    pub(crate) fn row(&self, plan: PlanId) -> &[BucketLimit] {
        let start = plan.index() * self.lanes;
        &self.limits[start..start + self.lanes]
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }
}
