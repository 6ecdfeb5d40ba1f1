//! A budget per calendar window that machines share through a store, such as Redis.
//!
//! The store keeps how much of each window is used: debited, that is, spent or in some machine's credit. The key has
//! the window's number, so two windows never meet in one number. A lane has three words:
//!
//! - the *credit* word: a [window, and the balance](super::window_credit) in it;
//! - the *view*: how much of a window was used when the store last said so, an ordinary budget's word;
//! - the *pace*: when that was, and when to ask again. It decides no charge.
//!
//! # A charge
//!
//! It is made in the latest window that the caller, the credit word or the view is in. The balance and the view count
//! as 0 if they are of an earlier one, and the first charge of a window so begins with nothing.
//!
//! 1. From credit, if there is enough.
//! 2. If the store is lost: as [`WhenLost`] says. With `Share`, what was used by the view and the number of machines
//!    times what this one owes have to fit into the budget. What is charged so is *owed*, whole and exact, and is paid
//!    when the store is back: unlike a bucket, a budget has no refill that would forgive a charge that was counted for
//!    every machine.
//! 3. If the view has no room: denied until the window ends.
//! 4. In *advance*, unless the lane is exact: the balance may fall to `-advance_max`.
//! 5. Otherwise denied, for about as long as a question takes.
//!
//! Each changes the credit word alone, or nothing.
//!
//! # Why a machine admits no more than the store knows of
//!
//! Let `A` be the tokens that this machine has admitted in a window, `P` those that the store was debited for it in
//! that window, less what was given back, and `b` the balance in that window. Then always `b <= P - A`:
//!
//! - a charge lowers `b` and raises `A` by the same, in one exchange of the word that names the window;
//! - a settlement raises `P` in the store first, in the number of the window that the balance was read in; and raises
//!   `b` later, only if the word is still of that window, or never;
//! - what is given back comes off `b` first, and off `P` later, or never; a reservation that is settled with less than
//!   its estimate lowers `A`, and raises `b` by as much, only if the word is still of the window that it charged;
//! - a word that goes on to a later window begins with `b = 0`, and `P = A = 0` there. It never returns to an earlier
//!   one, since the latest window counts and the calendar of a machine does not go back.
//!
//! # The bound
//!
//! N machines share a budget C, each with `Ka` of advance. In any one window they admit at most `C + N Ka`.
//!
//! While the store's number `U` is at most C, all machines together have admitted at most `U` and what each has not
//! paid, at most `Ka` since `b >= -Ka`. Say a payment makes `U` larger than C. From then on nothing is granted, since
//! nothing is left. A machine goes on to spend in advance until it hears of that: say it reads a debt `d` to pay it. By
//! the time it hears the answer it has spent `e` more, and `d + e <= Ka`, because the balance is raised only by the
//! answer, after the view. The view then has no room, and the rest of the window is denied. So it has admitted at most
//! `Ka` more than what was paid before `U` passed C. No credit is extra: it was debited in the same window.
//!
//! - A view is never given up while something is used of its window, and neither is what is owed: the record stays
//!   until the window ends, as for a budget of one machine. A machine that starts anew, and one that forgets the agent,
//!   has no view, and counts as one machine more.
//! - What is owed when the window ends is not paid any more. That is at most `Ka` while the store answers, and counts
//!   already.
//! - Machines whose wall clocks differ are in different windows for that long, and each window has its number and its
//!   bound. The store keeps a window's number for some minutes after the end that the last writer knew; a machine whose
//!   clock is further behind than that may find it gone, and admit C again.
//! - The store loses its state: `C` once more, less what machines know. Each tells it, before checks hear that it is
//!   there, that what its view says and what it owes is used at least.

use super::super::budget;
use super::super::calendar::Era;
use super::super::count::CountLimit;
use super::super::kind::Kind;
use super::super::rules::{Charged, LimitWords, Refunded, Rules, first, look as unchanged};
use super::super::{Choice, Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use super::credit::CreditWord;
use super::settling::{Applied, Balance, Known, tokens};
use super::window_credit::{BALANCE_MAX, WindowCredit};
use super::{CLOSED_FOR_NS, Clustered, LinkState, Source, WhenLost, view};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::sync::{Fault, broken};
use std::time::Duration;

/// A budget that machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusteredBudget {
    pub(crate) settings: Clustered,
    pub(crate) era: Era,
}

/// The words of such a lane.
pub(crate) const BUDGET_WORDS: usize = 3;
/// The pace's place among them.
pub(super) const PACE: usize = 2;
/// The largest budget that machines can share.
pub(crate) const BUDGET_MAX: u64 = BALANCE_MAX as u64;

/// What the answer to a charge depends on.
struct Look {
    /// The window that is charged.
    window: u64,
    own: WindowCredit,
    /// What may be spent in the window, or is owed.
    balance: i64,
    pace: CreditWord,
    /// What is used of the window by the view.
    used: u64,
    limit: CountLimit,
    /// Until the window ends, in nanoseconds, and how long a window is.
    ends_in: u64,
    window_ns: u64,
    now: Tick,
}

impl Look {
    /// What is left of the budget with this balance, if what this machine owes counts as often.
    fn left(&self, balance: i64, times: u64) -> u64 {
        let owed = tokens(balance.saturating_neg()).saturating_mul(times);
        let left = self.limit.count().saturating_sub(self.used).saturating_add(tokens(balance));
        left.saturating_sub(owed).min(self.limit.count())
    }

    /// Whether there is room for what is owed with this balance, if it counts as often.
    fn has_room(&self, balance: i64, times: u64) -> bool {
        let owed = tokens(balance.saturating_neg()).saturating_mul(times);
        self.used.saturating_add(owed) <= self.limit.count() && balance >= -BALANCE_MAX
    }

    fn answer(&self, source: Source, finding: Finding, left: u64, wait_ns: u64, asks: bool) -> Charged {
        let (capacity, ends_in) = (self.limit.count(), self.ends_in);
        let verdict = Verdict::counted(source.of(finding), capacity, left, wait_ns, ends_in, self.window_ns);
        Charged::Clustered { verdict: Ok(verdict), asks }
    }

    /// The charge that leaves this balance, and `left`.
    fn spend(&self, source: Source, balance: i64, left: u64) -> Choice<Charged> {
        let asks = balance < self.pace.low() && !self.pace.is_asked(self.now);
        let answer = self.answer(source, self.limit.decision(left), left, 0, asks);
        Choice::of(Outcome { next: Some(self.own.put(self.window, balance)), answer })
    }

    fn deny(&self, source: Source, left: u64, wait_ns: u64, asks: bool) -> Choice<Charged> {
        Choice::of(unchanged(self.answer(source, Finding::DENY, left, wait_ns, asks)))
    }
}

/// A count as a balance.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl ClusteredBudget {
    /// How much credit a machine may have.
    pub(crate) fn credit_max(&self, capacity: u64) -> u64 {
        self.settings.credit_max(capacity).min(BUDGET_MAX)
    }

    /// How much a machine may spend in advance.
    pub(crate) fn advance_max(&self, capacity: u64) -> u64 {
        self.settings.advance_of(capacity).min(BUDGET_MAX)
    }

    /// The kind of a further word.
    pub(crate) const fn further(&self, cell: usize) -> Kind {
        if cell == PACE { Kind::Clustered(self.settings) } else { Kind::Budget(self.era) }
    }

    /// How long a window goes on, in nanoseconds.
    fn ends_in(&self, window: u64, at: At) -> u64 {
        u64::try_from(self.era.end(window).saturating_sub(at.unix_ns())).unwrap_or(0)
    }

    fn look(&self, words: &[LaneWord], at: At, limit: LimitWords) -> Look {
        let (own, (viewed, used)) = (WindowCredit::of(first(words)), budget::counted(view(words)));
        let window = self.era.index(at.unix_ns()).max(own.window()).max(viewed);
        let balance = own.balance_in(window);
        Look {
            window,
            own,
            balance: if self.settings.link.honours_credit() { balance } else { balance.min(0) },
            pace: CreditWord::of(words.get(PACE).copied().unwrap_or_default()),
            used: if viewed == window { used } else { 0 },
            limit: CountLimit::from_words(limit),
            ends_in: self.ends_in(window, at),
            window_ns: self.era.length_ns(),
            now: at.now,
        }
    }

    fn is_lost(&self, now: Tick) -> bool {
        self.settings.link.state(now) == LinkState::Lost
    }

    /// How often what this machine owes counts while the store is lost.
    fn times_when_lost(&self) -> u64 {
        if self.settings.when_lost == WhenLost::Share { u64::from(self.settings.link.nodes()) } else { 1 }
    }

    /// The answer while the store is lost, to a charge that would leave this balance.
    fn without_store(&self, look: &Look, cost: u64, after: i64) -> Choice<Charged> {
        let source = match self.settings.when_lost {
            WhenLost::Share => Source::Share,
            WhenLost::Alone => Source::Alone,
            WhenLost::Closed => return look.deny(Source::Closed, look.left(look.balance, 1), CLOSED_FOR_NS, false),
            WhenLost::Open => {
                let left = look.left(look.balance, 1);
                return Choice::of(unchanged(look.answer(Source::Open, look.limit.decision(left), left, 0, false)));
            }
        };
        let times = self.times_when_lost();
        if look.has_room(after, times) {
            return look.spend(source, after, look.left(after, times) / times);
        }
        // A share may be too small for any request of this cost.
        let wait = if cost.saturating_mul(times) > look.limit.count() { RETRY_NEVER } else { look.ends_in };
        look.deny(source, look.left(look.balance, times) / times, wait, false)
    }

    /// What the lane has to settle; see [`Shared::balance`](super::Shared::balance).
    pub(super) fn balance(&self, words: &[LaneWord], at: At, limit: LimitWords) -> Choice<Balance> {
        let Look { window, own, balance, pace, used, limit, ends_in, now, .. } = self.look(words, at, limit);
        let (had, credit_max) = (own.balance_in(window), self.credit_max(limit.count()));
        // What nobody has asked about for a second is not needed here.
        let most = if pace.is_live(now) { signed(credit_max) } else { 0 };
        let kept = balance.min(most);
        let next = (kept != had || window != own.window()).then(|| own.put(window, kept));
        let answer = Balance {
            owed: tokens(-kept),
            given: tokens(had - kept),
            credit: tokens(kept),
            known: Known::Used { used, window, left: Duration::from_nanos(ends_in) },
            capacity: limit.count(),
            credit_max,
            advance_max: self.advance_max(limit.count()),
            generation: first(words).generation(),
            view: view(words),
        };
        Choice::of(Outcome { next, answer })
    }

    /// Adds what was paid and granted, if the word is still of the window that was settled.
    pub(super) fn receive(&self, words: &[LaneWord], settled: &Balance, received: i64, again: bool) -> Choice<Applied> {
        let own = WindowCredit::of(first(words));
        let Some(window) = settled.known.window() else { return Choice::of(unchanged(Applied::Gone)) };
        if own.window() != window && !broken(Fault::CreditOfOldWindow) {
            return Choice::of(unchanged(Applied::Gone));
        }
        let balance = own.balance().saturating_add(received);
        let answer = if again || balance < 0 { Applied::Again } else { Applied::Done };
        Choice::of(Outcome { next: (received != 0).then(|| own.put(own.window(), balance)), answer })
    }

    /// Whether the word says nothing about the present window or a later one.
    fn is_nothing(&self, word: LaneWord, at: At) -> bool {
        let own = WindowCredit::of(word);
        own.balance() == 0 || own.window() < self.era.index(at.unix_ns())
    }
}

impl Rules for ClusteredBudget {
    fn uses_calendar(&self) -> bool {
        true
    }

    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        self.is_nothing(word, at)
    }

    fn is_kept(&self, word: LaneWord, at: At) -> bool {
        !self.is_nothing(word, at)
    }

    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord {
        WindowCredit::of(word).emptied(self.era.index(floor.unix_ns()))
    }

    fn renewed(&self, word: LaneWord, _present: Tick, _is_other_tenant: bool) -> LaneWord {
        WindowCredit::of(word).renewed()
    }

    fn under_other_limit(&self, word: LaneWord, at: At, is_reset: bool, _debt_max: Duration) -> LaneWord {
        if is_reset { self.emptied(word, at) } else { word }
    }

    /// The window that was charged.
    fn place(&self, charged: LaneWord) -> u64 {
        WindowCredit::of(charged).window()
    }

    /// A credit that was lost with its record cannot be given back to it.
    fn outlives_its_generation(&self, _is_forgiven: bool) -> bool {
        false
    }

    /// Raises the balance that was charged, unless its window is over.
    fn undo(&self, words: &[LaneWord], _at: At, place: u64, cost: u64) -> Choice<()> {
        let own = WindowCredit::of(first(words));
        let balance = own.balance().saturating_add(signed(cost));
        let next = (own.window() == place).then(|| own.put(place, balance));
        Choice::of(Outcome { next, answer: () })
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        let counts = CountLimit::from_words(limit);
        if let Some(answer) = counts.uncounted(cost).or(counts.error(cost).map(Err)) {
            return Choice::of(unchanged(Charged::Counted(answer)));
        }
        let look = self.look(words, at, limit);
        let (left, asks) = (look.left(look.balance, 1), !look.pace.is_asked(at.now));
        if at.now == Tick::MAX {
            return look.deny(Source::View, left, RETRY_NEVER, false);
        }
        let after = look.balance.saturating_sub(signed(cost));
        if after >= 0 {
            return look.spend(Source::Credit, after, look.left(after, 1));
        }
        if self.is_lost(at.now) {
            return self.without_store(&look, cost, after);
        }
        if look.used.saturating_add(cost) > counts.count() {
            // Believed for about a second, and then asked again.
            return look.deny(Source::View, left, look.ends_in, asks && !look.pace.is_live(at.now));
        }
        let takes_asks = self.settings.link.takes_asks();
        if takes_asks && look.has_room(after, 1) && after >= -signed(self.advance_max(counts.count())) {
            return look.spend(Source::Advance, after, look.left(after, 1));
        }
        look.deny(Source::Pending, left, self.settings.link.wait_ns(), asks)
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
        let answer = match CountLimit::from_words(limit) {
            counts if counts.uncounted_state().is_none() => counts.error(cost).map(Err),
            counts => counts.uncounted_refund(cost).map(|state| state.map(Refunded::all)),
        };
        Choice::of(unchanged(answer.unwrap_or_else(|| Ok(Refunded::all(self.state(words, at, limit))))))
    }

    /// Owed, whatever is left: the engine pays it.
    fn force(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<()> {
        let Look { window, own, .. } = self.look(words, at, limit);
        let balance = own.balance_in(window).saturating_sub(signed(cost));
        Choice::of(Outcome { next: Some(own.put(window, balance)), answer: () })
    }

    fn next_to_reset(&self, words: &[LaneWord], _now: Tick, round: usize) -> Option<(usize, bool)> {
        let cell = round.min(words.len().saturating_sub(1));
        Some((cell, cell + 1 < words.len()))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let counts = CountLimit::from_words(limit);
        if let Some(state) = counts.uncounted_state() {
            return state;
        }
        let look = self.look(words, at, limit);
        let times = if self.is_lost(at.now) { self.times_when_lost() } else { 1 };
        let left = look.left(look.balance, times) / times;
        let full_in = if left == counts.count() { 0 } else { look.ends_in };
        LaneState::counted(counts.count(), left, full_in, full_in, look.window_ns)
    }
}
