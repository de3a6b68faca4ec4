// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking names away.

use std::collections::HashMap;

use rustix::io::Errno;
use terrace_core::Txn;

use super::hold::Hold;
use super::{
    Tree, check_name, discard, get_bucket, get_directory, get_node, put_bucket, put_node,
    touch_directory,
};
use crate::clock::Moment;
use crate::failure::{Failure, Result};
use crate::node::{Kind, Node};
use crate::pairs;
use crate::request::Reply;

impl Tree {
    /// Takes a name away. What is open stays until it is closed.
    pub(super) fn remove(&self, directory: u64, name: &[u8], is_directory: bool) -> Result<Reply> {
        if name == b"." || name == b".." {
            let errno = if name == b".." { Errno::NOTEMPTY } else { Errno::INVAL };
            return Err(errno.into());
        }
        check_name(name)?;
        let hash = self.hash(name);
        loop {
            let number = match get_bucket(self, directory, hash)?.find(name) {
                Some(entry) => entry.number,
                None => return Err(Errno::NOENT.into()),
            };
            let mut holds = self.holds.lock(number);
            let is_open = self.is_held(&holds, number);
            let now = self.now();
            let outcome = self.change(|txn| {
                let mut parent = get_directory(&mut *txn, directory)?;
                let mut bucket = get_bucket(&mut *txn, directory, hash)?;
                let entry = bucket.find(name).ok_or(Failure::of(Errno::NOENT))?;
                if entry.number != number {
                    return Ok(None);
                }
                let mut node = get_node(&mut *txn, number)?;
                check_removal(txn, &node, is_directory)?;
                bucket.remove(name);
                put_bucket(txn, directory, hash, &bucket)?;
                parent.size = parent.size.saturating_sub(1);
                parent.links -= u32::from(is_directory);
                touch_directory(&mut parent, now);
                put_node(txn, &parent)?;
                let has_garbage = unlink(txn, &mut node, is_open, now)?;
                Ok(Some((has_garbage, node.links == 0, parent)))
            })?;
            // Somebody gave the name to another node meanwhile: the lock is that of the wrong one.
            let Some((has_garbage, is_nameless, parent)) = outcome else { continue };
            note_nameless(holds.get_mut(&number), is_nameless);
            if is_directory {
                self.delegations.forget(number);
            }
            let directory = Some(parent);
            return Ok(Reply::Gone { number, has_garbage, directory, is_delegated: false });
        }
    }
}

impl Tree {
    /// Whether somebody has a node open, or may have without having said so.
    pub(super) fn is_held(&self, holds: &HashMap<u64, Hold>, number: u64) -> bool {
        let is_open = holds.get(&number).is_some_and(|hold| hold.opens > 0);
        is_open || self.claims.may_come_for(number)
    }
}

/// What is open without a name goes with the last close.
pub(super) fn note_nameless(hold: Option<&mut Hold>, is_nameless: bool) {
    if let Some(hold) = hold {
        hold.is_nameless |= is_nameless;
        hold.was_removed |= is_nameless;
    }
}

/// Whether a node may lose its name by removal, or because another one gets it.
pub(super) fn check_removal(txn: &mut dyn Txn, node: &Node, is_directory: bool) -> Result<()> {
    match (node.kind.is_directory(), is_directory) {
        (true, false) => Err(Errno::ISDIR.into()),
        (false, true) => Err(Errno::NOTDIR.into()),
        (false, false) => Ok(()),
        (true, true) if txn.scan(&pairs::entries(node.number), 1)?.is_empty() => Ok(()),
        (true, true) => Err(Errno::NOTEMPTY.into()),
    }
}

/// Takes one name off a node's count. True where its object is to be deleted.
pub(super) fn unlink(
    txn: &mut dyn Txn,
    node: &mut Node,
    is_open: bool,
    now: Moment<'_>,
) -> Result<bool> {
    // A directory has one name, and none left for `.` without it.
    node.links = if node.kind.is_directory() { 0 } else { node.links.saturating_sub(1) };
    node.changed = now.after(node.changed);
    // Nothing else is ever open.
    let stays = is_open && node.kind == Kind::File;
    if node.links == 0 && !stays {
        return discard(txn, node);
    }
    if node.links == 0 {
        txn.put(&pairs::nameless(node.number), b"")?;
    }
    put_node(txn, node)?;
    Ok(false)
}
