//! Arguments, right and wrong, drawn from bytes.

use std::ffi::{c_char, c_void};
use std::ptr::null;
use tollgate::ffi::{AgentId, Request, Status, TOLLGATE_ID_BYTES_MAX, TOLLGATE_TEXT_BYTES_MAX};

/// What a place for an answer is filled with.
pub(super) const UNTOUCHED: u8 = 0xa5;

/// Bytes to draw from; when they end there are zeros.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    /// Once in so many times.
    pub(super) fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == times - 1
    }

    pub(super) fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Small numbers mostly, the edges of the range, or anything.
    pub(super) fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.word(),
            1 => u64::MAX - u64::from(self.byte()),
            2 => 1 << self.below(64),
            3 => (1 << self.below(64)) - 1,
            4 => u64::from(self.byte()) * 1_000_000,
            _ => u64::from(self.byte()),
        }
    }
}

/// An argument that names an agent.
pub(super) struct Agent {
    pub(super) bytes: Vec<u8>,
    pub(super) null: bool,
    /// The length that is stated.
    pub(super) len: usize,
}

impl Agent {
    pub(super) fn draw(bytes: &mut Bytes<'_>) -> Self {
        let known = bytes.below(24);
        let mut id = vec![known; [1, 2, 7, 8, 9, 16, 17, 255][usize::from(known) % 8] + usize::from(known) / 24];
        if bytes.once_in(8) {
            id = (0..=bytes.below(4)).map(|_| bytes.byte()).collect();
        }
        let len = if bytes.once_in(24) { bytes.number() as usize } else { id.len() };
        // What is shorter than the id is another id; what is longer must not be read.
        let len = if len > id.len() && len <= TOLLGATE_ID_BYTES_MAX { id.len() } else { len };
        Self { null: bytes.once_in(32), len, bytes: id }
    }

    pub(super) fn id(&self) -> *const c_void {
        if self.null { null() } else { self.bytes.as_ptr().cast() }
    }

    pub(super) fn fault(&self) -> Option<Status> {
        match self.len {
            _ if self.null => Some(Status::NullPointer),
            0 => Some(Status::EmptyId),
            len if len > TOLLGATE_ID_BYTES_MAX => Some(Status::IdTooLong),
            _ => None,
        }
    }

    pub(super) fn request(&self, lane: u32, cost: u64, plan: u32) -> Request {
        Request { id: self.id(), id_len: self.len, cost, lane, plan, limit: null() }
    }

    /// The id that was meant; only without a fault.
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A text argument.
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    pub(super) null: bool,
    pub(super) len: usize,
}

impl Text {
    pub(super) fn draw(bytes: &mut Bytes<'_>, usual: &str) -> Self {
        let mut text = usual.as_bytes().to_vec();
        if bytes.once_in(8) {
            text = (0..bytes.below(12)).map(|_| bytes.byte()).collect();
        }
        let len = if bytes.once_in(32) { usize::MAX - usize::from(bytes.byte()) } else { text.len() };
        Self { null: bytes.once_in(32), len, bytes: text }
    }

    pub(super) fn start(&self) -> *const c_char {
        if self.null { null() } else { self.bytes.as_ptr().cast() }
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = Status> {
        let null = self.null.then_some(Status::NullPointer);
        let long = (self.len > TOLLGATE_TEXT_BYTES_MAX).then_some(Status::TextTooLong);
        let utf8 = std::str::from_utf8(&self.bytes).is_err().then_some(Status::NotUtf8);
        null.into_iter().chain(long).chain(utf8)
    }
}

/// A place for an answer: tagged or not, there or not.
pub(super) fn fresh<T>() -> T {
    let mut place = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: fills a place of ours, of its own size.
    unsafe { std::ptr::write_bytes(place.as_mut_ptr().cast::<u8>(), UNTOUCHED, size_of::<T>()) };
    // SAFETY: only used for types of whole numbers, of which all bytes are set. (Those with an enum are kept as `Raw`.)
    unsafe { place.assume_init() }
}

/// A C struct as bytes, so that no enum in it has a value that is none.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Raw<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Raw<N> {
    /// A struct with this tag.
    pub(super) fn new(tag: u32) -> Self {
        let mut raw = [UNTOUCHED; N];
        raw[..4].copy_from_slice(&tag.to_le_bytes());
        Self(raw)
    }

    /// A struct with its size as the tag, or less than that now and then.
    pub(super) fn tagged(bytes: &mut Bytes<'_>, faults: &mut Vec<Status>) -> Self {
        Self::tagged_from(N as u32, bytes, faults)
    }

    /// The same, of a struct that was this small in its first version.
    pub(super) fn tagged_from(first: u32, bytes: &mut Bytes<'_>, faults: &mut Vec<Status>) -> Self {
        let tag = match bytes.below(32) {
            0 => bytes.number() as u32 % N as u32,
            1 => first,
            _ => N as u32,
        };
        if tag < first {
            faults.push(Status::StructSize);
        }
        Self::new(tag)
    }

    pub(super) fn tag(&self) -> usize {
        u32::from_le_bytes(std::array::from_fn(|at| self.0[at])) as usize
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.0[4..].iter().all(|byte| *byte == UNTOUCHED)
    }

    /// A struct without a tag.
    pub(super) fn blank() -> Self {
        Self([UNTOUCHED; N])
    }

    pub(super) fn is_blank(&self) -> bool {
        Place::is_blank(self)
    }

    /// The struct, which the library wrote.
    pub(super) fn read<T: Copy>(&self) -> T {
        assert_eq!(size_of::<T>(), N);
        // SAFETY: as large as the struct and aligned for it; the library wrote every member.
        unsafe { *self.0.as_ptr().cast::<T>() }
    }
}

/// An element of an array to write to.
pub(super) trait Place {
    fn is_blank(&self) -> bool;
}

impl<const N: usize> Place for Raw<N> {
    fn is_blank(&self) -> bool {
        self.0 == [UNTOUCHED; N]
    }
}

/// Its size is no multiple of that of a word.
impl Place for AgentId {
    fn is_blank(&self) -> bool {
        self.len == u32::from_le_bytes([UNTOUCHED; 4]) && self.bytes == [UNTOUCHED; TOLLGATE_ID_BYTES_MAX]
    }
}
