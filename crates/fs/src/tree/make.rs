// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making nodes.

use rustix::io::Errno;
use terrace_core::Txn;

use super::hold::Hold;
use super::{
    Tree, check_name, get_bucket, get_directory, get_living_directory, put_bucket, put_node,
    touch_directory,
};
use crate::acl;
use crate::clock::Moment;
use crate::failure::Result;
use crate::lock;
use crate::node::{Kind, Marks, Node, Place, SET_GROUP_ID, TARGET_BYTES_MAX};
use crate::pairs;
use crate::request::Made;

impl Tree {
    /// Makes a node under a name; without one, a file that has none yet. It is open once where that
    /// is asked for. Returns the directory, too, and whether a directory that was made is delegated to
    /// the session that made it.
    pub(super) fn make(
        &self,
        session: u64,
        directory: u64,
        name: &[u8],
        made: &Made<'_>,
    ) -> Result<(Node, Node, bool)> {
        let has_name = !name.is_empty();
        if has_name {
            check_name(name)?;
        } else if made.kind != Kind::File || !made.is_opened {
            return Err(Errno::INVAL.into());
        }
        if made.kind == Kind::Symlink && made.target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if made.target.len() > TARGET_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        // Objects that are made ahead are not cut into pieces.
        let is_cut =
            made.object.is_some() && get_directory(self, directory)?.marks.segment_bytes.is_some();
        let made = &Made { object: made.object.filter(|_| !is_cut), ..made.clone() };
        let number = match made.object {
            // Any other number may be that of a node, which would be replaced.
            Some(object)
                if made.kind == Kind::File && lock(&self.reserved).remove(&object.number) =>
            {
                object.number
            }
            Some(_) => return Err(Errno::INVAL.into()),
            None => self.take_number()?,
        };
        // Before anybody can know of it.
        let is_delegated =
            made.kind.is_directory() && self.delegations.give(&self.clock, session, number);
        let hash = self.hash(name);
        let now = self.now();
        // Nobody takes its name away before it is known to be open.
        let holds = made.is_opened.then(|| self.holds.lock(number));
        let result = self.change(|txn| {
            let mut parent = get_living_directory(&mut *txn, directory)?;
            let mut node = inheriting(txn, &parent, number, made, now)?;
            if has_name {
                let mut bucket = get_bucket(&mut *txn, directory, hash)?;
                if bucket.find(name).is_some() {
                    return Err(Errno::EXIST.into());
                }
                bucket.add(name, number, made.kind)?;
                put_bucket(txn, directory, hash, &bucket)?;
                parent.size += 1;
                parent.links += u32::from(made.kind.is_directory());
                touch_directory(&mut parent, now);
                put_node(txn, &parent)?;
            } else {
                node.links = 0;
                txn.put(&pairs::nameless(number), b"")?;
            }
            if made.kind == Kind::Symlink {
                txn.put(&pairs::content(number), made.target)?;
            }
            if made.object.is_some() {
                txn.delete(&pairs::garbage(number))?;
            }
            put_node(txn, &node)?;
            Ok((node, parent, is_delegated))
        });
        if let (Ok((node, ..)), Some(mut holds)) = (&result, holds) {
            let is_nameless = node.links == 0;
            let hold = Hold { opens: 1, writers: 1, is_nameless, ..Hold::default() };
            holds.insert(number, hold);
        }
        if result.is_err() && made.object.is_some() {
            lock(&self.reserved).insert(number);
        }
        if result.is_err() && is_delegated {
            self.delegations.forget(number);
        }
        result
    }
}

/// A new node in a directory, with what it inherits.
pub(super) fn inheriting(
    txn: &mut dyn Txn,
    parent: &Node,
    number: u64,
    made: &Made<'_>,
    now: Moment<'_>,
) -> Result<Node> {
    let mut node = fresh(parent, number, made, now);
    inherit(txn, parent, made, &mut node)?;
    Ok(node)
}

/// A node as it is before it inherits anything but its group.
fn fresh(parent: &Node, number: u64, made: &Made<'_>, now: Moment<'_>) -> Node {
    let passes_group = parent.permissions & SET_GROUP_ID != 0;
    let is_directory = made.kind.is_directory();
    let set_group = if passes_group && is_directory { SET_GROUP_ID } else { 0 };
    let is_device = matches!(made.kind, Kind::CharacterDevice | Kind::BlockDevice);
    Node {
        number,
        kind: made.kind,
        permissions: match made.kind {
            // They say nothing, and look like this everywhere.
            Kind::Symlink => 0o777,
            _ => made.permissions & 0o7777 | set_group,
        },
        user: made.user,
        group: if passes_group { parent.group } else { made.group },
        links: if is_directory { 2 } else { 1 },
        device: if is_device { made.device } else { 0 },
        size: made.target.len() as u64,
        allocated_bytes: 0,
        accessed: now.time(),
        modified: now.time(),
        changed: now.time(),
        created: now.time(),
        parent: parent.number,
        place: if made.object.is_some() { Place::Object } else { Place::Inline },
        is_written: made.object.is_some() && made.is_opened,
        settled_ns: made.object.map_or(0, |object| object.modified_ns),
        has_xattrs: false,
        has_default_acl: false,
        marks: inherited_marks(&parent.marks, made.kind),
        may_have_object: false,
    }
}

/// What is asked of the tiers for a directory holds for what is made in it.
fn inherited_marks(marks: &Marks, kind: Kind) -> Marks {
    match kind {
        Kind::File | Kind::Directory => marks.clone(),
        _ => Marks::default(),
    }
}

/// Takes the umask away or, in a directory with a default access control list, that instead.
fn inherit(txn: &mut dyn Txn, parent: &Node, made: &Made<'_>, node: &mut Node) -> Result<()> {
    if made.kind == Kind::Symlink {
        return Ok(());
    }
    let default = match parent.has_default_acl {
        true => txn.get(&pairs::xattr(parent.number, acl::DEFAULT))?,
        false => None,
    };
    let Some(default) = default else {
        node.permissions &= !(made.umask & 0o777);
        return Ok(());
    };
    let (permissions, access) = acl::inherit(&default, node.permissions)?;
    node.permissions = permissions;
    if let Some(access) = access {
        txn.put(&pairs::xattr(node.number, acl::ACCESS), &access)?;
        node.has_xattrs = true;
    }
    if made.kind.is_directory() {
        txn.put(&pairs::xattr(node.number, acl::DEFAULT), &default)?;
        node.has_xattrs = true;
        node.has_default_acl = true;
    }
    Ok(())
}
