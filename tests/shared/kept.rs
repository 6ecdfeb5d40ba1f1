//! Files beside a shared slab: what one process keeps of the changes of all.

use crate::forks::{alone, in_child};
use crate::place::Place;
use std::path::Path;
use tollgate::shared::Shared;
use tollgate::{Limiter, Policy};

fn limiter(place: impl Into<Shared>) -> Limiter {
    let policy = Policy::builder().lane("http", "100/hour").lane("llm", "budget 100/month").build().unwrap();
    Limiter::builder(policy).agents(1_000).shared(place).build().unwrap()
}

/// Whether a file of assignments names the agent.
fn names(file: &Path, agent: &str) -> bool {
    std::fs::read_to_string(file).unwrap().contains(&format!("\"{agent}\""))
}

/// A child had its parent's copy of the file, and wrote to it. The parent then took its own file for another writer's,
/// and refused every change; a reload, as the error advised, removed what the child had changed.
#[test]
fn a_childs_changes_reach_the_file_through_its_parent() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let parent = limiter(Shared::memfd());
    parent.keep_assignments_in(&file).unwrap();
    parent.exempt("before").unwrap();
    let child = in_child(|| {
        parent.exempt("by-child").unwrap();
        parent.save_assignments().unwrap();
        assert!(matches!(parent.reload_assignments(), Err(tollgate::ControlError::NoFile)));
        u8::from(names(&file, "by-child"))
    });
    assert_eq!(child.wait(), 0, "the child wrote to its parent's file");
    parent.exempt("by-parent").unwrap();
    parent.save_assignments().unwrap();
    parent.reload_assignments().unwrap();
    for agent in ["before", "by-child", "by-parent"] {
        assert!(parent.assignment(agent).unwrap().is_exempt() && names(&file, agent), "{agent}");
    }
}
