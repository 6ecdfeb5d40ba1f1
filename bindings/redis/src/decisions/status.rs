//! What is shown of decisions that follow.

use super::Field;
use std::collections::BTreeMap;
use tollgate::ControlError;

/// How what operators decide follows to all machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionsStatus {
    /// Whether this machine knows all that the store has, as of a fraction of a second ago.
    pub is_current: bool,
    /// The number of the last change that it knows. It grows with each change, in no even steps.
    pub version: u64,
    /// Agents about whom the store has a decision.
    pub agents: u64,
    /// Decisions of this machine that the store does not know yet.
    pub waiting: u64,
    /// Decisions of other machines that cannot be in force here.
    pub refused: u64,
    /// How many decisions of this machine the store has accepted.
    pub written: u64,
    /// How many decisions of other machines were put in force here.
    pub followed: u64,
    /// How many decisions were written again that the store had lost.
    pub put_back: u64,
    /// Why decisions did not follow the last time the connection failed.
    pub last_problem: Option<String>,
    /// What an operator should look at.
    pub warnings: Vec<String>,
}

/// What is wrong with single decisions, in words.
#[derive(Default)]
pub(super) struct Problems {
    /// By field, what was refused, or did not open.
    of: BTreeMap<Field, String>,
    /// What nobody of ours has written.
    foreign: bool,
    /// Why nothing could be put in force.
    failed: Option<String>,
    /// The policy that this machine started with was replaced by the store's.
    replaced: Option<String>,
    /// Why this machine's policy is not written.
    unwritten: Option<String>,
}

impl Problems {
    pub(super) fn refused(&self) -> u64 {
        self.of.len() as u64
    }

    pub(super) fn is_refused(&self, field: Field) -> bool {
        self.of.contains_key(&field)
    }

    pub(super) fn refuse(&mut self, field: Field, problem: String) {
        self.of.insert(field, problem);
    }

    pub(super) fn settled(&mut self, field: Field) {
        self.of.remove(&field);
    }

    /// Every field with a problem.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        self.of.keys().copied()
    }

    pub(super) const fn found_foreign(&mut self) {
        self.foreign = true;
    }

    pub(super) fn failed(&mut self, problem: &ControlError) {
        self.failed = Some(problem.to_string());
    }

    pub(super) fn worked(&mut self) {
        self.failed = None;
    }

    pub(super) fn replaced(&mut self, version: Option<u32>) {
        let above = version.map_or("a version".to_owned(), |version| format!("a version above {version}"));
        self.replaced = Some(format!(
            "the policy that this machine started with is not in force: an operator has put another one in force since, \
             on one of the machines; to go back to the one of this machine, reload it, or give it {above}"
        ));
    }

    /// An operator has put another policy in force.
    pub(super) fn policy_changed(&mut self) {
        (self.replaced, self.unwritten) = (None, None);
    }

    pub(super) fn unwritten(&mut self, problem: String) {
        self.unwritten = Some(problem);
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(problem) = &self.failed {
            all.push(format!("decisions of other machines could not be put in force, and are tried again: {problem}"));
        }
        if let Some((field, problem)) = self.of.iter().next() {
            let what = match field {
                Field::Policy => "the policy that was put in force on another machine is not in force here".to_owned(),
                Field::Agent(_) => "what was decided on another machine is not in force here".to_owned(),
            };
            let more = self.of.len() - 1;
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            all.push(format!("{what}: {problem}{more}"));
        }
        if self.foreign {
            all.push(
                "the store has something among the decisions that tollgate did not write; it is left alone".to_owned(),
            );
        }
        all.extend(self.replaced.iter().chain(&self.unwritten).cloned());
        all
    }
}
