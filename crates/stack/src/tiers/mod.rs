// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tiers of an open stack: their backends, what is accounted on each, and what they are made of.
//!
//! Owns the list of tiers, to which tiers are added and from which none is taken while the stack is open.
//!
//! Locks: `Tiers::changing` is held while an administrator adds, drains or removes a tier, and is taken
//! before every other lock. `TierState::deleting` is held while superseded files of a tier are deleted.
//! Accounts are atomic counters.

pub(crate) mod account;
pub(crate) mod list;
pub(crate) mod offline;
pub(crate) mod parts;
pub(crate) mod retry;
pub(crate) mod verify;
