// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the answer to a request that came over a ring is put, from any thread.

use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::device::Device;
use crate::record::HEADER_BYTES;
use crate::ring::Payload;

/// How often a waiting thread checks that the file system is still there.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The answer to the request that one thread has at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) device: Arc<Device>,
    payload_bytes_max: usize,
    answer: Mutex<Answer>,
    given: Condvar,
}

/// An answer, or what it is to be put into.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) header: [u8; HEADER_BYTES],
    pub(crate) body: Body,
    pub(crate) body_bytes: usize,
    is_given: bool,
    /// A thread sleeps until it is.
    is_awaited: bool,
}

/// Memory for an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// What the kernel takes.
    Payload(Payload),
    /// To be copied there, where the request itself still lies.
    Beside(Vec<u8>),
}

impl Slot {
    pub(crate) fn new(device: &Arc<Device>, payload_bytes_max: usize) -> Self {
        let body = Body::Beside(Vec::new());
        let answer = Answer {
            header: [0; HEADER_BYTES],
            body,
            body_bytes: 0,
            is_given: false,
            is_awaited: false,
        };
        Self {
            device: Arc::clone(device),
            payload_bytes_max,
            answer: Mutex::new(answer),
            given: Condvar::new(),
        }
    }

    /// A request is here, to be answered in `body`.
    pub(crate) fn begin(&self, body: Body) {
        let mut answer = self.answer();
        answer.body = body;
        answer.body_bytes = 0;
        answer.is_given = false;
    }

    /// Answers with a header, which comes first, and what follows it.
    pub(crate) fn give(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let (header, parts) = parts.split_first().ok_or(Errno::INVAL)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > self.payload_bytes_max {
            return Err(Errno::INVAL);
        }
        let mut answer = self.answer();
        let answer = &mut *answer;
        answer.header.copy_from_slice(header);
        answer.body_bytes = bytes;
        let mut rest = match &mut answer.body {
            Body::Payload(payload) => payload.bytes_mut(),
            Body::Beside(memory) => {
                memory.resize(bytes.max(memory.len()), 0);
                memory
            }
        };
        for part in parts {
            let (place, after) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = after;
        }
        answer.is_given = true;
        // A call of the kernel, also where no thread sleeps: most answers are there before they are awaited.
        if answer.is_awaited {
            self.given.notify_one();
        }
        Ok(())
    }

    /// Whether the answer is there.
    pub(crate) fn is_given(&self) -> bool {
        self.answer().is_given
    }

    /// Waits for the answer; `None` where the file system went first.
    pub(crate) fn wait(&self) -> Option<MutexGuard<'_, Answer>> {
        let mut answer = self.answer();
        while !answer.is_given {
            answer.is_awaited = true;
            let waited = self.given.wait_timeout(answer, LOOK_AFTER);
            answer = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !answer.is_given && self.device.is_disconnected() {
                return None;
            }
        }
        answer.is_awaited = false;
        Some(answer)
    }

    fn answer(&self) -> MutexGuard<'_, Answer> {
        // What may panic in between are slices that do not fit; the answer is not given then.
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
