// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that this process owns, and whom it serves.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_server::{RequestsReport, Server, Service, Status};

use crate::checkpoint::Checkpoints;
use crate::control::{self, Offer};
use crate::owned::Owned;

/// How soon the end of [`Owner::serve`] is noticed.
const TICK: Duration = Duration::from_millis(20);

/// An owned store while somebody in this process uses it.
pub(crate) struct Owner {
    /// The first field: nobody is served by a store that is being closed.
    serving: Mutex<Option<Server>>,
    /// One [`Owner::serve`] at a time.
    turn: Mutex<()>,
    checkpoints: Option<Checkpoints>,
    owned: Arc<Owned>,
    notes: Vec<String>,
}

impl Deref for Owner {
    type Target = Owned;

    fn deref(&self) -> &Owned {
        &self.owned
    }
}

impl Owner {
    /// Serves from now on, if it is to. Where that cannot be, the store is used without.
    pub(crate) fn new(owned: Owned, serve: bool) -> Self {
        let mut notes = owned.stack.opening_notes();
        let owned = Arc::new(owned);
        let mut serving = None;
        let mut checkpoints = None;
        if serve && owned.access == Access::Write {
            // Before anybody can change a pair: a log that goes on has to say all of them.
            match Checkpoints::start(&owned) {
                Ok(started) => checkpoints = started,
                Err(error) => notes.push(format!("no checkpoints: {}", error.chain())),
            }
            match control::serve(&owned) {
                Ok(started) => serving = Some(started),
                Err(error) => notes
                    .push(format!("other processes have to wait for this one: {}", error.chain())),
            }
        }
        Self { serving: Mutex::new(serving), turn: Mutex::default(), checkpoints, owned, notes }
    }

    pub(crate) fn owned(&self) -> &Arc<Owned> {
        &self.owned
    }

    pub(crate) fn opening_notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Serves until `stop` is set, then no longer.
    pub(crate) fn serve(&self, stop: &AtomicBool) -> Result<()> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(ErrorKind::Busy, "serve the store")
                    .because("another thread does so already"));
            }
        };
        self.owned.check_writable("serve the store")?;
        let is_serving = self.serving().is_some();
        if !is_serving {
            let started = control::serve(&self.owned)?;
            *self.serving() = Some(started);
        }
        let clock = SystemClock::default();
        while !stop.load(Ordering::Acquire) {
            clock.sleep(TICK);
        }
        self.stop_serving();
        Ok(())
    }

    pub(crate) fn service(&self) -> Result<Arc<dyn Service>> {
        self.owned.check_writable("serve the store")?;
        Ok(Arc::new(Offer::new(&self.owned)))
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.stop_serving();
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.stop();
        }
        let closed = self.owned.stack.close();
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.finish(&self.owned, closed.is_ok());
        }
        closed
    }

    pub(crate) fn stop_serving(&self) {
        // Taken out first: who is served may need this lock to say so.
        let serving = self.serving().take();
        drop(serving);
    }

    /// What the server behind the control socket does, where there is one.
    pub(crate) fn control_server(&self) -> Option<(Status, RequestsReport)> {
        self.serving().as_ref().map(|server| (server.status(), server.requests()))
    }

    fn serving(&self) -> MutexGuard<'_, Option<Server>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
