// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serving requests that come over `io_uring`: each thread has a ring and a place for one request,
//! in the queue of one processor.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::FileSystem;
use crate::crew::Crew;
use crate::device::Device;
use crate::dispatch;
use crate::flags::InitFlags;
use crate::reply::Asker;
use crate::ring::Ring;
use crate::slot::{Body, Slot};
use crate::stir::{self, Stirrer};

/// The kernel has a queue for each of these, and uses none before all are served.
const POSSIBLE_FILE: &str = "/sys/devices/system/cpu/possible";
/// Those of them that run now.
const ONLINE_FILE: &str = "/sys/devices/system/cpu/online";
/// More queues than that would cost more threads than they are worth.
const QUEUES_MAX: usize = 256;
/// Threads of all queues, and bounds of one's: a request that waits for a server or a tier keeps its
/// thread, and one that is not needed costs nothing but memory. Those that slept last are woken first.
const THREADS: usize = 32;
const QUEUE_THREADS_MIN: usize = 4;
const QUEUE_THREADS_MAX: usize = 8;
/// A request whose payload is longer is read where it lies, and its answer copied.
const COPIED_BYTES_MAX: usize = 4096;
/// The kernel takes no shorter payloads (`FUSE_MIN_READ_BUFFER`).
const PAYLOAD_BYTES_MIN: usize = 8192;

/// For each queue of the kernel the rings of its usual threads.
///
/// # Errors
///
/// `Unsupported` where there are too many queues, or processors where this process may not run;
/// `NotFound` where the program that stirs is missing; others where this process may not have rings.
pub(crate) fn rings(device: &Arc<Device>, max_write_bytes: u32) -> io::Result<Vec<Vec<Ring>>> {
    let unsupported = |message| io::Error::new(io::ErrorKind::Unsupported, message);
    let queues = listed(POSSIBLE_FILE)?.len();
    if queues > QUEUES_MAX {
        return Err(unsupported(format!("too many processors have={queues} max={QUEUES_MAX}")));
    }
    let away = listed(ONLINE_FILE)?.into_iter().find(|one| !terrace_affinity::may_run_on(*one));
    if let Some(processor) = away {
        let message = format!("this process may not run on every processor processor={processor}");
        return Err(unsupported(message));
    }
    stir::program()?;
    let threads = (THREADS / queues).clamp(QUEUE_THREADS_MIN, QUEUE_THREADS_MAX);
    let rings = |queue| (0..threads).map(|_| ring(device, queue, max_write_bytes)).collect();
    (0..queues).map(rings).collect()
}

/// Has the kernel do without rings after they were agreed on, by registering one for a queue that there is
/// not: threads could not be started, and no request would be answered.
pub(crate) fn refuse(device: &Arc<Device>) -> io::Result<()> {
    let mut ring = Ring::new(device, u16::MAX, PAYLOAD_BYTES_MIN)?;
    match ring.register() {
        Err(Errno::INVAL) => Ok(()),
        Err(_) if device.is_disconnected() => Ok(()),
        Err(errno) => Err(errno.into()),
        Ok(()) => Err(io::Error::other("the kernel has a queue for every number")),
    }
}

/// One ring for a thread of the queue `queue`.
pub(crate) fn ring(device: &Arc<Device>, queue: usize, max_write_bytes: u32) -> io::Result<Ring> {
    let queue = u16::try_from(queue).expect("queues are bounded");
    // Requests have whole pages.
    let page_bytes = rustix::param::page_size();
    let payload_bytes = (max_write_bytes as usize).next_multiple_of(page_bytes);
    Ring::new(device, queue, payload_bytes.max(PAYLOAD_BYTES_MIN))
}

/// The processors in one of the kernel's lists.
fn listed(file: &str) -> io::Result<Vec<usize>> {
    let list = std::fs::read_to_string(file)?;
    let message = || format!("the kernel lists its processors otherwise file={file}");
    processors(&list).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, message()))
}

/// The numbers of a list like `0-3,8`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if last < first {
            return None;
        }
        all.extend((first..=last).map(usize::from));
    }
    Some(all)
}

/// One thread's part of serving one queue.
pub(crate) struct RingWorker<'a> {
    pub(crate) ring: Ring,
    pub(crate) flags: InitFlags,
    pub(crate) files: &'a dyn FileSystem,
    pub(crate) crew: &'a Crew<'a>,
    pub(crate) stirrer: &'a Stirrer,
    /// Whether it was started with the others, not because these were held up.
    pub(crate) is_usual: bool,
}

impl RingWorker<'_> {
    /// Serves until the end. `add` starts one more thread for this queue.
    pub(crate) fn serve(mut self, add: impl Fn() -> io::Result<()>) {
        // Woken elsewhere it would cost more than most requests. The processor may be offline; then no request
        // comes there.
        terrace_affinity::stay_on(self.ring.queue().into());
        let Err(errno) = self.serve_until_failure(&add);
        // Unmounted or aborted, which the threads that read from the device distinguish.
        let is_end = matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV);
        if !is_end && !self.ring.device().is_disconnected() {
            let queue = self.ring.queue();
            tracing::warn!(queue, error = %errno, "a thread takes no more requests over io_uring");
            self.crew.lose();
        }
    }

    fn serve_until_failure(
        &mut self,
        add: &impl Fn() -> io::Result<()>,
    ) -> Result<Infallible, Errno> {
        let slot = Slot::new(self.ring.device(), self.ring.payload_bytes_max());
        let slot = Arc::new(slot);
        let mut copy = Vec::with_capacity(COPIED_BYTES_MAX);
        let queue = usize::from(self.ring.queue());
        let (places, all) = (self.crew.places(), self.crew.usual());
        let mut is_first_place = false;
        if self.is_usual {
            is_first_place = places.lend(|| self.ring.register())?;
        } else {
            self.ring.register()?;
            self.stirrer.stir(queue);
        }
        let mut is_first_request = true;
        loop {
            self.ring.wait()?;
            self.crew.begin();
            let is_stir = self.is_stir();
            if !std::mem::take(&mut is_first_request) {
                if is_stir {
                    places.note_free(all);
                }
            } else if self.is_usual {
                if is_first_place {
                    places.note_taken();
                    self.stirrer.watch(queue);
                }
                places.note_used(all);
            }
            let is_answered = match is_stir {
                true => {
                    self.ring.refuse(Errno::AGAIN);
                    true
                }
                false => self.handle(&slot, &mut copy, add),
            };
            self.crew.end();
            if !is_answered {
                return Err(Errno::NOTCONN);
            }
            self.ring.answer()?;
        }
    }

    /// Whether the request that is there is one of our own.
    fn is_stir(&self) -> bool {
        self.ring.asks_for_status().is_some_and(|process| self.stirrer.is_asking(process))
    }

    /// Carries out the request that is there; false where the file system is gone.
    fn handle(
        &mut self,
        slot: &Arc<Slot>,
        copy: &mut Vec<u8>,
        add: &impl Fn() -> io::Result<()>,
    ) -> bool {
        let asker = Asker::Slot(Arc::clone(slot));
        let head = self.ring.head();
        let mut payload = self.ring.take_payload();
        // The kernel's memory takes the answer, unless the request lies there while it is handled.
        let mut request_payload = None;
        if head.payload_bytes <= COPIED_BYTES_MAX {
            copy.clear();
            copy.extend_from_slice(head.bytes());
            copy.extend_from_slice(&payload.bytes_mut()[..head.payload_bytes]);
            slot.begin(Body::Payload(payload));
            dispatch::handle(copy, self.flags, self.files, &asker);
        } else {
            slot.begin(Body::Beside(Vec::new()));
            let message = payload.message(head.bytes(), head.payload_bytes);
            dispatch::handle(message, self.flags, self.files, &asker);
            request_payload = Some(payload);
        }
        drop(asker);
        if !slot.is_given() {
            // As long as it takes, so that another thread has to serve meanwhile. Where no thread can
            // be had there will be one when one of the others is done.
            let _ = self.crew.add_if_all_busy(add);
        }
        let Some(mut answer) = slot.wait() else {
            return false;
        };
        let body = std::mem::replace(&mut answer.body, Body::Beside(Vec::new()));
        let payload = match (body, request_payload) {
            (Body::Payload(payload), _) => payload,
            (Body::Beside(bytes), Some(mut payload)) => {
                let bytes = &bytes[..answer.body_bytes];
                payload.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                payload
            }
            (Body::Beside(_), None) => unreachable!("an answer is put where it was begun"),
        };
        let bytes = u32::try_from(answer.body_bytes).expect("no longer than a payload");
        self.ring.set_answer(payload, &answer.header, bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_as_the_kernel_lists_them() {
        assert_eq!(processors("0-1\n"), Some(vec![0, 1]));
        assert_eq!(processors("0"), Some(vec![0]));
        assert_eq!(processors("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for list in ["", "-", "3-1", "a", "0-", "0-18446744073709551615"] {
            assert_eq!(processors(list), None, "{list}");
        }
    }
}
