//! Mistakes planted in the scripts: the comparison has to notice each.

use crate::calls::Limits;
use crate::exact::{compare, in_virtual_time, load};
use crate::oracle::{Bucket, Budget, Oracle};
use crate::server::{Server, on_each};
use tollgate_redis::Script;

/// What is changed, into what: text that stands in a script once.
type Fault = (&'static str, &'static [(&'static str, &'static str)]);

const GIVE: &str = "debt = math.max(debt - give * token, 0)\n";
const GRANTED: &str = "debt = debt + granted * token\n";

const OF_BUCKETS: &[Fault] = &[
    ("no floor", &[("math.max(debt + owed * token, floor)", "debt + owed * token")]),
    ("give after grant", &[(GIVE, "\n"), (GRANTED, "debt = math.max(debt + granted * token - give * token, 0)\n")]),
    ("rounds to the nearest", &[("math.floor((depth - debt) / token)", "math.floor((depth - debt) / token + 0.5)")]),
    (
        "no overdraft's end",
        &[("math.min(math.max(debt + owed * token, floor), most)", "math.max(debt + owed * token, floor)")],
    ),
    ("a smaller limit forgets a debt", &[("math.max(debt, depth + over * token)", "depth + over * token")]),
    ("a step back is not noticed", &[("is_behind = now < at", "is_behind = false")]),
    ("a step back is not written", &[("debt ~= before or is_behind", "debt ~= before")]),
    ("microseconds alone", &[("now, debt), 'PX'", "now, math.floor(debt / 1000) * 1000), 'PX'")]),
    ("a give may mint", &[(GIVE, "debt = debt - give * token\n")]),
    ("no share", &[("math.floor(left / share)", "left")]),
    ("part of the least", &[("if left < min then", "if left < 0 then")]),
    ("nothing is written", &[("if debt ~= before or is_behind then", "if false then")]),
];

const OF_BUDGETS: &[Fault] = &[
    ("no floor", &[("math.max(used + owed, floor)", "used + owed")]),
    ("no overdraft's end", &[("math.min(math.max(used + owed, floor), most)", "math.max(used + owed, floor)")]),
    ("a smaller limit forgets", &[("math.max(used, capacity + over)", "capacity + over")]),
    ("a give may mint", &[("used = math.max(used - give, 0)", "used = used - give")]),
    ("granted for nothing", &[("used = used + granted\n", "\n")]),
];

fn is_noticed<O: Oracle>(server: &Server, (name, changes): &Fault, scripts: [Script; 2])
where
    O::Asked: Limits + std::fmt::Debug,
{
    let mut connection = server.connect();
    let scripts = load(&mut connection, |script| {
        let mut text = in_virtual_time(script);
        for (from, to) in changes.iter().filter(|_| scripts.contains(&script)) {
            assert_eq!(text.matches(from).count(), 1, "{name}: {from:?} stands in {script:?} once");
            text = text.replace(from, to);
        }
        text
    });
    let noticed = compare::<O>(&mut connection, &scripts, 10_000, 1);
    assert!(noticed.is_err(), "{name}: {:?} answered {noticed:?} times as it should", server.kind());
}

#[test]
fn every_planted_fault_is_noticed() {
    on_each(|server| {
        for fault in OF_BUCKETS {
            is_noticed::<Bucket>(server, fault, [Script::Bucket, Script::BucketMany]);
        }
        for fault in OF_BUDGETS {
            is_noticed::<Budget>(server, fault, [Script::Budget, Script::BudgetMany]);
        }
    });
}
