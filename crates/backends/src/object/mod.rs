// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects, and wrappers that make them slow or faulty.

mod faulty;
mod file;
mod memory;
mod names;
mod null;
mod s3;
mod throttle;

pub use faulty::{Effect, FaultPoint, Faults, Faulty, When};
#[doc(hidden)]
pub use file::fuzzing;
pub use file::{File, FileSettings, path_below};
pub use memory::Memory;
pub use null::Null;
pub use s3::{S3, S3Settings};
pub use throttle::{Rates, Throttle};
