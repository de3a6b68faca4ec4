// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applications do with objects: create, read, write, cut, sync, hold, publish and delete.
//!
//! `object` is the hot path; a read or a write there allocates nothing and takes no lock but `appends`.
//! `shape` changes room, segments and lengths, `draft` replaces an object as a whole, `hold` and `lend` let
//! its file be used past the stack.
//!
//! Locks: `appends` of the object, then those of an object in the order of `memory`. A draft is published
//! under the claim of its key, then `changes` of the draft, then `changes` of the old object.

mod allocated;
pub(crate) mod atomic;
pub(crate) mod batch;
mod create;
mod displace;
mod draft;
mod hold;
mod lend;
pub(crate) mod object;
mod recall;
mod shape;
mod stat;
mod writers;
