//! Used budgets, kept across restarts.

use super::error::guard_told;
use super::pointers::{Tagged, borrow, bytes, tagged_out};
use super::{Error, Limiter, Status};
use std::ffi::c_char;

/// What came of a file of used budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BudgetsLoaded {
    /// Set it to sizeof(tollgate_budgets_loaded) before the call; it stays as it is.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Budgets that are as used as they were.
    pub loaded: u64,
    /// Budgets whose window is over: nothing of them counts any more.
    pub ended: u64,
    /// Budgets of lanes that the policy does not have, or whose window is
    /// another now. They count no more, and the next save leaves them out.
    pub unknown: u64,
    /// Budgets of agents for whom there was no record: the limiter is too
    /// small. They count no more, and the next save leaves them out.
    pub full: u64,
    /// How far the calendar is ahead of the wall clock, which was put back
    /// since the file was written, or ran ahead before. Windows end so much later.
    pub ahead_ns: u64,
}

const _: () = assert!(size_of::<BudgetsLoaded>() == 48);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for BudgetsLoaded {
    const SIZE_MIN: u32 = 48;
}

/// What came of saving used budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BudgetsSaved {
    /// Set it to sizeof(tollgate_budgets_saved) before the call; it stays as it is.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Budgets in the file.
    pub saved: u64,
    /// Budgets that were used by agents whose id is not known, since they had
    /// a record before the file was named. A restart loses what they used.
    pub unsaved: u64,
}

const _: () = assert!(size_of::<BudgetsSaved>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for BudgetsSaved {
    const SIZE_MIN: u32 = 24;
}

#[cfg(feature = "persist")]
mod kept {
    use super::super::error::Failure;
    use super::{BudgetsLoaded, BudgetsSaved, Status};
    use crate as tollgate;
    use crate::clock::nanos_saturating;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use tollgate::ControlError;
    use tollgate::keep::PersistError;

    pub(super) fn load(limiter: &tollgate::Limiter, path: &[u8], struct_size: u32) -> Result<BudgetsLoaded, Failure> {
        let told = limiter.keep_budgets_in(OsStr::from_bytes(path)).map_err(ControlError::from)?;
        let tollgate::keep::BudgetsLoaded { loaded, ended, unknown, full, ahead } = told;
        let ahead_ns = nanos_saturating(ahead);
        Ok(BudgetsLoaded { struct_size, reserved: 0, loaded, ended, unknown, full, ahead_ns })
    }

    pub(super) fn save(limiter: &tollgate::Limiter, struct_size: u32) -> Result<BudgetsSaved, Failure> {
        match limiter.save_budgets() {
            Ok(tollgate::keep::BudgetsSaved { saved, unsaved }) => {
                Ok(BudgetsSaved { struct_size, reserved: 0, saved, unsaved })
            }
            Err(PersistError::NotKept) => Err(Status::NoFile.into()),
            Err(error) => Err(ControlError::from(error).into()),
        }
    }
}

#[cfg(not(feature = "persist"))]
mod kept {
    use super::super::error::Failure;
    use super::{BudgetsLoaded, BudgetsSaved, Status};
    use crate::Limiter;

    pub(super) fn load(_: &Limiter, _: &[u8], _: u32) -> Result<BudgetsLoaded, Failure> {
        Err(Status::NotBuiltIn.into())
    }

    pub(super) fn save(_: &Limiter, _: u32) -> Result<BudgetsSaved, Failure> {
        Err(Status::NotBuiltIn.into())
    }
}

/// Keeps used budgets in a file, and charges what it says was used of windows
/// that are not over. Needs TOLLGATE_FEATURE_PERSIST.
///
/// Call it once, before the first check, and after
/// tollgate_limiter_keep_assignments_in; then call tollgate_limiter_save_budgets
/// every few seconds and as the last thing before the process ends. What was
/// charged since the last save is lost if the process is killed. The path is
/// any bytes without a NUL, as the system takes them. `error_out` may be NULL;
/// its line and column are those of the file.
///
/// To remember ids takes 272 bytes of memory for each agent that is given a
/// record, unless there is a roster of all of them already; what the file says
/// of an agent takes 16, and 8 for each lane with a budget.
///
/// Status: FILE if it cannot be read or written, is in use, or makes no sense,
/// and then nothing was charged; TEXT_TOO_LONG; NOT_BUILT_IN; STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
/// for `path_len` bytes; `loaded_out` is NULL, and `error_out` may be, or each
/// is readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_keep_budgets_in(
    limiter: *mut Limiter,
    path: *const c_char,
    path_len: usize,
    loaded_out: *mut BudgetsLoaded,
    error_out: *mut Error,
) -> Status {
    let keep = || {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (loaded_out, struct_size) = unsafe { tagged_out(loaded_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `path_len` bytes, by this function's contract.
        let loaded = kept::load(&limiter.0, unsafe { bytes(path, path_len) }?, struct_size)?;
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { loaded_out.write(loaded) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, keep) }
}

/// Writes to the file what has been used of budgets since the last save. When
/// this returns, it is on the disk. Holds up no check. Needs
/// TOLLGATE_FEATURE_PERSIST.
///
/// Each budget is saved as it is at some moment during the call. Looking at a
/// million agents takes some 40 ms; what is written follows what has changed.
/// `error_out` may be NULL.
///
/// Status: NO_FILE without tollgate_limiter_keep_budgets_in, or in a process
/// that was forked since; FILE if the system refuses, or somebody else wrote to
/// it; NOT_BUILT_IN; STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `saved_out` is NULL, and
/// `error_out` may be, or each is readable and writable for as many bytes as
/// its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_save_budgets(
    limiter: *mut Limiter,
    saved_out: *mut BudgetsSaved,
    error_out: *mut Error,
) -> Status {
    let save = || {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (saved_out, struct_size) = unsafe { tagged_out(saved_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let saved = kept::save(&unsafe { borrow(limiter) }?.0, struct_size)?;
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { saved_out.write(saved) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, save) }
}
