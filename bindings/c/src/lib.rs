// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libterrace`: the crate `terrace` for C. The comments of exported items are those of `include/terrace.h`, which cbindgen
//! makes; `tests/header.rs` compares both.
//!
//! SAFETY of the exported functions: callers keep the promises at the top of the header. Pointers that must not be NULL,
//! and texts, are checked.

#![allow(unsafe_code, reason = "the interface is one of C")]
#![allow(
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "the header says it once"
)]
#![allow(unreachable_pub, reason = "C reaches what is exported")]
#![allow(non_camel_case_types, reason = "they have these names in C")]

mod admin;
mod arguments;
mod batch;
mod collection;
mod fork;
mod kv;
mod list;
mod object;
mod queue;
mod status;
mod store;
