// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every node against what is kept of it: attributes, bytes, marks, its object.

use terrace_core::{BackendExt, ErrorKind, Stat};

use super::table::{DirectoryRow, FileRow};
use super::walk::{Listings, Objects, Walk};
use super::{Checker, DamageKind};
use crate::acl;
use crate::failure::Result;
use crate::node::{Kind, NAME_BYTES_MAX, Node, Place, ROOT, object_key};
use crate::pairs;
use crate::record::{decode, encode, is_whole};
use crate::request::CLAIMED;
use crate::superblock::INLINE_BYTES_LIMIT;

/// Everything that is there under one number.
#[derive(Default)]
struct Found {
    number: u64,
    record: Option<Vec<u8>>,
    content: Option<Vec<u8>>,
    is_nameless: bool,
    is_garbage: bool,
    has_entries: bool,
    has_object: bool,
    /// Names of attributes; of the inherited list also what it says.
    attributes: Vec<Vec<u8>>,
    default_list: Option<Vec<u8>>,
}

impl Found {
    /// Whether nothing is there but attributes or a mark: they go where there is no node.
    fn has_only_marks(&self) -> bool {
        let has_node = self.record.is_some() || self.content.is_some() || self.has_entries;
        !has_node && !self.has_object && !self.is_garbage
    }
}

/// An object that is listed, looked at.
enum Object {
    There(Stat),
    /// Nothing is left of it.
    Lost,
    /// Bytes of it may be there: nothing that depends on them is changed.
    Unread,
}

impl Checker<'_> {
    pub(super) fn nodes(&mut self) -> Result<()> {
        let kv = self.kv;
        let mut walks =
            [pairs::NODE, pairs::CONTENT, pairs::NAMELESS, pairs::GARBAGE, pairs::XATTR]
                .map(|letter| Walk::new(kv, letter));
        let mut listings = Listings::new(kv);
        let mut objects = match self.is_distributed {
            true => Objects::none(self.data),
            false => Objects::new(self.data, self.namespace)?,
        };
        let mut is_root_seen = false;
        loop {
            let mut first = listings.number()?.unwrap_or(u64::MAX);
            first = first.min(objects.number()?.unwrap_or(u64::MAX));
            for walk in &mut walks {
                first = first.min(walk.number(&mut self.report.foreign)?.unwrap_or(u64::MAX));
            }
            if first > ROOT && !is_root_seen {
                is_root_seen = true;
                self.node(Found { number: ROOT, ..Found::default() })?;
            }
            // No node has the highest number: there would be none after it.
            if first == u64::MAX {
                break;
            }
            is_root_seen |= first == ROOT;
            let mut found = Found { number: first, ..Found::default() };
            let [nodes, contents, nameless, garbage, xattrs] = &mut walks;
            found.record = nodes.take(first)?.map(|(_, value)| value);
            found.content = contents.take(first)?.map(|(_, value)| value);
            found.is_nameless = nameless.take(first)?.is_some();
            found.is_garbage = garbage.take(first)?.is_some();
            while let Some((key, value)) = xattrs.take(first)? {
                let name = pairs::xattr_name(&key);
                if name == acl::DEFAULT {
                    found.default_list = Some(value);
                }
                found.attributes.push(name.to_vec());
            }
            if listings.number()? == Some(first) {
                found.has_entries = true;
                listings.pass();
            }
            if objects.number()? == Some(first) {
                found.has_object = true;
                objects.pass();
            }
            // No number from `CLAIMED` on is ever given: behind one that is there all the same, there would
            // soon be none to give.
            if first < CLAIMED && !found.has_only_marks() {
                self.highest = self.highest.max(first);
            }
            self.looked();
            self.node(found)?;
        }
        self.report.foreign += objects.foreign;
        Ok(())
    }

    fn node(&mut self, found: Found) -> Result<()> {
        match found.record.as_deref().map(|bytes| decode(found.number, bytes)) {
            Some(Ok(node)) if found.number != ROOT || node.kind.is_directory() => {
                self.known(node, found)
            }
            // Of a later version: nothing here knows what would be right.
            Some(Err(failure)) if found.record.as_deref().is_some_and(is_whole) => Err(failure),
            _ => self.remake(found),
        }
    }

    /// A number without a node that can be read: it gets one, where there is something to keep.
    fn remake(&mut self, found: Found) -> Result<()> {
        let number = found.number;
        let is_directory = number == ROOT || found.has_entries;
        let object = match found.has_object && !found.is_garbage {
            true => Some(self.look(number)?),
            false => None,
        };
        if matches!(object, Some(Object::Lost)) {
            self.forget_object(number)?;
        }
        let object = object.filter(|object| !matches!(object, Object::Lost));
        let has_object = object.is_some();
        let has_marks = found.is_nameless || !found.attributes.is_empty();
        let is_kept = is_directory || has_object || found.content.is_some();
        let (kind, detail) = match (&found.record, number) {
            (_, ROOT) => (DamageKind::MissingRoot, "there is no root directory"),
            (Some(_), _) => (DamageKind::DamagedNode, "its record cannot be read"),
            (None, _) if has_object => (DamageKind::MissingNode, "an object belongs to no file"),
            (None, _) if is_kept => (DamageKind::MissingNode, "entries or bytes have no node"),
            (None, _) if has_marks => (DamageKind::StrayPair, "attributes or marks have no node"),
            // An object that is to be deleted, or that was lost.
            (None, _) => return Ok(()),
        };
        self.found(kind, number, detail.into());
        if !is_kept {
            return self.forget(&found);
        }
        let mut node = self.fresh(number, if is_directory { Kind::Directory } else { Kind::File });
        let is_inline = !is_directory && self.is_inline(number, object.as_ref(), &found)?;
        if is_directory {
            node.has_default_acl = found.default_list.is_some();
        } else if is_inline {
            node.size = found.content.as_ref().map_or(0, |content| content.len() as u64);
            node.may_have_object = has_object;
        } else if let Some(object) = &object {
            node = match object {
                Object::There(stat) => in_object(node, stat),
                // It says everything once it can be asked.
                _ => Node { place: Place::Object, is_written: true, ..node },
            };
        }
        node.has_xattrs = !found.attributes.is_empty();
        self.change(|txn| {
            if !is_inline {
                txn.delete(&pairs::content(number))?;
            }
            txn.delete(&pairs::nameless(number))?;
            txn.put(&pairs::node(number), &encode(&node))
        })?;
        self.row(&node, true, false);
        Ok(())
    }

    /// Whether the bytes of a file whose record cannot be read are with the metadata. They leave it in the
    /// change that says that they are in the object: an object beside them was left by a move that ended
    /// in the middle, or is of a later time.
    fn is_inline(&mut self, number: u64, object: Option<&Object>, found: &Found) -> Result<bool> {
        match (object, &found.content) {
            (Some(_), None) => Ok(false),
            (Some(Object::There(stat)), Some(content)) if self.objects_decide => {
                Ok(!self.has_others(number, stat, content, content.len() as u64)?)
            }
            _ => Ok(true),
        }
    }

    /// Removes everything that is kept of a number.
    fn forget(&self, found: &Found) -> Result<()> {
        let number = found.number;
        self.change(|txn| {
            txn.delete(&pairs::node(number))?;
            txn.delete(&pairs::content(number))?;
            txn.delete(&pairs::nameless(number))?;
            found.attributes.iter().try_for_each(|name| txn.delete(&pairs::xattr(number, name)))
        })
    }

    fn known(&mut self, before: Node, found: Found) -> Result<()> {
        let number = found.number;
        let mut node = before.clone();
        if found.is_garbage {
            self.found(DamageKind::WrongGarbage, number, "it would lose its object".into());
            self.change(|txn| txn.delete(&pairs::garbage(number)))?;
        }
        let is_kept = match node.place {
            Place::Object if node.kind == Kind::File => self.with_object(&mut node, &found)?,
            _ => self.with_content(&mut node, &found)?,
        };
        if !is_kept {
            return self.forget(&found);
        }
        self.attributes(&mut node, &found)?;
        let mut has_mark = found.is_nameless;
        if node.kind.is_directory() && has_mark && (node.links > 0 || found.has_entries) {
            self.found(DamageKind::WrongNameless, number, "it is a directory in use".into());
            self.change(|txn| txn.delete(&pairs::nameless(number)))?;
            has_mark = false;
        }
        if node != before {
            self.change(|txn| txn.put(&pairs::node(number), &encode(&node)))?;
        }
        self.row(&node, false, has_mark);
        Ok(())
    }

    /// A file whose bytes are in an object; whether the file stays.
    fn with_object(&mut self, node: &mut Node, found: &Found) -> Result<bool> {
        let number = node.number;
        if found.content.is_some() {
            let detail = "there are bytes beside its object";
            self.found(DamageKind::WrongContent, number, detail.into());
            self.change(|txn| txn.delete(&pairs::content(number)))?;
        }
        if self.is_distributed {
            return Ok(true);
        }
        if !found.has_object {
            if self.objects_decide {
                return Ok(false);
            }
            let detail = format!("{} bytes are lost", node.size);
            self.found(DamageKind::MissingObject, number, detail);
            empty(node);
            return Ok(true);
        }
        let stat = match self.look(number)? {
            Object::There(stat) => stat,
            Object::Lost => {
                self.forget_object(number)?;
                empty(node);
                return Ok(true);
            }
            Object::Unread => return Ok(true),
        };
        // Of one that is being written, or was when its user died, the object says everything.
        if node.is_written {
            return Ok(true);
        }
        if stat.size_bytes != node.size {
            if !self.objects_decide {
                let detail = format!("{} bytes, its object has {}", node.size, stat.size_bytes);
                self.found(DamageKind::WrongLength, number, detail);
            }
            *node = in_object(node.clone(), &stat);
        }
        Ok(true)
    }

    /// Anything else: bytes with the metadata, or none at all. Whether the node stays.
    fn with_content(&mut self, node: &mut Node, found: &Found) -> Result<bool> {
        let number = node.number;
        let length = found.content.as_ref().map_or(0, Vec::len) as u64;
        if node.place == Place::Object {
            let detail = "it is no file and can have no object";
            self.found(DamageKind::WrongContent, number, detail.into());
            node.place = Place::Inline;
        }
        match node.kind {
            Kind::Symlink if length == 0 => {
                let detail = "the symbolic link has no target";
                self.found(DamageKind::MissingTarget, number, detail.into());
                return Ok(false);
            }
            Kind::Symlink if length != node.size => {
                let detail = format!("{} bytes, its target has {length}", node.size);
                self.found(DamageKind::WrongContent, number, detail);
                node.size = length;
            }
            Kind::Symlink => {}
            Kind::File => self.small_file(node, found)?,
            _ if found.content.is_some() => {
                let detail = "what is no file has bytes";
                self.found(DamageKind::WrongContent, number, detail.into());
                self.change(|txn| txn.delete(&pairs::content(number)))?;
            }
            _ => {}
        }
        Ok(true)
    }

    fn small_file(&mut self, node: &mut Node, found: &Found) -> Result<()> {
        let number = node.number;
        if found.has_object && !found.is_garbage {
            match self.look(number)? {
                Object::There(stat) if self.objects_decide => {
                    let content = found.content.as_deref().unwrap_or_default();
                    let is_newer = stat.modified_ns > node.modified.to_ns();
                    if is_newer && self.has_others(number, &stat, content, node.size)? {
                        *node = in_object(node.clone(), &stat);
                        return self.change(|txn| txn.delete(&pairs::content(number)));
                    }
                    // That may not be noted yet.
                    node.may_have_object = true;
                }
                Object::Lost => self.forget_object(number)?,
                _ => {}
            }
            // Otherwise it was left before the bytes were moved there. It is written anew when they
            // are, so it does no harm.
        }
        let Some(content) = &found.content else { return Ok(()) };
        if content.len() as u64 > node.size {
            let detail = format!("{} bytes, {} are kept", node.size, content.len());
            self.found(DamageKind::WrongContent, number, detail);
            let kept = usize::try_from(node.size).unwrap_or(usize::MAX).min(content.len());
            self.change(|txn| txn.put(&pairs::content(number), &content[..kept]))?;
        }
        let is_movable = !self.is_distributed;
        if is_movable && content.len().min(node.size as usize) > INLINE_BYTES_LIMIT as usize {
            let detail = format!("{} bytes are too many to be with the metadata", content.len());
            self.found(DamageKind::WrongContent, number, detail);
            if self.mending.is_some() {
                self.move_out(node, content)?;
            }
        }
        Ok(())
    }

    /// Whether an object has other bytes than those that are with the metadata, and not only what a move
    /// of these leaves that ends in the middle: the first of them, perhaps with zeros behind.
    fn has_others(&mut self, number: u64, stat: &Stat, content: &[u8], size: u64) -> Result<bool> {
        if stat.size_bytes > size.min(INLINE_BYTES_LIMIT.into()) {
            return Ok(true);
        }
        let key = object_key(self.namespace, number)?;
        let bytes = match self.data.read_all(&key) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.found(DamageKind::UnreadableObject, number, error.chain());
                return Ok(false);
            }
        };
        let same = bytes.iter().zip(content).take_while(|(one, other)| one == other).count();
        Ok(bytes[same..].iter().any(|byte| *byte != 0))
    }

    /// Moves the bytes of a file to an object.
    fn move_out(&self, node: &mut Node, content: &[u8]) -> Result<()> {
        let key = object_key(self.namespace, node.number)?;
        self.data.write_all(&key, &content[..content.len().min(node.size as usize)])?;
        self.data.open(&key, &terrace_core::Open::write())?.set_len(node.size)?;
        *node = in_object(node.clone(), &self.stat(node.number)?);
        let moved = node.clone();
        self.change(|txn| {
            txn.delete(&pairs::content(moved.number))?;
            txn.put(&pairs::node(moved.number), &encode(&moved))
        })
    }

    fn attributes(&mut self, node: &mut Node, found: &Found) -> Result<()> {
        let number = node.number;
        let is_wrong = |name: &Vec<u8>| {
            let is_list = name == acl::DEFAULT;
            let list = found.default_list.as_deref().unwrap_or_default();
            let is_good_list = node.kind.is_directory() && acl::is_empty(list) == Ok(false);
            name.len() > NAME_BYTES_MAX || is_list && !is_good_list
        };
        let (wrong, right): (Vec<_>, Vec<_>) =
            found.attributes.iter().partition(|one| is_wrong(one));
        let has_list = right.iter().any(|name| *name == acl::DEFAULT);
        if wrong.is_empty()
            && node.has_xattrs != right.is_empty()
            && node.has_default_acl == has_list
        {
            return Ok(());
        }
        let detail = match wrong.first() {
            Some(name) => format!("{} cannot be read", String::from_utf8_lossy(name)),
            None => format!("there are {}, it says otherwise", right.len()),
        };
        self.found(DamageKind::WrongAttributes, number, detail);
        node.has_xattrs = !right.is_empty();
        node.has_default_acl = has_list;
        self.change(|txn| wrong.iter().try_for_each(|name| txn.delete(&pairs::xattr(number, name))))
    }

    fn stat(&self, number: u64) -> Result<Stat> {
        Ok(self.data.stat(&object_key(self.namespace, number)?)?)
    }

    /// Looks at an object, and takes note of one that cannot be looked at.
    fn look(&mut self, number: u64) -> Result<Object> {
        let key = object_key(self.namespace, number)?;
        let error = match self.data.stat(&key) {
            Ok(stat) => return Ok(Object::There(stat)),
            Err(error) => error,
        };
        // On a tier that is missing it is not known to be gone.
        if error.kind() != ErrorKind::NotFound {
            self.found(DamageKind::UnreadableObject, number, error.chain());
            return Ok(Object::Unread);
        }
        let is_lost = (self.is_lost)(&key);
        let rest = if is_lost { "" } else { "; some of its bytes are there" };
        self.found(DamageKind::MissingObject, number, format!("{}{rest}", error.chain()));
        Ok(if is_lost { Object::Lost } else { Object::Unread })
    }

    /// Removes what is known of an object of which nothing is left.
    fn forget_object(&self, number: u64) -> Result<()> {
        if self.mending.is_none() {
            return Ok(());
        }
        match self.data.delete(&object_key(self.namespace, number)?) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn row(&mut self, node: &Node, is_remade: bool, has_mark: bool) {
        let number = node.number;
        if node.kind.is_directory() {
            self.report.directories += 1;
            let parent = node.parent;
            let is_nameless = has_mark;
            let row =
                DirectoryRow { number, parent, is_remade, is_nameless, ..DirectoryRow::default() };
            self.table.directories.push(row);
            return;
        }
        self.report.files += 1;
        self.table.files.push(FileRow {
            number,
            names: 0,
            kind: (node.kind.bits() >> 12) as u8,
            is_nameless: has_mark && node.links == 0,
            has_mark,
            is_remade,
        });
    }
}

/// The bytes of a file are lost.
fn empty(node: &mut Node) {
    node.place = Place::Inline;
    node.size = 0;
    node.allocated_bytes = 0;
    node.is_written = false;
}

/// A node whose bytes are in its object.
fn in_object(node: Node, stat: &Stat) -> Node {
    let node = Node { place: Place::Object, may_have_object: false, ..node }.with_object(stat);
    Node { settled_ns: stat.modified_ns, is_written: false, ..node }
}
