//! The one door to atomics: a single cfg moves the whole core onto loom.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::Ordering;

/// Loom's atomic, with loads made visible to its search.
///
/// Loom reverses two accesses by different threads if they are dependent, and
/// for that looks only at the latest access to each object. A thread that
/// loads a word and later writes it hides an earlier load by another thread:
/// loom never tries the order in which that load comes after the write (seen
/// with 0.7.2: a check that only loads, against an eviction, had one
/// execution). So each load first writes to a companion object. That makes
/// any two loads dependent, and loom tries the orders between them as well.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    word: loom::sync::atomic::AtomicU64,
    loads: loom::sync::atomic::AtomicBool,
}

#[cfg(loom)]
impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self { word: loom::sync::atomic::AtomicU64::new(value), loads: loom::sync::atomic::AtomicBool::new(false) }
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.loads.store(true, Ordering::Relaxed);
        self.word.load(order)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.word.store(value, order);
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        seen: u64,
        next: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.word.compare_exchange(seen, next, success, failure)
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, amount: u64, order: Ordering) -> u64 {
        self.word.fetch_add(amount, order)
    }

    #[track_caller]
    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.word.fetch_max(value, order)
    }
}

/// A load that no proof depends on: a hint, or a word that only the holder of
/// a lock writes. It stays out of loom's search for orders.
#[inline]
pub(crate) fn peek(word: &AtomicU64) -> u64 {
    #[cfg(loom)]
    let word = &word.word;
    word.load(Ordering::Relaxed)
}

/// An atomic whose loads stay out of loom's search for orders: for a word that
/// is read between two accesses that are in the search. Loom still lets such a
/// load see every value that its ordering allows.
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicU64 as QuietU64;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU64 as QuietU64;

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks, even if another holder panicked: every step that changes what these
/// locks guard leaves it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks like [`lock`], unless somebody holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// A statistic that no decision depends on: not part of any protocol, so it
/// stays an ordinary atomic under loom and adds nothing to the models.
pub(crate) use std::sync::atomic::AtomicU64 as Counter;

/// A setting whose value guards no other memory: an ordinary atomic under loom
/// too.
pub(crate) use std::sync::atomic::AtomicUsize as Setting;

/// Lets another thread run while this one waits.
///
/// Loom sees a waiting loop only through this call. Outside loom the first
/// rounds spin, since the wait is nearly always well under a microsecond, and
/// later ones yield the processor.
pub(crate) fn wait(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < SPIN_ROUNDS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// How often [`wait`] spins before it yields.
#[cfg(not(loom))]
const SPIN_ROUNDS: u32 = 64;

/// Steps of the protocols that a model can leave out, to show that it then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A charge is stored over whatever is there, not exchanged.
    ChargeByStore,
    /// A charge does not look at the tag after loading the lane.
    NoLookAfterLoad,
    /// An answer that writes nothing does not look at the lane again.
    NoLastLook,
    /// A claim writes the lanes of a vacant record without Release.
    RelaxedSettling,
    /// A charge loads the lane without Acquire.
    RelaxedLane,
    /// An eviction does not close the tag first.
    NoClose,
    /// An eviction leaves the generation as it is.
    SameGeneration,
    /// An eviction does not ask whether the lanes are idle once the tag is closed.
    IdleUnchecked,
    /// An eviction that gives up does not open the tag again, nor does the tenant.
    StayClosed,
    /// Tenants change without the region's lock.
    NoLock,
    /// A claim ignores when idle records were evicted.
    NoFloor,
    /// A claim after an eviction does not read the clock again.
    ClockNotReadAgain,
    /// A newcomer starts afresh in a record that was given up.
    NothingInherited,
    /// A record is given up without asking, once its tag is closed, whether a slot is held.
    KeptUnchecked,
    /// A record is given up without asking, once its lanes have moved on, whether something is reserved.
    ReservedUnchecked,
    /// A denial of a lane of several words does not look at them all again.
    NoLastScan,
    /// When one of several charges is denied, those made before it stay.
    NoRollback,
    /// A lane stays charged though its total has nothing left.
    LaneKept,
    /// A charge is taken back as if no time had passed since it was made.
    RollbackAtCharge,
    /// A charge is taken back though it may have been forgiven.
    ForgivenTakenBack,
    /// A call that forgives reports that it is done before it is.
    ForgivenTooSoon,
    /// The id of a closed reservation is taken for the one that has its slot now.
    StaleId,
    /// A reservation is given back to whatever its lane holds, not only to the charge that it made.
    OtherCharge,
    /// A call that gives back to a bucket does not lower its reservations.
    NotLowered,
    /// A refund of a window or a budget also takes what is reserved of it.
    ReservedRefunded,
    /// A change to a lane of several words is stored over whatever is there.
    PermitByStore,
    /// A window moves on before it records the part that falls off.
    MovedOnUnrecorded,
    /// A recorded part that the window has yet to move on to is not taken for the present one.
    RecordIgnored,
    /// A step that records a part does not look at the first word again.
    NoLookBack,
    /// A check reads its row of limits without Acquire.
    RelaxedRow,
    /// A change of row leaves the lanes' generations as they are.
    RowWithoutBump,
    /// A change of row moves the lanes on before the tag names the new row.
    BumpBeforeRow,
    /// A change of plan does not take the locks of the agent's neighbourhood.
    NoChangeLock,
    /// A claim does not ask for the agent's assignment under the locks.
    StaleAssignment,
    /// An exemption that has ended stays in the table that is read without a lock.
    ExemptionStays,
    /// A claim does not ask again, under the locks, whether the agent is exempt.
    ExemptClaims,
    /// A new policy comes into force by writing over the rows in use.
    RowsInPlace,
    /// A change of tenant leaves the conduct word as it is.
    ConductNotBumped,
    /// A tenant that is to be given up loses its violations before its record.
    ConductGivenUpEarly,
    /// An announced wait is stored over whatever is there, not exchanged.
    AnnouncedByStore,
    /// A word is replaced before the operation that it is marked with is confirmed.
    NotConfirmed,
    /// Whether an operation is confirmed is asked before its word is read.
    ConfirmedBeforeWord,
    /// An operation that a dead process has left is taken to have taken place.
    Unjudged,
    /// An operation has the mark of the one before it.
    SameMark,
    /// An entry is taken over by a store, whoever else takes it over.
    EntryTakenByStore,
    /// A lock is taken over though its holder lives.
    LiveLockTaken,
    /// A lock is taken over by a store, whoever else takes it over.
    TakenOverByStore,
    /// The mark of a lock is written without Release, and read without Acquire.
    RelaxedMark,
    /// A release does not wait for another that has the entries it needs.
    ReleaseNotAwaited,
    /// A settlement is applied to whatever tenancy it finds.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "of lanes that machines share"))]
    CreditToAnother,
    /// The debt that a store reports takes the place of a view that was charged meanwhile.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "of lanes that machines share"))]
    ViewOverCharge,
    /// What a machine has of a budget is taken for the present window's, whatever window it is of.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "of lanes that machines share"))]
    CreditOfOldWindow,
    /// A file is ready before everything in it is written.
    #[cfg(all(test, loom))]
    ReadyTooSoon,
    /// A process makes a file or joins it without ATTACH.
    #[cfg(all(test, loom))]
    NoAttach,
    /// A process that has waited for ATTACH does not look where the path leads.
    #[cfg(all(test, loom))]
    NoLookAtPath,
    /// A file that others use is replaced.
    #[cfg_attr(not(feature = "shared"), allow(dead_code, reason = "of files that processes share"))]
    UsedFileReplaced,
    /// A process releases ATTACH before it takes its seat.
    #[cfg(all(test, loom))]
    SeatAfterAttach,
    /// What a dead process left half changed in a region is not put right.
    NotPutRight,
    /// What a dead control call had begun is not ended by the next.
    NotEnded,
    /// An event is written without Release.
    RelaxedEvent,
    /// An event is written over one that is being written.
    EventOverEvent,
    /// A poll does not look at the state again after reading an event.
    NoSecondEventLook,
}

/// Whether a model has asked for this fault. Always `false` outside models.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn broken(_: Fault) -> bool {
    false
}

#[cfg(loom)]
pub(crate) fn broken(fault: Fault) -> bool {
    BROKEN.get() == Some(fault)
}

#[cfg(loom)]
thread_local! {
    /// The fault of the model that runs on this thread; loom runs all of a model's threads on one.
    pub(crate) static BROKEN: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}
