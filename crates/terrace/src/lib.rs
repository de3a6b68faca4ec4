// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store over fast and slow storage, for programs.
//!
//! A [`Store`] is opened by the path of its directory or by the address of the servers that serve it.
//! It keeps objects under names of the form `namespace/name`; a name without `/` is in the namespace
//! `default`. A policy decides on which tier the bytes of an object are, and moves them while they are
//! in use.
//!
//! ```
//! use terrace::Store;
//!
//! fn main() -> terrace::Result<()> {
//!     # let directory = tempfile::tempdir().expect("a directory");
//!     # let path = directory.path().join("my-store");
//!     # let path = path.to_str().expect("it is text");
//!     # Store::create(path)?;
//!     # let open = |_| Store::open(path);
//!     # /*
//!     let store = Store::open("my-store")?;
//!     # */
//!     # let store = open("my-store")?;
//!     store.put("run/42", b"bytes")?;
//!     let bytes = store.get("run/42")?;
//!     assert_eq!(bytes, b"bytes");
//!
//!     let object = store.object("run/43")?.create()?;
//!     object.write_at(4096, b"anywhere")?;
//!     object.sync()?;
//!
//!     for entry in store.list("run/") {
//!         println!("{}", entry?.name);
//!     }
//!     store.delete("run/42")?;
//!     store.close()
//! }
//! ```
//!
//! Every type is `Send` and `Sync`, cheap to clone where it can be cloned, and blocks the caller until
//! the operation has ended. An [`Error`] has a [kind](Error::kind) by which a program decides what to do.

mod admin;
mod batch;
mod collection;
mod kv;
mod list;
mod memory;
mod names;
mod object;
mod options;
mod store;

pub use admin::Admin;
pub use batch::{Batch, Outcome};
pub use collection::Collection;
pub use kv::Kv;
pub use list::{Entry, List};
pub use object::{Draft, Object, ObjectBuilder};
pub use options::Options;
pub use store::Store;
pub use terrace_core::{
    Atomicity, Error, ErrorKind, Hint, Persistency, Result, Semantics, Stat, Temperature,
};
pub use terrace_store::{Explanation, Notice, TierReport};
