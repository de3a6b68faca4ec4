// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores as replays see them, and the tuning of one that runs.
//!
//! - [`Modelled`] is a store as its configuration describes it: its tiers in virtual time, and its policy.
//! - [`live`] records windows of a store that runs, replays each with other parameters, and changes one at a time.
//!
//! The replays themselves, the search and the guard rails are in `terrace-replay`, which knows no configuration.
#![allow(clippy::disallowed_methods, reason = "a store is tuned in real time")]

pub mod live;
mod model;

pub use self::model::{Chosen, Manner, Modelled};
