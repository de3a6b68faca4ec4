// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a service is asked for, whatever its protocol is.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::{Persistency, Result};

use super::record::Record;

/// The answer to a request, which runs once it is polled and outlives what made it.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Names of objects that are being uploaded in parts.
pub(crate) type Uploading = Arc<Mutex<HashSet<String>>>;

/// Requests to a service. Each repeats by itself what is safe to repeat; its caller has the deadline, but for
/// [`Client::clean_up`].
///
/// Names are those of `docs/formats/s3-tier.md`. Where the service has other ones, the client translates
/// them. Errors name the operation and what the service says, in words for people; they hold no credentials.
pub(crate) trait Client: Send + Sync + 'static {
    /// What it is, known without a request.
    fn limits(&self) -> Limits;

    /// What an object is like; `None` where it is missing, and not what it is kept in.
    fn head(&self, operation: &'static str, path: &Path) -> Answer<Option<Head>>;

    /// A small object; `None` as for [`Client::head`].
    fn get(&self, operation: &'static str, path: &Path) -> Answer<Option<Tagged>>;

    /// A range of an object; its caller checks the length.
    fn get_range(&self, operation: &'static str, path: &Path, range: Range<u64>) -> Answer<Bytes>;

    /// Makes or replaces an object. Readers get the old one or the new one, also after a crash; what the
    /// answer acknowledges is durable. With a record the object must be new: the record becomes what
    /// [`Head::record`] or the object of its attributes gives.
    fn put(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        record: Option<&Record>,
    ) -> Answer<()>;

    /// Makes or replaces an object on a condition; `None` where that is not met, which it is neither behind
    /// an earlier try that was carried out. Else the tag of the object, where it has one.
    fn put_if(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        condition: Condition,
    ) -> Answer<Option<Option<String>>>;

    /// Begins an object of several requests, where it has more than [`Limits::single_bytes_max`].
    fn begin_parts(
        &self,
        operation: &'static str,
        path: &Path,
        record: &Record,
    ) -> Answer<Box<dyn Parts>>;

    /// Deletes an object; one that is missing is no error.
    fn delete(&self, operation: &'static str, path: &Path) -> Answer<()>;

    /// Up to `max` names that begin with a text and come behind `after`, and whether there may be more. A
    /// walk meets each name once; the order is that of the service.
    fn list(
        &self,
        operation: &'static str,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Answer<(Vec<String>, bool)>;

    /// What follows a prefix that ends with `/` up to the next one, of all names.
    fn list_directories(&self, operation: &'static str, prefix: &str) -> Answer<Vec<String>>;

    /// Removes what uploads of earlier processes have left below a root; how many there were. `own` are
    /// names of objects that this process is writing in parts: each is noted before its upload begins, so it
    /// is to be looked for behind the listing of uploads. Each request has the deadline of the settings; the first
    /// one that fails ends it.
    fn clean_up(&self, operation: &'static str, root: &str, own: Uploading) -> Answer<usize>;

    /// Removes directories below a root that are empty, where the service has directories.
    fn remove_directories(&self, operation: &'static str, root: &str) -> Answer<()>;
}

/// What a service gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) persistency: Persistency,
    /// Up to this size an object is one request.
    pub(crate) single_bytes_max: usize,
    /// Largest object.
    pub(crate) object_bytes_max: u64,
    /// Whether a log of the catalog may be there, below [`super::names::CATALOG`].
    pub(crate) has_catalog: bool,
}

/// What an object is like.
pub(crate) struct Head {
    pub(crate) size_bytes: u64,
    /// What was kept with it when it was written, as [`Record::to_text`] writes it; `None` where the service
    /// keeps nothing with an object.
    pub(crate) record: Option<String>,
    pub(crate) modified_ns: u64,
}

/// A small object, and the tag by which a condition names it, where it has one.
pub(crate) type Tagged = (Bytes, Option<String>);

/// What a conditional write expects to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Missing,
    /// The object with this tag.
    Tag(Option<String>),
    /// Anything, or nothing.
    Any,
}

/// An object that is sent in parts. Parts are counted in the order of the calls of [`Parts::put`].
pub(crate) trait Parts: Send {
    fn put(&mut self, operation: &'static str, bytes: Bytes) -> Answer<()>;

    fn complete(
        &mut self,
        operation: &'static str,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>>;

    /// Whether nothing of it is left.
    fn abort(&mut self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}
