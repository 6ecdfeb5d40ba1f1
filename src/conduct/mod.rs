//! An agent's violations: pure steps on one word.
//!
//! The policy decides whether every denial is a violation, or only one that comes
//! before an announced wait is over.
//!
//! - `word.rs`: the word, bit by bit
//! - `numbers.rs`: the rules, ready to compute with
//! - `violation.rs`: a violation, and an agent's conduct
//! - `announced.rs`: the wait that was last announced to an agent, in a separate word

pub(crate) mod announced;
mod numbers;
mod violation;
mod word;

pub(crate) use numbers::ConductNumbers;
pub use violation::{Conduct, Violation};
pub(crate) use word::ConductWord;

use crate::clock::Tick;
use crate::lane::Outcome;
use word::{AGE_MAX, COUNT_MAX, ConductFields, IN_A_ROW_MAX, UNIT_NANOS, units, units_of_seconds};

/// Records a violation at `now`.
pub(crate) fn violate(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Outcome<Violation, ConductWord> {
    let before = assess(word, now, rules);
    let fields = word.fields();
    let in_a_row = (u64::from(before.in_a_row) + 1).min(IN_A_ROW_MAX);
    let count = (u64::from(before.count) + 1).min(COUNT_MAX);
    // A caller with an older instant does not move the last violation back.
    let flood = in_a_row == IN_A_ROW_MAX && count == COUNT_MAX;
    let at = if flood { units_of_seconds(now) } else { units(now) };
    let last = if before.last.is_some() { at.max(fields.last) } else { at };
    let start = if before.count == 0 { last } else { fields.last - fields.age.min(fields.last) };
    // Reported already, unless a whole window has passed without a violation.
    let reported = fields.raised && before.last.is_some() && now.as_nanos() < fields.last * UNIT_NANOS + rules.window;
    let sustained_abuse = !reported && count >= rules.threshold;
    let next = word.with(ConductFields {
        last,
        age: (last - start).min(AGE_MAX),
        count,
        in_a_row,
        raised: reported || sustained_abuse,
    });
    let answer = Violation::new(in_a_row, assess(next, now, rules).wait_ns, sustained_abuse, rules);
    Outcome { next: (next != word).then_some(next), answer }
}

/// The conduct at `now`.
pub(crate) fn assess(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Conduct {
    let ConductFields { last, age, count, in_a_row, .. } = word.fields();
    let now = now.as_nanos();
    let (last_ns, start_ns) = (last * UNIT_NANOS, (last - age.min(last)) * UNIT_NANOS);
    let known = count > 0 || in_a_row > 0;
    let is_quiet = now >= last_ns + rules.quiet;
    let in_a_row = if is_quiet { 0 } else { in_a_row };
    let count = if now >= start_ns + rules.window { 0 } else { count };
    // A forgiven agent waits no longer, whatever the curve says. Without a curve there is no
    // wait to round up to the units that `last` is kept in.
    let wait = rules.step(in_a_row).min(rules.quiet);
    let wait_ns = if in_a_row > 0 && wait > 0 { (last_ns + wait).saturating_sub(now) } else { 0 };
    Conduct {
        count: count as u32,
        window_start: (count > 0).then(|| Tick::from_nanos(start_ns)),
        in_a_row: in_a_row as u32,
        last: (known && now < last_ns + rules.quiet.max(rules.window)).then(|| Tick::from_nanos(last_ns)),
        wait_ns,
    }
}

/// Forgives everything, and answers whether anything mattered at `now`.
pub(crate) fn forgive(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Outcome<bool, ConductWord> {
    let next = word.with(ConductFields { count: 0, in_a_row: 0, raised: false, ..word.fields() });
    Outcome { next: (next != word).then_some(next), answer: assess(word, now, rules).last.is_some() }
}

#[cfg(all(test, not(loom)))]
mod tests;
