// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes.

use rustix::io::Errno;
use terrace_core::{Pair, Txn};

use super::{Tree, get_node, put_node};
use crate::acl;
use crate::failure::{Failure, Result};
use crate::node::{NAME_BYTES_MAX, Node, SET_GROUP_ID};
use crate::pairs;
use crate::request::{Reply, SetHow};

/// Longest value of an extended attribute (Linux, `XATTR_SIZE_MAX`).
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;

/// Longest list of names (Linux, `XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 64 << 10;

/// Removed or listed in one go.
const PAGE: usize = 100;

impl Tree {
    pub(super) fn xattr(&self, number: u64, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let value = self.kv.get(&pairs::xattr(number, name))?;
        if value.is_none() {
            // What an inode that is gone had is not known.
            get_node(self, number)?;
        }
        value.ok_or(Failure::of(Errno::NODATA))
    }

    /// The names, each with a NUL behind it.
    pub(super) fn xattrs(&self, number: u64) -> Result<Vec<u8>> {
        if !get_node(self, number)?.has_xattrs {
            return Ok(Vec::new());
        }
        let mut range = pairs::xattrs(number);
        let mut names = Vec::new();
        loop {
            let page = self.kv.scan(&range, PAGE)?;
            for (key, _) in &page {
                names.extend_from_slice(pairs::xattr_name(key));
                names.push(0);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => range = range.after(key),
                _ => return Ok(names),
            }
        }
    }

    pub(super) fn set_xattr(
        &self,
        number: u64,
        name: &[u8],
        value: &[u8],
        how: SetHow,
        clears_set_group: bool,
    ) -> Result<Reply> {
        check_xattr_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let now = self.now();
        let key = pairs::xattr(number, name);
        // Only what comes new makes the list of names longer.
        let names_bytes = self.xattrs(number)?.len() + name.len() + 1;
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            let is_there = node.has_xattrs && txn.get(&key)?.is_some();
            match (how, is_there) {
                (SetHow::Create, true) => return Err(Errno::EXIST.into()),
                (SetHow::Replace, false) => return Err(Errno::NODATA.into()),
                (_, false) if names_bytes > LIST_BYTES_MAX => return Err(Errno::NOSPC.into()),
                _ => {}
            }
            let is_kept = match name {
                acl::ACCESS => {
                    if clears_set_group {
                        node.permissions &= !SET_GROUP_ID;
                    }
                    set_access(&mut node, value)?
                }
                acl::DEFAULT => set_default(&mut node, value)?,
                _ => true,
            };
            if is_kept {
                txn.put(&key, value)?;
                node.has_xattrs = true;
            } else {
                txn.delete(&key)?;
                node.has_xattrs = has_any(txn, number)?;
            }
            node.changed = now.after(node.changed);
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }

    pub(super) fn remove_xattr(&self, number: u64, name: &[u8]) -> Result<Reply> {
        check_xattr_name(name)?;
        let now = self.now();
        let key = pairs::xattr(number, name);
        self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            if txn.get(&key)?.is_none() {
                return match name {
                    // A mode without a list is what is asked for.
                    acl::ACCESS | acl::DEFAULT => Ok(Reply::Node(node)),
                    _ => Err(Errno::NODATA.into()),
                };
            }
            txn.delete(&key)?;
            node.has_xattrs = has_any(txn, number)?;
            node.has_default_acl &= name != acl::DEFAULT;
            node.changed = now.after(node.changed);
            put_node(txn, &node)?;
            Ok(Reply::Node(node))
        })
    }
}

fn has_any(txn: &mut dyn Txn, number: u64) -> Result<bool> {
    Ok(!txn.scan(&pairs::xattrs(number), 1)?.is_empty())
}

/// The permissions follow the list; whether the list says more than they do.
fn set_access(node: &mut Node, list: &[u8]) -> Result<bool> {
    let (permissions, says_more) = acl::permissions(list)?;
    node.permissions = node.permissions & !0o777 | permissions;
    Ok(says_more)
}

/// Whether there is a list at all: an empty one stands for none.
fn set_default(node: &mut Node, list: &[u8]) -> Result<bool> {
    if !node.kind.is_directory() {
        return Err(Errno::ACCESS.into());
    }
    node.has_default_acl = !acl::is_empty(list)?;
    Ok(node.has_default_acl)
}

/// The names and values of all attributes; `None` where these are longer.
pub(super) fn all_within(
    txn: &mut dyn Txn,
    number: u64,
    bytes_max: usize,
) -> Result<Option<Vec<Pair>>> {
    let mut range = pairs::xattrs(number);
    let (mut all, mut bytes) = (Vec::new(), 0);
    loop {
        let page = txn.scan(&range, PAGE)?;
        let next = page.last().filter(|_| page.len() == PAGE).map(|(key, _)| range.after(key));
        for (key, value) in page {
            bytes += key.len() + value.len();
            if bytes > bytes_max {
                return Ok(None);
            }
            all.push((pairs::xattr_name(&key).to_vec(), value));
        }
        match next {
            Some(next) => range = next,
            None => return Ok(Some(all)),
        }
    }
}

pub(super) fn remove_all(txn: &mut dyn Txn, number: u64) -> Result<()> {
    loop {
        let page = txn.scan(&pairs::xattrs(number), PAGE)?;
        for (key, _) in &page {
            txn.delete(key)?;
        }
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Errno::INVAL.into()),
        length if length > NAME_BYTES_MAX => Err(Errno::RANGE.into()),
        _ => Ok(()),
    }
}
