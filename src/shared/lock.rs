//! A lock in shared memory: a word that names its holder.
//!
//! The word is 0 while the lock is free, and otherwise the seat of the process
//! that holds it: the generation of the seat and its number, so that no two
//! processes ever have the same. Threads of one process write the same word and
//! wait for each other.
//!
//! # Taking over
//!
//! A lock is taken over only from a process that is dead, never because a time
//! has passed: a process that is stopped, or frozen with its container, still
//! holds it. Whether a process is dead the kernel knows: see
//! [`seats`](super::seats).
//!
//! *Claim*: of all that find the holder dead, one takes over, and nobody takes
//! a lock from the living. The exchange succeeds only on the very word that was
//! judged. That word was written by the dead process: seats are never given out
//! twice, and a dead process writes nothing more. So between the judgement and
//! the exchange the word can only have been changed by another that took over,
//! and then the exchange fails.
//!
//! The judgement compares the mark with the generation of its seat, which was
//! written before the mark. So the mark is written with Release, and read with
//! Acquire before it is judged: whoever has read the mark does not find the
//! generation that the seat had before, by which a living holder would be dead.
//!
//! Whoever takes over puts right what the dead left half done, before anything
//! else. If it dies meanwhile, the next one finds it dead, and starts again:
//! so putting right must be repeatable.
//!
//! # Waiting
//!
//! A wait has an end, since a holder may be stopped: the caller is answered
//! `Busy`. A call that takes several locks has one time for all of them. What
//! counts is the time in which another process has a lock. The caller spins for
//! some microseconds, and then naps and reads the clock by turns. It does not
//! yield: on a busy machine it would get its next turn after everybody else's,
//! milliseconds later, while a sleeper is woken in time. A
//! thread of the caller's own process is not stopped while the caller runs, since
//! a stop is for all threads of a process; with many threads on few processors it
//! may only not have its turn.
//!
//! A wait for a thread of the own process ends all the same. Such a thread does
//! a finite amount of work under the lock, and waits for nothing but a lock that
//! comes later in order, held by one like itself, which ends by the same
//! argument, or by another process, for which its time runs out. Then it
//! releases what it has. So each of them releases the lock, and the caller takes
//! its turn as in private memory, where no wait has any other end.

use crate::sync::{AtomicU64, Fault, Ordering, broken, peek, wait};
use std::time::{Duration, Instant};

/// Who asks for a lock, and knows who is dead.
pub(crate) trait Holders {
    /// This process; 0 if it has no seat, and then it can take no lock.
    fn me(&self) -> u64;

    /// Whether the process that wrote this word is dead.
    fn is_dead(&self, holder: u64) -> bool;
}

/// The lock could not be had in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// What the lock's word was.
    pub(crate) holder: u64,
}

/// How a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was free.
    Free,
    /// From a dead process: what it left half done has to be put right.
    FromDead,
}

/// How often a caller looks at the word before it takes its first nap: for some ten microseconds.
const SPIN_ROUNDS: u32 = 1_000;

/// How long a nap is, and after how many of them the kernel is asked again whether the holder is dead.
const NAP: Duration = Duration::from_micros(50);
const NAPS: u32 = 4;

/// Takes a lock. `left` is about how much longer other processes may keep it, and becomes less by the wait.
pub(crate) fn take(lock: &AtomicU64, holders: &impl Holders, left: &mut Duration) -> Result<Taken, Busy> {
    let me = holders.me();
    // Since when another process was seen to keep it.
    let mut since = None::<Instant>;
    let mut round = 0_u32;
    // Ends with the lock, or when the time is over.
    loop {
        let seen = peek(lock);
        if me == 0 {
            return Err(Busy { holder: seen });
        }
        // Acquire, paired with the Release of the last holder; Release, for those that judge the mark.
        let order = if broken(Fault::RelaxedMark) { Ordering::Acquire } else { Ordering::AcqRel };
        let exchange = || lock.compare_exchange(seen, me, order, Ordering::Relaxed).is_ok();
        let take_over = || {
            if broken(Fault::TakenOverByStore) {
                lock.store(me, Ordering::Relaxed);
                return true;
            }
            exchange()
        };
        if seen == 0 && exchange() {
            return Ok(Taken::Free);
        }
        if seen == me {
            since = None;
        } else if seen != 0 && (cfg!(loom) || round >= SPIN_ROUNDS) {
            // The clock is read here alone: most waits are over before.
            let now = Instant::now();
            *left = left.saturating_sub(since.replace(now).map_or(Duration::ZERO, |since| now - since));
            if cfg!(loom) || left.is_zero() || round % NAPS == 0 {
                // Acquire, paired with the Release of the mark: see the claim.
                let is_mark = || lock.load(Ordering::Acquire) == seen || broken(Fault::RelaxedMark);
                let is_dead = || holders.is_dead(seen) || broken(Fault::LiveLockTaken);
                if is_mark() && is_dead() && take_over() {
                    return Ok(Taken::FromDead);
                }
            }
            if left.is_zero() && !cfg!(loom) {
                return Err(Busy { holder: seen });
            }
        }
        match seen != 0 && seen != me && !cfg!(loom) {
            true if round < SPIN_ROUNDS => std::hint::spin_loop(),
            true => std::thread::sleep(NAP.min(*left)),
            false => wait(round),
        }
        round = round.saturating_add(1);
    }
}

/// Releases a lock. Release, paired with the Acquire of the next holder.
pub(crate) fn release(lock: &AtomicU64) {
    lock.store(0, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A process that believes the processes in the list to be dead.
    struct Process {
        me: u64,
        dead: Vec<u64>,
        asked: Cell<u32>,
    }

    impl Holders for Process {
        fn me(&self) -> u64 {
            self.me
        }

        fn is_dead(&self, holder: u64) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.dead.contains(&holder)
        }
    }

    fn process(me: u64, dead: &[u64]) -> Process {
        Process { me, dead: dead.to_vec(), asked: Cell::new(0) }
    }

    fn take_within(lock: &AtomicU64, process: &Process, within: Duration) -> Result<Taken, Busy> {
        take(lock, process, &mut { within })
    }

    #[test]
    fn a_free_lock_is_taken_and_nobody_is_asked_about() {
        let (lock, process) = (AtomicU64::new(0), process(7, &[]));
        assert_eq!(take_within(&lock, &process, Duration::ZERO), Ok(Taken::Free));
        assert_eq!((lock.load(Ordering::Relaxed), process.asked.get()), (7, 0));
        release(&lock);
        assert_eq!(take_within(&lock, &process, Duration::ZERO), Ok(Taken::Free));
    }

    #[test]
    fn the_dead_lose_their_lock_and_the_living_keep_it() {
        let lock = AtomicU64::new(8);
        assert_eq!(take_within(&lock, &process(7, &[9]), Duration::from_millis(1)), Err(Busy { holder: 8 }));
        assert_eq!(lock.load(Ordering::Relaxed), 8);
        assert_eq!(take_within(&lock, &process(7, &[8]), Duration::ZERO), Ok(Taken::FromDead));
        assert_eq!(lock.load(Ordering::Relaxed), 7);
    }

    /// With many threads on few processors a holder may not run for longer than a newcomer waits for a stopped
    /// process: its own process was answered that another one is stopped.
    #[test]
    fn a_thread_of_the_same_process_is_waited_for() {
        let lock = AtomicU64::new(7);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Real time: how long a holder does not run.
                std::thread::sleep(Duration::from_millis(20));
                release(&lock);
            });
            take_within(&lock, &process(7, &[7]), Duration::ZERO)
        });
        assert_eq!(taken, Ok(Taken::Free));
    }

    /// A claim may take two locks, and had the whole time for each of them: a newcomer waited twice as long as it was
    /// to wait.
    #[test]
    fn two_locks_are_taken_within_one_time() {
        let locks = [AtomicU64::new(8), AtomicU64::new(8)];
        let within = Duration::from_millis(500);
        let mut left = within;
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Real time: how long another process has the first lock.
                std::thread::sleep(Duration::from_millis(20));
                release(&locks[0]);
            });
            take(&locks[0], &process(7, &[]), &mut left)
        });
        assert_eq!(taken, Ok(Taken::Free));
        assert!(left < within && !left.is_zero(), "{left:?}");
        assert_eq!(take(&locks[1], &process(7, &[]), &mut left), Err(Busy { holder: 8 }));
        assert_eq!(left, Duration::ZERO);
    }

    #[test]
    fn a_process_without_a_seat_takes_nothing() {
        let free = AtomicU64::new(0);
        assert_eq!(take_within(&free, &process(0, &[]), Duration::ZERO), Err(Busy { holder: 0 }));
    }
}
