//! Every kind under limits that are torn.

use super::*;
use crate::bounds::{CAPACITY_MAX, EXACT_MAX};
use crate::clock::Offset;
use crate::lane::{Calendar, Limit, Word};
use proptest::prelude::*;

fn kinds() -> Vec<Kind> {
    let era = |calendar| Era { calendar, zone_minutes: -570 };
    let windows = [1_000_000, 60_000_000_000, 86_400_000_000_000].map(|length| Kind::Window(Window::new(length)));
    let budgets = [Calendar::Hour, Calendar::Month].map(|calendar| Kind::Budget(era(calendar)));
    [Kind::Bucket, Kind::Debt, Kind::Exact(Exact { length: 60_000_000_000 }), Kind::Held, Kind::Dynamic]
        .into_iter()
        .chain(windows)
        .chain(budgets)
        .collect()
}

/// Limits that a torn one can be made of. A row holds limits of one kind, but no
/// computation may rely on that.
fn rows() -> Vec<LimitWords> {
    let texts = ["deny", "1/s", "3/min burst 7", "1000000/s", "1/day burst 300"];
    let buckets = texts.map(|text| text.parse::<Limit>().unwrap().compile().unwrap());
    let counts = [1, 3, 15, 16, 128, CAPACITY_MAX].map(Numbers::Count);
    let none = [Numbers::Deny, Numbers::Unlimited, Numbers::OfCall];
    let rows = buckets.into_iter().chain(none).map(|numbers| Kind::Bucket.row(numbers, 20));
    let rows = rows.chain(counts.into_iter().chain(none).map(|numbers| Kind::Held.row(numbers, 20)));
    let dynamic = buckets.into_iter().chain(none).map(|numbers| Kind::Dynamic.row(numbers, 20));
    rows.chain(dynamic).chain([LimitWords([0; 4])]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A row that was read while it was written may be made of several
    /// limits. The result is thrown away, but computing it must not panic: a
    /// peek once divided by the price of a token that was a count, and the
    /// slot of a guard that was being dropped was never released.
    #[test]
    fn a_torn_limit_computes_something(
        kind in prop::sample::select(kinds()),
        torn in prop::array::uniform4(prop::sample::select(rows())),
        words in prop::collection::vec(any::<u64>(), EXACT_MAX as usize),
        near: bool,
        now in 0..=Tick::MAX.as_nanos(),
        cost in prop_oneof![any::<u64>(), 0..40_u64],
        place: u64,
    ) {
        let row = LimitWords(std::array::from_fn(|word| torn[word].0[word]));
        let limit = LaneLimit::new(kind, row);
        let words: Vec<_> = words.into_iter().map(LaneWord::from_bits).collect();
        let now = Tick::from_nanos(now);
        let near_now = |word: &LaneWord| if near { word.with_payload(now.as_nanos()) } else { *word };
        let words: Vec<_> = words.iter().map(near_now).collect();
        let words = match kind {
            Kind::Exact { .. } => &words[..],
            Kind::Window(_) => &words[..2],
            _ => &words[..1],
        };
        let at = At { now, offset: Offset::default() };
        let receipt = Receipt { at: now, position: 0, place, word: words[0], cell: cost as usize, price: cost };
        let _ = limit.step(words, at, cost);
        let _ = limit.refund(words, at, cost, |_| cost / 2);
        let _ = kind.roll_back(words, at, receipt, cost, near);
        let _ = limit.would(words, at, cost, place);
        let _ = limit.force(words, at, cost);
        let _ = limit.reset(words, at, cost as usize);
        let _ = limit.state(words, at);
        let _ = limit.blocked(words, at, cost);
        let _ = limit.load(words, now);
        let _ = kind.undo(words, at, place, cost);
        let _ = limit.is_exempt();
        let _ = limit.debt_max();
    }
}
