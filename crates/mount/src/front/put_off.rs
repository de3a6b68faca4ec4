// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small writes over the network: programs go on once they are sent.

use std::sync::{Arc, Weak};
use std::thread;

use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use terrace_core::Begun;
use terrace_fs::{File, Written};
use terrace_fuse::{Operation, Request};

use super::handle::Handle;
use super::io::Writing;
use super::{Failure, Front, Result, number_of};
use crate::behind::{Behind, Pending};
use crate::refresher::{Refresher, Stale};

/// Longer writes are waited for: they have connections of their own.
const BYTES_MAX: usize = 32 << 10;

/// A write that its program was told is done.
struct PutOff {
    /// Whoever hears of its end must not be the one to close the file.
    handle: Weak<Handle>,
    node: u64,
    offset: u64,
    data: Arc<[u8]>,
    /// The process that wrote, where known.
    owner: Option<u64>,
    behind: Behind,
    refresher: Option<Arc<Refresher>>,
    /// Whoever wants what it changed waits until nobody has this any more.
    _pending: Pending,
}

impl Front {
    /// Waits for what was put off and a request may depend on.
    pub(super) fn settle_before(&self, request: &Request<'_>) {
        if self.behind.is_empty() {
            return;
        }
        let number = number_of(request.node);
        match &request.operation {
            // These see to it themselves, or depend on nothing.
            Operation::Write { .. } | Operation::Forget { .. } | Operation::BatchForget(_) => {}
            Operation::SyncFs => self.behind.settle_all(),
            // Nobody finds under a new name what is not written yet.
            Operation::Rename { name, new_parent, new_name, flags } => {
                let is_exchange =
                    RenameFlags::from_bits_retain(*flags).contains(RenameFlags::EXCHANGE);
                let ends = [(number, name), (number_of(*new_parent), new_name)];
                for (directory, name) in &ends[..=usize::from(is_exchange)] {
                    // Why it is not found is what renaming says.
                    if let Ok(node) = self.files.lookup(*directory, name) {
                        self.behind.settle(node.number);
                    }
                }
            }
            Operation::Flush { lock_owner, .. } => {
                self.behind.settle_own(number, *lock_owner);
            }
            Operation::Link { target, .. } => self.behind.settle(*target),
            Operation::CopyFileRange(copy) => {
                self.behind.settle(number);
                if let Ok(target) = self.handle(copy.target_handle) {
                    self.behind.settle(target.file.number());
                }
            }
            _ => self.behind.settle(number),
        }
    }

    /// Writes as much as there is room for, or begins to write all of it where the program need not wait for
    /// that: then whoever tells it so goes on with what was begun. Either way it comes behind what was put
    /// off before. Returns how many bytes.
    pub(super) fn write_soon(
        &self,
        handle: &Arc<Handle>,
        writing: &Writing<'_>,
        clears_set_id: bool,
    ) -> Result<(usize, Option<Begun>)> {
        let Writing { offset, data, flags, thread, .. } = *writing;
        let is_durable = flags.contains(OFlags::DSYNC);
        let is_small = self.goes_on && data.len() <= BYTES_MAX && !is_durable;
        if is_small
            && self.behind.may_begin(thread)
            && let Some(begun) = self.put_off(handle, writing)
        {
            return Ok((data.len(), Some(begun)));
        }
        // All of them, also those that it does not overlap: where it extends the file, other clients take its
        // length for a sign of what was written before.
        self.behind.settle(handle.file.number());
        let write = || handle.file.write_some(offset, data, clears_set_id);
        let count = if is_small { self.behind.wait_for(write) } else { write() };
        Ok((count?, None))
    }

    fn put_off(&self, handle: &Arc<Handle>, writing: &Writing<'_>) -> Option<Begun> {
        let (node, offset, owner) = (handle.file.number(), writing.offset, writing.owner);
        let mut pending = Some(self.behind.begin(node, writing.range(), owner));
        let data = Arc::from(writing.data);
        handle.file.write_later(offset, &data, &mut || {
            let put_off = PutOff {
                handle: Arc::downgrade(handle),
                node,
                offset,
                data: Arc::clone(&data),
                owner,
                behind: self.behind.clone(),
                refresher: self.refresher.clone(),
                _pending: pending.take().expect("it is asked for once"),
            };
            Box::new(move |written| Arc::new(put_off).end(written))
        })
    }
}

impl PutOff {
    fn end(self: Arc<Self>, written: Written) {
        match written {
            Written::Done => {}
            Written::Unknown(error) => self.fail(error.into()),
            Written::Forgotten => self.ask(|_, file| file.check()),
            Written::Not => self.ask(|this, file| file.write(this.offset, &this.data, false)),
        }
    }

    /// Has a thread of its own ask the servers, and wait for them: others wait for the one that came to know
    /// of it.
    fn ask(self: Arc<Self>, how: fn(&Self, &File) -> Result<()>) {
        // Nor are there ever more threads than were begun until here.
        self.behind.note_failed();
        let put_off = Arc::clone(&self);
        let ask = move || {
            terrace_affinity::roam();
            let handle = put_off.handle.upgrade().ok_or_else(|| Errno::BADF.into());
            if let Err(failure) = handle.and_then(|handle| how(&put_off, &handle.file)) {
                put_off.fail(failure);
            }
        };
        if let Err(error) = thread::Builder::new().name("write-again".into()).spawn(ask) {
            tracing::warn!(%error, "cannot ask a server about what was to be written");
            self.fail(Errno::IO.into());
        }
    }

    fn fail(&self, failure: Failure) {
        tracing::warn!(
            node = self.node, %failure, "cannot write what a program was told is written"
        );
        self.behind.note_failed();
        if let Some(refresher) = &self.refresher {
            // The kernel may have cached what it takes to be there.
            let (node, offset, length) = (self.node, self.offset, self.data.len() as u64);
            refresher.refresh(Stale { node, offset, length });
        }
        if let Some(handle) = self.handle.upgrade() {
            handle.note_missed(failure, self.owner);
        }
    }
}
