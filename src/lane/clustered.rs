//! A token bucket that machines share through a store, such as Redis.
//!
//! The store keeps the bucket. A machine asks it for tokens in advance, and
//! spends them without a question; or it spends a few first and pays for them at
//! once. So a check never waits. A lane has two words:
//!
//! - the *credit* word, whose [balance](credit) is what the machine may spend, or
//!   what it owes;
//! - the *view*: the bucket as the store last reported it, an ordinary bucket's
//!   word. It decides when to deny, and how much is left.
//!
//! # A charge
//!
//! 1. From credit, if there is enough.
//! 2. If the store is lost: as [`WhenLost`] says. With `Share` the view goes on as
//!    a bucket with the price times the number of machines, so that each of them
//!    has its share of the limit.
//! 3. If the view has no room: denied.
//! 4. In *advance*, unless the lane is exact: the balance may fall to
//!    [`-advance_max`](Clustered::advance_max).
//! 5. Otherwise denied, for about as long as a question takes.
//!
//! 1 to 5 each change at most one word. A caller that finds the balance low, or its
//! end past, asks the machine's engine to settle: see `engine/cluster.rs`.
//!
//! # Why a machine admits no more than the store knows of
//!
//! Let `A` be the tokens that this machine has admitted by 1 and 4, `P` those that
//! the store was debited for it, less what was given back, and `b` the balance.
//! Then always `b <= P - A`:
//!
//! - a charge lowers `b` and raises `A` by the same, in one exchange;
//! - a settlement raises `P` in the store first, and `b` by the same later, or
//!   never;
//! - what is given back comes off `b` first, and off `P` later, or never;
//! - a record that is given up loses a positive balance. A negative one is never
//!   idle, and is kept.
//!
//! Since 4 keeps `b >= -advance_max`, all machines together have admitted no more
//! than the store was debited for, plus that much each.
//!
//! The two words are not read at one instant. That is harmless, since the view
//! only denies: 4 is bounded by the balance alone.
//!
//! - `credit.rs`: the credit word
//! - `budget.rs`: a budget that machines share; `window_credit.rs`: its credit word
//! - `settling.rs`: what an engine settles of either
//! - `link.rs`: the store and the other machines, as a check has to know them
//! - `source.rs`: where an answer came from

mod budget;
mod credit;
mod link;
mod settling;
mod source;
mod window_credit;

use super::bucket::{self, Bucket, BucketLimit};
use super::rules::{Charged, LimitWords, Receipt, Refunded, Rules, first, look as unchanged};
use super::{Choice, Finding, LaneState, LaneWord, Numbers, Outcome, RETRY_NEVER, Verdict};
use crate::clock::{At, Tick};
use crate::error::Error;
pub(crate) use budget::{BUDGET_MAX, BUDGET_WORDS, ClusteredBudget};
pub(crate) use credit::CREDIT_LIVES;
use credit::{BALANCE_MAX, CreditWord};
pub(crate) use link::{LinkState, LinkWord};
pub(crate) use settling::{Applied, Balance, Known, Shared};
pub use source::Source;
use std::time::Duration;

/// What a machine does with a lane while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenLost {
    /// Each machine allows its share: the limit divided by the number of machines.
    #[default]
    Share,
    /// Everything is denied.
    Closed,
    /// Everything is allowed, and nothing counted.
    Open,
    /// Each machine allows the whole limit.
    Alone,
}

impl WhenLost {
    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Alone => "alone",
        }
    }
}

/// A lane that machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clustered {
    /// How much of the capacity may be in credit and in advance at once, on all machines together, in thousandths.
    pub(crate) slack_permille: u16,
    /// Whether nothing is spent in advance.
    pub(crate) is_exact: bool,
    pub(crate) when_lost: WhenLost,
    /// The store and the other machines, as they are now.
    pub(crate) link: LinkWord,
}

/// The words of such a lane.
pub(crate) const CLUSTERED_WORDS: usize = 2;
/// The view's place among them.
pub(crate) const VIEW: usize = 1;

/// The most that all machines may owe of a bucket in advance, in nanoseconds of refill. The store counts debts below
/// 2^52 ns, and the bucket itself takes less than half of that. So a lane whose tokens take days has no advance: it
/// would be forgotten.
const OVERDRAFT_NS_MAX: u64 = 1 << 51;

/// How long a lane is denied that is closed because the store is lost.
const CLOSED_FOR_NS: u64 = 1_000_000_000;

/// What the answer to a charge depends on.
#[derive(Clone, Copy)]
struct Look {
    credit: CreditWord,
    limit: BucketLimit,
    /// How long the bucket takes to be full as the view shows it, in nanoseconds.
    debt_ns: u64,
    now: Tick,
}

impl Look {
    #[inline(always)]
    fn new(words: [LaneWord; 2], limit: BucketLimit, now: Tick) -> Self {
        let [credit, view] = words;
        Self { credit: CreditWord::of(credit), limit, debt_ns: bucket::full_in_ns(view, now), now }
    }

    /// The answer that leaves this balance. Its credit is tokens that the agent can spend: the bucket lacks so much
    /// less to be full.
    #[inline(always)]
    fn verdict(&self, finding: Finding, source: Source, balance: i64, wait_ns: u64) -> Verdict {
        let Self { limit, debt_ns, .. } = *self;
        let credit = u64::try_from(balance).unwrap_or(0);
        let full_in_ns = debt_ns.min(limit.depth_ns()).saturating_sub(credit.saturating_mul(limit.token_ns()));
        let finding = if finding == Finding::ALLOW && limit.is_low(full_in_ns) { Finding::WARN } else { finding };
        Verdict::refilling(source.of(finding), limit.capacity(), limit.token_ns(), wait_ns, full_in_ns)
    }

    /// The charge that leaves this balance.
    fn spend(&self, source: Source, balance: i64) -> Choice<Charged> {
        let next = Some(self.credit.with_balance(balance).word());
        let verdict = Ok(self.verdict(Finding::ALLOW, source, balance, 0));
        Choice::of(Outcome { next, answer: Charged::Clustered { verdict, asks: self.asks_with(balance) } })
    }

    fn deny(&self, source: Source, wait_ns: u64, asks: bool) -> Choice<Charged> {
        let verdict = self.verdict(Finding::DENY, source, self.credit.spendable(self.now), wait_ns);
        Choice::of(unchanged(Charged::Clustered { verdict: Ok(verdict), asks }))
    }

    /// Whether it is time to ask, with this balance.
    #[inline]
    fn asks_with(&self, balance: i64) -> bool {
        balance < self.credit.low() && !self.credit.is_asked(self.now)
    }

    /// How long until the view has room for this cost, in nanoseconds.
    fn wait_for(&self, cost: u64) -> u64 {
        self.debt_ns.saturating_add(cost.saturating_mul(self.limit.token_ns())).saturating_sub(self.limit.depth_ns())
    }
}

/// The usual charge of such a lane: there is credit enough, and it is not time to ask for more. `None` if that is not
/// so, or the limit is none that counts; then [`Clustered::step`] answers.
///
/// The view says how much is left, and decides nothing.
#[inline(always)]
pub(crate) fn spend_credit(
    words: [LaneWord; 2],
    now: Tick,
    limit: BucketLimit,
    link: LinkWord,
    cost: u64,
) -> Option<Outcome<Spent>> {
    let look = Look::new(words, limit, now);
    if !counts(limit, cost) || !link.honours_credit() || !look.credit.is_live(now) {
        return None;
    }
    // Lossless: no capacity is that large.
    let after = look.credit.balance().saturating_sub(cost as i64);
    let spent = || Outcome { next: Some(look.credit.with_balance(after).word()), answer: Spent { look, after } };
    (after >= 0 && !look.asks_with(after)).then(spent)
}

/// A charge that was paid from credit.
pub(crate) struct Spent {
    look: Look,
    /// The balance after it.
    after: i64,
}

impl Spent {
    /// Computed once the limit is known to be whole.
    #[inline(always)]
    pub(crate) fn verdict(&self) -> Verdict {
        self.look.verdict(Finding::ALLOW, Source::Credit, self.after, 0)
    }
}

/// Whether the limit counts such a request: it has a cost, and one that the bucket can hold, and the agent is not
/// exempt.
#[inline]
fn counts(limit: BucketLimit, cost: u64) -> bool {
    cost > 0 && cost <= limit.capacity() && !limit.is_exempt()
}

impl Clustered {
    /// How much credit a machine may have of a lane of this capacity.
    pub(crate) fn credit_max(&self, capacity: u64) -> u64 {
        let share = u128::from(capacity) * u128::from(self.slack_permille) / (2_000 * u128::from(self.link.nodes()));
        // No larger than the capacity.
        u64::try_from(share).unwrap_or(capacity)
    }

    /// How much a machine may spend in advance of a lane of this capacity.
    fn advance_of(&self, capacity: u64) -> u64 {
        if self.is_exact { 0 } else { self.credit_max(capacity).max(1) }
    }

    /// How much a machine may spend of a bucket in advance: the store has to be able to count what all of them owe.
    fn advance_max(&self, limit: BucketLimit) -> u64 {
        let owed_max = OVERDRAFT_NS_MAX / limit.token_ns().max(1);
        self.advance_of(limit.capacity()).min(owed_max / u64::from(self.link.nodes())).min(BALANCE_MAX as u64)
    }

    /// What may be spent now, or is owed.
    fn spendable(&self, credit: CreditWord, now: Tick) -> i64 {
        let balance = credit.spendable(now);
        if self.link.honours_credit() { balance } else { balance.min(0) }
    }

    /// The answer while the store is lost.
    fn without_store(&self, look: &Look, view: LaneWord, cost: u64) -> Choice<Charged> {
        let alone = |source: Source, cost| {
            let charged = bucket::step(view, look.now, look.limit, cost);
            let verdict = bucket::verdict(charged.answer);
            let asks = charged.next.is_some() && !look.credit.is_asked(look.now);
            // A share may be too small for any request of this cost.
            let verdict = match verdict {
                Err(Error::CostAboveCapacity { .. }) => return look.deny(source, RETRY_NEVER, false),
                verdict => verdict.map(|verdict| Verdict { finding: source.of(verdict.finding), ..verdict }),
            };
            Choice::at(VIEW, Outcome { next: charged.next, answer: Charged::Clustered { verdict, asks } })
        };
        match self.when_lost {
            WhenLost::Share => alone(Source::Share, cost.saturating_mul(u64::from(self.link.nodes()))),
            WhenLost::Alone => alone(Source::Alone, cost),
            WhenLost::Closed => look.deny(Source::Closed, CLOSED_FOR_NS, false),
            WhenLost::Open => {
                let balance = look.credit.spendable(look.now);
                let verdict = Ok(look.verdict(Finding::ALLOW, Source::Open, balance, 0));
                Choice::of(unchanged(Charged::Clustered { verdict, asks: false }))
            }
        }
    }
}

/// Whether machines can share a lane of these numbers: its bucket refills in less than `most_ns`.
pub(crate) fn fits(numbers: Numbers, most_ns: u64) -> bool {
    BucketLimit::new(numbers, 0).depth_ns() < most_ns
}

/// The view of a lane.
fn view(words: &[LaneWord]) -> LaneWord {
    words.get(VIEW).copied().unwrap_or_default()
}

impl Rules for Clustered {
    /// A reservation keeps no id, and a part that is given back has to find the agent's key in the store.
    fn is_reservable(&self) -> bool {
        false
    }

    /// What is owed is never forgotten, and credit is kept while it may be spent.
    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        let credit = CreditWord::of(word);
        credit.balance() >= 0 && !credit.is_live(at.now)
    }

    fn is_kept(&self, word: LaneWord, _at: At) -> bool {
        CreditWord::of(word).balance() < 0
    }

    fn emptied(&self, word: LaneWord, _floor: At) -> LaneWord {
        word.with_payload(0)
    }

    fn renewed(&self, word: LaneWord, present: Tick, _is_other_tenant: bool) -> LaneWord {
        CreditWord::of(word).renewed(present).word()
    }

    fn under_other_limit(&self, word: LaneWord, _at: At, is_reset: bool, _debt_max: Duration) -> LaneWord {
        if is_reset { word.with_payload(0) } else { word }
    }

    /// Gives the tokens back to the word that they were taken from.
    fn roll_back(&self, words: &[LaneWord], latest: At, receipt: Receipt, cost: u64) -> Choice<()> {
        if receipt.cell == VIEW {
            let back = Bucket::PLAIN.roll_back(&[view(words)], latest, receipt, cost);
            return Choice { cell: VIEW, ..back };
        }
        let credit = CreditWord::of(first(words));
        // Lossless: a cost is no larger than a capacity.
        let next = credit.with_balance(credit.balance().saturating_add(cost as i64)).word();
        Choice::of(Outcome { next: Some(next), answer: () })
    }

    /// A credit that was lost with its record cannot be given back to it.
    fn outlives_its_generation(&self, _is_forgiven: bool) -> bool {
        false
    }

    fn row(&self, numbers: Numbers, warn_below_percent: u8) -> LimitWords {
        BucketLimit::new(numbers, warn_below_percent).to_words()
    }

    fn is_exempt(&self, limit: LimitWords) -> bool {
        BucketLimit::from_words(limit).is_exempt()
    }

    fn debt_max(&self, limit: LimitWords) -> u64 {
        BucketLimit::from_words(limit).debt_max()
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        let (credit, limit) = (CreditWord::of(first(words)), BucketLimit::from_words(limit));
        if !counts(limit, cost) {
            // An error, an exemption, or a lane that denies everything: a bucket's answer, which charges nothing.
            return Choice::of(unchanged(Charged::Bucket(
                bucket::step(LaneWord::default(), at.now, limit, cost).answer,
            )));
        }
        let look = Look::new([credit.word(), view(words)], limit, at.now);
        // Lossless: no capacity is that large.
        let after = self.spendable(credit, at.now).saturating_sub(cost as i64);
        if after >= 0 {
            return look.spend(Source::Credit, after);
        }
        if self.link.state(at.now) == LinkState::Lost {
            return self.without_store(&look, view(words), cost);
        }
        let wait = look.wait_for(cost);
        let asks = !credit.is_asked(at.now);
        if wait > 0 {
            // Believed for about a second, and then asked again.
            return look.deny(Source::View, wait, asks && !credit.is_live(at.now));
        }
        if self.link.takes_asks() && after >= -(self.advance_max(limit) as i64) {
            return look.spend(Source::Advance, after);
        }
        look.deny(Source::Pending, self.link.wait_ns(), asks)
    }

    /// The engine gives back to the store; here is only what the lane then holds.
    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        _reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let bucket = BucketLimit::from_words(limit);
        let answer = bucket.error(cost).map_or_else(|| Ok(Refunded::all(self.state(words, at, limit))), Err);
        Choice::of(unchanged(answer))
    }

    fn next_to_reset(&self, words: &[LaneWord], _now: Tick, round: usize) -> Option<(usize, bool)> {
        let cell = round.min(words.len().saturating_sub(1));
        Some((cell, cell + 1 < words.len()))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let limit = BucketLimit::from_words(limit);
        let viewed = bucket::state(view(words), at.now, limit);
        let credit = u64::try_from(self.spendable(CreditWord::of(first(words)), at.now)).unwrap_or(0);
        let remaining = viewed.remaining().saturating_add(credit).min(viewed.capacity());
        LaneState { remaining, token_ns: 0, ..viewed }
    }

    fn load(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> u64 {
        BucketLimit::from_words(limit).debt_ratio(view(words), now)
    }
}
