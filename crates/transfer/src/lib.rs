// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies between a store and this machine.
//!
//! - [`streams`]: single objects and items from and to files, standard input and output.
//! - [`trees`]: whole trees of files from and to a file system of the store.
//!
//! A copy reports how far it is, can be interrupted, and goes on past what fails: by `terrace-console`.

pub mod streams;
pub mod trees;
