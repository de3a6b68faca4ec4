// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The nodes that the kernel knows, with descriptors for as many as the process may have.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::Resource;

use super::table::Table;
use crate::{BackingId, ROOT_NODE};

const SHARDS: usize = 16;
/// How many nodes are asked whether they can do without their descriptor when one too many has
/// one. Nodes that are in use are put off.
const TRIES: usize = 4;

/// Device and inode.
type Identity = (u64, u64);

/// A file that the kernel knows.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u64,
    identity: Identity,
    /// Changed only under the lock of the shard of `identity`.
    lookups: AtomicU64,
    place: Mutex<Place>,
    /// How many handles are open: then the file may have no name to find it by.
    pub(super) opens: AtomicU32,
    /// What its opens are passed through to; all of them to one.
    pub(super) backing: Mutex<Weak<BackingId>>,
}

#[derive(Debug)]
struct Place {
    /// Open as `O_PATH`: for finding, not for reading. `None` where it was closed for others.
    file: Option<Arc<OwnedFd>>,
    /// Where it was found first; directories are never looked for again.
    found: Option<(Arc<Node>, Box<[u8]>)>,
}

#[derive(Debug)]
pub(super) struct Nodes {
    by_number: Table<Node>,
    by_identity: [Mutex<HashMap<Identity, Arc<Node>>>; SHARDS],
    /// Nodes with a place to find them at, oldest first; those that have no descriptor any more
    /// or are forgotten go when their turn comes.
    open: Mutex<VecDeque<Weak<Node>>>,
    open_max: usize,
}

impl Nodes {
    /// With `root`, which is never forgotten. Keeps half of the descriptors of the process.
    pub(super) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        Self::with_open_max(root, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn with_open_max(root: OwnedFd, open_max: usize) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let nodes = Self {
            by_number: Table::new(ROOT_NODE),
            by_identity: Default::default(),
            open: Mutex::default(),
            open_max,
        };
        nodes.remember(root, &stat, None);
        Ok(nodes)
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<Node>, Errno> {
        self.by_number.get(number).ok_or(Errno::STALE)
    }

    /// The file of a node, open as `O_PATH`.
    pub(super) fn file(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>, Errno> {
        let place = lock(&node.place);
        if let Some(file) = &place.file {
            return Ok(Arc::clone(file));
        }
        let (parent, name) = place.found.as_ref().ok_or(Errno::STALE)?;
        // Its parent is a directory, and keeps its descriptor.
        let parent_file = lock(&parent.place).file.clone().ok_or(Errno::STALE)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent_file, &**name, flags, Mode::empty())
            .map_err(|errno| if errno == Errno::NOENT { Errno::STALE } else { errno })?;
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_dev, stat.st_ino) != node.identity {
            // The kernel looks the name up again then, which puts this right.
            return Err(Errno::STALE);
        }
        drop(place);
        Ok(self.put_file(node, file))
    }

    /// The node of a file that was found once more, in a directory by a name where it has one.
    pub(super) fn remember(
        &self,
        file: OwnedFd,
        stat: &Stat,
        found: Option<(&Arc<Node>, &[u8])>,
    ) -> Arc<Node> {
        let identity = (stat.st_dev, stat.st_ino);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let found = found.filter(|_| !is_directory);
        let found = found.map(|(parent, name)| (Arc::clone(parent), Box::from(name)));
        let mut nodes = self.shard(identity);
        if let Some(node) = nodes.get(&identity).cloned() {
            node.lookups.fetch_add(1, Ordering::Relaxed);
            drop(nodes);
            let has_file = {
                let mut place = lock(&node.place);
                if found.is_some() {
                    place.found = found;
                }
                place.file.is_some()
            };
            if !has_file {
                self.put_file(&node, file);
            }
            return node;
        }
        let number = self.by_number.next_number();
        let is_found = found.is_some();
        let node = Arc::new(Node {
            number,
            identity,
            lookups: AtomicU64::new(1),
            place: Mutex::new(Place { file: Some(Arc::new(file)), found }),
            opens: AtomicU32::new(0),
            backing: Mutex::default(),
        });
        nodes.insert(identity, Arc::clone(&node));
        self.by_number.put(number, Arc::clone(&node));
        drop(nodes);
        if is_found {
            self.opened(&node);
        }
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

    fn put_file(&self, node: &Arc<Node>, file: OwnedFd) -> Arc<OwnedFd> {
        let file = Arc::new(file);
        lock(&node.place).file = Some(Arc::clone(&file));
        self.opened(node);
        file
    }

    /// Counts a node that has got a descriptor, and takes one from another if there are too many.
    fn opened(&self, node: &Arc<Node>) {
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(node));
        for _ in 0..TRIES {
            if open.len() <= self.open_max {
                break;
            }
            let Some(oldest) = open.pop_front() else { break };
            let Some(node) = oldest.upgrade() else { continue };
            if node.opens.load(Ordering::Acquire) == 0 {
                lock(&node.place).file = None;
            } else {
                open.push_back(oldest);
            }
        }
    }

    fn shard(&self, identity: Identity) -> MutexGuard<'_, HashMap<Identity, Arc<Node>>> {
        lock(&self.by_identity[identity.1 as usize % SHARDS])
    }
}

/// Nothing that is locked here is left half changed, so that a panic elsewhere does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::CWD;
    use tempfile::TempDir;

    use super::*;

    fn open(path: &Path) -> (OwnedFd, Stat) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).expect("open");
        let stat = rustix::fs::fstat(&file).expect("stat");
        (file, stat)
    }

    /// Nodes that keep at most `open_max` descriptors of the files `a` to `d` in a directory.
    fn nodes(open_max: usize) -> (TempDir, Nodes) {
        let directory = tempfile::tempdir().expect("directory");
        for name in ["a", "b", "c", "d"] {
            fs::write(directory.path().join(name), name).expect("write");
        }
        let nodes = Nodes::with_open_max(open(directory.path()).0, open_max).expect("nodes");
        (directory, nodes)
    }

    fn find(directory: &TempDir, nodes: &Nodes, name: &str) -> Arc<Node> {
        let root = nodes.get(ROOT_NODE).expect("root");
        let (file, stat) = open(&directory.path().join(name));
        nodes.remember(file, &stat, Some((&root, name.as_bytes())))
    }

    fn is_open(node: &Node) -> bool {
        lock(&node.place).file.is_some()
    }

    #[test]
    fn a_node_is_forgotten_when_all_its_lookups_are() {
        let (directory, nodes) = nodes(10);
        let number = find(&directory, &nodes, "a").number;
        assert_eq!(find(&directory, &nodes, "a").number, number);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_ok());
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_err());
        let again = find(&directory, &nodes, "a").number;
        assert_ne!(again, number, "numbers are not used again");
        nodes.forget(ROOT_NODE, 7);
        assert!(nodes.get(ROOT_NODE).is_ok());
    }

    #[test]
    fn the_oldest_descriptors_are_closed_and_opened_again_when_needed() {
        let (directory, nodes) = nodes(2);
        let [a, b, c] = ["a", "b", "c"].map(|name| find(&directory, &nodes, name));
        assert_eq!([&a, &b, &c].map(|node| is_open(node)), [false, true, true]);
        let file = nodes.file(&a).expect("is found again");
        assert_eq!(rustix::fs::fstat(&file).expect("stat").st_ino, a.identity.1);
        assert_eq!([&a, &b, &c].map(|node| is_open(node)), [true, false, true]);
        c.opens.store(1, Ordering::Release);
        find(&directory, &nodes, "b");
        assert_eq!([&a, &b, &c].map(|node| is_open(node)), [false, true, true], "c is in use");
    }

    #[test]
    fn a_node_whose_name_leads_elsewhere_is_stale_until_it_is_found() {
        let (directory, nodes) = nodes(1);
        let a = find(&directory, &nodes, "a");
        find(&directory, &nodes, "b");
        fs::rename(directory.path().join("a"), directory.path().join("moved")).expect("rename");
        assert_eq!(nodes.file(&a).expect_err("no such name"), Errno::STALE);
        fs::rename(directory.path().join("c"), directory.path().join("a")).expect("rename");
        assert_eq!(nodes.file(&a).expect_err("another file"), Errno::STALE);
        assert_eq!(find(&directory, &nodes, "moved").number, a.number);
        find(&directory, &nodes, "d");
        assert!(!is_open(&a));
        nodes.file(&a).expect("is found by its new name");
    }
}
