// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What pages are made of: plots, the access timeline, and what drawings share: colours, places for values, text.
//!
//! - [`plot`]: plots with axes, as SVG.
//! - [`timeline`]: the life of each object in a page, with the scripts that draw it.
//!
//! A report is the front end's: it chooses what is shown, and its template makes a page of it.

mod drawing;
pub mod plot;
pub mod timeline;

pub use self::drawing::{Scale, assert_closed, escape, label, push};

/// Colours and type, for pages and for drawings on their own; follows the reader's light or dark.
pub const STYLE: &str = include_str!("style.css");
