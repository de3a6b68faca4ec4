// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks a file system, and mends it.
//!
//! Pairs and objects are read three times in the order of their numbers. First every node is
//! compared with what is kept of it, then every entry with the node that it leads to, at last every
//! node with the entries that were found. In between there are 16 bytes of memory for each file and
//! 48 for each directory. Where something is wrong, one more pass finds the paths of what is reported.
//! Each thing that is mended is one transaction, so that a check that is killed can be repeated.

mod counts;
mod entries;
mod nodes;
mod paths;
mod report;
mod shape;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeSet;

use rustix::io::Errno;
use terrace_core::{Backend, Key, Kv, Txn};

pub use self::paths::{Reached, number_in_place, paths};
pub use self::report::{Damage, DamageKind, TreeReport};
use self::table::Table;
pub use self::walk::number_of;
use crate::failure::{Failure, Result};
use crate::node::{Kind, Marks, Node, Place, ROOT, Time};
use crate::pairs;
use crate::record::{decode, is_whole};
use crate::stores::decode_record;
use crate::superblock::{INLINE_BYTES_LIMIT, Superblock};

/// How often progress is reported, in pairs.
const PROGRESS_PAIRS: u64 = 1024;

/// Numbers left free above the highest that was found where some that were given may be unknown.
pub const NUMBERS_MARGIN: u64 = 1 << 32;

/// What to check. It must not change meanwhile.
pub struct Check<'a> {
    /// The pairs of the file system.
    pub kv: &'a dyn Kv,
    /// Where the bytes of files are. Not looked at where they may be on several servers, none of which
    /// knows by itself which objects there are.
    pub data: &'a dyn Backend,
    /// The namespace there.
    pub namespace: &'a str,
    /// Whether no byte of an object is anywhere any more, although the object is known: asked of one
    /// that is not found when it is looked at.
    pub is_lost: &'a dyn Fn(&Key) -> bool,
    /// Nanoseconds since 1970: when what is made anew was made.
    pub now_ns: u64,
    /// How to mend; `None` changes nothing.
    pub mending: Option<Mending>,
}

/// How to mend.
#[derive(Clone, Copy, Debug)]
pub struct Mending {
    /// Random and secret, for a superblock that is made anew.
    pub entropy: [u8; 32],
}

/// Whether pairs are those of a file system, perhaps a damaged one: its superblock or its root can
/// be read. Others are not touched.
///
/// # Errors
///
/// What the pairs say.
pub fn is_recognized(kv: &dyn Kv) -> Result<bool> {
    let superblock = kv.get(pairs::SUPERBLOCK)?;
    if superblock.is_some_and(|bytes| Superblock::decode(&bytes).is_ok()) {
        return Ok(true);
    }
    let root = kv.get(&pairs::node(ROOT))?;
    Ok(root.is_some_and(|bytes| decode(ROOT, &bytes).is_ok()))
}

/// Notes that the pairs of a file system, where they are those of one, come from an earlier time than its
/// objects: it cannot be used until it is mended. A file whose object is missing was then deleted since,
/// one whose object is newer has grown into it, and numbers were given that the pairs do not know of.
///
/// # Errors
///
/// What the pairs say.
pub fn mark_restored(kv: &dyn Kv) -> Result<()> {
    if is_recognized(kv)? {
        kv.transact(&mut |txn| txn.put(pairs::RESTORED, b""))?;
    }
    Ok(())
}

/// Checks a file system, and mends it where that is asked for. What is mended is reported as it was.
/// `progress` gets the number of pairs that were looked at, now and then.
///
/// # Errors
///
/// `NOENT` where the pairs are not those of a file system; `IO` for one of a later version; what
/// pairs and objects say.
pub fn check(asked: &Check<'_>, progress: &mut dyn FnMut(u64)) -> Result<TreeReport> {
    if !is_recognized(asked.kv)? {
        return Err(Errno::NOENT.into());
    }
    let mut checker = Checker {
        kv: asked.kv,
        data: asked.data,
        namespace: asked.namespace,
        is_lost: asked.is_lost,
        is_distributed: false,
        objects_decide: asked.kv.get(pairs::RESTORED)?.is_some(),
        now: Time::from_ns(asked.now_ns),
        mending: asked.mending,
        superblock: None,
        table: Table::default(),
        highest: ROOT,
        lost_and_found: None,
        report: TreeReport::default(),
        looked_at: 0,
        progress,
    };
    checker.is_distributed = checker.kv.get(pairs::DISTRIBUTED)?.is_some();
    checker.report.has_objects_checked = !checker.is_distributed;
    checker.restored();
    checker.superblock()?;
    checker.stores()?;
    checker.nodes()?;
    checker.numbers()?;
    checker.entries()?;
    checker.shape()?;
    checker.counts()?;
    checker.paths()?;
    let (looked_at, report) = (checker.looked_at, checker.report);
    progress(looked_at);
    Ok(report)
}

/// A check on its way.
struct Checker<'a> {
    kv: &'a dyn Kv,
    data: &'a dyn Backend,
    namespace: &'a str,
    is_lost: &'a dyn Fn(&Key) -> bool,
    /// Whether objects may be elsewhere.
    is_distributed: bool,
    /// Whether the pairs come from an earlier time than the objects.
    objects_decide: bool,
    now: Time,
    mending: Option<Mending>,
    /// `None` where it cannot be read and nothing is mended: the hashes of names are unknown then.
    superblock: Option<Known>,
    table: Table,
    /// The highest number of what there is, of those that are given.
    highest: u64,
    lost_and_found: Option<u64>,
    report: TreeReport,
    looked_at: u64,
    progress: &'a mut dyn FnMut(u64),
}

/// A superblock.
#[derive(Clone, Copy)]
struct Known {
    superblock: Superblock,
    /// Whether it was made by this check: then all names have other hashes than before.
    is_new: bool,
}

impl Checker<'_> {
    fn superblock(&mut self) -> Result<()> {
        let bytes = self.kv.get(pairs::SUPERBLOCK)?;
        let read = bytes.as_deref().map(Superblock::decode);
        if let Some(Ok(superblock)) = read {
            self.superblock = Some(Known { superblock, is_new: false });
            return Ok(());
        }
        if let (Some(Err(failure)), Some(true)) = (read, bytes.as_deref().map(is_whole)) {
            return Err(failure);
        }
        self.found(DamageKind::DamagedSuperblock, ROOT, "the superblock cannot be read".into());
        if let Some(mending) = self.mending {
            // What was allowed to be with the metadata is not known any more.
            let superblock = Superblock::new(INLINE_BYTES_LIMIT, &mending.entropy);
            self.superblock = Some(Known { superblock, is_new: true });
        }
        Ok(())
    }

    /// What is to be mended for no other reason is reported; what a restore mends at once is as it has to be.
    fn restored(&mut self) {
        if self.objects_decide && self.mending.is_none() {
            let detail = "its names came from a backup or a checkpoint, and were not compared with its \
                          objects yet";
            self.found(DamageKind::RestoredNames, ROOT, detail.into());
        }
    }

    /// Which servers there are is unknown here: a record that cannot be read is left alone.
    fn stores(&mut self) -> Result<()> {
        let Some(bytes) = self.kv.get(pairs::STORES)? else { return Ok(()) };
        match decode_record(&bytes) {
            Ok(_) => Ok(()),
            Err(failure) if is_whole(&bytes) => Err(failure),
            Err(_) => {
                let detail = "over which servers it lies cannot be read; `terrace --store ADDRESS \
                              fsck --repair --servers` with its name records it anew";
                self.found(DamageKind::DamagedServers, ROOT, detail.into());
                Ok(())
            }
        }
    }

    /// No number may be given that something has.
    fn numbers(&mut self) -> Result<()> {
        let Some(mut known) = self.superblock else { return Ok(()) };
        let superblock = &mut known.superblock;
        let before = *superblock;
        let free = self.highest.checked_add(1).ok_or(Failure::of(Errno::NOSPC))?;
        superblock.next_number = superblock.next_number.max(free);
        let is_raised = *superblock != before;
        if is_raised && !known.is_new {
            let detail = format!("the next new node would be {}", before.next_number);
            self.found(DamageKind::UsedNumber, self.highest, detail);
        }
        if self.mending.is_none() {
            return Ok(());
        }
        // Of some that were given nothing may be left, or nothing that is seen here.
        if self.objects_decide || known.is_new || is_raised {
            let next = superblock.next_number.checked_add(NUMBERS_MARGIN);
            superblock.next_number = next.ok_or(Failure::of(Errno::NOSPC))?;
            let bytes = superblock.encode();
            // With its nodes: what the objects decide is decided by now.
            self.change(|txn| {
                txn.delete(pairs::RESTORED)?;
                txn.put(pairs::SUPERBLOCK, &bytes)
            })?;
        }
        self.superblock = Some(known);
        Ok(())
    }

    /// Adds the paths of what was reported.
    fn paths(&mut self) -> Result<()> {
        let nodes: BTreeSet<u64> = self.report.damages.iter().map(|damage| damage.node).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let paths = paths(self.kv, &nodes)?;
        for damage in &mut self.report.damages {
            damage.reached = paths.get(&damage.node).cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// Takes note of something that is wrong.
    fn found(&mut self, kind: DamageKind, node: u64, detail: String) {
        self.report.add(kind, node, detail);
    }

    fn looked(&mut self) {
        self.looked_at += 1;
        if self.looked_at.is_multiple_of(PROGRESS_PAIRS) {
            (self.progress)(self.looked_at);
        }
    }

    /// Changes something, where it is to be mended.
    fn change(&self, mut body: impl FnMut(&mut dyn Txn) -> terrace_core::Result<()>) -> Result<()> {
        if self.mending.is_some() {
            self.kv.transact(&mut body)?;
        }
        Ok(())
    }

    /// A node of which nothing is known but its kind: only root may use it until its rights are set.
    fn fresh(&self, number: u64, kind: Kind) -> Node {
        let is_directory = kind.is_directory();
        Node {
            number,
            kind,
            permissions: if is_directory { 0o700 } else { 0o600 },
            user: 0,
            group: 0,
            links: if is_directory { 2 } else { 1 },
            device: 0,
            size: 0,
            allocated_bytes: 0,
            accessed: self.now,
            modified: self.now,
            changed: self.now,
            created: self.now,
            parent: ROOT,
            place: Place::Inline,
            is_written: false,
            settled_ns: 0,
            has_xattrs: false,
            has_default_acl: false,
            marks: Marks::default(),
            may_have_object: false,
        }
    }
}
