// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The nodes that the kernel knows, each with a descriptor that keeps its file.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::table::Table;
use crate::{BackingId, ROOT_NODE};

const SHARDS: usize = 16;

/// Device and inode. While a node holds its file open no other file gets the same.
type Identity = (u64, u64);

/// A file that the kernel knows.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u64,
    /// Open as `O_PATH`: for finding, not for reading.
    pub(super) file: OwnedFd,
    identity: Identity,
    /// Changed only under the lock of the shard of `identity`.
    lookups: AtomicU64,
    /// What its opens are passed through to; all of them to one.
    pub(super) backing: Mutex<Weak<BackingId>>,
}

#[derive(Debug)]
pub(super) struct Nodes {
    by_number: Table<Node>,
    by_identity: [Mutex<HashMap<Identity, Arc<Node>>>; SHARDS],
}

impl Nodes {
    /// With `root`, which is never forgotten.
    pub(super) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let nodes = Self { by_number: Table::new(ROOT_NODE), by_identity: Default::default() };
        nodes.remember(root, &stat);
        Ok(nodes)
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<Node>, Errno> {
        self.by_number.get(number).ok_or(Errno::STALE)
    }

    /// The node of a file that was found once more.
    pub(super) fn remember(&self, file: OwnedFd, stat: &Stat) -> Arc<Node> {
        let identity = (stat.st_dev, stat.st_ino);
        let mut nodes = self.shard(identity);
        if let Some(node) = nodes.get(&identity) {
            node.lookups.fetch_add(1, Ordering::Relaxed);
            return Arc::clone(node);
        }
        let number = self.by_number.next_number();
        let node = Arc::new(Node {
            number,
            file,
            identity,
            lookups: AtomicU64::new(1),
            backing: Mutex::default(),
        });
        nodes.insert(identity, Arc::clone(&node));
        self.by_number.put(number, Arc::clone(&node));
        node
    }

    /// Takes back `count` of the times that a node was found.
    pub(super) fn forget(&self, number: u64, count: u64) {
        let Some(node) = self.by_number.get(number).filter(|_| number != ROOT_NODE) else {
            return;
        };
        let mut nodes = self.shard(node.identity);
        let before = node.lookups.fetch_sub(count, Ordering::Relaxed);
        if before <= count {
            nodes.remove(&node.identity);
            self.by_number.remove(number);
        }
    }

    fn shard(&self, identity: Identity) -> MutexGuard<'_, HashMap<Identity, Arc<Node>>> {
        let shard = &self.by_identity[identity.1 as usize % SHARDS];
        // A map is whole between its calls, also after a panic.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags};

    fn found(path: &std::path::Path) -> (OwnedFd, Stat) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).expect("open");
        let stat = rustix::fs::fstat(&file).expect("stat");
        (file, stat)
    }

    #[test]
    fn a_node_is_forgotten_when_all_its_lookups_are() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "x").expect("write");
        let nodes = Nodes::new(found(directory.path()).0).expect("nodes");
        let (first, stat) = found(&path);
        let number = nodes.remember(first, &stat).number;
        let (second, stat) = found(&path);
        assert_eq!(nodes.remember(second, &stat).number, number);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_ok());
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_err());
        let (third, stat) = found(&path);
        assert_ne!(nodes.remember(third, &stat).number, number, "numbers are not used again");
        nodes.forget(ROOT_NODE, 7);
        assert!(nodes.get(ROOT_NODE).is_ok());
    }
}
