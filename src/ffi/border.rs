//! What a library needs that adds functions to this C ABI, as `bindings/c/redis`
//! does: the border, and what checks pointers. It is built with the same version
//! of this crate, so nothing here is kept for anybody else.

pub use super::failure::{Failure, guard_error};
pub use super::guard::guard;
pub use super::pointers::{
    ListOut, Tagged, borrow, bytes, hand_over, list, out, put_tagged, tagged_in, tagged_out, take_back, text,
    text_array,
};
