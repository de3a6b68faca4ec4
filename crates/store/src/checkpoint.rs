// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backups of the catalog that a served store writes by itself.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use terrace_core::{Error, Result};

use crate::owner::Owned;
use crate::repair::write_backup;
use crate::settings::CheckpointSettings;

/// The thread that writes them.
pub(crate) struct Checkpoints {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What it has to do.
struct Work {
    // The store ends with its last user, not with this.
    owned: Weak<Owned>,
    settings: CheckpointSettings,
    /// The last change that is in the file, as far as is known.
    saved: Option<u64>,
}

impl Checkpoints {
    /// Begins, where the configuration has a place for them.
    pub(crate) fn start(owned: &Arc<Owned>) -> Result<Option<Self>> {
        let Some(settings) = owned.settings.catalog.checkpoint.clone() else { return Ok(None) };
        let mut work = Work { owned: Arc::downgrade(owned), settings, saved: None };
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("terrace-checkpoint".into())
            .spawn(move || work.run(&theirs))
            .map_err(|error| Error::from_io("start a thread", error))?;
        Ok(Some(Self { stop, thread: Mutex::new(Some(thread)) }))
    }

    /// Writes the last one, and ends.
    pub(crate) fn stop(&self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Work {
    fn run(&mut self, stop: &(Mutex<bool>, Condvar)) {
        loop {
            let is_stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (is_stopped, _) = stop
                .1
                .wait_timeout_while(is_stopped, self.settings.every, |is_stopped| !*is_stopped)
                .unwrap_or_else(PoisonError::into_inner);
            let is_last = *is_stopped;
            drop(is_stopped);
            self.write();
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self) {
        let Some(owned) = self.owned.upgrade() else { return };
        // Before the copy begins: what is committed meanwhile may or may not be in it.
        let now = owned.stack.last_commit();
        if self.saved == Some(now) {
            return;
        }
        match write_backup(&owned.stack, &self.settings.file, true, &mut |_| {}) {
            Ok(_) => self.saved = Some(now),
            Err(error) => tracing::warn!(%error, "cannot write a checkpoint of the catalog"),
        }
    }
}
