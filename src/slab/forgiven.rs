//! Charges that are forgiven during a call.
//!
//! An all-or-none call takes back what it has charged if one of its charges is
//! denied; see [`engine`](crate::engine). In between, a reset, a forget,
//! or a change of limits that starts afresh may forgive those charges, and
//! other calls may spend what became free. Taking the charges back then would
//! let it be spent twice. So a charge is taken back
//!
//! - only from the record that was charged; and
//! - only if its word still has the generation of the charge, or nothing was
//!   forgiven anywhere meanwhile.
//!
//! # Why this never takes back too much
//!
//! A call that forgives moves on the generation of each word that it fills, by
//! an exchange. The rollback is an exchange of the same word. So if the
//! generation is still that of the charge, nothing was forgiven. (Unless
//! generations start over: sixteen changes of one agent during one call are not
//! noticed.)
//!
//! Changes of limits and of tenants move on the generation too. A bucket then
//! keeps the charge, since its debt may have been cut. But counts and permits
//! stay as they are, and have to come back. So each call that forgives counts
//! when it begins and when it is done ([`during`](Forgiven::during)). The
//! rollback compares how many had *begun*, read after it has loaded the words,
//! with how many were *done*, read before the charge. Say that a call F filled
//! a word after it was charged:
//!
//! - The load of the word (Acquire) sees what F did before the fill (Release; all
//!   changes to the word are exchanges). So F is among those that had begun.
//! - F is not among those that were done: a caller that reads F as done
//!   (Acquire) charges the word after the fill.
//! - Each of those that were done is among those that had begun.
//!
//! So more had begun than were done, and nothing is taken back. A call that a
//! fork cuts off, or the death of its process, never ends; from then on the generation alone decides, which
//! is stricter.
//!
//! An agent may also lose its record, and get it back. An agent that takes over
//! a record in debt inherits all counts and permits. If the record was idle, no
//! later charge falls into the window of the old one: that window is before the
//! floor.
//!
//! In a window, the first word is charged. If the window has moved on since,
//! the count is in the second word, and no later charge is made in a part that
//! old: a reset between the loads of the two leaves nothing there to take back.
//!
//! Slots are never forgiven, and always taken back.

use crate::machine::mapping::Words;
use crate::shared::{Memory, Section};
use crate::sync::{Fault, Ordering, QuietU64, broken};

/// How many calls that forgive have begun, and how many are done.
pub(crate) struct Forgiven(Words<QuietU64>);

/// How many words that takes.
pub(crate) const WORDS: usize = 2;

impl Forgiven {
    /// If there is no memory, the error is how many bytes were needed.
    pub(super) fn new(memory: &Memory) -> Result<Self, u64> {
        memory.words(Section::Forgiven, WORDS).map(Self)
    }

    fn begun(&self) -> &QuietU64 {
        &self.0[0]
    }

    fn done(&self) -> &QuietU64 {
        &self.0[1]
    }

    /// Runs something that forgives charges.
    pub(crate) fn during<T>(&self, forgive: impl FnOnce() -> T) -> T {
        self.begun().fetch_add(1, Ordering::Relaxed);
        if broken(Fault::ForgivenTooSoon) {
            self.done().fetch_add(1, Ordering::Release);
            return forgive();
        }
        let answer = forgive();
        self.done().fetch_add(1, Ordering::Release);
        answer
    }

    /// Read before a charge that may have to be taken back.
    pub(crate) fn so_far(&self) -> u64 {
        self.done().load(Ordering::Acquire)
    }

    /// Whether a charge made after `so_far` was read may have been forgiven.
    /// Read once its words are loaded.
    pub(crate) fn is_any_since(&self, so_far: u64) -> bool {
        self.begun().load(Ordering::Relaxed) != so_far && !broken(Fault::ForgivenTakenBack)
    }
}
