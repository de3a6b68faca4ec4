// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sources do for any caller, without a mount: the contract that all keep, and what only buckets do.

mod attribute_cache;
mod behaviour;
mod bucket;
mod origin;
