// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects.

mod memory;

pub use memory::Memory;
