//! Assignments to test with.

use crate::engine::{Assignment, Assignments};
use crate::policy::Limit;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn assignment(plan: Option<&str>, overrides: &[(&str, &str)], exempt: bool) -> Assignment {
    let mut assignment = Assignment::default();
    assignment.set_plan(plan.map(str::to_owned));
    for (lane, limit) in overrides {
        assignment.set_override(*lane, limit.parse().unwrap());
    }
    assignment.set_exempt(exempt);
    assignment
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let unit = prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000]);
    let period = prop_oneof![1..=u64::MAX, (1..200_u64, unit).prop_map(|(count, unit)| count * unit)];
    let tokens = prop_oneof![1..200_u64, 1..=u64::MAX];
    let bucket = (tokens.clone(), period, tokens).prop_map(|(tokens, period, capacity)| {
        let limit = Limit::new(tokens, Duration::from_nanos(period)).burst(capacity);
        let slower = Limit::new(tokens.min(period), Duration::from_nanos(period)).burst(1);
        if limit.validate().is_ok() { limit } else { slower }
    });
    let valid = bucket.prop_filter("a limit out of range", |limit| limit.validate().is_ok());
    prop_oneof![1 => Just(Limit::deny_all()), 9 => valid]
}

/// Any name, not only those that a policy would accept.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,4}/[a-z]{1,6}",
        ".{0,12}",
        prop::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter)
    ]
}

fn any_id() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 1..=256);
    let text = any_name().prop_map(String::into_bytes).prop_filter("an empty id", |id| !id.is_empty());
    prop_oneof!["agent-[0-9]{1,4}".prop_map(String::into_bytes), text, bytes]
}

/// A non-empty assignment.
pub(super) fn any_assignment() -> impl Strategy<Value = Assignment> {
    let overrides = prop::collection::btree_map(any_name(), any_limit(), 0..4);
    let fields = (prop::option::of(any_name()), overrides, any::<bool>());
    fields.prop_filter_map("nothing is assigned", |(plan, overrides, exempt)| {
        let mut assignment = Assignment::default();
        assignment.set_plan(plan);
        overrides.into_iter().for_each(|(lane, limit)| assert!(assignment.set_override(lane, limit).is_none()));
        assignment.set_exempt(exempt);
        (!assignment.is_empty()).then_some(assignment)
    })
}

pub(super) fn any_assignments() -> impl Strategy<Value = Assignments> {
    prop::collection::btree_map(any_id(), any_assignment(), 0..12)
        .prop_map(BTreeMap::into_iter)
        .prop_map(Iterator::collect)
}
