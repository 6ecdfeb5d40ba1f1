//! Verdicts: whether a request may proceed, and how long a denied caller has to
//! wait. A denial charges nothing.

use super::{Status, TOLLGATE_NEVER};
use crate as tollgate;
use std::ptr::NonNull;

/// Whether a request may proceed. Zero denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Decision {
    /// It may not, and nothing was charged.
    Deny = 0,
    /// It may.
    Allow = 1,
    /// It may, but the agent is near its limit: see warn_below_percent of the policy.
    Warn = 2,
    /// It may, since the agent is exempt; nothing was charged.
    Exempt = 3,
}

impl From<tollgate::Decision> for Decision {
    #[inline(always)]
    fn from(decision: tollgate::Decision) -> Self {
        match decision {
            tollgate::Decision::Deny => Self::Deny,
            tollgate::Decision::Allow => Self::Allow,
            tollgate::Decision::Warn => Self::Warn,
            tollgate::Decision::Exempt => Self::Exempt,
        }
    }
}

/// The answer. It never grows: it is an element of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Verdict {
    /// TOLLGATE_STATUS_OK. In the array of tollgate_check_many, also why a
    /// request could not be answered; then all other members are zero.
    pub status: Status,
    /// Whether the request may proceed.
    pub decision: Decision,
    /// What the lane holds when it is full, in tokens. UINT64_MAX if the agent is exempt.
    pub capacity: u64,
    /// How long a denied caller has to wait: the longer of the next two. 0 if
    /// the request was allowed, TOLLGATE_NEVER if no wait helps.
    pub retry_after_ns: u64,
    /// How long until the lane would allow the same request, exact to the
    /// nanosecond. 0 if it was allowed, TOLLGATE_NEVER if the lane never would.
    pub lane_wait_ns: u64,
    /// How long a denied agent has to wait because of its conduct. 0 without TOLLGATE_COUNTED.
    pub conduct_wait_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How long a bucket takes to refill one token. 0 for lanes that count:
    /// window, exact, budget and held.
    pub token_ns: u64,
    /// Tokens left in a lane that counts; 0 for a bucket. Use
    /// tollgate_verdict_remaining, which works for both.
    pub count_left: u64,
    /// If this denial is a violation: how many in a row it makes, up to 15. Else 0.
    pub violations_in_a_row: u32,
    /// 1 if this denial made the agent's conduct sustained abuse, else 0.
    pub sustained_abuse: u16,
    /// Of a lane that machines share, where the answer came from: a
    /// tollgate_source of tollgate_redis.h. Else 0.
    pub source: u16,
}

const _: () = assert!(size_of::<Verdict>() == 72);

/// A token's time and the count that is left, of which a verdict has one.
#[inline(always)]
fn token_and_count(verdict: &tollgate::Verdict) -> (u64, u64) {
    (verdict.token_ns(), verdict.count_left())
}

/// A tollgate_source.
#[inline(always)]
fn source_of(verdict: &tollgate::Verdict) -> u16 {
    // Lossless: a source has four bits.
    verdict.finding.source() as u16
}

/// What a denial means for the agent's conduct: nothing, as a rule.
#[derive(Clone, Copy)]
struct Judged {
    wait_ns: u64,
    in_a_row: u32,
    is_abuse: bool,
}

impl Judged {
    #[inline(always)]
    fn of(verdict: &tollgate::Verdict) -> Self {
        let (in_a_row, is_abuse) = (verdict.violations_in_a_row(), verdict.is_sustained_abuse());
        Self { wait_ns: verdict.finding.conduct_wait_ns(), in_a_row, is_abuse }
    }
}

impl Verdict {
    pub(super) fn new(verdict: &tollgate::Verdict) -> Self {
        const _: () = assert!(crate::lane::RETRY_NEVER == TOLLGATE_NEVER);
        let ((token_ns, count_left), judged) = (token_and_count(verdict), Judged::of(verdict));
        Self {
            status: Status::Ok,
            decision: verdict.decision().into(),
            capacity: verdict.capacity(),
            retry_after_ns: verdict.retry_after_ns.max(judged.wait_ns),
            lane_wait_ns: verdict.retry_after_ns,
            conduct_wait_ns: judged.wait_ns,
            full_in_ns: verdict.full_in_ns,
            token_ns,
            count_left,
            violations_in_a_row: judged.in_a_row,
            sustained_abuse: judged.is_abuse.into(),
            source: source_of(verdict),
        }
    }

    /// The verdict on a request that could not be answered.
    pub(super) const fn failed(status: Status) -> Self {
        Self {
            status,
            decision: Decision::Deny,
            capacity: 0,
            retry_after_ns: 0,
            lane_wait_ns: 0,
            conduct_wait_ns: 0,
            full_in_ns: 0,
            token_ns: 0,
            count_left: 0,
            violations_in_a_row: 0,
            sustained_abuse: 0,
            source: 0,
        }
    }

    /// Writes the verdict, if there is one: the same as [`Verdict::new`].
    ///
    /// Member by member: the verdict may come from memory that was just
    /// written, eight bytes at a time, and two members read at once would wait
    /// until that is all through. Volatile keeps the compiler from doing so; it
    /// saves a fifth of a check. What most verdicts do not have is out of line,
    /// so that this is in line.
    ///
    /// # Safety
    ///
    /// `place` is writable.
    #[inline(always)]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "writes to the members of one place")]
    pub(super) unsafe fn put(
        place: NonNull<Self>,
        answer: Result<tollgate::Verdict, tollgate::Error>,
    ) -> Result<(), Status> {
        let verdict = match answer {
            Ok(verdict) => verdict,
            Err(error) => return Err(status_of(error)),
        };
        let ((token_ns, count_left), judged) = (token_and_count(&verdict), Judged::of(&verdict));
        let to = place.as_ptr();
        // SAFETY: each is a member of what is writable, as the caller guarantees.
        unsafe {
            (&raw mut (*to).status).write(Status::Ok);
            (&raw mut (*to).decision).write(verdict.decision().into());
            (&raw mut (*to).capacity).write_volatile(verdict.capacity());
            (&raw mut (*to).retry_after_ns).write_volatile(verdict.retry_after_ns);
            (&raw mut (*to).lane_wait_ns).write_volatile(verdict.retry_after_ns);
            (&raw mut (*to).conduct_wait_ns).write(0);
            (&raw mut (*to).full_in_ns).write_volatile(verdict.full_in_ns);
            (&raw mut (*to).token_ns).write_volatile(token_ns);
            (&raw mut (*to).count_left).write(count_left);
            (&raw mut (*to).violations_in_a_row).write(0);
            (&raw mut (*to).sustained_abuse).write(0);
            (&raw mut (*to).source).write(0);
        }
        if verdict.finding.is_plain() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { (&raw mut (*to).source).write(source_of(&verdict)) };
        if (judged.wait_ns, judged.in_a_row) != (0, 0) {
            // SAFETY: writable, as the caller guarantees, and written.
            unsafe { Self::put_judged(place, judged) };
        }
        Ok(())
    }

    /// Adds what a denial means for conduct.
    ///
    /// # Safety
    ///
    /// `place` is a verdict that nobody else uses.
    #[cold]
    #[inline(never)]
    unsafe fn put_judged(mut place: NonNull<Self>, judged: Judged) {
        // SAFETY: as the caller guarantees.
        let verdict = unsafe { place.as_mut() };
        verdict.retry_after_ns = verdict.lane_wait_ns.max(judged.wait_ns);
        verdict.conduct_wait_ns = judged.wait_ns;
        verdict.violations_in_a_row = judged.in_a_row;
        verdict.sustained_abuse = judged.is_abuse.into();
    }
}

/// Out of line, since few checks fail.
#[cold]
#[inline(never)]
fn status_of(error: tollgate::Error) -> Status {
    error.into()
}

/// Whole tokens left in the lane after the request, for a lane of any kind.
/// UINT64_MAX if the agent is exempt; 0 for NULL and for a verdict of zeros.
///
/// For a bucket this takes a division, so a check leaves it to callers that need
/// it.
///
/// # Safety
///
/// `verdict` is NULL or points to a verdict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_verdict_remaining(verdict: *const Verdict) -> u64 {
    /// A verdict in memory: one that nobody wrote may hold a decision that does not exist.
    type Words = [u64; 9];
    const _: () = assert!(std::mem::offset_of!(Verdict, full_in_ns) == 40);
    const _: () = assert!(std::mem::offset_of!(Verdict, count_left) == 56);
    // SAFETY: NULL or readable, by this function's contract.
    let Some(&[_, capacity, _, _, _, full_in_ns, token_ns, count_left, _]) =
        (unsafe { verdict.cast::<Words>().as_ref() })
    else {
        return 0;
    };
    match token_ns {
        0 => count_left,
        // A token that is partly missing is missing.
        token_ns => capacity.saturating_sub(full_in_ns.div_ceil(token_ns)),
    }
}
