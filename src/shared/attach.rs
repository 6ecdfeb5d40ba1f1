//! What a process does with a shared file that it has found: the rule of `join.rs`, and of its loom models.

use crate::sync::{Fault, broken};

/// A file, as a process finds it once it has ATTACH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<A> {
    /// The path leads to another file by now, or to none: it was removed while this process waited.
    Removed,
    /// Nobody has begun to make it.
    Empty,
    /// Its maker did not finish, or the machine was started since: the reason.
    Stale(&'static str),
    /// Everything in it is written.
    Ready(A),
    /// The same, and this process asks for something else.
    Misfit,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<A> {
    /// Open the path again.
    Again,
    /// Remove the file, and open the path again.
    Replace,
    Make,
    Join(A),
    /// There is no slab, and this process makes none.
    Missing,
    /// It can be neither joined nor replaced, since others use it, for this reason.
    InUse(&'static str),
    /// It can be neither joined nor replaced.
    Refuse,
}

/// How a process looks for a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// Others find the file by its path, and not by a descriptor.
    pub(crate) has_path: bool,
    pub(crate) makes_none: bool,
}

impl Search {
    /// The next step. `is_used` tells whether another process has a seat in the file.
    ///
    /// A file is removed by none but a process that has its ATTACH and has then seen that the path leads to it. So
    /// until that process releases ATTACH nobody else removes it, and what is removed is this very file. One that is
    /// used stays: those that use it would go on with a file that nobody else finds.
    pub(crate) fn step<A>(self, seen: Seen<A>, is_used: impl Fn() -> bool) -> Step<A> {
        match seen {
            Seen::Removed => Step::Again,
            Seen::Empty if self.makes_none => Step::Missing,
            Seen::Empty => Step::Make,
            Seen::Ready(agreed) => Step::Join(agreed),
            Seen::Misfit if self.makes_none => Step::Refuse,
            Seen::Stale(_) | Seen::Misfit if self.has_path && (!is_used() || broken(Fault::UsedFileReplaced)) => {
                Step::Replace
            }
            Seen::Stale(why) => Step::InUse(why),
            Seen::Misfit => Step::Refuse,
        }
    }
}
