// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that this process owns, and whom it serves.

use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Result, SystemClock, View};
use terrace_server::{RequestsReport, Server, Service, Status};
use terrace_stack::report::PolicyReport;
use terrace_stack::{Stack, Tactics, Tier};

use crate::amend::{Change, amend_file};
use crate::checkpoint::Checkpoints;
use crate::control::{self, Offer};
use crate::directory::Directory;
use crate::files::Trees;
use crate::lock::Lock;
use crate::policy::{self, Guest};
use crate::settings::{PolicySource, Settings};
use crate::visit;

/// How soon the end of [`Owner::serve`] is noticed.
const TICK: Duration = Duration::from_millis(20);

/// What the stack calls a policy that nobody configured.
const POLICY_NONE: &str = "none";

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

/// A policy of another process, while it decides.
pub(crate) struct Visit {
    guest: Guest,
    /// As it was before, and is afterwards.
    was_dry_run: bool,
}

/// An owned store.
pub(crate) struct Owned {
    pub(crate) stack: Stack,
    /// File systems that were opened.
    pub(crate) trees: Trees,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) directory: Directory,
    pub(crate) access: Access,
    /// As they were when the store was opened.
    pub(crate) settings: Settings,
    /// For policies that are made while the store runs; by index, those that were removed too.
    pub(crate) tiers: Mutex<Vec<Tier>>,
    /// The configured policy, where nothing may be changed and none runs.
    pub(crate) resting: Option<PolicyReport>,
    /// The policy of another process that was let in, of which the file tells nothing.
    pub(crate) visit: Mutex<Option<Visit>>,
    /// Held while policy or tiers are changed, so that the file tells the last change.
    pub(crate) amending: Mutex<()>,
    /// Held while a checkpoint is written, and while a tier is removed.
    pub(crate) saving: Mutex<()>,
    /// The last field: the next owner may come once everything else is gone.
    pub(crate) lock: Lock,
}

impl Owned {
    pub(crate) fn policy(&self) -> Option<PolicyReport> {
        match self.access {
            Access::Read => self.resting.clone(),
            Access::Write => self.stack.policy().filter(|policy| policy.name != POLICY_NONE),
        }
    }

    pub(crate) fn set_policy(&self, name: &str, parameters: &[(String, String)]) -> Result<()> {
        self.check_writable("change the policy")?;
        let source = PolicySource::named(&policy::absolute(name)?);
        self.change(&Change::Policy(&source, parameters), || {
            let policy = source.make(&self.view(), parameters)?;
            let tactics = Tactics::new(&source.to_string(), policy);
            self.stack.set_policy(self.called_as_now(tactics))?;
            self.forget_guest();
            Ok(())
        })
    }

    /// Lets a policy in another process decide until [`Owned::end_guest`], or until that process ends.
    /// The configuration keeps its own.
    pub(crate) fn use_guest(
        self: &Arc<Self>,
        guest: &Guest,
        parameters: &[(String, String)],
    ) -> Result<()> {
        self.check_writable("change the policy")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = self.running_guest() {
            return Err(Error::new(ErrorKind::Busy, "use the policy of another process")
                .because(format!("that of another command decides: {}", running.name)));
        }
        let stream = guest.reach()?;
        let process = visit::process_behind(&stream);
        let policy = guest.take(stream, &self.view(), parameters)?;
        let was_dry_run = self.policy().is_some_and(|now| now.is_dry_run);
        self.stack.set_policy(self.called_as_now(Tactics::new(&guest.name, policy)))?;
        *self.visit() = Some(Visit { guest: guest.clone(), was_dry_run });
        let watched = process.map_or(Ok(()), |process| visit::watch(self, process, guest));
        watched.inspect_err(|_| _ = self.end_guest(&guest.socket))
    }

    /// Whether the policy of this guest was let in and has not been taken back.
    pub(crate) fn is_visited_at(&self, socket: &Path) -> bool {
        self.visit().as_ref().is_some_and(|visit| visit.guest.socket == socket)
    }

    fn visit(&self) -> MutexGuard<'_, Option<Visit>> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy of another process, where one decides now: not the fallback in its place.
    pub(crate) fn running_guest(&self) -> Option<Guest> {
        let guest = self.visit().as_ref()?.guest.clone();
        self.policy().is_some_and(|now| now.name == guest.name).then_some(guest)
    }

    /// Notes that the policy is no longer that of another process.
    pub(crate) fn forget_guest(&self) {
        *self.visit() = None;
    }

    /// Goes back from a guest to the policy of the configuration, or to none. Where another one decides
    /// by now, that stays.
    pub(crate) fn end_guest(&self, socket: &Path) -> Result<()> {
        self.check_writable("change the policy")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(visit) = self.visit().take_if(|visit| visit.guest.socket == socket) else {
            return Ok(());
        };
        match self.configured() {
            Ok(Some(mut tactics)) => {
                tactics.is_dry_run = visit.was_dry_run;
                self.stack.set_policy(tactics)
            }
            Ok(None) => self.stack.unset_policy(),
            // Its process ends now, and must not decide on.
            Err(error) => {
                self.stack.unset_policy()?;
                Err(error.with("policy_now", POLICY_NONE))
            }
        }
    }

    /// The policy of the file, as it is now.
    fn configured(&self) -> Result<Option<Tactics>> {
        let settings = Settings::read(&self.directory.settings())?;
        let settings = settings.resolved(self.directory.path())?;
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        self.tactics(&settings, &tiers)
    }

    /// Lets a policy decide in the shadow of the one that does.
    pub(crate) fn set_shadow(&self, name: &str, parameters: &[(String, String)]) -> Result<()> {
        self.check_writable("let a policy decide in the shadow")?;
        let source = PolicySource::named(&policy::absolute(name)?);
        let policy = source.make(&self.view(), parameters)?;
        let tactics = self.called_as_now(Tactics::new(&source.to_string(), policy));
        self.stack.set_shadow(Some(tactics))
    }

    pub(crate) fn end_shadow(&self) -> Result<()> {
        self.check_writable("end the shadow")?;
        self.stack.set_shadow(None)
    }

    /// The tiers as a policy sees them that is made now.
    pub(crate) fn view(&self) -> View {
        policy::view(&self.tiers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A policy that is called as the present one is.
    pub(crate) fn called_as_now(&self, mut tactics: Tactics) -> Tactics {
        if let Some(configured) = &self.settings.policy {
            tactics.round_bytes = configured.round_bytes;
            tactics.call_time_max = configured.call_time_max;
        }
        if let Some(now) = self.policy() {
            tactics.after_events = now.after_events;
            tactics.every = Duration::from_nanos(now.every_ns);
            tactics.is_dry_run = now.is_dry_run;
        }
        tactics
    }

    pub(crate) fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        let change = Change::Parameter(name, value);
        self.change(&change, || self.stack.set_parameter(name, value))
    }

    pub(crate) fn set_dry_run(&self, is_dry_run: bool) -> Result<()> {
        self.change(&Change::DryRun(is_dry_run), || self.stack.set_dry_run(is_dry_run))
    }

    pub(crate) fn set_calls(
        &self,
        after_events: Option<u64>,
        every: Option<Duration>,
    ) -> Result<()> {
        let change = Change::Calls(after_events, every);
        self.change(&change, || self.stack.set_calls(after_events, every))
    }

    pub(crate) fn run_policy(&self) -> Result<()> {
        self.check_writable("call the policy")?;
        self.stack.run_policy()
    }

    pub(crate) fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.check_writable("send a message to the policy")?;
        self.stack.message(kind, body)
    }

    /// Changes the running policy, then the configuration: what is refused is not kept.
    fn change(&self, change: &Change<'_>, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check_writable("change the policy")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        make()?;
        // What is said to a guest ends with it.
        if self.running_guest().is_some() {
            return Ok(());
        }
        amend_file(&self.directory.settings(), change)
    }

    pub(crate) fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(ErrorKind::Denied, operation)
                .because("the store is open for reading only")),
        }
    }
}
