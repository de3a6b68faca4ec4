// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders in which a cache gives up what is in it: which object goes next.
//!
//! Objects are numbers below a bound, without gaps, so that what an order knows of them is in
//! arrays. An order does not know how much room is used: its caller, such as [`Cache`], decides
//! when something has to go. `docs/reference/replay.md` defines each order and its origin.

mod arc;
mod cache;
mod clock;
mod fifo;
mod gdsf;
mod lfu;
mod lists;
mod lru;
mod resident;
mod s3_fifo;
mod sieve;
mod sketch;
#[cfg(test)]
mod tests;
mod two_q;
mod w_tiny_lfu;

pub use arc::Arc;
pub use cache::Cache;
pub use clock::Clock;
pub use fifo::Fifo;
pub use gdsf::Gdsf;
pub use lfu::Lfu;
pub use lru::Lru;
pub use resident::{Known, Resident, Snapshot};
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use two_q::TwoQ;
pub use w_tiny_lfu::WTinyLfu;

/// An order in which objects leave a cache.
///
/// # Contract
///
/// - Every object is below the number of the last [`grow`](Replacement::grow).
/// - Sizes are in whatever the capacity is in: bytes, or 1 for each object.
/// - What a method does depends on the calls before it alone: on no clock, chance or address.
/// - After each call of `hit` and `evict`, `also_left` is called until it returns `None`.
pub trait Replacement {
    /// From now on there are objects with all numbers below this. Never takes any back.
    fn grow(&mut self, objects: usize);

    /// Whether an object is in the cache.
    fn contains(&self, object: u32) -> bool;

    /// Reads what requests for these objects are going to read: a caller that knows many requests
    /// in advance so prefetches the memory of all of them at once. The number means nothing.
    fn touch(&self, objects: &[u32]) -> u64;

    /// An object that is in the cache was asked for.
    fn hit(&mut self, object: u32);

    /// An object that is not in the cache was asked for; whether it may enter, so that room is to be
    /// made for it. Where it is too large for the cache it does not, whatever this says.
    fn miss(&mut self, object: u32, bytes: u64) -> bool;

    /// Gives up an object; `None` where there is none.
    fn evict(&mut self) -> Option<Victim>;

    /// What else left with the last hit or eviction, one object a call. Most orders give up one
    /// object at a time.
    fn also_left(&mut self) -> Option<Victim> {
        None
    }

    /// The object of the last miss, which may enter, does, in room that was made for it.
    fn insert(&mut self, object: u32, bytes: u64);
}

/// An object that left, and the size with which it had entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which.
    pub object: u32,
    /// Its size.
    pub bytes: u64,
}
