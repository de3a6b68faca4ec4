// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a server on this machine lends: read without asking it.

use std::fs::File;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use terrace_core::{FileLease, GenerationWord, Result};
use terrace_transport::Transport;
use terrace_wire::{Leased, OnHandle, Operation, Outcome};

use super::core::Core;
use super::request::{Filling, Message};
use super::unexpected;

/// How often a server that lends nothing is asked again: once in so many reads.
const READS_UNTIL_ASKED: u32 = 64;

/// How often reads that the server did not see are reported to it.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The file of an object, while a server lends it.
#[derive(Default)]
pub(super) struct Lent {
    /// Replaced when it is over.
    lease: RwLock<Option<Arc<Held>>>,
    /// Held while one is asked for; the others go the ordinary way meanwhile.
    asking: Mutex<()>,
    /// Reads until the server is asked again.
    until_asked: AtomicU32,
    untold: Untold,
}

/// A lease, and the connection that it came over: good as long as both are.
struct Held {
    lease: FileLease,
    handle: u64,
    transport: Arc<dyn Transport>,
}

/// Reads that are not reported to the server yet.
#[derive(Default)]
struct Untold {
    count: AtomicU32,
    bytes: AtomicU64,
    /// When the next report is due.
    next_ns: AtomicU64,
}

impl Lent {
    /// Reads from the file; `None` where that cannot be, or did not count.
    pub(super) fn read(
        &self,
        core: &Core,
        handle: u64,
        offset_bytes: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Option<usize> {
        let held = self.held(core, handle)?;
        let mut total = 0;
        for buffer in buffers {
            let at_bytes = offset_bytes.checked_add(total as u64)?;
            // An error says nothing about the object, and the ordinary way tells.
            match held.lease.read(at_bytes, buffer) {
                Ok(Some(count)) => {
                    total += count;
                    if count < buffer.len() {
                        break;
                    }
                }
                _ => {
                    self.forget(&held);
                    return None;
                }
            }
        }
        // After the word: the words of a server that was killed do not change any more.
        if held.transport.is_ended() {
            self.forget(&held);
            return None;
        }
        self.untold.count.fetch_add(1, Ordering::Relaxed);
        self.untold.bytes.fetch_add(total as u64, Ordering::Relaxed);
        if core.clock.now_ns() >= self.untold.next_ns.load(Ordering::Relaxed) {
            self.tell(core, handle);
        }
        Some(total)
    }

    /// The report of reads that the server did not see, so that its policy learns of them.
    pub(super) fn take_untold(&self) -> Option<OnHandle> {
        let count = self.untold.count.swap(0, Ordering::Relaxed);
        let bytes = self.untold.bytes.swap(0, Ordering::Relaxed);
        (count > 0).then_some(OnHandle::NoteReads { count: u64::from(count), bytes })
    }

    fn tell(&self, core: &Core, handle: u64) {
        let next_ns = core.clock.now_ns().saturating_add(TELL_EVERY.as_nanos() as u64);
        self.untold.next_ns.store(next_ns, Ordering::Relaxed);
        if let Some(what) = self.take_untold() {
            core.tell(Operation::On { handle, what });
        }
    }

    fn held(&self, core: &Core, handle: u64) -> Option<Arc<Held>> {
        let current = self.lease.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(held) = current.filter(|held| held.handle == handle) {
            return Some(held);
        }
        let left = self.until_asked.load(Ordering::Relaxed);
        if left > 0 {
            self.until_asked.store(left - 1, Ordering::Relaxed);
            return None;
        }
        let _turn = self.asking.try_lock().ok()?;
        let asked = core.lease(handle);
        let held = asked
            .ok()
            .flatten()
            .map(|(lease, transport)| Arc::new(Held { lease, handle, transport }));
        if held.is_none() {
            self.until_asked.store(READS_UNTIL_ASKED, Ordering::Relaxed);
        }
        self.lease.write().unwrap_or_else(PoisonError::into_inner).clone_from(&held);
        held
    }

    /// A lease that is over; one that came meanwhile stays.
    fn forget(&self, over: &Arc<Held>) {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        if lease.as_ref().is_some_and(|held| Arc::ptr_eq(held, over)) {
            *lease = None;
        }
    }
}

impl Core {
    /// Asks the server for the file of an open object.
    fn lease(&self, handle: u64) -> Result<Option<(FileLease, Arc<dyn Transport>)>> {
        let operations = [Operation::On { handle, what: OnHandle::Lease }];
        let message = Message::request(&operations, &[], &Default::default());
        // On a connection that no other request uses meanwhile: the descriptors come with the
        // answer.
        let mut nowhere = [];
        let mut filling = Filling::new(&mut nowhere);
        let (answer, transport, descriptors) = self.exchange_alone(&message, &mut filling)?;
        let mut descriptors = descriptors.into_iter().map(File::from);
        let (outcomes, _) = answer.outcomes(1)?;
        let leased: &Leased = match &outcomes[..] {
            [Outcome::Leased(Some(leased))] => leased,
            [Outcome::Leased(None)] => return Ok(None),
            [Outcome::Failed(failure)] => return Err(failure.clone().into_error()),
            _ => return unexpected(),
        };
        let Some(file) = descriptors.next() else { return unexpected() };
        let word = match leased.word {
            Some(index) => {
                let Some(page) = descriptors.next() else { return unexpected() };
                let page = Arc::new(page);
                Some(GenerationWord { page, index, value: leased.generation })
            }
            None => None,
        };
        Ok(Some((FileLease { file, word }, transport)))
    }
}
