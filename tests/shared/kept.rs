//! Files beside a shared slab: what one process keeps of the changes of all.

use crate::forks::{alone, in_child};
use crate::place::Place;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tollgate::keep::PersistError;
use tollgate::observe::Observe;
use tollgate::shared::Shared;
use tollgate::{Assignment, ControlError, Limiter, Policy, Request};

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
        assert!(matches!(parent.reload_assignments(), Err(ControlError::NoFile)));
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

/// The file was written before the change was put in force, which can fail in a shared slab: then the file had what
/// the caller was refused, and more agents than any later slab would load.
#[test]
fn a_refused_change_is_not_in_the_file() {
    const MOST: usize = 4_096;
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let limiter = limiter(Shared::memfd());
    limiter.keep_assignments_in(&file).unwrap();
    let exempt = |agents: std::ops::Range<usize>| {
        let mut exempt = Assignment::default();
        exempt.set_exempt(true);
        limiter.set_assignments(agents.map(|agent| (format!("agent-{agent}"), exempt.clone())))
    };
    // A batch counts as a whole, and nothing of it stays.
    assert!(matches!(exempt(0..MOST + 1), Err(ControlError::TooManyAssignments { .. })));
    assert!(!file.exists() && !limiter.assignment("agent-0").unwrap().is_exempt());
    exempt(0..MOST).unwrap();
    for save in [false, true] {
        assert!(matches!(limiter.exempt("refused"), Err(ControlError::TooManyAssignments { .. })));
        if save {
            limiter.save_assignments().unwrap();
        }
        assert!(!limiter.assignment("refused").unwrap().is_exempt() && !names(&file, "refused"));
    }
    // Agents that go make room in the same call.
    let swap = [("agent-0", Assignment::default()), ("new", limiter.assignment("agent-1").unwrap())];
    limiter.set_assignments(swap).unwrap();
    assert!(names(&file, "new") && !limiter.assignment("agent-0").unwrap().is_exempt());
    assert_eq!(limiter.audit(), [""; 0]);
}

/// A file that cannot be written refuses the change, and nothing of it stays staged.
#[test]
fn a_change_that_cannot_be_saved_is_not_made() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let limiter = limiter(Shared::memfd());
    limiter.keep_assignments_in(&file).unwrap();
    limiter.exempt("kept").unwrap();
    std::fs::write(&file, "edited").unwrap();
    assert!(matches!(limiter.set_override("agent", "http", "7/s"), Err(ControlError::File(_))));
    assert!(limiter.assignment("agent").unwrap().is_empty());
    assert_eq!(limiter.audit(), [""; 0]);
}

/// The keeper read its file, in which the changes of others since its last save were missing, and removed those.
#[test]
fn a_reload_keeps_what_other_processes_changed() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let [keeper, other] = [(); 2].map(|()| limiter(place.slab()));
    keeper.keep_assignments_in(&file).unwrap();
    other.exempt("dashboard").unwrap();
    other.set_override("big", "http", "7/s").unwrap();
    keeper.reload_assignments().unwrap();
    assert!(keeper.assignment("dashboard").unwrap().is_exempt() && names(&file, "dashboard"));
    assert!(keeper.assignment("big").unwrap().override_of("http").is_some() && names(&file, "big"));
}

/// Neither the edit nor the changes of other processes win over the other: the operator is asked.
#[test]
fn an_edit_beside_unsaved_changes_is_not_loaded() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let [keeper, other] = [(); 2].map(|()| limiter(place.slab()));
    keeper.keep_assignments_in(&file).unwrap();
    keeper.exempt("kept").unwrap();
    other.exempt("unsaved").unwrap();
    let edited = std::fs::read_to_string(&file).unwrap().replace("kept", "edited");
    std::fs::write(&file, &edited).unwrap();
    let refused = keeper.reload_assignments().unwrap_err();
    assert!(matches!(refused, ControlError::File(PersistError::Unsaved { .. })), "{refused}");
    assert_eq!(
        refused.to_string().replace(place.path().to_str().unwrap(), "PLACE"),
        "PLACE/assignments.json was edited, and other processes have changed assignments that are not in it; move it \
         away, reload so that it is written anew, then edit the new file and reload"
    );
    assert!(keeper.assignment("kept").unwrap().is_exempt() && keeper.assignment("unsaved").unwrap().is_exempt());
    assert!(std::fs::read_to_string(&file).unwrap() == edited);
    // As the error advises.
    std::fs::remove_file(&file).unwrap();
    keeper.reload_assignments().unwrap();
    assert!(names(&file, "kept") && names(&file, "unsaved") && keeper.assignment("unsaved").unwrap().is_exempt());
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("kept", "edited")).unwrap();
    keeper.reload_assignments().unwrap();
    let [kept, edited, unsaved] =
        ["kept", "edited", "unsaved"].map(|agent| keeper.assignment(agent).unwrap().is_exempt());
    assert!(!kept && edited && unsaved);
}

/// A keeper may die with a change in the file that was never in force. What was in force stays, and the next keeper
/// writes it.
#[test]
fn the_slab_wins_over_the_file_of_a_dead_keeper() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("assignments.json");
    let [keeper, other] = [(); 2].map(|()| limiter(place.slab()));
    keeper.keep_assignments_in(&file).unwrap();
    keeper.exempt("acknowledged").unwrap();
    other.exempt("of-another").unwrap();
    drop(keeper);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("acknowledged", "never-in-force")).unwrap();
    other.keep_assignments_in(&file).unwrap();
    assert!(names(&file, "acknowledged") && names(&file, "of-another") && !names(&file, "never-in-force"));
    assert!(!other.assignment("never-in-force").unwrap().is_exempt());
}

/// Each process stored the ids of agents that it gave a record itself. What agents of the others had used was not
/// saved, and a restart of the machine gave it back.
#[test]
fn used_budgets_of_all_processes_are_kept() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("budgets.json");
    let bytes = || std::fs::metadata(place.file()).unwrap().blocks() * 512;
    for observed in [false, true] {
        let make = || {
            let policy = Policy::builder().lane("llm", "budget 100/month").build().unwrap();
            let builder = Limiter::builder(policy).agents(1_000).shared(place.slab());
            if observed { builder.observe(Observe::new()).build().unwrap() } else { builder.build().unwrap() }
        };
        let [keeper, other] = [(); 2].map(|()| make());
        let llm = keeper.lane("llm").unwrap();
        let use_60 = |limiter: &Limiter, agent| {
            assert!(limiter.check_request(Request::new(agent, llm).cost(60)).unwrap().is_allowed());
        };
        use_60(&other, "before the file was named");
        let before = bytes();
        keeper.keep_budgets_in(&file).unwrap();
        assert!(bytes() - before > 1_000 * 256, "ids take memory when they are needed");
        use_60(&keeper, "by-keeper");
        use_60(&other, "by-other");
        use_60(&make(), "by-a-newcomer");
        let saved = keeper.save_budgets().unwrap();
        assert_eq!((saved.saved, saved.unsaved), (3, 1));
        // The next keeper has the ids too.
        drop(keeper);
        other.keep_budgets_in(&file).unwrap();
        use_60(&make(), "since-then");
        let saved = other.save_budgets().unwrap();
        assert_eq!((saved.saved, saved.unsaved), (4, 1));
        // The machine restarts.
        drop(other);
        std::fs::remove_file(place.file()).unwrap();
        let first = make();
        assert_eq!(first.keep_budgets_in(&file).unwrap().loaded, 4);
        for agent in ["by-keeper", "by-other", "by-a-newcomer", "since-then"] {
            assert_eq!(first.peek(Request::new(agent, llm)).unwrap().remaining(), 40, "{agent}");
        }
        drop(first);
        std::fs::remove_file(place.file()).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

/// An agent was met by another process before the file was loaded: its id was unknown, though the file has it.
#[test]
fn an_agent_of_the_file_is_known_whoever_met_it_first() {
    let _alone = alone();
    let place = Place::new();
    let file = place.path().join("budgets.json");
    let use_10 = |limiter: &Limiter| {
        let llm = limiter.lane("llm").unwrap();
        limiter.check_request(Request::new("early", llm).cost(10)).unwrap().remaining()
    };
    let first = limiter(place.slab());
    first.keep_budgets_in(&file).unwrap();
    assert_eq!(use_10(&first), 90);
    first.save_budgets().unwrap();
    drop(first);
    std::fs::remove_file(place.file()).unwrap();
    let [keeper, other] = [(); 2].map(|()| limiter(place.slab()));
    assert_eq!(use_10(&other), 90);
    keeper.keep_budgets_in(&file).unwrap();
    assert_eq!(use_10(&other), 70);
    let saved = keeper.save_budgets().unwrap();
    assert_eq!((saved.saved, saved.unsaved), (1, 0));
}
