// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other side: a store that another process owns, on this machine or behind servers.

use std::sync::Arc;

use terrace_admin::{Admin, Cluster};
use terrace_client::{Remote, RemoteKv};
use terrace_core::{Access, Backend, Clock, Error, ErrorKind, Result};
use terrace_fs_client::InUse;
use terrace_settings::{Connected, Directory, Lock, attach};

/// A store that another process owns. Clones are the same session.
#[derive(Clone)]
pub(crate) struct Link {
    /// Its objects.
    pub(crate) backend: Arc<dyn Backend>,
    owners: Owners,
    /// Its directory, where its owner is a process of this machine.
    directory: Option<Directory>,
    /// Whether its owner serves it to other machines, too, and can be asked about that.
    has_server: bool,
    /// The file systems that are in use through it.
    pub(crate) files: InUse,
}

/// The owners of a store.
#[derive(Clone)]
enum Owners {
    One(Remote),
    Many(Arc<Cluster>),
}

impl Link {
    /// A store that another process of this machine owns.
    ///
    /// # Errors
    ///
    /// `Unreachable` where it has no owner, `Unsupported` (another version), `Denied`, `Busy`.
    pub(crate) fn connect(
        directory: &Directory,
        access: Access,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let remote = attach(directory, access, clock)?;
        let directory = Some(directory.clone());
        Ok(Self { has_server: false, directory, ..Self::over(remote) })
    }

    pub(crate) fn admin(&self) -> &dyn Admin {
        match &self.owners {
            Owners::One(remote) => remote,
            Owners::Many(cluster) => &**cluster,
        }
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
    pub(crate) fn behind(connected: Connected) -> Result<Self> {
        Ok(match connected {
            Connected::One(remote) => Self::over(remote),
            Connected::Many { map, remotes, distribution } => {
                Self::over_many(Cluster::new(map, remotes, distribution)?)
            }
        })
    }

    /// A store behind a server.
    fn over(remote: Remote) -> Self {
        Self {
            backend: Arc::new(remote.clone()),
            owners: Owners::One(remote),
            directory: None,
            has_server: true,
            files: InUse::default(),
        }
    }

    /// A store behind several servers.
    fn over_many(cluster: Cluster) -> Self {
        let cluster = Arc::new(cluster);
        Self {
            backend: cluster.striped(),
            owners: Owners::Many(cluster),
            directory: None,
            has_server: true,
            files: InUse::default(),
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

    /// The servers that may keep the metadata of file systems, the one that is named first before others.
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
}
