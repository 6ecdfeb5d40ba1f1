use super::*;
use crate::bounds::{CHANGED_AGENTS_MAX, OVERRIDES_MAX};
use crate::cluster::Cluster;

fn policy(limit: &str) -> Policy {
    Policy::builder().lane("api", limit).plan("pro", [("api", "20/s")]).build().unwrap()
}

fn limiter() -> Limiter {
    Limiter::builder(policy("10/s")).agents(100).cluster(Cluster::new([7; 16])).build().unwrap()
}

fn override_of(limit: &str) -> Assignment {
    let mut assignment = Assignment::default();
    assignment.set_override("api", limit.parse().unwrap());
    assignment
}

fn one(agent: &str, assignment: Assignment) -> [(Box<[u8]>, Assignment); 1] {
    [(agent.as_bytes().into(), assignment)]
}

fn changed(limiter: &Limiter) -> Vec<String> {
    let changed = Operators::of(limiter).unwrap().changed().unwrap().unwrap_or_default();
    changed.agents.iter().map(|id| String::from_utf8(id.to_vec()).unwrap()).collect()
}

#[test]
fn every_way_to_change_an_assignment_names_its_agent() {
    let limiter = limiter();
    let pro = limiter.plan("pro").unwrap();
    assert_eq!(changed(&limiter), [""; 0]);
    limiter.assign("a", pro).unwrap();
    limiter.set_override("b", "api", "5/s").unwrap();
    limiter.exempt("c").unwrap();
    limiter.set_assignments([("d", override_of("9/s")), ("e", override_of("8/s"))]).unwrap();
    assert_eq!(changed(&limiter), ["a", "b", "c", "d", "e"]);
    assert_eq!(changed(&limiter), [""; 0]);
    limiter.unassign("a").unwrap();
    limiter.remove_override("b", "api").unwrap();
    limiter.unexempt("c").unwrap();
    limiter.remove_overrides("d").unwrap();
    limiter.set_assignments([("e", Assignment::default())]).unwrap();
    assert_eq!(changed(&limiter), ["a", "b", "c", "d", "e"]);
    // What changes nothing, and what is refused, names nobody.
    limiter.unexempt("c").unwrap();
    limiter.set_override("b", "nowhere", "5/s").unwrap_err();
    assert_eq!(changed(&limiter), [""; 0]);
}

#[test]
fn another_policy_is_named_and_one_that_follows_is_not() {
    let limiter = limiter();
    let operators = Operators::of(&limiter).unwrap();
    limiter.replace_policy(policy("11/s")).unwrap();
    let waits = operators.follow_policy(policy("12/s"));
    assert!(matches!(waits, Followed::ChangedHere), "the change of this machine counts until an engine knows of it");
    assert!(operators.changed().unwrap().unwrap().policy);
    assert!(matches!(operators.follow_policy(policy("12/s")), Followed::InForce));
    assert_eq!(limiter.policy().limit(limiter.lane("api").unwrap()).unwrap().to_string(), "12/second");
    assert_eq!(operators.changed().unwrap(), None);
    let other = Policy::builder().lane("other", "1/s").build().unwrap();
    assert!(matches!(operators.follow_policy(other), Followed::Refused(ControlError::OtherLanes { .. })));
}

#[test]
fn what_follows_is_in_force_and_names_nobody() {
    let limiter = limiter();
    let operators = Operators::of(&limiter).unwrap();
    let followed = operators.follow(&one("a", override_of("5/s"))).unwrap();
    assert!(matches!(followed[..], [Followed::InForce]));
    assert_eq!(limiter.assignment("a").unwrap(), override_of("5/s"));
    assert_eq!(operators.changed().unwrap(), None);
    // As it is already: that is in force too.
    let followed = operators.follow(&one("a", override_of("5/s"))).unwrap();
    assert!(matches!(followed[..], [Followed::InForce]));
    assert!(matches!(operators.follow(&one("a", Assignment::default())).unwrap()[..], [Followed::InForce]));
    assert!(limiter.assignments().is_empty());
}

/// What is refused of one agent does not stop the others.
#[test]
fn each_that_follows_counts_for_itself() {
    let limiter = limiter();
    let operators = Operators::of(&limiter).unwrap();
    let mut unknown = Assignment::default();
    unknown.set_plan(Some("none such".to_owned()));
    limiter.exempt("mine").unwrap();
    let all = [
        (b"a".as_slice().into(), override_of("5/s")),
        (b"b".as_slice().into(), unknown),
        (b"mine".as_slice().into(), override_of("6/s")),
        (b"c".as_slice().into(), override_of("7/s")),
    ];
    let followed = operators.follow(&all).unwrap();
    let outcome = |followed: &Followed| match followed {
        Followed::InForce => "in force",
        Followed::ChangedHere => "changed here",
        Followed::Refused(_) => "refused",
    };
    let outcomes: Vec<_> = followed.iter().map(outcome).collect();
    assert_eq!(outcomes, ["in force", "refused", "changed here", "in force"]);
    assert!(limiter.is_exempt("mine").unwrap());
    assert_eq!(limiter.assignment("c").unwrap(), override_of("7/s"));
    assert_eq!(changed(&limiter), ["mine"]);
}

/// Together they need more rows than there are, and one by one as many as there are find theirs.
#[test]
fn as_many_follow_as_there_are_rows() {
    let limiter = limiter();
    let operators = Operators::of(&limiter).unwrap();
    let all: Vec<_> = (0..=OVERRIDES_MAX)
        .map(|agent| (agent.to_string().into_bytes().into_boxed_slice(), override_of("5/s")))
        .collect();
    let followed = operators.follow(&all).unwrap();
    let in_force = followed.iter().filter(|followed| matches!(followed, Followed::InForce)).count();
    assert_eq!((in_force, limiter.assignments().len()), (OVERRIDES_MAX, OVERRIDES_MAX));
    assert!(matches!(followed.last(), Some(Followed::Refused(ControlError::TooManyOverrides))));
}

#[test]
fn more_changes_than_are_named_are_said_to_be_more() {
    let limiter = limiter();
    let operators = Operators::of(&limiter).unwrap();
    let mut exempt = Assignment::default();
    exempt.set_exempt(true);
    limiter.set_assignments((0..CHANGED_AGENTS_MAX).map(|agent| (agent.to_string(), exempt.clone()))).unwrap();
    limiter.unexempt("0").unwrap(); // It is named already.
    limiter.exempt("one more").unwrap();
    let followed = operators.follow(&one("another", exempt.clone())).unwrap();
    assert!(matches!(followed[..], [Followed::ChangedHere]), "it may be among those that are not named");
    let changed = operators.changed().unwrap().unwrap();
    assert!(changed.is_more && changed.agents.len() == CHANGED_AGENTS_MAX);
    assert!(matches!(operators.follow(&one("another", exempt)).unwrap()[..], [Followed::InForce]));
}

#[test]
fn a_limiter_of_one_machine_names_nobody() {
    let limiter = Limiter::builder(policy("10/s")).agents(10).build().unwrap();
    limiter.exempt("a").unwrap();
    assert!(Operators::of(&limiter).is_none());
    assert_eq!(limiter.control().take_changed().unwrap(), None);
}

#[cfg(feature = "persist")]
#[test]
fn what_follows_is_in_the_file_and_what_was_in_the_file_is_said_to_be_restored() {
    let directory = std::env::temp_dir().join(format!("tollgate-follow-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("assignments.json");
    {
        let limiter = limiter();
        limiter.keep_assignments_in(&path).unwrap();
        let operators = Operators::of(&limiter).unwrap();
        let _ = operators.changed().unwrap();
        let _ = operators.follow(&one("a", override_of("5/s"))).unwrap();
    }
    let limiter = limiter();
    limiter.keep_assignments_in(&path).unwrap();
    assert_eq!(limiter.assignment("a").unwrap(), override_of("5/s"));
    let changed = Operators::of(&limiter).unwrap().changed().unwrap().unwrap();
    assert!(changed.is_restored && changed.agents.is_empty());
    // An operator who edits the file decides.
    std::fs::write(&path, r#"{"version": 1, "agents": [{"agent": "b", "exempt": true}]}"#).unwrap();
    limiter.reload_assignments().unwrap();
    let changed = Operators::of(&limiter).unwrap().changed().unwrap().unwrap();
    assert_eq!(changed.agents.iter().map(|id| &**id).collect::<Vec<_>>(), [b"a", b"b"]);
    std::fs::remove_dir_all(&directory).unwrap();
}
