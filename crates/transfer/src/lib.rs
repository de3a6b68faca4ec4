// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies between a store and this machine.
//!
//! - [`streams`]: single objects and items from and to files, standard input and output.
//! - [`trees`]: whole trees of files from and to a file system of the store.
//! - [`Places`]: the directories of a store on this machine, which no copy may read or write over.
//!
//! A copy reports how far it is, can be interrupted, and goes on past what fails: by `terrace-console`.

mod places;
pub mod streams;
pub mod trees;

pub use self::places::{Place, Places};
