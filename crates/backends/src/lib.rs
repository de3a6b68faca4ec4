// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects ([`object`]), and key-value engines ([`kv`]).

pub mod kv;
pub mod object;
mod registry;

#[doc(hidden)]
pub use object::{framed_fuzzing, fuzzing, s3_fuzzing};
pub use registry::{BACKENDS, BackendEntry, Place, SERVICES, ServiceEntry, open_backend};
