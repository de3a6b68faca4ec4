// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other side: a store that another process owns, on this machine or behind servers.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use terrace_client::{CallAnswer, Heard, Remote, RemoteKv};
use terrace_core::{
    Access, Applied, Backend, Clock, Error, ErrorKind, Kv, KvRange, Pair, Persistency, Result,
    Space,
};
use terrace_stack::report::ScrubReport;
use terrace_stack::{Notice, ScrubOptions, WatchFilter};

use super::call::Call;
use super::cluster::Cluster;
use super::service::Answer;
use super::socket;
use crate::directory::Directory;
use crate::in_use::InUse;
use crate::lock::Lock;
use crate::policy::nanoseconds;
use crate::url::Connected;

/// What a watcher sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It watches: what happens from now on is told. Comes once, as the first.
    Begun,
    /// Nothing happened for a moment.
    Nothing,
    /// Something happened.
    Notice(Box<Notice>),
}

/// A store that another process owns. Clones are the same session.
#[derive(Clone)]
pub(crate) struct Link {
    asking: Arc<dyn Asking>,
    /// Its objects.
    pub(crate) backend: Arc<dyn Backend>,
    owners: Owners,
    /// Its directory, where its owner is a process of this machine.
    directory: Option<Directory>,
    /// Whether somebody serves it to other machines, too, and can be asked about that.
    has_server: bool,
    /// The file systems that are in use through it.
    pub(crate) files: InUse,
    clock: Arc<dyn Clock>,
}

/// Who owns a store.
#[derive(Clone)]
enum Owners {
    One(Remote),
    Many(Arc<Cluster>),
}

/// How a call gets to the owner of a store.
pub(crate) trait Asking: Send + Sync {
    /// Makes a call; `parts` are the bytes that belong to it.
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer>;
}

impl Asking for Remote {
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        let CallAnswer { json, body } = self.call(&to_json(call)?, parts, progress)?;
        Ok(Answer { json, bytes: body })
    }
}

/// Capacity and use on one server as a namespace sees them.
pub(crate) fn space_on(remote: &Remote, namespace: &str) -> Result<Space> {
    let call = Call::SpaceOf { namespace: namespace.into() };
    let (capacity_bytes, used_bytes) = read(&remote.exchange(&call, &[], &mut |_, _| {})?)?;
    Ok(Space { capacity_bytes, used_bytes, file_system: None })
}

impl Link {
    /// A store that another process of this machine owns.
    ///
    /// # Errors
    ///
    /// `Unreachable` where nobody serves it, `Unsupported` (another version), `Denied`, `Busy`.
    pub(crate) fn connect(
        directory: &Directory,
        access: Access,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let remote = socket::connect(directory, access, clock)?;
        let directory = Some(directory.clone());
        Ok(Self { has_server: false, directory, ..Self::over(remote, clock) })
    }

    /// The error of what only the process can do that owns the store.
    pub(crate) fn busy(&self, operation: &'static str) -> Error {
        const REASON: &str = "another process owns the store";
        match &self.directory {
            Some(directory) => Lock::busy(directory, operation, REASON),
            None => Error::new(ErrorKind::Busy, operation).because(REASON),
        }
    }

    /// A store behind the servers that were reached.
    pub(crate) fn behind(connected: Connected, clock: &Arc<dyn Clock>) -> Result<Self> {
        Ok(match connected {
            Connected::One(remote) => Self::over(remote, clock),
            Connected::Many { map, remotes, distribution } => {
                Self::over_many(Cluster::new(map, remotes, distribution)?, clock)
            }
        })
    }

    /// A store behind a server.
    fn over(remote: Remote, clock: &Arc<dyn Clock>) -> Self {
        Self {
            asking: Arc::new(remote.clone()),
            backend: Arc::new(remote.clone()),
            owners: Owners::One(remote),
            directory: None,
            has_server: true,
            files: InUse::default(),
            clock: Arc::clone(clock),
        }
    }

    /// A store behind several servers.
    fn over_many(cluster: Cluster, clock: &Arc<dyn Clock>) -> Self {
        let cluster = Arc::new(cluster);
        Self {
            backend: cluster.striped(),
            asking: Arc::clone(&cluster) as _,
            owners: Owners::Many(cluster),
            directory: None,
            has_server: true,
            files: InUse::default(),
            clock: Arc::clone(clock),
        }
    }

    /// The servers that it is behind, with their names; nothing where it is behind none.
    pub(crate) fn servers(&self) -> Vec<(&str, &Remote)> {
        match &self.owners {
            _ if !self.has_server => Vec::new(),
            Owners::One(remote) => vec![(remote.target(), remote)],
            Owners::Many(cluster) => cluster.servers(),
        }
    }

    /// Whoever may keep the metadata of file systems, the one that is named first before others.
    pub(crate) fn file_servers(&self) -> Vec<(&str, &Remote)> {
        match &self.owners {
            Owners::One(remote) => vec![(remote.target(), remote)],
            Owners::Many(cluster) => cluster.servers(),
        }
    }

    /// Gives up servers that send nothing, as [`Remote::end_soon`].
    pub(crate) fn end_soon(&self) {
        self.file_servers().into_iter().for_each(|(_, remote)| remote.end_soon());
    }

    /// The server that it is behind, if it is.
    ///
    /// # Errors
    ///
    /// `Unsupported` for several: one of them is to be asked.
    pub(crate) fn remote(&self) -> Result<Option<&Remote>> {
        match &self.owners {
            Owners::One(remote) => Ok(self.has_server.then_some(remote)),
            Owners::Many(cluster) => Err(cluster.ask_one()),
        }
    }

    /// Whether it is behind several servers.
    pub(crate) fn is_over_many(&self) -> bool {
        matches!(self.owners, Owners::Many(_))
    }

    /// The pairs of a namespace.
    pub(crate) fn kv(&self, namespace: &str) -> Result<RemoteKv> {
        match &self.owners {
            Owners::One(remote) => Ok(remote.kv(namespace)),
            Owners::Many(cluster) => cluster.kv(namespace),
        }
    }

    /// Capacity and use as a namespace sees them.
    pub(crate) fn space_of(&self, namespace: &str) -> Result<Space> {
        match &self.owners {
            Owners::One(remote) => space_on(remote, namespace),
            Owners::Many(cluster) => cluster.space_of(namespace),
        }
    }

    fn exchange(&self, call: &Call, parts: &[&[u8]]) -> Result<Answer> {
        self.asking.exchange(call, parts, &mut |_, _| {})
    }

    /// Asks for something without bytes.
    pub(crate) fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        read(&self.exchange(call, &[])?)
    }

    /// Asks again and again, as long as the answer is not what is waited for.
    pub(crate) fn wait_for<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        is_over: impl Fn(&T) -> bool,
        call: impl Fn(u64) -> Call,
    ) -> Result<T> {
        let clock = &self.clock;
        let deadline_ns = clock.now_ns().saturating_add(nanoseconds(timeout));
        loop {
            let left_ns = deadline_ns.saturating_sub(clock.now_ns());
            let answer = self.ask(&call(left_ns))?;
            if is_over(&answer) || clock.now_ns() >= deadline_ns {
                return Ok(answer);
            }
        }
    }

    pub(crate) fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let call = Call::Message { kind: kind.into() };
        Ok(self.exchange(&call, &[body])?.bytes)
    }

    /// Asks for something that takes long; `progress` hears of it meanwhile.
    pub(crate) fn ask_long<T: DeserializeOwned>(
        &self,
        call: &Call,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<T> {
        read(&self.asking.exchange(call, &[], progress)?)
    }

    pub(crate) fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ScrubReport> {
        // Beyond every device, and JSON knows no infinity.
        let bytes_per_s = options.bytes_per_s.max(1.0) as u64;
        let call = Call::Scrub { bytes_per_s, namespace: options.namespace.clone() };
        read(&self.asking.exchange(&call, &[], progress)?)
    }

    pub(crate) fn watch(
        &self,
        filter: &WatchFilter,
        see: &mut dyn FnMut(Seen) -> bool,
    ) -> Result<()> {
        let remote = match &self.owners {
            Owners::One(remote) => remote,
            Owners::Many(cluster) => return Err(cluster.ask_one()),
        };
        let mut has_begun = false;
        let mut broken = None;
        let mut hear = |heard: Heard<'_>| match heard {
            Heard::Progress { .. } if !has_begun => {
                has_begun = true;
                see(Seen::Begun)
            }
            Heard::Progress { .. } | Heard::Silence => see(Seen::Nothing),
            Heard::Notice { json, .. } => match serde_json::from_slice::<Box<Notice>>(json) {
                Ok(notice) => see(Seen::Notice(notice)),
                Err(error) => {
                    broken = Some(not_understood().caused_by(error));
                    false
                }
            },
        };
        remote.watch(&to_json(&Call::Watch(filter.clone()))?, &mut hear)?;
        broken.map_or(Ok(()), Err)
    }

    pub(crate) fn kv_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv(namespace)?.get(key)
    }

    pub(crate) fn kv_put(
        &self,
        namespace: &str,
        key: &[u8],
        value: &[u8],
        persistency: Persistency,
    ) -> Result<()> {
        self.kv(namespace)?.apply(&[(key, Some(value))], persistency).map(drop)
    }

    pub(crate) fn kv_remove(
        &self,
        namespace: &str,
        key: &[u8],
        persistency: Persistency,
    ) -> Result<bool> {
        Ok(self.kv(namespace)?.apply(&[(key, None)], persistency)? > 0)
    }

    pub(crate) fn kv_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<Pair>> {
        let range = KvRange::prefix(prefix);
        let range = after.map_or_else(|| range.clone(), |after| range.rest_after(after));
        self.kv(namespace)?.scan(&range, max)
    }
}

fn to_json(call: &Call) -> Result<Vec<u8>> {
    serde_json::to_vec(call).map_err(|error| {
        Error::new(ErrorKind::Invalid, "ask the server").because("no JSON").caused_by(error)
    })
}

/// The JSON of an answer.
fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    serde_json::from_slice(&answer.json).map_err(|error| not_understood().caused_by(error))
}

fn not_understood() -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "reach the owner of the store")
        .because("its answer is not as it must be")
}
