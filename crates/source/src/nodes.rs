// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inodes that the kernel knows: each is a name in a directory and what was found there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use rustix::io::Errno;
use terrace_fuse::{BackingId, ROOT_NODE};

use crate::fetching::Fetching;
use crate::handle::OpenFile;
use crate::lock;
use crate::meta::Meta;

/// An inode of the kernel. That of a regular file is of one state of it: a file that changed is another one.
pub(crate) struct Node {
    pub(crate) number: u64,
    parent: Option<Arc<Node>>,
    name: Box<[u8]>,
    /// Changed only under the lock of `Nodes::places`.
    lookups: AtomicU64,
    known: Mutex<Known>,
    /// Its file is fetched once for all callers.
    pub(crate) fetching: Fetching,
    /// What its opens are passed through to, all of them to one, and the epoch of that copy.
    pub(crate) backing: Mutex<(Weak<BackingId>, u64)>,
    /// Handles that are open.
    pub(crate) opens: AtomicU64,
    /// The file of the source, where one is open that is not in the cache.
    pub(crate) direct: Mutex<Weak<OpenFile>>,
}

/// What was found, and when.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) meta: Meta,
    /// By the monotonic clock.
    pub(crate) looked_ns: u64,
    /// From an earlier time, as the source did not answer.
    pub(crate) is_recalled: bool,
    /// A read found another state: the next lookup asks the source, whatever is left of the time to live.
    pub(crate) is_refuted: bool,
}

impl Node {
    fn new(number: u64, parent: Option<Arc<Node>>, name: &[u8], known: Known) -> Arc<Self> {
        Arc::new(Self {
            number,
            parent,
            name: name.into(),
            lookups: AtomicU64::new(1),
            known: Mutex::new(known),
            fetching: Fetching::default(),
            backing: Mutex::default(),
            opens: AtomicU64::new(0),
            direct: Mutex::default(),
        })
    }

    pub(crate) fn known(&self) -> Known {
        lock(&self.known).clone()
    }

    pub(crate) fn set_known(&self, known: Known) {
        *lock(&self.known) = known;
    }

    /// Notes that a read found another state than the one that is known.
    pub(crate) fn refute(&self) {
        lock(&self.known).is_refuted = true;
    }

    /// The directory that it was found in; none for the root.
    pub(crate) fn parent(&self) -> Option<&Node> {
        self.parent.as_deref()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    /// What its opens are passed through to, where some are.
    pub(crate) fn living_backing(&self) -> Option<Arc<BackingId>> {
        lock(&self.backing).0.upgrade()
    }

    /// The epoch of the copy that its opens are passed through to, where some are.
    pub(crate) fn backing_epoch(&self) -> Option<u64> {
        let backing = lock(&self.backing);
        (backing.0.strong_count() > 0).then_some(backing.1)
    }

    /// Its path below the root.
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut node = self;
        while let Some(parent) = &node.parent {
            names.push(OsStr::from_bytes(&node.name));
            node = parent;
        }
        names.iter().rev().collect()
    }

    /// The path of a name in it.
    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path().join(OsStr::from_bytes(name))
    }
}

/// The number of a directory, and a name in it.
type Place = (u64, Box<[u8]>);

pub(crate) struct Nodes {
    next: AtomicU64,
    numbers: RwLock<HashMap<u64, Arc<Node>>>,
    places: Mutex<HashMap<Place, Arc<Node>>>,
}

impl Nodes {
    pub(crate) fn new(root: Known) -> Self {
        let root = Node::new(ROOT_NODE, None, b"", root);
        Self {
            next: AtomicU64::new(ROOT_NODE + 1),
            numbers: RwLock::new(HashMap::from([(ROOT_NODE, root)])),
            places: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, number: u64) -> Result<Arc<Node>, Errno> {
        let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
        numbers.get(&number).cloned().ok_or(Errno::STALE)
    }

    /// The inode of what was found at a name; the kernel knows it once more then.
    pub(crate) fn found(&self, parent: &Arc<Node>, name: &[u8], known: Known) -> Arc<Node> {
        let mut places = lock(&self.places);
        let place = (parent.number, Box::from(name));
        if let Some(node) = places.get(&place)
            && node.known().meta.is_same_inode(&known.meta)
        {
            node.lookups.fetch_add(1, Ordering::Relaxed);
            node.set_known(known);
            return Arc::clone(node);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let node = Node::new(number, Some(Arc::clone(parent)), name, known);
        places.insert(place, Arc::clone(&node));
        self.write(|numbers| numbers.insert(number, Arc::clone(&node)));
        node
    }

    /// Takes back `count` of the times that an inode was found.
    pub(crate) fn forget(&self, number: u64, count: u64) {
        let Ok(node) = self.get(number) else { return };
        let Some(parent) = &node.parent else { return };
        let mut places = lock(&self.places);
        if node.lookups.fetch_sub(count, Ordering::Relaxed) > count {
            return;
        }
        self.write(|numbers| numbers.remove(&number));
        remove_place(&mut places, parent, &node);
    }

    /// Has the next lookup of an inode's name find another inode.
    pub(crate) fn retire(&self, node: &Node) {
        let Some(parent) = &node.parent else { return };
        remove_place(&mut lock(&self.places), parent, node);
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<u64, Arc<Node>>) -> T) -> T {
        change(&mut self.numbers.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Removes the name of an inode, where that does not lead to another inode by now.
fn remove_place(places: &mut HashMap<Place, Arc<Node>>, parent: &Node, node: &Node) {
    let place = (parent.number, node.name.clone());
    if places.get(&place).is_some_and(|there| there.number == node.number) {
        places.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(inode: u64, size_bytes: u64, kind: u32) -> Known {
        let meta = Meta {
            inode,
            mode: kind | 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            device: 0,
            size_bytes,
            blocks: 0,
            block_bytes: 4096,
            accessed: (0, 0),
            modified: (0, 0),
            changed: (0, 0),
            etag: None,
        };
        Known { meta, looked_ns: 0, is_recalled: false, is_refuted: false }
    }

    const FILE: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;

    #[test]
    fn a_changed_file_is_another_inode_and_a_changed_directory_is_not() {
        let nodes = Nodes::new(known(1, 0, DIRECTORY));
        let root = nodes.get(ROOT_NODE).expect("root");
        let directory = nodes.found(&root, b"d", known(2, 10, DIRECTORY));
        assert_eq!(nodes.found(&root, b"d", known(2, 20, DIRECTORY)).number, directory.number);
        let file = nodes.found(&directory, b"f", known(3, 10, FILE));
        assert_eq!(nodes.found(&directory, b"f", known(3, 10, FILE)).number, file.number);
        let longer = nodes.found(&directory, b"f", known(3, 20, FILE));
        assert_ne!(longer.number, file.number);
        assert!(nodes.get(file.number).is_ok(), "the kernel still knows it");
        assert_eq!(longer.path(), PathBuf::from("d/f"));
    }

    #[test]
    fn an_inode_is_forgotten_when_all_its_lookups_are() {
        let nodes = Nodes::new(known(1, 0, DIRECTORY));
        let root = nodes.get(ROOT_NODE).expect("root");
        let old = nodes.found(&root, b"f", known(3, 10, FILE));
        let new = nodes.found(&root, b"f", known(3, 20, FILE));
        nodes.found(&root, b"f", known(3, 20, FILE));
        nodes.forget(old.number, 1);
        assert!(nodes.get(old.number).is_err());
        nodes.forget(new.number, 1);
        assert_eq!(nodes.found(&root, b"f", known(3, 20, FILE)).number, new.number);
        nodes.forget(new.number, 2);
        assert!(nodes.get(new.number).is_err());
        nodes.forget(ROOT_NODE, 5);
        assert!(nodes.get(ROOT_NODE).is_ok());
    }
}
