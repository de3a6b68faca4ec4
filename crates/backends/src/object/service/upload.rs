// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An object that is being written, from front to back: one request where it is small, else parts that
//! go out while more is written.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

use super::client;
use super::failure::panicked;
use super::record::Record;
use super::requests::Service;

/// Shortest part; S3 takes none below 5 MiB but the last.
const PART_BYTES_MIN: u64 = 8 << 20;

/// Most parts: S3 takes 10,000.
const PARTS_MAX: u64 = 9_000;

/// Zeros that are written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

const OPERATION: &str = "write an object";

/// An object that is not visible yet. Dropped, it leaves nothing.
pub(crate) struct Upload {
    service: Arc<Service>,
    path: Path,
    /// Its attributes are those of when the first request goes out.
    pub(crate) record: Record,
    part_bytes: usize,
    /// Written and not sent.
    waiting: Vec<u8>,
    end_bytes: u64,
    parts: Option<Parts>,
}

/// The requests of an object that is sent in parts.
struct Parts {
    upload: Box<dyn client::Parts>,
    sending: Vec<JoinHandle<Result<()>>>,
}

impl Upload {
    /// `size_hint_bytes` is what it will have, where that is known.
    pub(crate) fn new(
        service: &Arc<Service>,
        path: Path,
        record: Record,
        size_hint_bytes: Option<u64>,
    ) -> Self {
        let least = size_hint_bytes.unwrap_or(0).div_ceil(PARTS_MAX);
        let single_bytes_max = service.client.limits().single_bytes_max;
        let whole = size_hint_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let whole = whole.filter(|bytes| *bytes <= single_bytes_max);
        let part_bytes = least.next_multiple_of(1 << 20).max(PART_BYTES_MIN) as usize;
        Self {
            service: Arc::clone(service),
            path,
            record,
            part_bytes,
            waiting: Vec::with_capacity(whole.unwrap_or(0)),
            end_bytes: 0,
            parts: None,
        }
    }

    pub(crate) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// Writes behind what was written; a gap reads as zeros.
    ///
    /// # Errors
    ///
    /// `Unsupported` in front of that; what the service says, of earlier bytes too.
    pub(crate) fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        if offset_bytes < self.end_bytes {
            return Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .because("an object is written as a whole, from front to back")
                .with("offset_bytes", offset_bytes)
                .with("end_bytes", self.end_bytes)
                .with("target", &self.service.target));
        }
        self.grow(offset_bytes)?;
        self.push(data)
    }

    /// Writes zeros up to an end.
    pub(crate) fn grow(&mut self, end_bytes: u64) -> Result<()> {
        while self.end_bytes < end_bytes {
            let count = (end_bytes - self.end_bytes).min(ZEROS.len() as u64) as usize;
            self.push(&ZEROS[..count])?;
        }
        Ok(())
    }

    fn push(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let most = match self.parts {
                None => self.service.client.limits().single_bytes_max,
                Some(_) => self.part_bytes,
            };
            let room = most.saturating_sub(self.waiting.len());
            if room == 0 {
                // More follows: it is no single request, and the part is not the last.
                self.send_parts()?;
                continue;
            }
            let (head, tail) = data.split_at(room.min(data.len()));
            self.waiting.extend_from_slice(head);
            self.end_bytes += head.len() as u64;
            data = tail;
        }
        Ok(())
    }

    /// Sends what waits in full parts.
    fn send_parts(&mut self) -> Result<()> {
        if self.parts.is_none() {
            let upload = self.service.begin_parts(&self.path, &self.record)?;
            self.parts = Some(Parts { upload, sending: Vec::new() });
        }
        let waiting = Bytes::from(std::mem::take(&mut self.waiting));
        let whole = waiting.len() - waiting.len() % self.part_bytes;
        let mut at = 0;
        while at < whole {
            self.send(waiting.slice(at..at + self.part_bytes))?;
            at += self.part_bytes;
        }
        self.waiting = Vec::with_capacity(self.part_bytes);
        self.waiting.extend_from_slice(&waiting[whole..]);
        Ok(())
    }

    fn send(&mut self, part: Bytes) -> Result<()> {
        let parts = self.parts.as_mut().expect("it was begun");
        // One that has failed ends the writing.
        while let Some(at) = parts.sending.iter().position(JoinHandle::is_finished) {
            let sent = self.service.block_on(parts.sending.swap_remove(at));
            sent.map_err(|error| panicked(OPERATION, &error))??;
        }
        let turn = self.service.part_turn();
        let request = parts.upload.put(OPERATION, part);
        parts.sending.push(self.service.send_part(OPERATION, request, turn));
        Ok(())
    }

    /// Makes the object: all its bytes are durable when this returns. After an error it may be there
    /// all the same, whole.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.parts.is_none() {
            let bytes = Bytes::from(std::mem::take(&mut self.waiting));
            return self.service.put(OPERATION, &self.path, bytes, Some(&self.record));
        }
        if !self.waiting.is_empty() {
            let last = Bytes::from(std::mem::take(&mut self.waiting));
            self.send(last)?;
        }
        let mut parts = self.parts.take().expect("it was begun");
        let completed = self.complete(&mut parts);
        if completed.is_err() {
            // Aborted when it is dropped.
            self.parts = Some(parts);
        } else {
            self.service.end_parts(&self.path);
        }
        completed
    }

    fn complete(&self, parts: &mut Parts) -> Result<()> {
        for sending in parts.sending.drain(..) {
            let sent = self.service.block_on(sending);
            sent.map_err(|error| panicked(OPERATION, &error))??;
        }
        match self.service.complete(&mut *parts.upload) {
            // The answer to an earlier try may have been lost: then there is no such upload any more,
            // and the object is there.
            Err(error) if error.kind() == ErrorKind::NotFound && self.is_there()? => Ok(()),
            completed => completed,
        }
    }

    /// Whether the object is there as it was written.
    fn is_there(&self) -> Result<bool> {
        let found = self.service.head(OPERATION, &self.path)?;
        Ok(found.is_some_and(|head| {
            head.size_bytes == self.end_bytes
                && head.record.as_deref() == Some(&self.record.to_text())
        }))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        let (service, path) = (Arc::clone(&self.service), self.path.clone());
        for sending in &parts.sending {
            sending.abort();
        }
        let (deadline, target) = (service.deadline, service.target.clone());
        // In the background: where the service does not answer, the next listing finds what is left.
        service.run_to_the_end(async move {
            let aborted = tokio::time::timeout(deadline, parts.upload.abort()).await;
            if !matches!(aborted, Ok(true)) {
                tracing::debug!(target_name = %target, %path, "an upload is left to be aborted");
            }
        });
        service.end_parts(&self.path);
    }
}
