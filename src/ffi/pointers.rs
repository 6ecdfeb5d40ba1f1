//! What a caller hands in, checked as far as that can be before it is used.

use super::guard::guard;
use super::{Status, TOLLGATE_TEXT_BYTES_MAX};
use crate::PlanId;
use crate::bounds::ID_BYTES_MAX;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A handle or struct that is only read.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reads for as long as the result is used.
#[inline(always)]
pub(super) unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    // SAFETY: NULL or valid, as the caller guarantees.
    unsafe { pointer.as_ref() }.ok_or(Status::NullPointer)
}

/// A handle to change.
///
/// # Safety
///
/// `pointer` is NULL, or alive and used by no other thread.
pub(super) unsafe fn borrow_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Status> {
    // SAFETY: NULL, or alive and used by us alone, as the caller guarantees.
    unsafe { pointer.as_mut() }.ok_or(Status::NullPointer)
}

/// A plan's number. One that is too large for any plan is no plan's.
#[inline(always)]
pub(super) fn plan_id(plan: u32) -> Result<PlanId, Status> {
    u16::try_from(plan).map(PlanId::new).map_err(|_| Status::UnknownPlan)
}

/// A place to write to.
#[inline(always)]
pub(super) fn out<T>(pointer: *mut T) -> Result<NonNull<T>, Status> {
    NonNull::new(pointer).ok_or(Status::NullPointer)
}

/// A whole call that asks a handle for a value.
///
/// # Safety
///
/// `handle` is NULL, or alive and shared; `value_out` is NULL or writable.
#[inline(always)]
pub(super) unsafe fn tell<T, V>(
    handle: *const T,
    value_out: *mut V,
    value: impl FnOnce(&T) -> Result<V, Status>,
) -> Status {
    guard(|| {
        let value_out = out(value_out)?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let value = value(unsafe { borrow(handle) }?)?;
        // SAFETY: not NULL, so writable as the caller guarantees.
        unsafe { value_out.write(value) };
        Ok(())
    })
}

/// Gives the caller a handle, to be taken back by [`take_back`].
///
/// # Safety
///
/// `handle_out` is writable.
pub(super) unsafe fn hand_over<T>(handle_out: NonNull<*mut T>, handle: T) {
    // SAFETY: writable, as the caller guarantees.
    unsafe { handle_out.write(Box::into_raw(Box::new(handle))) };
}

/// A whole call that takes a handle back and drops it.
///
/// # Safety
///
/// `handle` is NULL, or from [`hand_over`] and used by nobody any more.
pub(super) unsafe fn take_back<T>(handle: *mut T) {
    guard(|| {
        if !handle.is_null() {
            // SAFETY: made by `Box::into_raw` in `hand_over`, and ours again as the caller guarantees.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

/// An agent's id: any bytes, of a length that can be one.
///
/// # Safety
///
/// `id` is NULL, or readable for `id_len` bytes for as long as the result is used.
#[inline(always)]
pub(super) unsafe fn agent<'a>(id: *const c_void, id_len: usize) -> Result<&'a [u8], Status> {
    if id.is_null() {
        return Err(Status::NullPointer);
    }
    if id_len > ID_BYTES_MAX {
        return Err(Status::IdTooLong);
    }
    // SAFETY: not NULL, readable for this length as the caller guarantees, and
    // a length that is allowed for a slice.
    Ok(unsafe { std::slice::from_raw_parts(id.cast(), id_len) })
}

/// A text of some length that may be any bytes, such as a path.
///
/// # Safety
///
/// `text` is NULL, or readable for `text_len` bytes for as long as the result is used.
pub(super) unsafe fn bytes<'a>(text: *const c_char, text_len: usize) -> Result<&'a [u8], Status> {
    if text.is_null() {
        return Err(Status::NullPointer);
    }
    if text_len > TOLLGATE_TEXT_BYTES_MAX {
        return Err(Status::TextTooLong);
    }
    // SAFETY: as in `agent`.
    Ok(unsafe { std::slice::from_raw_parts(text.cast(), text_len) })
}

/// A text of some length; it need not end in a NUL.
///
/// # Safety
///
/// `text` is NULL, or readable for `text_len` bytes for as long as the result is used.
pub(super) unsafe fn text<'a>(text: *const c_char, text_len: usize) -> Result<&'a str, Status> {
    // SAFETY: as the caller guarantees.
    std::str::from_utf8(unsafe { bytes(text, text_len) }?).map_err(|_| Status::NotUtf8)
}

/// Writes a text and a NUL to a buffer, and its length without the NUL to
/// `len_out`. A NULL buffer of size 0 asks for the length alone.
///
/// # Safety
///
/// `buffer_out` is NULL or writable for `buffer_size` bytes; `len_out` is NULL or writable.
pub(super) unsafe fn put_text(
    text: &str,
    buffer_out: *mut c_char,
    buffer_size: usize,
    len_out: *mut usize,
) -> Result<(), Status> {
    // SAFETY: as the caller guarantees.
    unsafe { put(text.as_bytes(), b"\0", buffer_out.cast(), buffer_size, len_out) }
}

/// As [`put_text`], of any bytes and without a NUL.
///
/// # Safety
///
/// As [`put_text`].
pub(super) unsafe fn put_bytes(
    bytes: &[u8],
    buffer_out: *mut c_void,
    buffer_size: usize,
    len_out: *mut usize,
) -> Result<(), Status> {
    // SAFETY: as the caller guarantees.
    unsafe { put(bytes, b"", buffer_out.cast(), buffer_size, len_out) }
}

/// Writes some bytes and what ends them, which does not count.
///
/// # Safety
///
/// As [`put_text`].
unsafe fn put(
    bytes: &[u8],
    end: &[u8],
    buffer_out: *mut u8,
    buffer_size: usize,
    len_out: *mut usize,
) -> Result<(), Status> {
    let len_out = out(len_out)?;
    if !(buffer_out.is_null() && buffer_size == 0) {
        let buffer = out(buffer_out)?;
        if buffer_size < bytes.len() + end.len() {
            return Err(Status::BufferTooSmall);
        }
        // SAFETY: the buffer has room for both, and is no part of either: they are ours.
        unsafe { buffer.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        // SAFETY: as above.
        let rest = unsafe { buffer.add(bytes.len()) };
        // SAFETY: as above.
        unsafe { rest.copy_from_nonoverlapping(NonNull::from(end).cast(), end.len()) };
    }
    // SAFETY: not NULL, so writable as the caller guarantees.
    unsafe { len_out.write(bytes.len()) };
    Ok(())
}

/// A struct whose first member is its size as the caller knows it, so that it
/// can grow: old callers then have smaller ones.
///
/// # Safety
///
/// The type is `repr(C)` and begins with a `u32` that holds the size.
pub(super) unsafe trait Tagged: Sized {
    /// Its size in the first version that had it.
    const SIZE_MIN: u32;
}

/// A tagged struct to write to.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reads and writes of as many bytes as its
/// tag says.
#[inline(always)]
pub(super) unsafe fn tagged_out<T: Tagged>(pointer: *mut T) -> Result<(NonNull<T>, u32), Status> {
    let place = out(pointer)?;
    // SAFETY: not NULL, and it begins with its size by the trait's contract.
    let size = unsafe { place.cast::<u32>().read() };
    if size < T::SIZE_MIN {
        return Err(Status::StructSize);
    }
    Ok((place, size))
}

/// The largest size that a caller from the future may state.
const TAG_MAX: u32 = 4096;

/// A tagged struct to read. Zero always means: as it was before. So one from
/// the future is fine as long as what this version does not know is zero, and
/// what one from the past does not have is.
///
/// # Safety
///
/// `pointer` is NULL, or readable for as many bytes as its tag says. Any bytes
/// are a value of the type.
pub(super) unsafe fn tagged_in<T: Tagged + Copy>(pointer: *const T) -> Result<T, Status> {
    // SAFETY: NULL or valid, and it begins with its size by the trait's contract.
    let size = *unsafe { borrow(pointer.cast::<u32>()) }?;
    if !(T::SIZE_MIN..=TAG_MAX).contains(&size) {
        return Err(Status::StructSize);
    }
    let known = size_of::<T>();
    // SAFETY: readable for `size` bytes as the caller guarantees.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size as usize) };
    if bytes.iter().skip(known).any(|byte| *byte != 0) {
        return Err(Status::InvalidOption);
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both have as many bytes, and one of them is ours.
    unsafe { value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(known)) };
    // SAFETY: any bytes are a value, as the caller guarantees.
    Ok(unsafe { value.assume_init() })
}
