//! Actions that arrived although the policy does not name them: counted, and
//! reported once per name, so that an operator adds them to the policy.

use crate::bounds::{LANE_NAME_BYTES_MAX, UNKNOWN_ACTIONS_MAX};
use crate::sync::{Counter, Ordering};
use std::sync::{PoisonError, RwLock};

/// Counts unknown actions and keeps the first names, however many arrive.
///
/// A name that is listed already takes the lock for reading; so does every call
/// once the list is full. A new name takes it for writing, 256 times at most.
#[derive(Debug, Default)]
pub(crate) struct UnknownActions {
    /// Invariant: sorted, no pair twice, at most [`UNKNOWN_ACTIONS_MAX`].
    names: RwLock<Vec<(String, String)>>,
    total: Counter,
    not_listed: Counter,
}

impl UnknownActions {
    /// Counts one, and returns whether its name is new. A name that no longer
    /// fits into the list is not new.
    pub(crate) fn record(&self, channel: &str, action: &str) -> bool {
        let (channel, action) = (cut(channel), cut(action));
        {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            let listed = find(&names, channel, action).is_ok();
            if listed || names.len() >= UNKNOWN_ACTIONS_MAX {
                self.count(listed);
                return false;
            }
        }
        self.list(channel, action)
    }

    /// Lists a name that was not there, unless another thread has listed it
    /// since.
    fn list(&self, channel: &str, action: &str) -> bool {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let (listed, first) = match find(&names, channel, action) {
            Ok(_) => (true, false),
            Err(_) if names.len() >= UNKNOWN_ACTIONS_MAX => (false, false),
            Err(index) => {
                names.insert(index, (channel.to_owned(), action.to_owned()));
                (true, true)
            }
        };
        self.count(listed);
        first
    }

    /// Called under the lock, so that a snapshot sees both counts or neither.
    fn count(&self, listed: bool) {
        self.total.fetch_add(1, Ordering::Relaxed);
        if !listed {
            self.not_listed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many unknown actions arrived.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The counts so far.
    pub(crate) fn snapshot(&self) -> UnknownActionsSnapshot {
        // For writing, so that nobody is counting meanwhile.
        let names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        UnknownActionsSnapshot {
            total: self.total.load(Ordering::Relaxed),
            names: names.clone(),
            not_listed: self.not_listed.load(Ordering::Relaxed),
        }
    }
}

fn find(names: &[(String, String)], channel: &str, action: &str) -> Result<usize, usize> {
    names.binary_search_by(|(c, a)| (c.as_str(), a.as_str()).cmp(&(channel, action)))
}

/// The part of a name that is kept. Ends between two characters.
pub(crate) fn cut(name: &str) -> &str {
    // `floor_char_boundary` by hand: at most three steps, since a character
    // has at most four bytes.
    let mut end = name.len().min(LANE_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// The actions that arrived although the policy does not name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownActionsSnapshot {
    /// How many unknown actions arrived.
    pub total: u64,
    /// Channel and name of the first 256 different ones, sorted. A name longer
    /// than 64 bytes is cut.
    pub names: Vec<(String, String)>,
    /// How many of `total` have a name that is not in `names`, because the list
    /// was full.
    pub not_listed: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_name_is_new_once_per_channel() {
        let unknown = UnknownActions::default();
        assert_eq!(unknown.snapshot(), UnknownActionsSnapshot::default());
        assert!(unknown.record("ws", "dance"));
        assert!(!unknown.record("ws", "dance"));
        assert!(unknown.record("http", "dance"));
        assert!(unknown.record("ws", ""));
        let pair = |channel: &str, action: &str| (channel.to_owned(), action.to_owned());
        let names = vec![pair("http", "dance"), pair("ws", ""), pair("ws", "dance")];
        assert_eq!(unknown.snapshot(), UnknownActionsSnapshot { total: 4, names, not_listed: 0 });
    }

    #[test]
    fn past_256_names_the_rest_is_only_counted() {
        let unknown = UnknownActions::default();
        for i in 0..1_000 {
            assert_eq!(unknown.record("ws", &format!("a{i}")), i < 256, "{i}");
        }
        assert!(!unknown.record("ws", "a255"), "listed already");
        let snapshot = unknown.snapshot();
        assert_eq!((snapshot.total, snapshot.not_listed), (1_001, 744));
        assert_eq!(snapshot.names.len(), 256);
        assert!(snapshot.names.is_sorted());
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        let unknown = UnknownActions::default();
        // 63 bytes and then a character of four: it does not fit.
        let long = format!("{}\u{1F980}", "x".repeat(63));
        assert!(unknown.record("ws", &long));
        assert!(!unknown.record("ws", &"x".repeat(63)));
        assert!(unknown.record("ws", &"x".repeat(10_000)));
        assert!(!unknown.record("ws", &"x".repeat(64)));
        let lengths: Vec<_> = unknown.snapshot().names.iter().map(|(_, action)| action.len()).collect();
        assert_eq!(lengths, [63, 64]);
    }

    /// Two threads look for a new name, both miss it, and both go on to list it.
    #[test]
    fn the_second_to_list_a_name_finds_it_listed() {
        let unknown = UnknownActions::default();
        assert!(unknown.list("ws", "dance"));
        assert!(!unknown.list("ws", "dance"));
        for i in 1..256 {
            assert!(unknown.list("ws", &format!("a{i}")));
        }
        assert!(!unknown.list("ws", "one too many"));
        let snapshot = unknown.snapshot();
        assert_eq!((snapshot.total, snapshot.names.len(), snapshot.not_listed), (258, 256, 1));
    }

    #[test]
    fn a_name_is_new_to_one_of_many_threads() {
        const THREADS: usize = 4;
        let (unknown, start) = (UnknownActions::default(), Barrier::new(THREADS));
        let first = thread::scope(|scope| {
            let workers = [(); THREADS].map(|()| {
                scope.spawn(|| {
                    start.wait();
                    (0..300).filter(|i| unknown.record("ws", &format!("a{i}"))).count()
                })
            });
            workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>()
        });
        assert_eq!(first, 256);
        let snapshot = unknown.snapshot();
        assert_eq!((snapshot.total, snapshot.not_listed), (1_200, 44 * 4));
    }
}
