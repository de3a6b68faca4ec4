// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes that a session unlinked a moment ago, kept in memory.
//!
//! A kernel may hold an inode without an open file: as a working directory, by a descriptor with
//! `O_PATH`, or while it walks to it. The mount learns from `FORGET` that it does not, a moment
//! after the unlink. Until then what the unlink discarded is kept here, so that an unlink is one
//! transaction, and an inode that no kernel holds is not stored again. A session that still needs
//! the inode opens it ([`Tree::open_node`]): it is restored as an inode without a name, and stays
//! until it is closed. Another session may open a directory, which has no object that its client could
//! have deleted.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Pair, Txn};

use super::{Tree, put_node, xattr};
use crate::failure::{Failure, Result};
use crate::node::{Kind, Node, Place};
use crate::{lock, pairs};

/// How long an unlinked inode can be opened. A mount opens what its kernel does not forget within a
/// small part of that. A client that has a directory open finds out within it what became of the directory
/// that another one removed.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// Inodes that were unlinked this long before the end of a server are handed over to the next one: ten
/// times as long as a mount takes to open them.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// Handed over with one transaction.
const PAGE: usize = 100;

/// Bytes of all unlinked inodes; the oldest ones are dropped first.
const BYTES_MAX: usize = 32 << 20;

/// Attributes and bytes of one inode; a larger one is not kept.
const INODE_BYTES_MAX: usize = 1 << 20;

/// What an entry takes beside attributes and bytes: the node, and its places in the maps.
const ENTRY_BYTES: usize = 400;

/// An inode that was discarded, with everything that was stored of it.
pub(super) struct Orphan {
    node: Node,
    content: Option<Vec<u8>>,
    xattrs: Vec<Pair>,
    /// Whether its object is to be deleted.
    pub(super) has_object: bool,
    is_too_large: bool,
    /// Whether it had a name: then it gets none any more.
    pub(super) had_name: bool,
}

impl Orphan {
    /// Reads what is stored of a node that is about to be discarded.
    pub(super) fn read(txn: &mut dyn Txn, node: &Node, has_object: bool) -> Result<Self> {
        let has_content = match node.kind {
            Kind::File => node.place == Place::Inline && node.size > 0,
            Kind::Symlink => true,
            _ => false,
        };
        let content = match has_content {
            true => txn.get(&pairs::content(node.number))?,
            false => None,
        };
        let xattrs = match node.has_xattrs {
            true => xattr::all_within(txn, node.number, INODE_BYTES_MAX)?,
            false => Some(Vec::new()),
        };
        let is_too_large = xattrs.is_none();
        let (node, xattrs) = (node.clone(), xattrs.unwrap_or_default());
        Ok(Self { node, content, xattrs, has_object, is_too_large, had_name: true })
    }

    pub(super) fn number(&self) -> u64 {
        self.node.number
    }

    fn bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, Vec::len);
        let xattrs: usize = self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        ENTRY_BYTES + content + xattrs
    }
}

/// Such inodes.
pub(super) struct Unlinked {
    kept: Mutex<Kept>,
    /// When the oldest one expires; `u64::MAX` where there is none.
    expires_ns: AtomicU64,
}

#[derive(Default)]
struct Kept {
    /// By number, each with the session that unlinked it and with when it expires.
    orphans: HashMap<u64, (u64, u64, Orphan)>,
    /// In the order in which they expire. May have numbers that are not there any more.
    order: VecDeque<(u64, u64)>,
    bytes: usize,
}

impl Default for Unlinked {
    fn default() -> Self {
        Self { kept: Mutex::default(), expires_ns: AtomicU64::new(u64::MAX) }
    }
}

impl Unlinked {
    /// Keeps an inode for the session that unlinked it. The caller holds the lock of its hold.
    pub(super) fn keep(&self, session: u64, orphan: Orphan, now_ns: u64) {
        if orphan.is_too_large {
            return;
        }
        let mut kept = lock(&self.kept);
        let number = orphan.node.number;
        let expires_ns = now_ns.saturating_add(KEPT_FOR.as_nanos() as u64);
        kept.bytes += orphan.bytes();
        if let Some((.., before)) = kept.orphans.insert(number, (session, expires_ns, orphan)) {
            kept.bytes -= before.bytes();
        }
        kept.order.push_back((expires_ns, number));
        self.drop_expired(&mut kept, now_ns);
    }

    /// Drops an inode that its session does not need.
    pub(super) fn forget(&self, session: u64, number: u64) {
        if self.expires_ns.load(Ordering::Acquire) != u64::MAX {
            drop(self.take(session, number));
        }
    }

    /// Takes an inode for the session that unlinked it.
    fn take(&self, session: u64, number: u64) -> Option<Orphan> {
        self.take_if(number, |of, _| of == session)
    }

    fn take_if(&self, number: u64, may_take: impl Fn(u64, &Orphan) -> bool) -> Option<Orphan> {
        let mut kept = lock(&self.kept);
        if !kept.orphans.get(&number).is_some_and(|(of, _, orphan)| may_take(*of, orphan)) {
            return None;
        }
        let (.., orphan) = kept.orphans.remove(&number)?;
        kept.bytes -= orphan.bytes();
        if kept.orphans.is_empty() {
            kept.order.clear();
            self.expires_ns.store(u64::MAX, Ordering::Release);
        }
        Some(orphan)
    }

    /// Takes the inodes that a session unlinked since a moment.
    fn take_since(&self, session: u64, since_ns: u64) -> Vec<Orphan> {
        let kept = lock(&self.kept);
        let expires_ns = since_ns.saturating_add(KEPT_FOR.as_nanos() as u64);
        let is_meant = |of: u64, until: u64| of == session && until >= expires_ns;
        let all = kept.orphans.iter();
        let meant = all.filter(|(_, (of, until, _))| is_meant(*of, *until));
        let numbers: Vec<u64> = meant.map(|(number, _)| *number).collect();
        drop(kept);
        numbers.into_iter().filter_map(|number| self.take(session, number)).collect()
    }

    /// Drops what has expired.
    pub(super) fn expire(&self, now_ns: impl FnOnce() -> u64) {
        let expires_ns = self.expires_ns.load(Ordering::Acquire);
        if expires_ns == u64::MAX {
            return;
        }
        let now_ns = now_ns();
        if now_ns >= expires_ns {
            self.drop_expired(&mut lock(&self.kept), now_ns);
        }
    }

    fn drop_expired(&self, kept: &mut Kept, now_ns: u64) {
        while let Some((expires_ns, number)) = kept.order.front().copied() {
            let is_there =
                kept.orphans.get(&number).is_some_and(|(_, until, _)| *until == expires_ns);
            if is_there && now_ns < expires_ns && kept.bytes <= BYTES_MAX {
                break;
            }
            kept.order.pop_front();
            if is_there && let Some((.., orphan)) = kept.orphans.remove(&number) {
                kept.bytes -= orphan.bytes();
            }
        }
        let expires_ns = kept.order.front().map_or(u64::MAX, |(expires_ns, _)| *expires_ns);
        self.expires_ns.store(expires_ns, Ordering::Release);
    }
}

impl Tree {
    /// Stores an inode again, without a name, that this session unlinked a moment ago, or a directory that
    /// any session did, and returns whether it had one. The caller holds the lock of its hold.
    ///
    /// # Errors
    ///
    /// `STALE` where it is not kept, or its object was deleted.
    pub(super) fn restore_unlinked(&self, session: u64, number: u64) -> Result<(Node, bool)> {
        let may_take = |of: u64, orphan: &Orphan| of == session || orphan.node.kind.is_directory();
        let orphan = self.unlinked.take_if(number, may_take).ok_or(Failure::of(Errno::STALE))?;
        let restored = self.change(|txn| match restore(txn, &orphan)? {
            true => Ok(()),
            false => Err(Errno::STALE.into()),
        });
        match restored {
            Ok(()) => Ok((orphan.node, orphan.had_name)),
            Err(failure) => {
                if failure.errno() != Errno::STALE {
                    // The session tries again.
                    self.unlinked.keep(session, orphan, self.clock.passed_ns());
                }
                Err(failure)
            }
        }
    }

    /// Stores the inodes again, without names, that a session unlinked a moment ago: its client may hold
    /// some of them without having opened them, and finds them with the next server.
    pub(super) fn hand_over_unlinked(&self, session: u64) {
        let now_ns = self.clock.passed_ns();
        let since_ns = now_ns.saturating_sub(HANDED_OVER.as_nanos() as u64);
        for page in self.unlinked.take_since(session, since_ns).chunks(PAGE) {
            let _holds = self.holds.lock_all(page.iter().map(Orphan::number));
            let stored = self
                .change(|txn| page.iter().try_for_each(|orphan| restore(txn, orphan).map(drop)));
            if let Err(failure) = stored {
                tracing::warn!(
                    inodes = page.len(), %failure,
                    "removed inodes are not handed over to the next server: programs that hold one without having it open \
                     get ESTALE"
                );
            }
        }
    }
}

/// Stores an inode that was discarded, without a name; false where its object was deleted.
fn restore(txn: &mut dyn Txn, orphan: &Orphan) -> Result<bool> {
    let number = orphan.number();
    let garbage = pairs::garbage(number);
    if orphan.has_object && txn.get(&garbage)?.is_none() {
        return Ok(false);
    }
    txn.delete(&garbage)?;
    put_node(txn, &orphan.node)?;
    txn.put(&pairs::nameless(number), b"")?;
    if let Some(content) = &orphan.content {
        txn.put(&pairs::content(number), content)?;
    }
    for (name, value) in &orphan.xattrs {
        txn.put(&pairs::xattr(number, name), value)?;
    }
    Ok(true)
}
