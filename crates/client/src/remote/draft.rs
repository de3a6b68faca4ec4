// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new value of an object on a server.
//!
//! The server has it as a handle of the session, and discards it with the session or when the handle is
//! closed. A later life of the session has no draft: the new value is to be written again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{Applied, Draft, Error, ErrorKind, Object, Persistency, Result, Semantics};
use terrace_wire::{OnHandle, Opening, Operation, Outcome};

use super::core::Core;
use super::object::{RemoteObject, Stage, is_unreachable};
use super::{done, stat_of, unexpected};

const OPERATION: &str = "publish a draft";

/// A draft of at least so many bytes that is to be durable is synced before it is published, so that the
/// publication has no more to sync within its deadline than a slow disk writes: 9 MB/s for one of 30 s.
const SYNC_BYTES: u64 = 64 << 20;

pub(super) struct RemoteDraft(Arc<RemoteObject>);

impl RemoteDraft {
    pub(super) fn begin(core: Arc<Core>, opening: Opening, semantics: Semantics) -> Result<Self> {
        RemoteObject::draft(core, opening, semantics).map(|object| Self(Arc::new(object)))
    }
}

impl Draft for RemoteDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.0) as _
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        self.0.publish()
    }
}

impl Drop for RemoteDraft {
    fn drop(&mut self) {
        self.0.discard();
    }
}

impl RemoteObject {
    /// Makes the key name the draft.
    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        if self.handle().stage == Stage::Open {
            return Err(Error::invalid(OPERATION, "it was published before").with("key", &self.key));
        }
        self.sync_before()?;
        let handle = self.current()?;
        let is_past = || handle.life.number != self.core.life();
        let operation = Operation::On { handle: handle.number, what: OnHandle::Publish };
        let replaced = match self.core.ask_one(operation, &[], &self.semantics) {
            Ok((Outcome::Published(label), _)) => (!label.is_empty()).then_some(label),
            Ok(_) => return unexpected(),
            // It came to a later life alone.
            Err(error) if error.kind() == ErrorKind::Stale && is_past() => {
                return Err(self.lost_draft());
            }
            Err(error) if is_unknown(&error) && is_past() => self.find_published(error)?,
            Err(error) => return Err(error),
        };
        self.handle().stage = Stage::Open;
        if self.semantics.persistency != Persistency::Storage {
            self.written.note(handle.life);
        }
        Ok(replaced)
    }

    /// Syncs a long draft that is to be durable when it is published. The server goes on with a sync that
    /// got no answer in time, so that another one takes less; it is asked as often as the length explains,
    /// as long as the server answers something else.
    fn sync_before(&self) -> Result<()> {
        let bytes = self.draft_bytes.load(Ordering::Relaxed);
        let is_durable = match self.semantics.persistency {
            _ if bytes < SYNC_BYTES => false,
            Persistency::None => false,
            // Where it replaces something.
            Persistency::Process => {
                let stat = Operation::Stat { key: self.key.clone() };
                self.core.ask_one(stat, &[], &self.semantics).is_ok()
            }
            Persistency::Storage | Persistency::Shared => true,
        };
        if !is_durable {
            return Ok(());
        }
        let mut tries = bytes / SYNC_BYTES + 1;
        loop {
            tries -= 1;
            match self.ask(OnHandle::Sync, &[]).and_then(done) {
                Err(error) if tries > 0 && is_unreachable(&error) => {
                    self.ask(OnHandle::Stat, &[])?;
                }
                synced => return synced,
            }
        }
    }

    /// Looks whether a publication without an answer was carried out before its life of the session
    /// ended. What it replaced is not known then.
    fn find_published(&self, unanswered: Error) -> Result<Option<Arc<[u8]>>> {
        let ask = |operation| self.core.ask_one(operation, &[], &self.semantics);
        let found = ask(Operation::Stat { key: self.key.clone() });
        match found.and_then(|(outcome, _)| stat_of(outcome)) {
            Ok(stat) if stat.created_ns == self.created_ns => {}
            // Or it was replaced since.
            _ => return Err(unanswered),
        }
        if self.semantics.persistency == Persistency::Storage {
            let synced = ask(Operation::Sync { is_all: false });
            synced.and_then(|(outcome, _)| done(outcome))?;
        }
        Ok(None)
    }

    /// Ends a draft that was not published.
    fn discard(&self) {
        let mut handle = self.handle();
        if handle.stage == Stage::Draft {
            handle.stage = Stage::Discarded;
            let handle = *handle;
            self.close(handle);
        }
    }
}

fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { applied: Applied::Unknown })
}
