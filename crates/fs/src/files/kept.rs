// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and symbolic links that lost their name to another one, for programs that are on their way to
//! them.
//!
//! Who opens a file walks to its node, and asks for the node then; who follows a link asks where it
//! leads. Where another one gets the name between the two, the one before has to be there still:
//! POSIX has a name that is replaced lead to one or the other at any time. The kernel tries again
//! only once, and looks the name up then: what it is told of that time stays for it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Files, is_gone, unexpected};
use crate::failure::Result;
use crate::lock;
use crate::node::{Kind, Node};
use crate::request::{Closed, Left, RenameHow, Reply, Request};

/// So long after somebody came too late what is looked up is kept: in any directory. He is known to
/// have come to a node, not on which way, and walks all of that again, where links lead to others.
const SOUGHT: Duration = Duration::from_secs(1);

/// What was looked up is kept for so long, until it is opened: more than the kernel needs for that.
const FOUND: Duration = Duration::from_secs(1);

/// Most that is kept because it was looked up.
const FOUND_MAX: usize = 4096;

/// So often a name is looked up until what it leads to stays.
const LOOKUPS_MAX: usize = 100;

/// What is kept: as many as the kernel remembers without a name, and what was just looked up.
#[derive(Default)]
pub(super) struct Kept {
    /// Files, which are open for that.
    files: Mutex<HashSet<u64>>,
    /// Where links led: nothing else is asked of them.
    links: Mutex<HashMap<u64, Vec<u8>>>,
    /// Until when what is looked up is kept: somebody came too late.
    sought_until_ns: AtomicU64,
    /// What was looked up for that.
    found: Mutex<HashMap<u64, Found>>,
}

/// A file, which is open for that, or where a link led.
struct Found {
    until_ns: u64,
    target: Vec<u8>,
}

impl Kept {
    /// Whether a file without a name can be opened.
    pub(super) fn contains(&self, number: u64, now_ns: u64) -> bool {
        lock(&self.files).contains(&number) || self.found(number, now_ns).is_some()
    }

    /// Where a link led.
    fn target(&self, number: u64, now_ns: u64) -> Option<Vec<u8>> {
        let replaced = lock(&self.links).get(&number).cloned();
        replaced.or_else(|| self.found(number, now_ns))
    }

    fn found(&self, number: u64, now_ns: u64) -> Option<Vec<u8>> {
        let found = lock(&self.found);
        found.get(&number).filter(|found| found.until_ns > now_ns).map(|found| found.target.clone())
    }
}

impl Files {
    /// Takes note of an outcome: who came to a node that was gone looks up once more what has its
    /// name.
    pub(super) fn note_gone<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(is_gone) {
            let until_ns = self.clock.now_ns().saturating_add(SOUGHT.as_nanos() as u64);
            self.kept.sought_until_ns.fetch_max(until_ns, Ordering::AcqRel);
        }
        outcome
    }

    /// Whether what is looked up is kept.
    pub(super) fn is_sought(&self) -> bool {
        match self.kept.sought_until_ns.load(Ordering::Acquire) {
            0 => false,
            until_ns => self.clock.now_ns() < until_ns,
        }
    }

    /// What a name leads to, and goes on leading to for who is on his way.
    pub(super) fn look_up_keeping(&self, directory: u64, name: &[u8]) -> Result<Node> {
        let mut tries = LOOKUPS_MAX;
        loop {
            let node = self.ask_node(&Request::Lookup { directory, name })?;
            tries -= 1;
            match self.keep_found(&node) {
                // Somebody removed it meanwhile, and what has the name now is as good.
                Err(failure) if is_gone(&failure) && tries > 0 => {}
                kept => return kept.map(|()| node),
            }
        }
    }

    /// Keeps what was looked up for a while.
    fn keep_found(&self, node: &Node) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let number = node.number;
        let half_ns = FOUND.as_nanos() as u64 / 2;
        let is_full = {
            let mut found = lock(&self.kept.found);
            if found.get(&number).is_some_and(|found| found.until_ns > now_ns + half_ns) {
                // Somebody else looked it up a moment ago.
                return Ok(());
            }
            if found.len() >= FOUND_MAX {
                found.retain(|_, found| found.until_ns > now_ns);
            }
            found.len() >= FOUND_MAX
        };
        let target = match node.kind {
            _ if is_full => return Ok(()),
            Kind::File => {
                let open = Request::Open { number, is_for_writing: false };
                match self.metadata.call(&open) {
                    Err(failure) if is_gone(&failure) => return Err(failure),
                    // The name was found all the same.
                    Err(_) => return Ok(()),
                    Ok(_) => Vec::new(),
                }
            }
            Kind::Symlink => self.ask_target(number)?,
            _ => return Ok(()),
        };
        let until_ns = self.clock.now_ns().saturating_add(FOUND.as_nanos() as u64);
        if node.kind == Kind::File {
            let closed = Closed { number, is_for_writing: false, left: Left::Unknown };
            self.closing.push_later(until_ns, closed);
        }
        lock(&self.kept.found).insert(number, Found { until_ns, target });
        Ok(())
    }

    /// Moves a name as [`Files::rename`] does. Where nobody else uses the files, a file that it replaces
    /// can be opened, and a link followed, until [`Files::forget`].
    ///
    /// # Errors
    ///
    /// As [`Files::rename`].
    pub fn rename_keeping(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
        owner: (u32, u32),
    ) -> Result<()> {
        let replaced = match self.options.is_alone && !how.exchanges && !how.keeps_existing {
            true => self.keep_replaced(to),
            false => None,
        };
        let Some(number) = replaced else { return self.rename(from, to, how, owner) };
        let _removal = self.begin_removal();
        let life = self.metadata.life();
        let moved = self.rename_as_told(from, to, how, owner);
        let is_replaced = matches!(&moved, Ok(Reply::Gone { number: gone, .. }) if *gone == number);
        if !is_replaced {
            self.forget(number)?;
        }
        self.after_removal(&moved?, life)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone, `INVAL` for what is no link.
    pub fn target(&self, number: u64) -> Result<Vec<u8>> {
        let asked = self.on_inode(number, || self.ask_target(number));
        match (asked, self.kept.target(number, self.clock.now_ns())) {
            (Err(failure), Some(target)) if is_gone(&failure) => Ok(target),
            (asked, _) => self.note_gone(asked),
        }
    }

    fn ask_target(&self, number: u64) -> Result<Vec<u8>> {
        match self.metadata.call(&Request::Target { number })? {
            Reply::Bytes(target) => Ok(target),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes note that who was told of a node has forgotten it, and lets go of it where it has no name:
    /// nobody is on the way to it any more.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn forget(&self, number: u64) -> Result<()> {
        lock(&self.kept.links).remove(&number);
        let is_kept = lock(&self.kept.files).remove(&number);
        let closed = match is_kept {
            true => self.close_with_metadata(number, false, Left::Unknown),
            false => Ok(()),
        };
        let closed = closed.and(self.forget_unlinked(number));
        // Behind the closes: what they discarded is not asked for again.
        self.metadata.forgotten(number);
        closed
    }

    /// Lets go of all.
    pub(super) fn forget_all(&self) -> Result<()> {
        lock(&self.kept.links).clear();
        let kept: Vec<_> = lock(&self.kept.files).drain().collect();
        kept.into_iter()
            .try_for_each(|number| self.close_with_metadata(number, false, Left::Unknown))
    }

    /// Keeps what has this name, where that is its last one, before the kernel knows that it is
    /// replaced, and can forget it; its number. Whatever else is there, or is wrong, the rename tells.
    fn keep_replaced(&self, (directory, name): (u64, &[u8])) -> Option<u64> {
        let node = self.ask_node(&Request::Lookup { directory, name }).ok()?;
        let number = node.number;
        match (node.kind, node.links) {
            (Kind::File, 1) => {
                self.metadata.call(&Request::Open { number, is_for_writing: false }).ok()?;
                lock(&self.kept.files).insert(number);
                Some(number)
            }
            (Kind::Symlink, 1) => {
                let target = self.target(number).ok()?;
                lock(&self.kept.links).insert(number, target);
                Some(number)
            }
            _ => None,
        }
    }
}
