// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata of a file system in pairs: nodes, names, attributes, small files.

mod change;
mod claims;
mod collect;
mod content;
mod delegations;
mod hold;
mod link;
mod list;
mod locks;
mod look;
mod make;
mod once;
mod read_delegations;
mod remove;
mod rename;
mod session;
mod superblock;
mod unlinked;
mod xattr;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::{Clock, Kv, Persistency, Ticket, Txn};

use self::claims::Claims;
use self::delegations::Delegations;
use self::hold::Holds;
pub use self::locks::{LockOwner, LockTable, OwnLocks};
pub use self::make::file_in;
use self::read_delegations::ReadDelegations;
pub use self::session::Session;
pub use self::superblock::{Over, TreeOptions};
use self::unlinked::{Orphan, Unlinked};
use crate::clock::{FileClock, Moment};
use crate::entries::{Bucket, hash};
use crate::failure::{Failure, Result};
use crate::node::{NAME_BYTES_MAX, Node, ROOT};
use crate::record::{decode, encode};
use crate::superblock::Superblock;
use crate::{lock, pairs};

/// So often a name is followed: each time it led to a node that was removed before that was read.
const TRIES_MAX: usize = 100;

/// The metadata of a file system, kept in the pairs of one namespace.
///
/// Every change is one transaction: it is there as a whole or not at all, also after a crash. It is
/// used through a [`Session`], which knows what it has open.
pub struct Tree {
    kv: Arc<dyn Kv>,
    clock: FileClock,
    superblock: Superblock,
    delegations: Delegations,
    /// Of files, to clients that open them ahead.
    read_delegations: ReadDelegations,
    /// Of directories, to clients that list them ahead.
    list_delegations: ReadDelegations,
    holds: Holds,
    /// What sessions unlinked a moment ago.
    unlinked: Unlinked,
    claims: Claims,
    locks: LockTable,
    /// Tells the users of it apart.
    sessions: AtomicU64,
    numbers: Mutex<std::ops::Range<u64>>,
    /// Reserved numbers whose objects must not be taken for garbage, see [`crate::Request::Reserve`].
    reserved: Mutex<std::collections::HashSet<u64>>,
    /// The last commit, for [`crate::Request::Sync`].
    last: Mutex<Ticket>,
}

impl Tree {
    /// Makes an empty file system, whose root belongs to `user` and `group`. Its number and the
    /// key of the hash of names are made of `entropy`, which must be random and secret.
    ///
    /// # Errors
    ///
    /// `EXIST` where there is one already; what the pairs say.
    pub fn create(
        kv: &dyn Kv,
        options: &TreeOptions,
        clock: &dyn Clock,
        entropy: &[u8; 32],
    ) -> Result<()> {
        superblock::create(kv, options, &Over::default(), clock, entropy)
    }

    /// The same over several stores, which are recorded with it.
    ///
    /// # Errors
    ///
    /// `EXIST` also where the store belongs to another file system than was seen.
    pub fn create_over(
        kv: &dyn Kv,
        options: &TreeOptions,
        over: &Over<'_>,
        clock: &dyn Clock,
        entropy: &[u8; 32],
    ) -> Result<()> {
        superblock::create(kv, options, over, clock, entropy)
    }

    /// The number of a file system that is made of this.
    pub fn id_of(entropy: &[u8; 32]) -> u128 {
        Superblock::new(0, entropy).id
    }

    /// Opens the file system that the pairs hold.
    ///
    /// # Errors
    ///
    /// `NOENT` where they hold none; `IO` where they are [of an earlier time](crate::mark_restored)
    /// than the objects; what the pairs say.
    pub fn open(kv: Arc<dyn Kv>, clock: FileClock) -> Result<Arc<Self>> {
        let superblock = superblock::read(&*kv)?;
        superblock::check_compared(&*kv)?;
        let delegations = Delegations::new(&clock);
        let [read_delegations, list_delegations] =
            std::array::from_fn(|_| ReadDelegations::new(&clock));
        let claims = Claims::new(superblock.next_number);
        let tree = Self {
            kv,
            clock,
            superblock,
            delegations,
            read_delegations,
            list_delegations,
            holds: Holds::default(),
            unlinked: Unlinked::default(),
            claims,
            locks: LockTable::default(),
            sessions: AtomicU64::new(0),
            numbers: Mutex::new(0..0),
            reserved: Mutex::default(),
            last: Mutex::default(),
        };
        Ok(Arc::new(tree))
    }

    /// Whether the pairs hold a file system.
    ///
    /// # Errors
    ///
    /// What the pairs say.
    pub fn exists(kv: &dyn Kv) -> Result<bool> {
        Ok(kv.get(pairs::SUPERBLOCK)?.is_some())
    }

    /// The number that tells it from all others.
    pub fn id(&self) -> u128 {
        self.superblock.id
    }

    /// Longest file whose bytes are kept with the metadata.
    pub fn inline_bytes_max(&self) -> u64 {
        self.superblock.inline_bytes_max.into()
    }

    fn now(&self) -> Moment<'_> {
        self.clock.now()
    }

    fn hash(&self, name: &[u8]) -> u64 {
        hash(self.superblock.seed, name)
    }

    /// Runs a transaction.
    fn change<T>(&self, mut body: impl FnMut(&mut dyn Txn) -> Result<T>) -> Result<T> {
        let mut outcome = None;
        let committed = self.kv.transact(&mut |txn| {
            let result = body(txn);
            let is_good = result.is_ok();
            outcome = Some(result);
            match is_good {
                true => Ok(()),
                // Not visible: the result of the body is returned instead.
                false => Err(terrace_core::Error::invalid("change a file system", "refused")),
            }
        });
        match (outcome, committed) {
            (Some(Err(failure)), _) => Err(failure),
            (Some(Ok(value)), Ok(ticket)) => {
                let mut last = lock(&self.last);
                *last = ticket.max(*last);
                Ok(value)
            }
            (_, Err(error)) => Err(error.into()),
            (None, Ok(_)) => Err(Failure::corrupt("a transaction did not run")),
        }
    }

    /// Makes everything that was acknowledged survive a loss of power, where the pairs can.
    fn sync(&self) -> Result<()> {
        let last = *lock(&self.last);
        if self.kv.persistency() >= Persistency::Storage && last != Ticket::default() {
            self.kv.wait(last)?;
        }
        Ok(())
    }
}

/// Something that pairs are read from.
trait Read {
    fn pair(&mut self, key: &[u8]) -> terrace_core::Result<Option<Vec<u8>>>;
}

impl Read for &Tree {
    fn pair(&mut self, key: &[u8]) -> terrace_core::Result<Option<Vec<u8>>> {
        self.kv.get(key)
    }
}

impl<'t> Read for &mut (dyn Txn + 't) {
    fn pair(&mut self, key: &[u8]) -> terrace_core::Result<Option<Vec<u8>>> {
        self.get(key)
    }
}

/// A node that may be gone.
fn find_node(mut read: impl Read, number: u64) -> Result<Option<Node>> {
    let bytes = read.pair(&pairs::node(number))?;
    bytes.map(|bytes| decode(number, &bytes)).transpose()
}

/// A node that the caller knows of.
///
/// # Errors
///
/// `STALE` where it is gone.
fn get_node(read: impl Read, number: u64) -> Result<Node> {
    find_node(read, number)?.ok_or(Failure::of(Errno::STALE))
}

/// A node that must be a directory.
///
/// # Errors
///
/// `STALE` where it is gone, `NOTDIR`.
fn get_directory(read: impl Read, number: u64) -> Result<Node> {
    let node = get_node(read, number)?;
    match node.kind.is_directory() {
        true => Ok(node),
        false => Err(Errno::NOTDIR.into()),
    }
}

fn get_bucket(mut read: impl Read, directory: u64, hash: u64) -> Result<Bucket> {
    match read.pair(&pairs::entry(directory, hash))? {
        Some(bytes) => Bucket::decode(&bytes),
        None => Ok(Bucket::default()),
    }
}

fn put_node(txn: &mut dyn Txn, node: &Node) -> Result<()> {
    Ok(txn.put(&pairs::node(node.number), &encode(node))?)
}

fn put_bucket(txn: &mut dyn Txn, directory: u64, hash: u64, bucket: &Bucket) -> Result<()> {
    let key = pairs::entry(directory, hash);
    match bucket.encode() {
        Some(bytes) => txn.put(&key, &bytes)?,
        None => txn.delete(&key)?,
    }
    Ok(())
}

/// A directory that may get another entry.
///
/// # Errors
///
/// `NOENT` where it was removed and is only still open.
fn get_living_directory(read: impl Read, number: u64) -> Result<Node> {
    let node = get_directory(read, number)?;
    match node.links {
        0 => Err(Errno::NOENT.into()),
        _ => Ok(node),
    }
}

/// Takes note that the entries of a directory changed, or the bytes of a file: one change has one time.
fn touch(node: &mut Node, now: Moment<'_>) {
    (node.modified, node.changed) = now.both_after(node.changed);
}

/// Refuses what no entry can be called.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] | b"." | b".." => Err(Errno::INVAL.into()),
        name if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG.into()),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL.into()),
        _ => Ok(()),
    }
}

/// Removes everything that is stored of a node, and returns it; what remains of a file that has an
/// object, or may have one, is a note that the object is to be deleted.
fn discard(txn: &mut dyn Txn, node: &Node) -> Result<Orphan> {
    let has_object = node.place == crate::node::Place::Object || node.may_have_object;
    let orphan = Orphan::read(txn, node, has_object)?;
    txn.delete(&pairs::node(node.number))?;
    txn.delete(&pairs::content(node.number))?;
    if node.has_xattrs {
        xattr::remove_all(txn, node.number)?;
    }
    if has_object {
        txn.put(&pairs::garbage(node.number), b"")?;
    }
    Ok(orphan)
}

/// Whether `number` is `directory` or one of those that it is in.
///
/// # Errors
///
/// `IO` where directories are in a circle.
fn is_above(txn: &mut dyn Txn, number: u64, directory: u64) -> Result<bool> {
    // Deeper than any path that a program can name.
    const DEPTH_MAX: usize = 1 << 20;
    let mut below = directory;
    for _ in 0..DEPTH_MAX {
        if below == number {
            return Ok(true);
        }
        if below == ROOT {
            return Ok(false);
        }
        below = get_directory(&mut *txn, below)?.parent;
    }
    Err(Failure::corrupt("directories are in a circle"))
}
