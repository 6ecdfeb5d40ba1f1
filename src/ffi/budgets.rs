//! Budgets across restarts.
//!
//! Buckets and windows start full after a restart; a budget for a day or a month
//! should not. Name a file before the first check, save every few seconds, and
//! once more before the process ends. If the process is killed, what was charged
//! since the last save is forgotten.

use super::failure::guard_error;
use super::pointers::{Tagged, borrow, bytes, tagged_out};
use super::{Error, Limiter, Status};
use std::ffi::c_char;

/// What was read from a file of used budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BudgetsLoaded {
    /// Set it to sizeof(tollgate_budgets_loaded) before the call.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Budgets that are in use again, as much as before.
    pub loaded: u64,
    /// Budgets whose window is over. They start full.
    pub ended: u64,
    /// Budgets that were dropped, because the policy no longer has the lane or
    /// its window has changed.
    pub unknown: u64,
    /// Budgets that were dropped, because no record was free for the agent: the
    /// limiter is too small.
    pub full: u64,
    /// How far the limiter's calendar is ahead of the wall clock, if that was set
    /// back since the file was written. Windows end that much later. Else 0.
    pub ahead_ns: u64,
}

const _: () = assert!(size_of::<BudgetsLoaded>() == 48);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for BudgetsLoaded {
    const SIZE_MIN: u32 = 48;
}

/// What a save wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BudgetsSaved {
    /// Set it to sizeof(tollgate_budgets_saved) before the call.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Budgets in the file.
    pub saved: u64,
    /// Used budgets that are not in the file, because their agents had a record
    /// before the file was named and their ids are not known.
    pub unsaved: u64,
}

const _: () = assert!(size_of::<BudgetsSaved>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for BudgetsSaved {
    const SIZE_MIN: u32 = 24;
}

#[cfg(feature = "persist")]
mod kept {
    use super::super::failure::Failure;
    use super::{BudgetsLoaded, BudgetsSaved, Status};
    use crate as tollgate;
    use crate::clock::nanos_saturating;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use tollgate::ControlError;
    use tollgate::keep::PersistError;

    pub(super) fn load(limiter: &tollgate::Limiter, path: &[u8], struct_size: u32) -> Result<BudgetsLoaded, Failure> {
        let loaded = limiter.keep_budgets_in(OsStr::from_bytes(path)).map_err(ControlError::from)?;
        let tollgate::keep::BudgetsLoaded { loaded, ended, unknown, full, ahead } = loaded;
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
    use super::super::failure::Failure;
    use super::{BudgetsLoaded, BudgetsSaved, Status};
    use crate::Limiter;

    pub(super) fn load(_: &Limiter, _: &[u8], _: u32) -> Result<BudgetsLoaded, Failure> {
        Err(Status::NotBuiltIn.into())
    }

    pub(super) fn save(_: &Limiter, _: u32) -> Result<BudgetsSaved, Failure> {
        Err(Status::NotBuiltIn.into())
    }
}

/// Keeps used budgets in a file, and charges what the file has for windows that
/// are not over. Call it once, before the first check and after
/// tollgate_keep_assignments_in. Needs TOLLGATE_FEATURE_PERSIST.
///
/// The path is any bytes without a NUL. The error has the line and the column of
/// a mistake in the file. The ids of agents take 272 bytes for each record, unless
/// a roster with room for all has them already.
///
/// Status: FILE if the file is invalid, in use, or cannot be read or written;
/// TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
/// for `path_len` bytes; `loaded_out` is NULL, and `error_out` may be, or each
/// is readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_keep_budgets_in(
    limiter: *mut Limiter,
    path: *const c_char,
    path_len: usize,
    error_out: *mut Error,
    loaded_out: *mut BudgetsLoaded,
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
    unsafe { guard_error(error_out, keep) }
}

/// Saves what was used of budgets. When it returns, the file is on the disk.
/// Checks continue meanwhile; a million agents take about 40 ms. Needs
/// TOLLGATE_FEATURE_PERSIST.
///
/// Status: NO_FILE without tollgate_keep_budgets_in, and in a process that was
/// forked since; FILE if the file cannot be written, or if something else wrote to
/// it; NOT_BUILT_IN, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `saved_out` is NULL, and
/// `error_out` may be, or each is readable and writable for as many bytes as
/// its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_save_budgets(
    limiter: *mut Limiter,
    error_out: *mut Error,
    saved_out: *mut BudgetsSaved,
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
    unsafe { guard_error(error_out, save) }
}
