// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store keeps in a bucket beside the tier: its catalog's checkpoint and log, and its owner.
//!
//! Names are below `c/` of the tier's prefix. A conditional write whose answer is lost is decided by
//! reading the object: two writers never write the same bytes under one name.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

use super::settings::S3Settings;
use crate::object::service::client::Condition;
use crate::object::service::failure::panicked;
use crate::object::service::record::Record;
use crate::object::service::requests::Service;
use crate::object::service::upload::Upload;
use crate::object::service::{Settings, names, object_path};

/// Names that one request lists.
const PAGE_NAMES: usize = 1000;

/// Bytes of one request of a reader, and how many of them are sent ahead.
const WINDOW_BYTES: u64 = 4 << 20;
const WINDOWS_AHEAD: usize = 4;

/// Tries of a conditional write whose answers are lost, and that is found not to have been carried out.
const TRIES_MAX: u32 = 4;

/// Objects of a bucket that belong to no tier.
#[derive(Clone)]
pub struct Bucket {
    service: Arc<Service>,
    root: String,
}

/// An object of a bucket, and what a conditional write of it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketObject {
    /// Its content.
    pub bytes: Bytes,
    tag: Option<String>,
}

/// What came of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// It was carried out.
    Done,
    /// It was not: this is there instead. `None` where nothing is.
    Found(Option<Bytes>),
}

impl Bucket {
    /// Prepares requests to the bucket of a tier; makes none.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Denied` (a file of credentials that cannot be read).
    pub fn open(settings: &S3Settings) -> Result<Self> {
        let service = Arc::new(settings.open()?);
        let root = format!("{}{}", service.root, names::CATALOG);
        Ok(Self { service, root })
    }

    /// Address in logs and errors.
    pub fn target(&self) -> &str {
        &self.service.target
    }

    fn path(&self, name: &str) -> Result<Path> {
        object_path(&format!("{}{name}", self.root))
    }

    /// An object; `None` where it is missing.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn get(&self, name: &str) -> Result<Option<BucketObject>> {
        let found = self.service.get_tagged("read an object", &self.path(name)?)?;
        Ok(found.map(|(bytes, tag)| BucketObject { bytes, tag }))
    }

    /// Writes an object where there is none of this name. The bytes are those of no other writer.
    ///
    /// # Errors
    ///
    /// What the service says; the object may have been written all the same.
    pub fn create(&self, name: &str, bytes: &Bytes) -> Result<Conditional> {
        self.write_if(name, bytes, Condition::Missing)
    }

    /// Writes an object in the place of `before`, and of nothing else. The bytes are those of no other
    /// writer.
    ///
    /// # Errors
    ///
    /// What the service says; the object may have been written all the same.
    pub fn replace(&self, name: &str, before: &BucketObject, bytes: &Bytes) -> Result<Conditional> {
        // Without a tag the condition would be none.
        let tag = before.tag.clone().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "write an object on a condition")
                .because("the service gives its objects no tag (ETag)")
                .with("target", self.target())
        })?;
        self.write_if(name, bytes, Condition::Tag(Some(tag)))
    }

    fn write_if(&self, name: &str, bytes: &Bytes, condition: Condition) -> Result<Conditional> {
        const OPERATION: &str = "write an object on a condition";
        let path = self.path(name)?;
        for attempt in 1.. {
            let written = self.service.put_if(OPERATION, &path, bytes.clone(), condition.clone());
            let error = match written {
                Ok(Some(_)) => return Ok(Conditional::Done),
                Ok(None) => {
                    // An earlier try may have been carried out without an answer.
                    let found = self.get(name)?.map(|found| found.bytes);
                    return Ok(match found.as_ref() == Some(bytes) {
                        true => Conditional::Done,
                        false => Conditional::Found(found),
                    });
                }
                Err(error) => error,
            };
            let is_lost = !matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid);
            if !is_lost || attempt >= TRIES_MAX {
                return Err(error);
            }
            if self.get(name)?.is_some_and(|found| found.bytes == *bytes) {
                return Ok(Conditional::Done);
            }
        }
        unreachable!("the last try returns")
    }

    /// Deletes an object; one that is missing is no error.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.service.delete("delete an object", &self.path(name)?)
    }

    /// The names that begin with `prefix`, in order.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let start = format!("{}{prefix}", self.root);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (names, has_more) = self.service.list(&start, after, PAGE_NAMES)?;
            after = names.last().cloned();
            found.extend(
                names.iter().filter_map(|name| Some(name.strip_prefix(&self.root)?.into())),
            );
            if !has_more || after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Begins an object of any size, which appears whole with [`BucketWriter::finish`].
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that S3 does not take.
    pub fn writer(&self, name: &str) -> Result<BucketWriter> {
        let record = Record { created_ns: 0, modified_ns: 0, identity: None };
        let upload = Upload::new(&self.service, self.path(name)?, record, None);
        Ok(BucketWriter { upload })
    }

    /// Reads an object from front to back; `None` where it is missing.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn reader(&self, name: &str) -> Result<Option<BucketReader>> {
        const OPERATION: &str = "read an object";
        let path = self.path(name)?;
        let Some(head) = self.service.head(OPERATION, &path)? else {
            // An answer with a body tells a missing object from a missing bucket.
            self.service.get_tagged(OPERATION, &path)?;
            return Ok(None);
        };
        let service = Arc::clone(&self.service);
        Ok(Some(BucketReader {
            service,
            path,
            size_bytes: head.size_bytes,
            asked_bytes: 0,
            ahead: VecDeque::new(),
            window: Bytes::new(),
        }))
    }
}

/// An object that is being written from front to back. Dropped unfinished, it leaves nothing.
pub struct BucketWriter {
    upload: Upload,
}

impl BucketWriter {
    /// Makes the object, durably; its size.
    ///
    /// # Errors
    ///
    /// What the service says; the object may be there all the same, whole.
    pub fn finish(mut self) -> Result<u64> {
        self.upload.finish()?;
        Ok(self.upload.end_bytes())
    }
}

impl Write for BucketWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.upload.end_bytes();
        self.upload.write(end, bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads an object from front to back, some requests ahead.
pub struct BucketReader {
    service: Arc<Service>,
    path: Path,
    size_bytes: u64,
    asked_bytes: u64,
    ahead: VecDeque<JoinHandle<Result<Bytes>>>,
    window: Bytes,
}

impl BucketReader {
    /// The size of the object.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_window(&mut self) -> Result<Bytes> {
        while self.ahead.len() < WINDOWS_AHEAD && self.asked_bytes < self.size_bytes {
            let end = (self.asked_bytes + WINDOW_BYTES).min(self.size_bytes);
            let request = self.service.begin_range(&self.path, self.asked_bytes..end);
            self.ahead.push_back(self.service.runtime().spawn(request));
            self.asked_bytes = end;
        }
        let Some(next) = self.ahead.pop_front() else { return Ok(Bytes::new()) };
        self.service.block_on(next).map_err(|error| panicked("read an object", &error))?
    }
}

impl Read for BucketReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.window.is_empty() {
            self.window = self.next_window().map_err(|error: Error| io::Error::other(error))?;
        }
        let count = buffer.len().min(self.window.len());
        buffer[..count].copy_from_slice(&self.window.split_to(count));
        Ok(count)
    }
}
