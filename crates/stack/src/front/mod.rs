// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack as its callers see it, its administration, and its threads.
//!
//! `stack` opens and closes, `face` makes it a backend, `administration`, `add`, `remove`, `backup`, `scrub`
//! and `versions` are for administrators, `keeper` runs the threads and ends them.
//!
//! Locks: `close` of the keeper is held over the end of the stack; `Tiers::changing` is taken before the locks
//! of objects.

mod add;
mod administration;
pub(crate) mod backup;
mod execute;
mod face;
mod keeper;
mod remove;
pub(crate) mod scrub;
pub(crate) mod stack;
mod versions;
