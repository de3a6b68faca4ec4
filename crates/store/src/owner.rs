// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that this process owns, and its clients.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use terrace_admin::Owned;
use terrace_core::{Access, Clock, Error, ErrorKind, Persistency, Result, SystemClock};
use terrace_recovery::checkpoint::Checkpoints;
use terrace_recovery::far::{self, Claim, Far};
use terrace_server::{RequestsReport, Server, Service, Status};

use crate::control::{self, Offer};

/// How soon the end of [`Owner::serve`] is noticed.
const TICK: Duration = Duration::from_millis(20);

/// An owned store while it is used in this process.
pub(crate) struct Owner {
    /// The first field: no client is served by a store that is being closed.
    serving: Mutex<Option<Server>>,
    /// One [`Owner::serve`] at a time.
    turn: Mutex<()>,
    checkpoints: Option<Checkpoints>,
    owned: Arc<Owned>,
    notes: Vec<String>,
    /// Why the level `shared` is not given, where no log in a bucket was started.
    why_unshared: String,
}

impl Deref for Owner {
    type Target = Owned;

    fn deref(&self) -> &Owned {
        &self.owned
    }
}

impl Owner {
    /// Serves from now on, if it is to. Where that cannot be, the store is used without.
    pub(crate) fn new(
        owned: Owned,
        serve: bool,
        claim: Option<Claim>,
        further: Vec<String>,
    ) -> Self {
        let mut notes = owned.stack.opening_notes();
        let mut why_unshared = further.last().cloned().unwrap_or_default();
        notes.extend(further);
        let owned = Arc::new(owned);
        let mut serving = None;
        let mut checkpoints = None;
        let is_far = claim.is_some();
        if claim.is_none() && why_unshared.is_empty() && owned.access == Access::Write {
            why_unshared =
                format!("the level shared is not given: {}", far::why_none(&owned.settings));
            if owned.settings.persistency >= Persistency::Shared {
                notes.push(why_unshared.clone());
            }
        }
        if let Some(reason) = claim.as_ref().and_then(Claim::why_late) {
            notes.push(format!(
                "the level shared is not given until the log of the catalog in the bucket can be read, which \
                 is tried again: {reason}"
            ));
        }
        // Before anybody can change a pair: a log that goes on has to say all of them.
        match claim.map(|claim| Far::start(owned.opened(), claim)).transpose() {
            Ok(far) => owned.set_far(far),
            Err(error) => {
                why_unshared = format!("the level shared is not given: {}", error.chain());
                notes.push(why_unshared.clone());
            }
        }
        if serve && owned.access == Access::Write {
            match if is_far { Ok(None) } else { Checkpoints::start(owned.opened()) } {
                Ok(started) => checkpoints = started,
                Err(error) => notes.push(format!("no checkpoints: {}", error.chain())),
            }
            match control::serve(&owned) {
                Ok(started) => serving = Some(started),
                Err(error) => notes
                    .push(format!("other processes have to wait for this one: {}", error.chain())),
            }
        }
        Self {
            serving: Mutex::new(serving),
            turn: Mutex::default(),
            checkpoints,
            owned,
            notes,
            why_unshared,
        }
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
            if let Some(reason) = self.fenced() {
                self.stop_serving();
                return Err(Error::new(ErrorKind::Denied, "serve the store").because(reason));
            }
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
        let far = self.far();
        if let Some(far) = &far {
            far.stop();
        }
        let closed = self.owned.stack.close();
        if let Some(far) = &far {
            far.finish(&self.owned, closed.is_ok());
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.finish(&self.owned, closed.is_ok());
        }
        closed
    }

    /// Why another machine owns the store now.
    pub(crate) fn fenced(&self) -> Option<String> {
        self.far()?.fenced()
    }

    /// Waits until checkpoint and log of the catalog are in the bucket.
    pub(crate) fn root_shared(&self) -> Result<()> {
        match self.far() {
            Some(far) => far.wait_all(&self.owned),
            None => Err(Error::new(ErrorKind::Unsupported, "write the shared log")
                .because(self.why_unshared.clone())),
        }
    }

    pub(crate) fn stop_serving(&self) {
        // Taken out first: the thread of a client may need this lock to return an error.
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
