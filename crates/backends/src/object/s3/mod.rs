// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in a bucket of S3, or of what speaks its protocol.

mod bucket;
mod client;
mod failure;
pub mod fuzzing;
mod page;
mod prefix;
mod settings;
mod signed;

use super::service::ServiceTier;

pub use bucket::{Bucket, BucketObject, BucketReader, BucketWriter, Conditional};
pub use page::{PrefixObject, PrefixPage};
pub use prefix::Prefix;
pub use settings::S3Settings;

/// A bucket, or what in it begins with a prefix.
pub type S3 = ServiceTier<S3Settings>;
