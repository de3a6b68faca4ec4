// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serving requests that come over `io_uring`: each thread has a ring and a place for one request,
//! in the queue of one processor.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::FileSystem;
use crate::crew::Crew;
use crate::device::Device;
use crate::flags::InitFlags;
use crate::reply::Asker;
use crate::ring::Ring;
use crate::session;
use crate::slot::{Body, Slot};

/// The kernel has a queue for each of these, and uses none before all are served.
const PROCESSORS_FILE: &str = "/sys/devices/system/cpu/possible";
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
/// `Unsupported` where there are too many queues, and others where this process may not have rings.
pub(crate) fn rings(device: &Arc<Device>, max_write_bytes: u32) -> io::Result<Vec<Vec<Ring>>> {
    let text = std::fs::read_to_string(PROCESSORS_FILE)?;
    let queues = count(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    if queues > QUEUES_MAX {
        let message = format!("too many processors have={queues} max={QUEUES_MAX}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let threads = (THREADS / queues).clamp(QUEUE_THREADS_MIN, QUEUE_THREADS_MAX);
    let rings = |queue| (0..threads).map(|_| ring(device, queue, max_write_bytes)).collect();
    (0..queues).map(rings).collect()
}

/// One ring for a thread of the queue `queue`.
pub(crate) fn ring(device: &Arc<Device>, queue: usize, max_write_bytes: u32) -> io::Result<Ring> {
    let queue = u16::try_from(queue).expect("queues are bounded");
    // Requests have whole pages.
    let page_bytes = rustix::param::page_size();
    let payload_bytes = (max_write_bytes as usize).next_multiple_of(page_bytes);
    Ring::new(device, queue, payload_bytes.max(PAYLOAD_BYTES_MIN))
}

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    let mut count: usize = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// One thread's part of serving one queue.
pub(crate) struct RingWorker<'a> {
    pub(crate) ring: Ring,
    pub(crate) flags: InitFlags,
    pub(crate) files: &'a dyn FileSystem,
    pub(crate) crew: &'a Crew<'a>,
    /// Where it is mounted, for a thread that is started because requests may be waiting.
    pub(crate) stir: Option<PathBuf>,
}

impl RingWorker<'_> {
    /// Serves until the end. `add` starts one more thread for this queue.
    ///
    /// # Errors
    ///
    /// Those of the kernel, also where it will have no rings; then it asks over the device.
    pub(crate) fn serve(mut self, add: impl Fn() -> io::Result<()>) -> io::Result<()> {
        stay_on(self.ring.queue().into());
        let slot = Slot::new(self.ring.device(), self.ring.payload_bytes_max());
        let slot = Arc::new(slot);
        let mut copy = Vec::with_capacity(COPIED_BYTES_MAX);
        self.ring.register()?;
        if let Some(place) = self.stir.take() {
            stir(place);
        }
        loop {
            match self.ring.wait() {
                Ok(()) => {}
                // Unmounted or aborted, which those who read from the device tell apart.
                Err(_) if self.ring.device().is_disconnected() => return Ok(()),
                Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            self.crew.begin();
            let is_answered = self.handle(&slot, &mut copy, &add);
            self.crew.end();
            if !is_answered {
                return Ok(());
            }
            self.ring.answer()?;
        }
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
            session::handle(copy, self.flags, self.files, &asker);
        } else {
            slot.begin(Body::Beside(Vec::new()));
            let message = payload.message(head.bytes(), head.payload_bytes);
            session::handle(message, self.flags, self.files, &asker);
            request_payload = Some(payload);
        }
        drop(asker);
        if !slot.is_given() {
            // As long as it takes, so that somebody else has to serve meanwhile. Where no thread can
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

/// Asks the file system something on the processor of this thread. The kernel hands out requests that
/// wait in a queue only when another one is answered there (Linux 6.18), not to a place that is new.
fn stir(place: PathBuf) {
    let ask = move || {
        let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT;
        // What it says is of no interest. The file system is in use anyhow: somebody waits.
        let _ = statx(CWD, &place, flags, StatxFlags::BASIC_STATS);
    };
    // Not scoped: it may wait as long as those whom it is to help. Where it cannot be started the next
    // request has the same effect.
    let _ = thread::Builder::new().name("fuse-stir".into()).spawn(ask);
}

/// Keeps the thread on the processor whose requests it gets: woken elsewhere it would cost more than
/// most of them.
fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
        // It may be off, or not be ours; then it is served from anywhere.
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11\n"), Some(7));
        for list in ["", "-", "3-1", "a", "0-", "0-18446744073709551615"] {
            assert_eq!(count(list), None, "{list}");
        }
    }
}
