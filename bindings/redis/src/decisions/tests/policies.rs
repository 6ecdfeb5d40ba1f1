//! Policies that follow, decisions that are refused, and many of them.

use super::*;
use crate::AgentKey;

#[test]
fn a_policy_follows_as_a_whole_and_before_the_assignments_that_need_it() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    world.settle(&mut [&mut a, &mut b]);
    let gold = Policy::builder().lane("api", "11/s").plan("pro", [("api", "20/s")]).plan("gold", [("api", "99/s")]);
    a.limiter.replace_policy(gold.build().unwrap()).unwrap();
    a.limiter.assign("x", a.limiter.plan("gold").unwrap()).unwrap();
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!((b.limit(), b.decisions.status().refused), ("11/second".to_owned(), 0));
    assert_eq!(b.limiter.assignment("x").unwrap().plan(), Some("gold"));
    let text = a.limiter.policy().to_toml();
    assert_eq!(b.limiter.policy().to_toml(), text);
}

#[test]
fn a_policy_of_other_lanes_is_refused_and_named_and_so_is_what_needs_it() {
    let (mut world, mut a) = (World::new(), Machine::new(1));
    let lanes = Policy::builder().lane("api", "10/s").lane("ws", "10/s").plan("gold", [("api", "99/s")]);
    let mut other = Machine::with(2, lanes.build().unwrap());
    world.settle(&mut [&mut a, &mut other]);
    a.limiter.replace_policy(policy("11/s")).unwrap();
    a.limiter.exempt("x").unwrap();
    other.limiter.set_override("y", "ws", "1/s").unwrap();
    other.limiter.assign("z", other.limiter.plan("gold").unwrap()).unwrap();
    world.settle(&mut [&mut a, &mut other]);
    assert!(other.limiter.is_exempt("x").unwrap() && other.limit() == "10/second");
    let warnings = other.decisions.status().warnings;
    assert!(warnings[0].contains("has other lanes; give it these, in this order: api, ws"), "{warnings:?}");
    let status = a.decisions.status();
    assert_eq!(status.refused, 2);
    assert!(
        status.warnings[0].contains("is not in force here: agent \"") && status.warnings[0].ends_with("and 1 more")
    );
    // With a policy that has the plan it is tried again; the lane is missing still.
    let gold = Policy::builder().lane("api", "11/s").plan("pro", [("api", "20/s")]).plan("gold", [("api", "99/s")]);
    a.limiter.replace_policy(gold.build().unwrap()).unwrap();
    world.settle(&mut [&mut a, &mut other]);
    assert_eq!(a.limiter.assignment("z").unwrap().plan(), Some("gold"));
    assert_eq!(a.decisions.status().refused, 1);
    // What is refused is not decided here.
    assert_eq!(a.decisions.status().written, 3);
    assert!(other.limiter.assignment("y").unwrap().override_of("ws").is_some());
}

#[test]
fn a_machine_that_starts_takes_the_stores_policy_unless_its_own_has_a_higher_version() {
    let versioned = |limit: &str, version| Policy::builder().lane("api", limit).version(version).build().unwrap();
    let (mut world, mut a) = (World::new(), Machine::with(1, versioned("1/s", 3)));
    let mut second = Machine::with(2, versioned("2/s", 3));
    world.settle(&mut [&mut a, &mut second]);
    assert_eq!((a.limit(), second.limit()), ("1/second".to_owned(), "2/second".to_owned()), "each has its file's");
    a.limiter.replace_policy(versioned("4/s", 3)).unwrap();
    world.settle(&mut [&mut a, &mut second]);
    assert_eq!((second.limit(), second.decisions.status().warnings.len()), ("4/second".to_owned(), 0));
    let mut same = Machine::with(3, versioned("1/s", 3));
    world.settle(&mut [&mut same]);
    assert_eq!(same.limit(), "4/second");
    let warnings = same.decisions.status().warnings;
    assert!(warnings[0].ends_with("reload it, or give it a version above 3"), "{warnings:?}");
    let mut higher = Machine::with(4, versioned("5/s", 4));
    world.settle(&mut [&mut higher, &mut a, &mut second, &mut same]);
    for machine in [&a, &second, &same, &higher] {
        assert_eq!(machine.limit(), "5/second");
        assert!(machine.decisions.status().warnings.is_empty());
    }
    // At run time an operator may go back.
    a.limiter.replace_policy(versioned("1/s", 3)).unwrap();
    world.settle(&mut [&mut a, &mut second, &mut same, &mut higher]);
    assert_eq!(higher.limit(), "1/second");
}

#[test]
fn what_does_not_open_is_named_and_left_alone() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    let field = Field::Agent(crate::Keyring::new(b"sixteen bytes...").unwrap().agent(b"x").to_bits());
    let puts = vec![Put { field, stamp: 0, is_live: true, sealed: b"something".as_slice().into() }];
    let _ = world.answer("stranger", &StoreRequest::Put { born: 9, number: 1, puts });
    a.set("y", "1/s");
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!(b.api("y"), "1/second");
    for machine in [&a, &b] {
        let status = machine.decisions.status();
        assert_eq!(status.refused, 1);
        assert!(status.warnings[0].contains("it does not open: it was altered"), "{:?}", status.warnings);
    }
    assert!(world.store.decision(field).is_some());
    assert_eq!(AgentKey::read(field.to_string().as_bytes()).map(AgentKey::to_bits).map(Field::Agent), Some(field));
}

/// More than are named: what differs is written, and what is gone is removed.
#[test]
fn five_thousand_at_once_follow_and_go() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    b.limiter.exempt("of b").unwrap();
    world.settle(&mut [&mut b, &mut a]);
    let all = |assignment: Assignment| (0..5_000).map(move |agent| (agent.to_string(), assignment.clone()));
    a.limiter.set_assignments(all(exempt())).unwrap();
    a.limiter.unexempt("of b").unwrap();
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!((b.limiter.assignments().len(), a.limiter.assignments().len()), (5_000, 5_000));
    assert_eq!(a.decisions.status().written, 5_001);
    a.limiter.set_assignments(all(Assignment::default())).unwrap();
    world.settle(&mut [&mut a, &mut b]);
    assert!(b.limiter.assignments().is_empty());
    assert_eq!(world.store.head().live, 0);
}

/// Somebody has altered what the store counts: everything is compared once, and not again and again.
#[test]
fn a_sum_that_is_wrong_for_good_is_no_reason_to_read_all_for_ever() {
    let (mut world, mut a) = (World::new(), Machine::new(1));
    a.set("x", "1/s");
    world.settle(&mut [&mut a]);
    let operators = Operators::of(&a.limiter).unwrap();
    let altered = |world: &World| Head { live: 7, ..world.store.head() };
    let mut heads = 0;
    for _ in 0..50 {
        world.now += HEAD_EVERY;
        let Some(request) = a.decisions.next(&operators, world.now) else { continue };
        let reply = match world.store.answer(1, "1", &request) {
            StoreReply::Head(_) => {
                heads += 1;
                StoreReply::Head(altered(&world))
            }
            StoreReply::Since(_, stored) => StoreReply::Since(altered(&world), stored),
            other => other,
        };
        a.decisions.answered(&operators, world.now, reply);
    }
    assert!(heads >= 48, "{heads}");
}
