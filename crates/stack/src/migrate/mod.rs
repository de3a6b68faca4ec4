// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations: their queue, the steps of each, and what becomes durable after them.
//!
//! `mover` queues wishes and runs the workers, `transfer` is one migration, `settle` makes its switch durable,
//! `garbage` deletes superseded files, `retention` keeps some of them for a time, `history` records why a
//! segment is where it is.
//!
//! Locks: those of an object in the order of `memory`. The state of the queue is not held while a migration
//! works; a notice of its end is posted under it, so that receipts are in order.

pub(crate) mod drain;
mod far;
mod garbage;
pub(crate) mod history;
mod mover;
pub(crate) mod notices;
pub(crate) mod retention;
pub(crate) mod settle;
mod transfer;
