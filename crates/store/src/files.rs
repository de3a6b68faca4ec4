// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems of a store: their metadata, here or with the owner of the store.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_admin::Alone;
use terrace_client::{Remote, ReopenGuard};
use terrace_core::{Error, ErrorKind, Kv, Result};
use terrace_fs::{Metadata, ROOT, Request, Session, Tree, TreeOptions};
use terrace_fs_client::RemoteFiles;

use crate::Store;
use crate::companions::{MAKE, OPEN, check_marks, create_over};
use crate::store::Side;

impl Store {
    /// Makes a file system in a namespace. Over several servers its names are with the first one,
    /// together with a record of all of them, and each other one gets a mark.
    ///
    /// # Errors
    ///
    /// `Exists` where there is one already, also with another server of several, where any of them
    /// belongs to one, and where any has an object of the namespace, see [`Store::adopt_files`];
    /// `Invalid`, `Denied`, `Unreachable`, `Io`.
    pub fn create_files(&self, name: &str, options: &TreeOptions) -> Result<()> {
        if self.has_files(name)? {
            return Err(Error::new(ErrorKind::Exists, MAKE).with("name", name));
        }
        let companions = self.companions(name)?;
        let seen = check_marks(&companions, name)?;
        self.check_no_objects(name)?;
        create_over(&companions, &seen, name, options)
    }

    /// Whether a namespace holds a file system.
    ///
    /// # Errors
    ///
    /// `Exists` where several servers have one each; `Invalid`, `Unreachable`, `Io`.
    pub fn has_files(&self, name: &str) -> Result<bool> {
        match &self.side {
            Side::Owned(owned) => holds_files(&*owned.stack.kv(name)?),
            Side::Attached(link) => Ok(keeper(&link.file_servers(), name)?.is_some()),
        }
    }

    /// Which of the stores behind this one keeps the metadata of a file system.
    pub(crate) fn keeper_index(&self, name: &str) -> Result<Option<usize>> {
        match &self.side {
            Side::Owned(owned) => Ok(holds_files(&*owned.stack.kv(name)?)?.then_some(0)),
            Side::Attached(link) => keeper(&link.file_servers(), name),
        }
    }

    /// The metadata of a file system, for one of several users. What that has open is closed when
    /// this is dropped. Whether the servers are all of its own [`Store::join_files`] says before.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is none; `Busy` where another process uses it exclusively, or where this store is
    /// attached and the file system in use through it; `Exists` where several servers have one each;
    /// `Unreachable`, `Io`.
    pub fn files(&self, name: &str) -> Result<Arc<dyn Metadata>> {
        match &self.side {
            Side::Owned(owned) => Ok(Arc::new(Session::new(&owned.shared_tree(name)?))),
            Side::Attached(link) => {
                let servers = link.file_servers();
                let Some(index) = keeper(&servers, name)? else {
                    return Err(Error::new(ErrorKind::NotFound, OPEN)
                        .because("the store has none of this name; `terrace mount` makes one")
                        .with("name", name));
                };
                let remote = servers[index].1.clone();
                let files = RemoteFiles::new(remote, name, link.files.begin(name)?);
                // A process with exclusive use answers so now, and not to the first use.
                let asked = files.call(&Request::Node { number: ROOT });
                asked.map_err(|failure| failure.into_error(OPEN))?;
                for (_, server) in &servers {
                    let guard: Arc<dyn ReopenGuard> = files.clone();
                    server.guard_reopening(&guard);
                }
                Ok(files)
            }
        }
    }

    /// A file system of an owned store for this process alone: it changes only by what is
    /// asked here, so that nothing that was seen needs to be asked for again.
    ///
    /// # Errors
    ///
    /// `Busy` where others use it, or the store is attached; `NotFound`, `Io`.
    pub fn files_alone(&self, name: &str) -> Result<Alone> {
        match &self.side {
            Side::Owned(owned) => owned.owned().tree_alone(name),
            Side::Attached(link) => Err(link.busy(OPEN).with("name", name)),
        }
    }
}

fn holds_files(kv: &dyn Kv) -> Result<bool> {
    Tree::exists(kv).map_err(|failure| failure.into_error(OPEN))
}

/// The server that keeps the metadata of a file system: the only one that has any. Where it is found
/// already, later ones that do not answer are passed over.
///
/// # Errors
///
/// `Exists` where several have a file system of this name: files of one have the numbers of the
/// other's, and which objects belong to which could not be decided.
fn keeper(servers: &[(&str, &Remote)], name: &str) -> Result<Option<usize>> {
    let mut keepers: Vec<usize> = Vec::new();
    for (index, (_, remote)) in servers.iter().enumerate() {
        match Tree::exists(&remote.kv(name)) {
            Ok(true) => keepers.push(index),
            Ok(false) => {}
            Err(failure) if !keepers.is_empty() && failure.errno() == Errno::HOSTUNREACH => {}
            Err(failure) => return Err(failure.into_error(OPEN)),
        }
    }
    if keepers.len() > 1 {
        let named: Vec<_> = keepers.iter().map(|index| servers[*index].0).collect();
        return Err(Error::new(ErrorKind::Exists, OPEN)
            .because(
                "several of the servers keep one of this name, each with other files: name the \
                 server of one alone, or those over which that one was made; with --name OTHER all \
                 of them may have another one together",
            )
            .with("name", name)
            .with("servers", named.join(",")));
    }
    Ok(keepers.first().copied())
}
