// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making nodes.

use rustix::io::Errno;
use terrace_core::Txn;

use super::content::room;
use super::hold::Hold;
use super::{
    Tree, check_name, find_node, get_bucket, get_directory, get_living_directory, put_bucket,
    put_node, touch,
};
use crate::acl;
use crate::clock::Moment;
use crate::entries::Bucket;
use crate::failure::Result;
use crate::lock;
use crate::node::{Kind, Marks, Node, Place, SET_GROUP_ID, TARGET_BYTES_MAX, Time};
use crate::pairs;
use crate::request::Made;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) directory: u64,
    pub(super) name: &'a [u8],
}

/// A file whose number was given to its maker.
pub(super) struct Numbered<'a> {
    pub(super) number: u64,
    /// What it begins with.
    pub(super) content: &'a [u8],
    /// Whether its maker has it open already.
    pub(super) is_open: bool,
}

impl Tree {
    /// Makes a node under a name; without one, a file that has none yet. It is open once where that
    /// is asked for. Returns the directory, too, and whether a directory that was made is delegated to
    /// the session that made it.
    pub(super) fn make(
        &self,
        session: u64,
        Spot { directory, name }: Spot<'_>,
        made: &Made<'_>,
        numbered: Option<Numbered<'_>>,
    ) -> Result<(Node, Node, bool)> {
        let has_name = !name.is_empty();
        if let Some(numbered) = &numbered
            && !self.may_make(numbered, has_name, made)
        {
            return Err(Errno::INVAL.into());
        }
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
            None => match &numbered {
                Some(numbered) => numbered.number,
                None => self.take_number()?,
            },
        };
        // Before anybody can know of it.
        let is_delegated =
            made.kind.is_directory() && self.delegations.give(&self.clock, session, number);
        let hash = self.hash(name);
        let now = self.now();
        // Its name is not taken away before it is known to be open.
        let holds = made.is_opened.then(|| self.holds.lock(number));
        let result = self.change(|txn| {
            if numbered.is_some()
                && let Some(node) = made_before(txn, number)?
            {
                return Ok((node, get_directory(&mut *txn, directory)?, false));
            }
            let mut parent = get_living_directory(&mut *txn, directory)?;
            let mut bucket = match has_name {
                true => get_bucket(&mut *txn, directory, hash)?,
                false => Bucket::default(),
            };
            if bucket.find(name).is_some() {
                return Err(Errno::EXIST.into());
            }
            let mut node = inheriting(txn, &parent, number, made, now)?;
            if has_name {
                bucket.add(name, number, made.kind)?;
                put_bucket(txn, directory, hash, &bucket)?;
                parent.size += 1;
                parent.links += u32::from(made.kind.is_directory());
                touch(&mut parent, now);
                put_node(txn, &parent)?;
            } else {
                node.links = 0;
                txn.put(&pairs::nameless(number), b"")?;
            }
            let content = numbered.as_ref().map_or(&b""[..], |numbered| numbered.content);
            if (1..=self.inline_bytes_max()).contains(&(content.len() as u64)) {
                txn.put(&pairs::content(number), content)?;
                node.size = content.len() as u64;
                node.allocated_bytes = room(content);
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
            let hold = holds.entry(number).or_default();
            let opens = u64::from(!numbered.as_ref().is_some_and(|numbered| numbered.is_open));
            *hold = Hold {
                opens: hold.opens + opens,
                writers: hold.writers + opens,
                is_nameless,
                ..*hold
            };
        }
        if result.is_err() && made.object.is_some() {
            lock(&self.reserved).insert(number);
        }
        if result.is_err() && is_delegated {
            self.delegations.forget(number);
        }
        result
    }

    /// Whether a file may be made like this of a number that was given for it.
    fn may_make(&self, numbered: &Numbered<'_>, has_name: bool, made: &Made<'_>) -> bool {
        let is_file = made.kind == Kind::File && made.is_opened && made.object.is_none();
        has_name && is_file && self.was_given(numbered.number)
    }
}

/// The file with a number that was given for it, opened for writing, where it was made before and the answer was
/// lost: whatever its name is by now.
fn made_before(txn: &mut dyn Txn, number: u64) -> Result<Option<Node>> {
    let found = find_node(&mut *txn, number)?;
    let has_left_object = found.is_none() && txn.get(&pairs::garbage(number))?.is_some();
    if has_left_object || found.as_ref().is_some_and(|node| node.kind != Kind::File) {
        return Err(Errno::INVAL.into());
    }
    let Some(mut node) = found else { return Ok(None) };
    if node.place == Place::Object && !node.is_written {
        node.is_written = true;
        put_node(txn, &node)?;
    }
    Ok(Some(node))
}

/// A new node in a directory, with what it inherits.
pub(super) fn inheriting(
    txn: &mut dyn Txn,
    parent: &Node,
    number: u64,
    made: &Made<'_>,
    now: Moment<'_>,
) -> Result<Node> {
    let mut node = fresh(parent, number, made, now.time());
    inherit(txn, parent, made, &mut node)?;
    Ok(node)
}

/// The attributes of a file that is made a little later, where nothing but the directory has to be looked
/// at for them; its times are the last one that the directory's server returned.
pub fn file_in(parent: &Node, number: u64, made: &Made<'_>) -> Option<Node> {
    let lives_on = parent.kind.is_directory() && parent.links > 0 && !parent.has_default_acl;
    (lives_on && made.kind == Kind::File).then(|| {
        let mut node = fresh(parent, number, made, parent.changed);
        node.permissions &= !(made.umask & 0o777);
        node
    })
}

/// A node as it is before it inherits anything but its group.
fn fresh(parent: &Node, number: u64, made: &Made<'_>, now: Time) -> Node {
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
        accessed: now,
        modified: now,
        changed: now,
        created: now,
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
