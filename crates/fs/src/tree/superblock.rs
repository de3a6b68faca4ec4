// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a file system, and where its numbers come from.

use rustix::io::Errno;
use terrace_core::{Clock, Kv, Txn};

use super::Tree;
use crate::failure::{Failure, Result};
use crate::node::{Kind, Marks, Node, Place, ROOT, Time};
use crate::stores::{Belonging, KnownStore, put_record};
use crate::superblock::{INLINE_BYTES_LIMIT, Superblock};
use crate::{lock, pairs};

/// Numbers of nodes are taken from the superblock in runs of so many; the rest of a run is lost
/// when the process ends. 2^64 are enough for a run each microsecond for 140 years.
const RUN: u64 = 4096;

/// Most numbers that are given at once.
const GIVEN_MAX: u32 = 1024;

/// How to make a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// Longest file whose bytes are kept with the metadata, at most 64 KiB.
    pub inline_bytes_max: u32,
    /// Owner of the root directory.
    pub user: u32,
    /// And its group.
    pub group: u32,
    /// Its permissions.
    pub permissions: u32,
    /// No node but the root gets a lower number: beyond those of objects that are there already.
    pub first_number: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        // 4 KiB: what most small files of a source tree fit in, and one page.
        Self {
            inline_bytes_max: 4096,
            user: 0,
            group: 0,
            permissions: 0o755,
            first_number: ROOT + 1,
        }
    }
}

/// Over which stores a file system is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Over<'a> {
    /// All of them, also the one of its pairs; none where that is alone.
    pub stores: &'a [KnownStore],
    /// The mark that was found with the pairs and means nothing any more: it is taken away.
    pub seen: Option<&'a Belonging>,
}

pub(super) fn create(
    kv: &dyn Kv,
    options: &TreeOptions,
    over: &Over<'_>,
    clock: &dyn Clock,
    entropy: &[u8; 32],
) -> Result<()> {
    if options.inline_bytes_max > INLINE_BYTES_LIMIT {
        return Err(Errno::INVAL.into());
    }
    let mut superblock = Superblock::new(options.inline_bytes_max, entropy);
    superblock.next_number = superblock.next_number.max(options.first_number);
    let now = Time::from_ns(clock.wall_ns());
    let root = Node {
        number: ROOT,
        kind: Kind::Directory,
        permissions: options.permissions & 0o7777,
        user: options.user,
        group: options.group,
        links: 2,
        device: 0,
        size: 0,
        allocated_bytes: 0,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        parent: ROOT,
        place: Place::Inline,
        is_written: false,
        settled_ns: 0,
        has_xattrs: false,
        has_default_acl: false,
        marks: Marks::default(),
        may_have_object: false,
    };
    let seen = over.seen.map(Belonging::encode);
    let mut taken = None;
    kv.transact(&mut |txn: &mut dyn Txn| {
        let is_free = txn.get(pairs::SUPERBLOCK)?.is_none() && txn.get(pairs::BELONGS)? == seen;
        taken = (!is_free).then(|| Errno::EXIST.into());
        if !is_free {
            return Ok(());
        }
        if seen.is_some() {
            txn.delete(pairs::BELONGS)?;
        }
        txn.put(&pairs::node(ROOT), &crate::record::encode(&root))?;
        txn.put(pairs::SUPERBLOCK, &superblock.encode())?;
        match over.stores {
            [] => Ok(()),
            stores => put_record(txn, stores),
        }
    })?;
    taken.map_or(Ok(()), Err)
}

pub(super) fn read(kv: &dyn Kv) -> Result<Superblock> {
    let bytes = kv.get(pairs::SUPERBLOCK)?.ok_or(Failure::of(Errno::NOENT))?;
    Superblock::decode(&bytes)
}

/// Refuses pairs that are older than the objects: their use would give numbers again that are those
/// of objects, and write over these.
pub(super) fn check_compared(kv: &dyn Kv) -> Result<()> {
    match kv.get(pairs::RESTORED)? {
        None => Ok(()),
        Some(_) => Err(Failure::corrupt(
            "its names came from a backup or a checkpoint, and were not compared with its objects yet; \
             `terrace fsck --repair` does that",
        )),
    }
}

impl Tree {
    /// A number that no node has or had.
    pub(super) fn take_number(&self) -> Result<u64> {
        let mut numbers = lock(&self.numbers);
        if numbers.is_empty() {
            // Under the lock: others would need the new run, too.
            let run = self.change(|txn| {
                let bytes = txn.get(pairs::SUPERBLOCK)?.ok_or(Failure::of(Errno::STALE))?;
                let mut superblock = Superblock::decode(&bytes)?;
                let first = superblock.next_number;
                let next = first.checked_add(RUN).ok_or(Failure::of(Errno::NOSPC))?;
                superblock.next_number = next;
                txn.put(pairs::SUPERBLOCK, &superblock.encode())?;
                Ok(first..next)
            })?;
            // A user may still have to delete the object of one that was lost with the power.
            self.sync()?;
            *numbers = run;
        }
        numbers.next().ok_or(Failure::of(Errno::NOSPC))
    }

    /// Numbers for files whose makers name them.
    pub(super) fn give_numbers(&self, count: u32) -> Result<Vec<u64>> {
        (0..count.min(GIVEN_MAX)).map(|_| self.take_number()).collect()
    }

    /// Whether a number was given, here or by an earlier server.
    pub(super) fn was_given(&self, number: u64) -> bool {
        (ROOT + 1..self.superblock.next_number.max(lock(&self.numbers).start)).contains(&number)
    }
}
