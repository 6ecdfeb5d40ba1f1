//! The policy in force as text in a shared slab, so that every process knows its names.
//!
//! There are two copies, one for each parity of the epoch, like the rows of the
//! plans: the next policy is written to the other copy, and is in force with the
//! next epoch. A reader that finds the same epoch after reading has read a whole
//! text.

use super::Engine;
use crate::limits::StateWords;
use crate::machine::mapping::Words;
use crate::machine::process::unforked;
use crate::observe::Note;
use crate::policy::Policy;
use crate::shared::{Memory, Section};
use crate::sync::{Mutex, Ordering, QuietU64, lock};
use std::sync::Arc;

/// Both copies: each a length and its bytes.
pub(crate) struct PolicyText {
    words: Words<QuietU64>,
    /// Room for a text, in bytes.
    most: usize,
    /// The policy that this process asked for last.
    asked: Mutex<Option<Arc<Policy>>>,
    memory: Memory,
}

/// The bytes of both copies of a text of at most this many bytes.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(super) const fn bytes(most: usize) -> usize {
    2 * (8 + most.next_multiple_of(8))
}

impl PolicyText {
    /// `None` in private memory.
    pub(super) fn within(memory: &Memory, most: usize) -> Result<Option<Self>, u64> {
        if memory.joined().is_none() {
            return Ok(None);
        }
        let words = memory.words(Section::Policy, bytes(most) / 8)?;
        Ok(Some(Self { words, most, asked: Mutex::new(None), memory: memory.clone() }))
    }

    /// Remembers the policy that this process asks for, and compares it with the one in force.
    pub(crate) fn set_asked(&self, asked: Arc<Policy>, in_force: &Policy) {
        unforked(|| *lock(&self.asked) = Some(asked));
        self.compare(in_force);
    }

    /// Says whether the policy in force is another than this process asked for.
    fn compare(&self, in_force: &Policy) {
        let differs = unforked(|| lock(&self.asked).as_ref().is_some_and(|asked| **asked != *in_force));
        self.memory.joined().into_iter().for_each(|joined| joined.set_policy_differs(differs));
    }

    fn copy(&self, epoch: u64) -> &[QuietU64] {
        let words = self.words.len() / 2;
        &self.words[(epoch & 1) as usize * words..][..words]
    }

    /// Room for a text.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Writes the text of the policy that comes into force with this epoch. It is no longer than the room.
    pub(crate) fn write(&self, epoch: u64, text: &str) {
        let [length, words @ ..] = self.copy(epoch) else { return };
        // Release, as for rows of limits: a reader of such a word sees that the last epoch of this parity is over.
        length.store(text.len() as u64, Ordering::Release);
        for (word, chunk) in words.iter().zip(text.as_bytes().chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(eight), Ordering::Release);
        }
    }

    /// The policy in force, and its epoch. `None` if the text is not one.
    fn parsed(&self, state: &StateWords) -> Option<(Policy, u64)> {
        let (bytes, epoch) = state.of_epoch(|epoch| (self.read(epoch), epoch));
        Some((Policy::from_toml(std::str::from_utf8(&bytes).ok()?).ok()?, epoch))
    }

    fn read(&self, epoch: u64) -> Vec<u8> {
        let [length, words @ ..] = self.copy(epoch) else { return Vec::new() };
        let length = length.load(Ordering::Acquire) as usize;
        // Not beyond the words, whatever the length is.
        words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).take(length).collect()
    }
}

/// The policy in force in a shared slab, and its epoch. `None` if there is none, or the text is not one.
pub(crate) fn in_force(memory: &Memory, most: usize) -> Option<(Policy, u64)> {
    let text = PolicyText::within(memory, most).ok()??;
    let state = StateWords::within(memory).ok()?;
    text.parsed(&state)
}

impl Engine {
    /// The text of the policy in force, if processes share it.
    pub(crate) fn policy_text(&self) -> Option<&PolicyText> {
        self.text.as_ref()
    }

    /// Adopts a policy that another process has put in force.
    #[inline]
    pub(super) fn adopt_policy(&self) {
        if self.text.is_none() {
            return;
        }
        // Acquire, paired with `set_policy`.
        if self.known_epoch.load(Ordering::Acquire) != self.limits.epoch() {
            self.adopt_new_policy();
        }
        self.limits.adopt_plans();
    }

    #[cold]
    #[inline(never)]
    fn adopt_new_policy(&self) {
        let parsed = self.text.as_ref().and_then(|text| text.parsed(self.limits.state()));
        // Of several threads one is the first to know it, and none brings back an older one.
        if parsed.is_some_and(|(policy, epoch)| self.set_policy(&Arc::new(policy), epoch)) {
            self.text.iter().for_each(|text| text.compare(&self.known_policy().0));
            self.note(|| Note::PolicyReplaced);
        }
    }
}
