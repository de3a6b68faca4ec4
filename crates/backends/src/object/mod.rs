// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects.

mod memory;
mod throttle;

pub use memory::Memory;
pub use throttle::{Rates, Throttle};
