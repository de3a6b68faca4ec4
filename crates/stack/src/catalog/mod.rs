// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalog: the durable map from keys to objects, and what else a stack must remember.
//!
//! Owns the key-value engine, the layout of its rows, and the log of its changes. `map` is the way in; the
//! other files are formats and parts of it.
//!
//! Locks: `header` is held over the write of the header; `is_watched` is taken for reading by a commit
//! while a copy may be made, and for writing to begin and end one; `copying` admits one copy at a time.
//! `touched` and the state of `changes` are taken last. No lock of another folder is taken here.

pub(crate) mod changes;
pub(crate) mod codec;
mod copy;
pub(crate) mod far_log;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod header;
pub(crate) mod log;
pub(crate) mod low_space;
pub(crate) mod map;
pub(crate) mod pair_block;
pub(crate) mod record;
mod touched;
mod version_rows;
pub(crate) mod versions;
