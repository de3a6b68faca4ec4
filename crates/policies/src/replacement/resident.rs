// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an order is asked beside requests where it decides what is on a tier: there objects grow
//! and are deleted, and a restart must not lose what is known.

use super::Replacement;

/// An order for objects that grow and go.
///
/// # Contract
///
/// - Every object is below the number of the last [`grow`](Replacement::grow).
/// - What [`resume`](Resident::resume) took over decides as what [`snapshot`](Resident::snapshot)
///   was taken of, if both are for the same capacity.
pub trait Resident: Replacement {
    /// Whether the order knows that an object left not long ago.
    fn remembers(&self, object: u32) -> bool;

    /// The size with which an object is known.
    fn bytes_of(&self, object: u32) -> u64;

    /// An object that is in the cache has another size.
    fn resize(&mut self, object: u32, bytes: u64);

    /// An object is gone for good, and its number may be another's next time.
    fn forget(&mut self, object: u32);

    /// All that the order knows.
    fn snapshot(&self) -> Snapshot;

    /// Takes over what another order knew; this one knows nothing yet.
    fn resume(&mut self, snapshot: &Snapshot);
}

/// What an order knows, in a form that is the same for all.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The lists of the order, each in its own order.
    pub lists: Vec<Vec<Known>>,
    /// An object that the order points at.
    pub hand: Option<u32>,
    /// Numbers, or the bits of them.
    pub numbers: Vec<u64>,
}

/// An object as an order knows it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Which.
    pub object: u32,
    /// Its size.
    pub bytes: u64,
    /// What the order counts of it.
    pub count: u64,
    /// The bits of its priority, in orders that have some.
    pub priority: u64,
}
