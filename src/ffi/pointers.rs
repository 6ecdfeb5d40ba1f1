//! What a caller hands in, checked as far as that can be before it is used.

use super::guard::guard;
use super::{Status, TOLLGATE_NONE, TOLLGATE_NOW, TOLLGATE_TEXT_BYTES_MAX};
use crate::bounds::{BATCH_MAX, ID_BYTES_MAX};
use crate::clock::Tick;
use crate::{Agent, PlanId};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A handle or struct that is only read.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reads for as long as the result is used.
#[inline(always)]
pub unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    // SAFETY: NULL or valid, as the caller guarantees.
    unsafe { pointer.as_ref() }.ok_or(Status::NullPointer)
}

/// A plan's number. One that is too large for any policy is not a plan's, and
/// the limiter says so.
#[inline(always)]
pub(super) fn plan_id(plan: u32) -> Option<PlanId> {
    const _: () = assert!(crate::bounds::PLANS_MAX < u16::MAX as usize);
    (plan != TOLLGATE_NONE).then(|| PlanId::new(u16::try_from(plan).unwrap_or(u16::MAX)))
}

/// An instant, or none if the limiter reads its clock.
#[inline(always)]
pub(super) fn instant(now_ns: u64) -> Option<Tick> {
    (now_ns != TOLLGATE_NOW).then(|| Tick::from_nanos(now_ns))
}

/// Whether a flag is set. No other may be.
#[inline(always)]
pub(super) fn has_flag(flags: u32, flag: u32) -> Result<bool, Status> {
    if flags & !flag == 0 { Ok(flags != 0) } else { Err(Status::InvalidOption) }
}

/// A place to write to.
#[inline(always)]
pub fn out<T>(pointer: *mut T) -> Result<NonNull<T>, Status> {
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
pub unsafe fn hand_over<T>(handle_out: NonNull<*mut T>, handle: T) {
    // SAFETY: writable, as the caller guarantees.
    unsafe { handle_out.write(Box::into_raw(Box::new(handle))) };
}

/// A whole call that takes a handle back and drops it.
///
/// # Safety
///
/// `handle` is NULL, or from [`hand_over`] and used by nobody any more.
pub unsafe fn take_back<T>(handle: *mut T) {
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

/// An agent at an instant.
///
/// # Safety
///
/// As [`agent`].
pub(super) unsafe fn agent_at<'a>(id: *const c_void, id_len: usize, now_ns: u64) -> Result<Agent<'a>, Status> {
    // SAFETY: as the caller guarantees.
    Ok(Agent { id: unsafe { agent(id, id_len) }?, at: instant(now_ns) })
}

/// An array to read. NULL will do for none.
///
/// # Safety
///
/// `array` is NULL, or readable for `count` elements for as long as the result is used.
pub unsafe fn list<'a, T>(array: *const T, count: usize) -> Result<&'a [T], Status> {
    if array.is_null() && count == 0 {
        return Ok(&[]);
    }
    if array.is_null() {
        return Err(Status::NullPointer);
    }
    if count > BATCH_MAX {
        return Err(Status::BatchSize);
    }
    // SAFETY: not NULL, readable for this length as the caller guarantees, and
    // a length that is allowed for a slice.
    Ok(unsafe { std::slice::from_raw_parts(array, count) })
}

/// An array to write to, an element for each of those that were read. NULL will do for none.
///
/// # Safety
///
/// `array` is NULL, or writable for `count` elements for as long as the result
/// is used, and no part of what is read meanwhile.
pub(super) unsafe fn places<'a, T>(array: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>], Status> {
    if array.is_null() && count == 0 {
        return Ok(&mut []);
    }
    let start = out(array)?.cast::<MaybeUninit<T>>();
    if count > BATCH_MAX {
        return Err(Status::BatchSize);
    }
    // SAFETY: not NULL, writable for this length and used by nobody else, as
    // the caller guarantees, and a length that is allowed for a slice.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count) })
}

/// An array to write to: its first elements, as many as there are and fit.
pub struct ListOut<T> {
    /// Invariant: writable for `size` elements.
    start: NonNull<T>,
    size: usize,
}

impl<T> ListOut<T> {
    /// NULL will do for no elements.
    ///
    /// # Safety
    ///
    /// `array` is NULL or writable for `size` elements, for as long as the result is used.
    pub unsafe fn new(array: *mut T, size: usize) -> Result<Self, Status> {
        match NonNull::new(array) {
            Some(start) => Ok(Self { start, size }),
            None if size == 0 => Ok(Self { start: NonNull::dangling(), size }),
            None => Err(Status::NullPointer),
        }
    }

    /// Writes as many of them as the array has room for.
    pub fn write(&self, elements: impl Iterator<Item = T>) {
        for (index, element) in elements.take(self.size).enumerate() {
            // SAFETY: within the array, by the invariant.
            let place = unsafe { self.start.add(index) };
            // SAFETY: as above.
            unsafe { place.write(element) };
        }
    }
}

/// A text of some length that may be any bytes, such as a path.
///
/// # Safety
///
/// `text` is NULL, or readable for `text_len` bytes for as long as the result is used.
pub unsafe fn bytes<'a>(text: *const c_char, text_len: usize) -> Result<&'a [u8], Status> {
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
pub unsafe fn text<'a>(text: *const c_char, text_len: usize) -> Result<&'a str, Status> {
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
    let len_out = out(len_out)?;
    if !(buffer_out.is_null() && buffer_size == 0) {
        let buffer: NonNull<u8> = out(buffer_out)?.cast();
        if buffer_size <= text.len() {
            return Err(Status::BufferTooSmall);
        }
        // SAFETY: the buffer has room for it and a NUL, and is no part of the text, which is ours.
        unsafe { buffer.copy_from_nonoverlapping(NonNull::from(text).cast(), text.len()) };
        // SAFETY: as above.
        let end = unsafe { buffer.add(text.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    // SAFETY: not NULL, so writable as the caller guarantees.
    unsafe { len_out.write(text.len()) };
    Ok(())
}

/// A text in an array that a struct has for it, cut between two characters if
/// it is too long. A NUL ends it, so one inside it is a question mark.
pub fn text_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let mut end = text.len().min(N - 1);
    // A character has at most four bytes, so this ends.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in array.iter_mut().zip(text[..end].bytes()) {
        *to = if from == 0 { b'?' } else { from } as c_char;
    }
    array
}

/// A struct whose first member is its size as the caller knows it, so that it
/// can grow: old callers then have smaller ones.
///
/// # Safety
///
/// The type is `repr(C)` and begins with a `u32` that holds the size.
pub unsafe trait Tagged: Sized {
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
pub unsafe fn tagged_out<T: Tagged>(pointer: *mut T) -> Result<(NonNull<T>, u32), Status> {
    let place = out(pointer)?;
    // SAFETY: not NULL, and it begins with its size by the trait's contract.
    let size = unsafe { place.cast::<u32>().read() };
    if !(T::SIZE_MIN..=TAG_MAX).contains(&size) {
        return Err(Status::StructSize);
    }
    Ok((place, size))
}

/// Writes a tagged struct, as much of it as its caller knows of.
///
/// # Safety
///
/// `place` is valid for writes of as many bytes as its tag says, which is `struct_size`.
pub unsafe fn put_tagged<T: Tagged + Copy>(place: NonNull<T>, struct_size: u32, value: &T) {
    let bytes = size_of::<T>().min(struct_size as usize);
    // SAFETY: neither has fewer bytes, and one of them is ours.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(NonNull::from(value).cast(), bytes) };
}

/// The largest size that a caller from the future may state. More is a struct
/// that nobody has filled in.
pub(super) const TAG_MAX: u32 = 4096;

/// A tagged struct to read. Zero always means: as it was before. So one from
/// the future is fine as long as what this version does not know is zero, and
/// what one from the past does not have is.
///
/// # Safety
///
/// `pointer` is NULL, or readable for as many bytes as its tag says. Any bytes
/// are a value of the type.
pub unsafe fn tagged_in<T: Tagged + Copy>(pointer: *const T) -> Result<T, Status> {
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
