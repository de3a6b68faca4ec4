// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open store: owned by this process, or reached through the process that owns it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use terrace_admin::Admin;
use terrace_core::{Access, Error, ErrorKind, Policy, Result};
use terrace_server::Service;
use terrace_settings::{Directory, Settings, Url};
use terrace_stack::Stack;

use crate::control::Link;
use crate::owner::Owner;

/// An open store. Cloning is cheap; all clones are the same store.
///
/// - One process owns a store: tiers, policy and migrations run inside it. A process that opens it
///   meanwhile is *attached*: every call goes through the owner's control socket, and fails with
///   `Unreachable` while there is no owner. Open objects go on with the next one.
/// - When the last clone and the last open object are dropped, an owned store is closed as well as
///   can be and free for the next owner; call [`Store::close`] to hear of errors.
///   Where the catalog is in a bucket, both wait for a checkpoint that is being written there.
#[derive(Clone)]
pub struct Store {
    pub(crate) side: Side,
}

/// Which process does the work.
#[derive(Clone)]
pub(crate) enum Side {
    /// This one.
    Owned(Arc<Owner>),
    /// Another.
    Attached(Link),
}

/// Puts another policy around the configured one.
pub type PolicyWrapper = Box<dyn FnOnce(Box<dyn Policy>) -> Box<dyn Policy> + Send>;

/// How to open a store.
pub struct OpenOptions {
    /// [`Access::Read`] changes nothing, and opens a store whose tiers are partly broken: what is
    /// on the others stays readable.
    pub access: Access,
    /// Whether the store may be used through a process that owns it already.
    pub attach: bool,
    /// Whether an owner that may change the store serves other processes meanwhile. For a process
    /// that soon ends it is better not to: others then wait for it instead of losing it.
    pub serve: bool,
    /// Put around the configured policy; needs ownership.
    pub policy_wrapper: Option<PolicyWrapper>,
    /// Instead of the configured `dry_run`; needs ownership.
    pub dry_run: Option<bool>,
    /// Whether the store may be opened for writing where tiers are missing, as with the setting in the configuration.
    /// Objects on them fail with `Io`, or are read from clean copies elsewhere; everything
    /// else works.
    pub degraded: bool,
    /// What the store is opened for, for the errors of others that find it in use: `mount at /mnt/files`.
    /// `None`: the command line of the process.
    pub purpose: Option<String>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            access: Access::Write,
            attach: true,
            serve: true,
            policy_wrapper: None,
            dry_run: None,
            degraded: false,
            purpose: None,
        }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("access", &self.access)
            .field("attach", &self.attach)
            .field("serve", &self.serve)
            .field("dry_run", &self.dry_run)
            .field("degraded", &self.degraded)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Whether an address is one of servers, not of a directory.
    pub fn is_behind_servers(address: &str) -> bool {
        Url::is_one(address)
    }

    /// Where the store at an address keeps its trace by default. Does not open it.
    ///
    /// # Errors
    ///
    /// As for the configuration in [`Store::open_with`].
    pub fn trace_directory(address: &str) -> Result<PathBuf> {
        let directory = Directory::at(address)?;
        let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
        Ok(settings.trace.map_or_else(|| directory.trace(), |trace| trace.path))
    }

    /// Ends an owned store: stops policy and migrations, makes everything durable and marks the
    /// store clean; objects that are still open fail from then on. Does nothing when attached.
    ///
    /// # Errors
    ///
    /// What a tier or the catalog says; the next opening then recovers.
    pub fn close(&self) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.close(),
            Side::Attached(_) => Ok(()),
        }
    }

    /// Begins the end of a client: servers that send nothing for 3 s are given up from now on, whatever the deadline
    /// is, and what is asked of them fails as `Unreachable`. Does nothing for the process that owns the store.
    pub fn end_soon(&self) {
        if let Side::Attached(link) = &self.side {
            link.end_soon();
        }
    }

    /// Serves other processes no longer, before everything else is ended: an opening that wants the store for
    /// itself waits from now on, and no process becomes a client of what is about to end. Does nothing
    /// when attached.
    pub fn stop_serving(&self) {
        if let Side::Owned(owned) = &self.side {
            owned.stop_serving();
        }
    }

    /// The store as something that a [`terrace_server::Server`] serves. It stays open as long as
    /// that is used, but [`Store::close`] ends it.
    ///
    /// # Errors
    ///
    /// `Busy` when attached: the owner serves. `Denied` for a store that is open for reading.
    pub fn service(&self) -> Result<Arc<dyn Service>> {
        match &self.side {
            Side::Owned(owned) => owned.service(),
            Side::Attached(link) => Err(link.busy("serve the store")),
        }
    }

    /// The error of what only the process can do that owns the store: it names that one.
    pub fn owned_elsewhere(&self, operation: &'static str) -> Error {
        match &self.side {
            Side::Owned(owned) => owned.lock.name_own(Error::new(ErrorKind::Busy, operation)),
            Side::Attached(link) => link.busy(operation),
        }
    }

    /// Why another machine owns the store now, where that has taken it over since it was opened.
    pub fn fenced(&self) -> Option<String> {
        match &self.side {
            Side::Owned(owned) => owned.fenced(),
            Side::Attached(_) => None,
        }
    }

    /// Shows and steers what the store does: the same whether this process owns it or not.
    pub fn admin(&self) -> &dyn Admin {
        match &self.side {
            Side::Owned(owner) => owner.owned(),
            Side::Attached(link) => link.admin(),
        }
    }

    /// Names and directories of the tiers whose files can be handed out, as they were when the store
    /// was opened: none of throttled or packed tiers, and none where another process owns the store.
    pub fn directories_to_lend(&self) -> Vec<(String, PathBuf)> {
        let Side::Owned(owned) = &self.side else { return Vec::new() };
        let tiers =
            owned.settings.tiers.iter().filter(|tier| tier.throttle.is_none() && !tier.is_framed());
        tiers.filter_map(|tier| Some((tier.name.clone(), tier.path.clone()?))).collect()
    }

    /// Whether another process owns the store.
    pub fn is_attached(&self) -> bool {
        matches!(self.side, Side::Attached(_))
    }

    /// The stack inside, where this process owns the store.
    pub fn stack(&self) -> Option<&Stack> {
        match &self.side {
            Side::Owned(owned) => Some(&owned.stack),
            Side::Attached(_) => None,
        }
    }

    /// What opening did, one line each, for people; nothing when attached.
    pub fn opening_notes(&self) -> Vec<String> {
        match &self.side {
            Side::Owned(owned) => owned.opening_notes(),
            Side::Attached(_) => Vec::new(),
        }
    }

    /// Serves other processes until `stop` is set, then no longer; requests that run then are
    /// finished first. For processes that have nothing else to do.
    ///
    /// # Errors
    ///
    /// `Busy` when attached: the owner serves. `Denied` for a store that is open for reading.
    /// `Io` from the socket.
    pub fn serve(&self, stop: &AtomicBool) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.serve(stop),
            Side::Attached(link) => Err(link.busy("serve the store")),
        }
    }
}
