//! Any policy round-trips, and no text makes the reader panic.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Calendar, ConductRules, Limit, OnChange, Policy};

/// What a lane has in common in every plan.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bucket,
    Debt,
    Window(Duration),
    Exact(Duration),
    Budget(Calendar, i16),
    Held,
}

fn kinds() -> impl Strategy<Value = Kind> {
    let length = || prop_oneof![1_000_000..=100_000_000_000_u64, Just(60_000_000_000)].prop_map(Duration::from_nanos);
    let calendar = prop::sample::select(vec![Calendar::Hour, Calendar::Day, Calendar::Week, Calendar::Month]);
    prop_oneof![
        4 => Just(Kind::Bucket),
        1 => Just(Kind::Debt),
        1 => length().prop_map(Kind::Window),
        1 => length().prop_map(Kind::Exact),
        1 => (calendar, prop_oneof![Just(0), -840..=840_i16]).prop_map(|(calendar, zone)| Kind::Budget(calendar, zone)),
        1 => Just(Kind::Held),
    ]
}

/// A limit of this kind, with the numbers of a bucket.
fn of_kind(kind: Kind, bucket: Limit) -> Limit {
    let count = bucket.capacity();
    match kind {
        _ if count == 0 => Limit::deny_all(),
        Kind::Bucket => bucket,
        Kind::Debt => bucket.oversize_debt(),
        Kind::Window(length) => Limit::window(count, length),
        // A record has no room for many permits.
        Kind::Exact(length) => Limit::exact(1 + count % 3, length),
        Kind::Budget(calendar, zone) => Limit::budget(count * 1_000_003, calendar).zone_minutes(zone),
        Kind::Held => Limit::held(count),
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    let bucket = (1..=1_000_000_u64, 1_000_000..=100_000_000_000_u64, 1..=1_000_u64)
        .prop_map(|(tokens, nanos, burst)| Limit::new(tokens, Duration::from_nanos(nanos)).burst(burst))
        .prop_filter("within the range", |limit| limit.validate().is_ok());
    let round = (1..=1_000_u64, prop::sample::select(vec![1, 60, 300, 3_600, 86_400]))
        .prop_map(|(tokens, seconds)| Limit::new(tokens, Duration::from_secs(seconds)));
    prop_oneof![4 => bucket, 4 => round, 1 => Just(Limit::deny_all())]
}

/// A name of a channel, a tier or a plan: mostly plain, sometimes anything.
fn names() -> impl Strategy<Value = String> {
    let odd = vec(any::<char>().prop_filter("allowed", |c| !c.is_control() && !c.is_whitespace() && *c != '/'), 1..8)
        .prop_map(|name| name.into_iter().collect());
    prop_oneof![3 => "[a-z_]{1,8}", 1 => "[a-z\"'\\\\#=.\\[\\]-]{1,4}", 1 => odd]
        .prop_filter("not reserved", |name: &String| name != "default" && name != "exempt")
}

fn rules() -> impl Strategy<Value = ConductRules> {
    let length = |most: u64| (1..=most).prop_map(Duration::from_nanos);
    let day = 86_400_000_000_000;
    (vec(length(day), 0..=15), length(day), 1..=63_u32, length(4_095_000_000_000), any::<bool>(), any::<bool>())
        .prop_map(|(curve, quiet, violations, window, every_denial, enforce)| {
            ConductRules::default()
                .with_curve(curve)
                .with_quiet_period(quiet)
                .with_abuse_threshold(violations, window)
                .with_every_denial(every_denial)
                .with_enforced_wait(enforce)
        })
}

prop_compose! {
    /// Lanes of the tier `normal` and of others, plans that name some of
    /// them, actions for some.
    fn policies()(
        channels in btree_set(names(), 1..4),
        tiers in btree_set(names(), 0..4),
        alone in btree_set("[a-z]{9,10}", 0..3),
        of_lanes in vec((kinds(), limits()), 20),
        plans in btree_map(names(), vec((0..20_usize, limits()), 0..5), 0..4),
        actions in btree_map(names(), 0..20_usize, 0..10),
        rules in rules(),
        (percent, again) in (0..=100_u8).prop_flat_map(|below| (Just(below), prop::option::of(below..=100))),
        (reset, classify) in any::<(bool, bool)>(),
        (total, totals, outside) in (any::<bool>(), vec(prop::option::of(limits()), 4), vec(0..20_usize, 0..4)),
    ) -> Policy {
        let normal = "normal".to_owned();
        let mut lanes: Vec<String> = alone.into_iter().collect();
        for channel in &channels {
            lanes.extend(tiers.iter().filter(|tier| **tier != normal).chain([&normal]).map(|tier| format!("{channel}/{tier}")));
        }
        let on_change = if reset { OnChange::Reset } else { OnChange::KeepDebt };
        let mut policy = Policy::builder().conduct(rules).warn_below_percent(percent).on_change(on_change);
        policy = again.map_or(policy.clone(), |again| policy.warn_again_percent(again));
        for (lane, (kind, limit)) in lanes.iter().zip(&of_lanes) {
            policy = policy.lane(lane, of_kind(*kind, *limit));
        }
        policy = policy.outside_total(outside.into_iter().map(|lane| lanes[lane % lanes.len()].clone()));
        if total {
            policy = policy.total(of_kind(Kind::Bucket, of_lanes[0].1));
        }
        for ((plan, changes), total) in plans.into_iter().zip(totals) {
            let mut named = Vec::new();
            named.extend(total.map(|total| ("total".to_owned(), of_kind(Kind::Bucket, total))));
            for (lane, limit) in changes {
                let (lane, (kind, _)) = (lanes[lane % lanes.len()].clone(), of_lanes[lane % lanes.len()]);
                let limit = of_kind(kind, limit);
                if named.iter().all(|(known, _)| *known != lane) {
                    named.push((lane, limit));
                }
            }
            policy = policy.plan(plan, named);
        }
        for (action, lane) in actions.into_iter().filter(|_| classify) {
            if let Some((channel, tier)) = lanes[lane % lanes.len()].rsplit_once('/') {
                policy = policy.actions(channel, tier, [action]);
            }
        }
        policy.build().expect("a valid policy")
    }
}

/// A text that is nearly a policy file: a good one with bytes changed, dropped or doubled.
fn mutated() -> impl Strategy<Value = String> {
    let files = Policy::PRESETS.map(|name| Policy::preset(name).expect("a preset").to_toml());
    let example = include_str!("../../examples/policy.toml").to_owned();
    let files = files.into_iter().chain([example]).collect::<Vec<_>>();
    let change = (any::<prop::sample::Index>(), 0..8_usize, "[ -~\n\u{e9}]{0,4}");
    (prop::sample::select(files), vec(change, 1..6)).prop_map(|(file, changes)| {
        let mut characters: Vec<char> = file.chars().collect();
        for (at, dropped, added) in changes {
            let start = at.index(characters.len().max(1)).min(characters.len());
            let end = (start + dropped).min(characters.len());
            characters.splice(start..end, added.chars());
        }
        characters.into_iter().collect()
    })
}

/// Reads the text, and if it is refused, formats where and why.
fn read(text: &str) {
    if let Err(error) = Policy::from_toml(text) {
        let lines = text.split('\n').count();
        assert!((1..=lines).contains(&error.line()), "{error}");
        let line = text.split('\n').nth(error.line() - 1).unwrap_or_default();
        assert!((1..=line.chars().count() + 1).contains(&error.column()), "{error}");
        assert!(!error.message().is_empty() && error.to_string().ends_with('^'), "{error}");
    }
}

proptest! {
    #[test]
    fn a_policy_round_trips(policy in policies()) {
        let text = policy.to_toml();
        prop_assert_eq!(Policy::from_toml(&text), Ok(policy), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_toml_makes_the_reader_panic(text in r#"([a-z\[\]"'=.{},0-9 #\n-]|lanes|plans|actions|conduct|curve|preset|hub){0,40}"#) {
        read(&text);
    }

    #[test]
    fn no_broken_file_makes_the_reader_panic(text in mutated()) {
        read(&text);
    }
}
