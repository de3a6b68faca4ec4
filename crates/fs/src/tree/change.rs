// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing what is known of a node.

use rustix::io::Errno;
use terrace_core::Txn;

use super::content::room;
use super::{Tree, find_node, get_node, put_node};
use crate::acl;
use crate::failure::Result;
use crate::node::{Kind, Marks, Node, Place, Time};
use crate::pairs;
use crate::request::{Changes, Reply, WasRead, When};

impl Tree {
    /// Changes what is known of a node. The length only where the bytes are with the metadata, and
    /// stay there: room for more than fits there is for the tiers to promise.
    pub(super) fn change_node(&self, number: u64, changes: &Changes) -> Result<Reply> {
        let (now, bytes_max) = (self.now(), self.inline_bytes_max());
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            let (modified, changed) = now.both_after(node.changed);
            node.changed = changed;
            if let Some(size) = changes.size {
                match (node.kind, node.place) {
                    (Kind::Directory, _) => return Err(Errno::ISDIR.into()),
                    (Kind::File, Place::Inline) if size <= node.size.max(bytes_max) => {
                        cut_content(txn, &mut node, size)?;
                        node.modified = modified;
                    }
                    (Kind::File, _) => return Ok(Reply::NotHere),
                    _ => return Err(Errno::INVAL.into()),
                }
            }
            apply(txn, &mut node, changes, modified)?;
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }

    /// Notes what was read. Where it changed since, the change has as much; and a caller that has set the
    /// time of the last access since then means that.
    pub(super) fn note_read(&self, read: &[WasRead]) -> Result<()> {
        if read.is_empty() {
            return Ok(());
        }
        let now = self.now();
        self.change(|txn| {
            for one in read {
                if let Some(mut node) = find_node(&mut *txn, one.number)?
                    && node.changed == one.changed
                {
                    node.accessed = now.after(node.changed);
                    put_node(txn, &node)?;
                }
            }
            Ok(())
        })
    }

    /// Changes what is asked of the tiers.
    pub(super) fn mark(&self, number: u64, change: &dyn Fn(&mut Marks)) -> Result<Reply> {
        let now = self.now();
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            if !matches!(node.kind, Kind::File | Kind::Directory) {
                return Err(Errno::OPNOTSUPP.into());
            }
            change(&mut node.marks);
            node.changed = now.after(node.changed);
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }
}

/// Cuts or grows a file whose bytes are with the metadata; growth is not kept as bytes.
fn cut_content(txn: &mut dyn Txn, node: &mut Node, size: u64) -> Result<()> {
    let key = pairs::content(node.number);
    let mut content = txn.get(&key)?.unwrap_or_default();
    if content.len() as u64 > size {
        content.truncate(size as usize);
        txn.put(&key, &content)?;
    }
    node.allocated_bytes = room(&content);
    node.size = size;
    Ok(())
}

fn apply(txn: &mut dyn Txn, node: &mut Node, changes: &Changes, now: Time) -> Result<()> {
    let at = |when: When| match when {
        When::Now => now,
        When::At(time) => time,
    };
    if let Some(permissions) = changes.permissions {
        node.permissions = permissions & 0o7777;
        if node.has_xattrs {
            let key = pairs::xattr(node.number, acl::ACCESS);
            if let Some(list) = txn.get(&key)? {
                txn.put(&key, &acl::with_permissions(&list, permissions)?)?;
            }
        }
    }
    if changes.user.is_some() || changes.group.is_some() {
        node.user = changes.user.unwrap_or(node.user);
        node.group = changes.group.unwrap_or(node.group);
        if !node.kind.is_directory() && changes.permissions.is_none() {
            node.clear_set_id();
        }
    }
    if changes.clears_set_id && !node.kind.is_directory() {
        node.clear_set_id();
    }
    if let Some(when) = changes.accessed {
        node.accessed = at(when);
    }
    if let Some(when) = changes.modified {
        node.modified = at(when);
        node.settled_ns = changes.settled_ns.unwrap_or(node.settled_ns);
    }
    Ok(())
}
