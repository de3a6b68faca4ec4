// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections of items: a light model like that of a file system, over the objects and pairs of a
//! store.
//!
//! An *item* is a record, which is a key-value pair, and an object with its bytes. A *collection*
//! is a flat set of items with names of their own. [`Items`] is the way in; `docs/how-to/items.md`
//! has the model and what a crash leaves, `docs/formats/items.md` how it is kept.
//!
//! ```no_run
//! use terrace_items::Items;
//! use terrace_store::{Open, Persistency, Result, Store};
//!
//! fn main() -> Result<()> {
//!     let items = Items::new(&Store::open("my-store")?);
//!     let climate = items.create("climate", Persistency::Process)?;
//!     let item = climate.open("t2m", &Open::create_new())?;
//!     item.write(0, b"bytes")?;
//!     assert_eq!(climate.status("t2m")?.stat.size_bytes, 5);
//!     Ok(())
//! }
//! ```

mod base;
mod check;
mod claim;
mod collection;
mod draft;
#[doc(hidden)]
pub mod fuzzing;
mod item;
mod items;
mod name;
mod place;
mod record;
mod records;
#[cfg(test)]
mod vectors;

pub use base::Base;
pub use check::{Finding, FindingKind, Summary};
pub use collection::Collection;
pub use draft::ItemDraft;
pub use item::{Item, Status};
pub use items::{Contents, Items};
pub use name::ITEM_NAME_BYTES_MAX;
pub use place::NAMESPACE;
pub use records::NamePage;
