//! Ids of any bytes, shown through the C ABI everywhere, under
//! AddressSanitizer. They have to keep the property in `src/observe/shown.rs`.

#![no_main]

#[path = "../../../../tests/common/shown.rs"]
mod reading;

use tollgate::ffi::{Shown, Status, TOLLGATE_ID_BYTES_MAX, tollgate_id_shown};

/// An id in one place; the buffer is exactly as long as it has to be.
fn shown(id: &[u8], place: Shown) -> String {
    let (start, mut len) = (id.as_ptr().cast(), 0);
    // SAFETY: the id is ours, and a NULL buffer of size 0 asks for the length.
    let status = unsafe { tollgate_id_shown(start, id.len(), place as i32, std::ptr::null_mut(), 0, &mut len) };
    assert_eq!(status, Status::Ok);
    let mut buffer = vec![0_u8; len + 1];
    let text = buffer.as_mut_ptr().cast();
    // SAFETY: the id is ours, and the buffer is as large as stated.
    let status = unsafe { tollgate_id_shown(start, id.len(), place as i32, text, buffer.len(), &mut len) };
    assert_eq!((status, buffer.pop(), len), (Status::Ok, Some(0), buffer.len()));
    String::from_utf8(buffer).expect("UTF-8")
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let id = &bytes[..bytes.len().min(TOLLGATE_ID_BYTES_MAX)];
    let [text, html, label, url, json] =
        [Shown::Text, Shown::Html, Shown::Label, Shown::Url, Shown::Json].map(|place| shown(id, place));
    reading::read_back(id, &reading::Shown { text, html, label, url, json });
});
