//! The table of limits: rows of plain words, with a limit for every lane in each.
//!
//! A check finds the row's number in the tag word of its agent's record. A
//! row that a tag names is never written: a change of limits writes a row
//! that no tag names, puts its number into the tag, and then moves the lanes
//! on ([`Record::change_row`](crate::record::Record::change_row)). Only then
//! is the old row free for others, and a caller that still reads it finds out:
//! see "Rows" in [`record`](crate::record). `row.rs` numbers the rows, and
//! `state.rs` says which of them are in force.

mod row;
mod state;

pub(crate) use row::{ROW_BITS, ROWS, Row};
#[cfg(feature = "persist")]
pub(crate) use state::LoadedFile;
#[cfg(feature = "shared")]
pub(crate) use state::STATE_WORDS;
pub(crate) use state::StateWords;

use crate::conduct::ConductNumbers;
use crate::error::Error;
use crate::lane::bucket::BucketLimit;
#[cfg(feature = "cluster")]
use crate::lane::clustered::{Clustered, ClusteredBudget, LinkWord, Shared};
use crate::lane::kind::{LaneLimit, LimitWords};
use crate::lane::{CallLimit, Kind, Limit, Numbers, dynamic};
use crate::machine::mapping::Words;
#[cfg(feature = "cluster")]
use crate::machine::process::generation;
use crate::policy::{Cells, LaneId, PlanId, Policy};
use crate::shared::{Memory, Section};
use crate::sync::{Fault, Ordering, QuietU64, Setting, broken};

/// Padding rows after the numbered ones, so that the same row of two lanes does
/// not map to the same cache set.
const SPARE_ROWS: usize = if cfg!(loom) { 0 } else { 8 };

/// A lane's limits, one in each row.
type LaneRows = [[QuietU64; LimitWords::COUNT]; ROWS + SPARE_ROWS];

/// Limits ready to compute with, found by lane and row; and the numbers of conduct.
pub(crate) struct LimitTable {
    lanes: Words<LaneRows>,
    memory: Memory,
    state: StateWords,
    /// What each lane's word means, under this policy and all later ones.
    kinds: Box<[Kind]>,
    /// The words of each lane.
    cells: Box<[Cells]>,
    /// How many lanes are buckets before the first that is not; none if there is a total.
    fast_lanes: usize,
    /// How many of these are checked without a look at their kind: all or none.
    fast: Setting,
    /// The lane that is charged along with others.
    total: Option<LaneId>,
    /// How many plans the policy in force has, as far as this process knows.
    plans: QuietU64,
    /// How the store is that machines share lanes through.
    #[cfg(feature = "cluster")]
    link: QuietU64,
    /// Whose link that is: [`generation`] of the process whose engine settles. 0 before there was one.
    #[cfg(feature = "cluster")]
    link_of: QuietU64,
}

/// The bytes of a lane's limits.
pub(crate) const LANE_BYTES: usize = size_of::<LaneRows>();

const ROW_BYTES: usize = size_of::<[QuietU64; LimitWords::COUNT]>();

/// Of those the first, which are used from the start: the rows of plans, and of exempt agents.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const PLAN_ROW_BYTES: usize = (Row::EXEMPT.index() + 1) * ROW_BYTES;

impl LimitTable {
    /// A table in which the policy is in force. If the system refuses the memory,
    /// the error is how many bytes were needed.
    ///
    /// Not inlined: with loom's atomics it is large, and loom's stacks are small.
    #[inline(never)]
    pub(crate) fn within(memory: &Memory, policy: &Policy) -> Result<Self, u64> {
        let len = policy.lanes().len();
        let kinds: Box<[Kind]> = policy.kinds().collect();
        let total = policy.total();
        let is_fast = |kind: &&Kind| **kind == Kind::Bucket && total.is_none();
        let fast_lanes = kinds.iter().take_while(is_fast).count();
        let lanes: Words<LaneRows> = memory.words(Section::Limits, len)?;
        lanes.show(fast_lanes);
        let table = Self {
            lanes,
            memory: memory.clone(),
            state: StateWords::within(memory)?,
            kinds,
            cells: policy.cells().collect(),
            fast_lanes,
            fast: Setting::new(fast_lanes),
            total,
            plans: QuietU64::new(policy.plans().len() as u64),
            #[cfg(feature = "cluster")]
            link: QuietU64::new(LinkWord::LOST.bits()),
            #[cfg(feature = "cluster")]
            link_of: QuietU64::new(0),
        };
        if memory.is_new() {
            table.write_numbers(Row::EXEMPT, 0, policy.lanes().map(|_| Numbers::Unlimited));
            table.write_policy(policy, 0);
            table.admit_plans(policy.plans().len());
        }
        Ok(table)
    }

    /// Takes memory for an override's row, before it is written. `false` if there is none left.
    pub(crate) fn allocate_row(&self, row: Row) -> bool {
        let start = |lane: usize| lane * LANE_BYTES + row.index() * ROW_BYTES;
        (0..self.lanes.len()).all(|lane| self.memory.allocate(Section::Limits, start(lane), ROW_BYTES))
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        size_of_val(&*self.lanes) as u64
    }

    /// Every lane.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneLimits<'_>> {
        (0..).map(LaneId::new).zip(&*self.lanes).map(|(id, rows)| LaneLimits { id, rows })
    }

    /// The lane of this number if it is a bucket, comes before the first lane
    /// that is not, and is not observed.
    #[inline]
    pub(crate) fn unobserved_lane(&self, id: LaneId) -> Option<LaneLimits<'_>> {
        self.lanes.shown().get(id.index()).map(|rows| LaneLimits { id, rows })
    }

    /// Marks all lanes as observed, or none. With `is_general` no lane is
    /// [fast](Self::is_fast), and all take the general path.
    pub(crate) fn observe(&self, is_observed: bool, is_general: bool) {
        self.fast.store(if is_general { 0 } else { self.fast_lanes }, Ordering::Relaxed);
        self.lanes.show(if is_observed || is_general { 0 } else { self.fast_lanes });
    }

    /// Whether the lane is a bucket and comes before the first that is not, in a
    /// policy without a total: it is checked without a look at its kind.
    #[inline]
    pub(crate) fn is_fast(&self, lane: LaneId) -> bool {
        lane.index() < self.fast.load(Ordering::Relaxed)
    }

    /// The total that is charged with this lane, if there is one.
    ///
    /// Relaxed: if a policy that comes into force meanwhile moves the lane in or
    /// out of the total, a call follows the old policy or the new one.
    pub(crate) fn total_with(&self, lane: LaneId) -> Option<LaneLimits<'_>> {
        let total = self.total?;
        let is_in_total = self.state.in_total(self.state.epoch()).load(Ordering::Relaxed) >> lane.index() & 1 == 1;
        if is_in_total { self.lane(total).ok() } else { None }
    }

    /// Whether any plan may have a total.
    pub(crate) fn has_total(&self) -> bool {
        self.total.is_some()
    }

    /// Whether the lane is the total.
    pub(crate) fn is_total(&self, lane: LaneId) -> bool {
        self.total == Some(lane)
    }

    /// The lane of this number, if it exists and can be charged alone.
    pub(crate) fn chargeable(&self, lane: LaneId) -> Result<LaneLimits<'_>, Error> {
        if self.is_total(lane) { Err(Error::WrongKind { lane: lane.number() }) } else { self.lane(lane) }
    }

    /// What each lane's word means.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The words of a lane.
    pub(crate) fn cells(&self, lane: LaneId) -> Cells {
        self.cells[lane.index()]
    }

    /// Whether the lane can have such a limit.
    pub(crate) fn is_for(&self, lane: LaneId, limit: &Limit) -> bool {
        limit.lane_kind().is_none_or(|kind| kind == self.kinds[lane.index()].in_policies())
    }

    /// The lane's limit in a row, as its kind reads it; see [`LaneLimits::words`].
    /// On a dynamic lane the one that the call has `given` comes first; any other
    /// lane goes by the row alone.
    pub(crate) fn lane_limit(&self, lane: LaneLimits<'_>, row: Row, given: Option<CallLimit>) -> LaneLimit {
        let (kind, words) = (self.kind_now(lane.id), lane.words(row));
        match kind {
            Kind::Dynamic => LaneLimit::new(kind, dynamic::of_call(words, given, lane.id.number())),
            kind => LaneLimit::new(kind, words),
        }
    }

    /// Refuses a limit that a call brings for a lane that has its own.
    pub(crate) fn must_be_dynamic(&self, lane: LaneId) -> Result<(), Error> {
        match self.kinds[lane.index()] {
            Kind::Dynamic => Ok(()),
            _ => Err(Error::LimitGiven { lane: lane.number() }),
        }
    }

    /// What the lane's word means, and how the store is if machines share the lane.
    #[inline]
    fn kind_now(&self, lane: LaneId) -> Kind {
        match self.kinds[lane.index()] {
            #[cfg(feature = "cluster")]
            Kind::Clustered(clustered) => Kind::Clustered(self.linked(clustered)),
            #[cfg(feature = "cluster")]
            Kind::ClusteredBudget(ClusteredBudget { settings, era }) => {
                Kind::ClusteredBudget(ClusteredBudget { settings: self.linked(settings), era })
            }
            kind => kind,
        }
    }

    /// How machines share a lane, with the store as it is now.
    #[cfg(feature = "cluster")]
    fn linked(&self, settings: Clustered) -> Clustered {
        Clustered { link: self.link(), ..settings }
    }

    /// How machines share the lane, if they do.
    #[cfg(feature = "cluster")]
    pub(crate) fn clustered(&self, lane: LaneId) -> Option<Shared> {
        match self.kind_now(lane) {
            Kind::Clustered(clustered) => Some(Shared::Bucket(clustered)),
            Kind::ClusteredBudget(budget) => Some(Shared::Budget(budget)),
            _ => None,
        }
    }

    /// How the store is, if the lane is a bucket that machines share and that no total goes with: its checks look for
    /// credit before anything else.
    #[cfg(feature = "cluster")]
    #[inline]
    pub(crate) fn link_of_credit(&self, lane: LaneId) -> Option<LinkWord> {
        let is_shared_bucket = matches!(self.kinds[lane.index()], Kind::Clustered(_));
        (is_shared_bucket && self.total.is_none()).then(|| self.link())
    }

    /// How the store is, and how many machines share it. A process that was forked while an engine settled has no
    /// engine, and the credit that it finds is its parent's.
    #[cfg(feature = "cluster")]
    #[inline]
    pub(crate) fn link(&self) -> LinkWord {
        let link = LinkWord::from_bits(self.link.load(Ordering::Relaxed));
        if self.link_of.load(Ordering::Relaxed) == generation() { link } else { LinkWord::ended(link.nodes()) }
    }

    /// Tells the next check how the store is.
    #[cfg(feature = "cluster")]
    pub(crate) fn set_link(&self, link: LinkWord) {
        self.link.store(link.bits(), Ordering::Relaxed);
        if self.link_of.load(Ordering::Relaxed) == 0 {
            self.adopt_link();
        }
    }

    /// Whether the link is that of a process that this one was forked from.
    #[cfg(feature = "cluster")]
    pub(crate) fn has_link_of_parent(&self) -> bool {
        ![0, generation()].contains(&self.link_of.load(Ordering::Relaxed))
    }

    /// The engine of this process settles from now on.
    #[cfg(feature = "cluster")]
    pub(crate) fn adopt_link(&self) {
        self.link_of.store(generation(), Ordering::Relaxed);
    }

    /// The lane of this number, if there is one.
    #[inline]
    pub(crate) fn lane(&self, id: LaneId) -> Result<LaneLimits<'_>, Error> {
        match self.lanes.get(id.index()) {
            Some(rows) => Ok(LaneLimits { id, rows }),
            None => Err(Error::UnknownLane { lane: id.number(), lanes: self.lanes.len() as u32 }),
        }
    }

    /// Refuses a plan that the policy does not have.
    #[inline]
    pub(crate) fn check_plan(&self, plan: PlanId) -> Result<(), Error> {
        // Plans are only ever added, and their rows are written first.
        let plans = self.plans.load(Ordering::Acquire) as u16;
        if plan.number() < plans { Ok(()) } else { Err(Error::UnknownPlan { plan: plan.number(), plans }) }
    }

    /// Lets requests of this process name the plans that another process has admitted.
    #[cfg(feature = "shared")]
    pub(crate) fn adopt_plans(&self) {
        // Acquire, paired with `admit_plans`: every record has been moved on to the rows of the new plans.
        self.plans.store(self.state.plans().load(Ordering::Acquire), Ordering::Release);
    }

    /// The epoch of the policy in force; its rows are visible.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.epoch()
    }

    /// Puts the policy of this epoch, whose rows are written, in force.
    pub(crate) fn enter(&self, epoch: u64) {
        self.state.enter(epoch);
    }

    /// Lets requests name the plans that are new in the policy in force. Every
    /// record has been moved on to its rows.
    pub(crate) fn admit_plans(&self, plans: usize) {
        self.state.plans().store(plans as u64, Ordering::Release);
        self.plans.store(plans as u64, Ordering::Release);
    }

    /// Writes the rows of a policy, which come into force with the epoch.
    pub(crate) fn write_policy(&self, policy: &Policy, epoch: u64) {
        let write = |row, plan| self.write_numbers(row, policy.warn_below_percent(), policy.numbers(plan));
        write(Row::unassigned(epoch), PlanId::DEFAULT);
        for (plan, _) in policy.plans() {
            write(Row::of_plan(plan, epoch), plan);
        }
        let in_total = policy.lanes().filter(|(lane, _)| policy.is_in_total(*lane));
        self.state.in_total(epoch).store(in_total.map(|(lane, _)| 1 << lane.index()).sum(), Ordering::Relaxed);
        for (word, value) in self.state.conduct(epoch).iter().zip(ConductNumbers::new(policy.conduct()).to_words()) {
            word.store(value, Ordering::Release);
        }
    }

    /// Writes a row, each lane's limit as its kind reads it.
    ///
    /// Release: a thread that reads one of these words sees that the row's last
    /// users have been moved on.
    pub(crate) fn write_numbers(&self, row: Row, warn_below_percent: u8, numbers: impl Iterator<Item = Numbers>) {
        for ((lane, kind), numbers) in self.lanes.iter().zip(&self.kinds).zip(numbers) {
            let LimitWords(limit) = kind.row(numbers, warn_below_percent);
            for (word, value) in lane[row.index()].iter().zip(limit) {
                word.store(value, Ordering::Release);
            }
        }
    }

    /// The longest debt that the lane keeps under a row, in nanoseconds.
    pub(crate) fn debt_max(&self, row: Row, lane: LaneId) -> u64 {
        self.lane(lane).map_or(0, |lane| self.lane_limit(lane, row, None).debt_max())
    }

    /// See [`StateWords::of_epoch`].
    pub(crate) fn of_epoch<T>(&self, read: impl Fn(u64) -> T) -> T {
        self.state.of_epoch(read)
    }

    /// The words that change with the policy.
    #[cfg(any(feature = "shared", feature = "persist"))]
    pub(crate) fn state(&self) -> &StateWords {
        &self.state
    }

    /// The numbers of conduct in force.
    pub(crate) fn conduct(&self) -> ConductNumbers {
        self.of_epoch(|epoch| {
            let words = self.state.conduct(epoch);
            ConductNumbers::from_words(std::array::from_fn(|word| words[word].load(Ordering::Acquire)))
        })
    }
}

/// A lane of the policy, with its limits at hand.
#[derive(Clone, Copy)]
pub(crate) struct LaneLimits<'a> {
    id: LaneId,
    rows: &'a LaneRows,
}

impl LaneLimits<'_> {
    #[inline]
    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    /// The lane's limit in a row, for its kind to read. It may be torn if the
    /// row is no longer the caller's; the exchange, or the last look, that
    /// follows then fails.
    ///
    /// Acquire, paired with the Release in [`LimitTable::write_numbers`].
    #[inline]
    fn words(&self, row: Row) -> LimitWords {
        let order = if broken(Fault::RelaxedRow) { Ordering::Relaxed } else { Ordering::Acquire };
        // One by one: a build for size would make it a loop.
        let [a, b, c, d] = &self.rows[row.index()];
        LimitWords([a.load(order), b.load(order), c.load(order), d.load(order)])
    }

    /// The same for other uses than a charge.
    #[cfg(feature = "cluster")]
    pub(crate) fn limit_words(&self, row: Row) -> LimitWords {
        self.words(row)
    }

    /// The same for a lane that is known to be a bucket.
    #[inline]
    pub(crate) fn limit(&self, row: Row) -> BucketLimit {
        BucketLimit::from_words(self.words(row))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The lanes of the total had one word for all policies. A process that was
    /// killed after it had written the next policy, and before that was in force,
    /// left the old policy with the lanes of the new one.
    #[test]
    fn a_policy_that_is_written_and_not_in_force_changes_nothing() {
        let policy = || Policy::builder().lane("a", "100/s").lane("b", "100/s").total("5/day");
        let (old, new) = (policy().build().unwrap(), policy().outside_total(["a"]).build().unwrap());
        let table = LimitTable::within(&Memory::Private, &old).unwrap();
        let in_total = || [0, 1].map(|lane| table.total_with(LaneId::new(lane)).is_some());
        assert_eq!(in_total(), [true, true]);
        table.write_policy(&new, 1);
        assert_eq!(in_total(), [true, true]);
        table.enter(1);
        assert_eq!(in_total(), [false, true]);
    }
}
