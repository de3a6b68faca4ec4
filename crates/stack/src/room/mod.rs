// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room of objects: quotas of namespaces, room promised behind the ends of objects, and the space of all tiers.
//!
//! Owns no state: promises are in `shared`, quotas in the usage of a namespace (`memory`).
//!
//! Locks: `Usages::changing` for a change of quotas, and `changes` and `accounted` of an object in the order
//! of `memory`.

pub(crate) mod quota;
pub(crate) mod reserve;
pub(crate) mod space;
