// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that this process owns: its parts, and its policy.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Access, Error, ErrorKind, Result, View};
use terrace_recovery::Opened;
use terrace_recovery::far::Far;
use terrace_settings::amend::{Change, amend_file};
use terrace_settings::policy;
use terrace_settings::{Guest, Settings};
use terrace_stack::report::PolicyReport;
use terrace_stack::{Tactics, Tier};

use super::trees::Trees;

/// The stack's name of a policy that is not configured.
const POLICY_NONE: &str = "none";

/// A policy of another process, while it decides.
pub(super) struct Visit {
    pub(super) guest: Guest,
    /// As it was before, and is afterwards.
    pub(super) was_dry_run: bool,
}

/// A store that this process owns.
pub struct Owned {
    /// File systems that were opened.
    pub(super) trees: Trees,
    /// For policies that are made while the store runs; by index, those that were removed too.
    pub(super) tiers: Mutex<Vec<Tier>>,
    /// The configured policy, where nothing may be changed and none runs.
    resting: Option<PolicyReport>,
    /// The policy of another process that was let in, of which the file tells nothing.
    visit: Mutex<Option<Visit>>,
    /// Held while policy or tiers are changed, so that the file tells the last change.
    pub(super) amending: Mutex<()>,
    /// The catalog in a bucket, where it has one.
    far: Mutex<Option<Arc<Far>>>,
    /// The last field: it has the lock, and the next owner may come once everything else is gone.
    opened: Arc<Opened>,
}

impl Deref for Owned {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.opened
    }
}

impl Drop for Owned {
    /// Closes the store as well as can be; does nothing where it was closed.
    ///
    /// Here and not with the last reference to [`Opened`]: a thread of the stack that waits for the log in the
    /// bucket has one, and cannot wait for its own end.
    fn drop(&mut self) {
        // What file systems have left is written first.
        drop(std::mem::take(&mut self.trees));
        if let Some(far) = self.far() {
            far.stop();
        }
        let _ = self.opened.stack.close();
    }
}

impl Owned {
    /// A store that was opened with these tiers. `resting` is the configured policy where none runs.
    pub fn new(opened: Opened, tiers: Vec<Tier>, resting: Option<PolicyReport>) -> Self {
        Self {
            trees: Trees::default(),
            tiers: Mutex::new(tiers),
            resting,
            visit: Mutex::default(),
            amending: Mutex::default(),
            far: Mutex::default(),
            opened: Arc::new(opened),
        }
    }

    /// What recovery needs of it.
    pub fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// The catalog in a bucket, where it has one.
    pub fn far(&self) -> Option<Arc<Far>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the catalog in a bucket, before the store is used.
    pub fn set_far(&self, far: Option<Arc<Far>>) {
        *self.far.lock().unwrap_or_else(PoisonError::into_inner) = far;
    }

    pub(super) fn policy(&self) -> Option<PolicyReport> {
        match self.access {
            Access::Read => self.resting.clone(),
            Access::Write => self.stack.policy().filter(|policy| policy.name != POLICY_NONE),
        }
    }

    /// Whether the policy of this guest was let in and has not been taken back.
    pub(super) fn is_visited_at(&self, socket: &Path) -> bool {
        self.visit().as_ref().is_some_and(|visit| visit.guest.socket == socket)
    }

    pub(super) fn visit(&self) -> MutexGuard<'_, Option<Visit>> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy of another process, where one decides now: not the fallback in its place.
    pub(super) fn running_guest(&self) -> Option<Guest> {
        let guest = self.visit().as_ref()?.guest.clone();
        self.policy().is_some_and(|now| now.name == guest.name).then_some(guest)
    }

    /// Notes that the policy is no longer that of another process.
    pub(super) fn forget_guest(&self) {
        *self.visit() = None;
    }

    /// Goes back from a guest to the policy of the configuration, or to none. Where another one decides
    /// by now, that stays.
    pub(super) fn end_guest(&self, socket: &Path) -> Result<()> {
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

    /// The tiers as a policy sees them that is made now.
    pub(super) fn view(&self) -> View {
        policy::view(&self.tiers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A policy that is called as the present one is.
    pub(super) fn called_as_now(&self, mut tactics: Tactics) -> Tactics {
        if let Some(configured) = &self.settings.policy {
            tactics.round_bytes = configured.round_bytes;
            tactics.call_time_max = configured.call_time_max;
            tactics.post_events = configured.post_events;
        }
        if let Some(now) = self.policy() {
            tactics.after_events = now.after_events;
            tactics.every = Duration::from_nanos(now.every_ns);
            tactics.is_dry_run = now.is_dry_run;
        }
        tactics
    }

    /// Changes the running policy, then the configuration: what is refused is not kept.
    pub(super) fn change(
        &self,
        change: &Change<'_>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.check_writable("change the policy")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        make()?;
        // Messages to a guest end with it.
        if self.running_guest().is_some() {
            return Ok(());
        }
        amend_file(&self.directory.settings(), change)
    }

    /// Refuses a change to a store that is open for reading. Errors: `Denied`.
    pub fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(ErrorKind::Denied, operation)
                .because("the store is open for reading only")),
        }
    }
}
