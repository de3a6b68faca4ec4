// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects, and wrappers that make them slow or faulty.

mod faulty;
mod file;
mod framed;
mod memory;
mod names;
mod null;
mod opendal;
mod rados;
mod s3;
mod service;
mod throttle;

use std::io::IoSlice;

use terrace_core::{Backend, Key, Op, Open, Reply, Request, Result, Semantics, execute_each};

pub use self::opendal::{Opendal, OpendalService, OpendalSettings};
pub use faulty::{Effect, FaultPoint, Faults, Faulty, When};
#[doc(hidden)]
pub use file::fuzzing;
pub use file::{File, FileSettings, path_below};
#[doc(hidden)]
pub use framed::fuzzing as framed_fuzzing;
pub use framed::{FrameKey, Framed, Packing};
pub use memory::Memory;
pub use null::Null;
pub use rados::{Rados, RadosSettings};
#[doc(hidden)]
pub use s3::fuzzing as s3_fuzzing;
pub use s3::{
    Bucket, BucketObject, BucketReader, BucketWriter, Conditional, Prefix, PrefixObject,
    PrefixPage, S3, S3Settings,
};
pub use throttle::{Rates, Throttle};

/// Carries out a batch, in which `create` makes an object with its bytes as one operation.
fn execute_creating<B: Backend>(
    backend: &B,
    operations: &mut [Op<'_>],
    create: impl Fn(&Key, &[u8]) -> Result<Reply>,
    semantics: &Semantics,
) {
    for operation in operations {
        match &operation.request {
            Request::Create { key, data, .. } => operation.outcome = Some(create(key, data)),
            _ => execute_each(backend, std::slice::from_mut(operation), semantics),
        }
    }
}

/// Makes an object that exists from its first sync on.
fn create_whole<B: Backend>(
    backend: &B,
    key: &Key,
    data: &[u8],
    semantics: &Semantics,
) -> Result<Reply> {
    let how = Open { size_hint_bytes: Some(data.len() as u64), ..Open::create_new() };
    let object = backend.open(key, &how.with_semantics(*semantics))?;
    object.write_at(0, &[IoSlice::new(data)])?;
    object.sync()?;
    Ok(Reply::Done)
}
