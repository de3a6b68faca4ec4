// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything must be below the root: what is not comes to `lost+found`.

use rustix::io::Errno;

use super::table::DirectoryRow;
use super::{Checker, DamageKind};
use crate::entries::{Bucket, hash};
use crate::failure::{Failure, Result};
use crate::node::{Kind, Node, ROOT};
use crate::pairs;
use crate::record::{decode, encode};

/// Where nodes come that have lost their names.
const LOST_AND_FOUND: &str = "lost+found";

/// Tries of a name beside one that is taken.
const NAMES_MAX: u32 = 100;

impl Checker<'_> {
    pub(super) fn shape(&mut self) -> Result<()> {
        if let Some(root) = self.table.directory(ROOT) {
            root.is_reached = true;
        }
        let mut index = 0;
        // `lost+found` may come in between: then one is looked at again.
        while index < self.table.directories.len() {
            self.reach(index)?;
            index += 1;
        }
        for index in 0..self.table.files.len() {
            let row = &self.table.files[index];
            if row.names == 0 && !row.is_nameless {
                self.adopt(row.number, Kind::File, row.is_remade)?;
            }
        }
        Ok(())
    }

    /// Looks for the root above a directory.
    fn reach(&mut self, index: usize) -> Result<()> {
        let mut path: Vec<u64> = Vec::new();
        let mut number = self.table.directories[index].number;
        while let Some(row) = self.table.directory(number).filter(|row| !row.is_reached) {
            let (found_in, is_remade) = (row.found_in, row.is_remade);
            let is_nameless = row.is_nameless;
            if found_in == 0 {
                path.push(number);
                if is_nameless {
                    break;
                }
                self.adopt(number, Kind::Directory, is_remade)?;
                break;
            }
            // A path that comes back to itself is a circle.
            if let Some(start) = path.iter().position(|above| *above == number) {
                let lowest = path[start..].iter().copied().min().unwrap_or(number);
                self.found(DamageKind::Circle, lowest, "it is in a directory below itself".into());
                self.cut(lowest)?;
                self.adopt(lowest, Kind::Directory, true)?;
                break;
            }
            path.push(number);
            number = found_in;
        }
        for number in path {
            if let Some(row) = self.table.directory(number) {
                row.is_reached = true;
            }
        }
        Ok(())
    }

    /// Takes a directory out of the one that it was found in.
    fn cut(&mut self, number: u64) -> Result<()> {
        let Some(row) = self.table.directory(number) else { return Ok(()) };
        let (directory, at) = (row.found_in, row.found_hash);
        row.found_in = 0;
        self.count(directory, Kind::Directory, -1);
        self.remove_entry(directory, at, number)
    }

    /// Gives a node a name in `lost+found`.
    fn adopt(&mut self, number: u64, kind: Kind, is_told: bool) -> Result<()> {
        if !is_told {
            self.found(DamageKind::Unreached, number, "it has no name".into());
        }
        if self.mending.is_none() {
            return Ok(());
        }
        let to = self.lost_and_found()?;
        let Some(mut node) = self.read(number)? else { return Ok(()) };
        let Some(mut directory) = self.read(to)? else { return Ok(()) };
        let kind = if kind.is_directory() { kind } else { node.kind };
        node.parent = to;
        if !kind.is_directory() {
            node.links = 1;
        }
        let key = self.enter(&mut directory, &format!("{number:016x}"), number, kind)?;
        self.change(|txn| {
            txn.put(&key.0, &key.1)?;
            txn.put(&pairs::node(to), &encode(&directory))?;
            txn.put(&pairs::node(number), &encode(&node))
        })?;
        self.count(to, kind, 1);
        if let Some(row) = self.table.directory(number) {
            row.found_in = to;
            row.parent = to;
        } else if let Some(row) = self.table.file(number) {
            row.names = 1;
        }
        self.report.adopted += 1;
        self.report.entries += 1;
        Ok(())
    }

    /// Adds an entry to a directory, under another name where that one is taken; the pair to write.
    fn enter(
        &self,
        directory: &mut Node,
        name: &str,
        number: u64,
        kind: Kind,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let known = self.superblock.ok_or(Failure::of(Errno::IO))?;
        for attempt in 1..=NAMES_MAX {
            let name = match attempt {
                1 => name.to_owned(),
                _ => format!("{name}-{attempt}"),
            };
            let key = pairs::entry(directory.number, hash(known.superblock.seed, name.as_bytes()));
            let mut bucket = match self.kv.get(&key)? {
                Some(bytes) => Bucket::decode(&bytes)?,
                None => Bucket::default(),
            };
            if bucket.find(name.as_bytes()).is_some() {
                continue;
            }
            bucket.add(name.as_bytes(), number, kind)?;
            directory.size += 1;
            directory.links += u32::from(kind.is_directory());
            directory.modified = self.now;
            directory.changed = self.now;
            return Ok((key, bucket.encode().unwrap_or_default()));
        }
        Err(Errno::EXIST.into())
    }

    /// The directory for what is lost, made where it is not there.
    fn lost_and_found(&mut self) -> Result<u64> {
        if let Some(number) = self.lost_and_found {
            return Ok(number);
        }
        let mut known = self.superblock.ok_or(Failure::of(Errno::IO))?;
        let key = pairs::entry(ROOT, hash(known.superblock.seed, LOST_AND_FOUND.as_bytes()));
        if let Some(bytes) = self.kv.get(&key)?
            && let Some(entry) = Bucket::decode(&bytes)?.find(LOST_AND_FOUND.as_bytes())
            && self.table.directory(entry.number).is_some()
        {
            self.lost_and_found = Some(entry.number);
            return Ok(entry.number);
        }
        let mut root = self.read(ROOT)?.ok_or(Failure::of(Errno::IO))?;
        let number = known.superblock.next_number;
        known.superblock.next_number = number.checked_add(1).ok_or(Failure::of(Errno::NOSPC))?;
        let made = self.fresh(number, Kind::Directory);
        let key = self.enter(&mut root, LOST_AND_FOUND, number, Kind::Directory)?;
        self.change(|txn| {
            txn.put(pairs::SUPERBLOCK, &known.superblock.encode())?;
            txn.put(&pairs::node(number), &encode(&made))?;
            txn.put(&key.0, &key.1)?;
            txn.put(&pairs::node(ROOT), &encode(&root))
        })?;
        self.superblock = Some(known);
        self.count(ROOT, Kind::Directory, 1);
        self.table.add_directory(DirectoryRow {
            number,
            parent: ROOT,
            found_in: ROOT,
            is_reached: true,
            ..DirectoryRow::default()
        });
        self.report.directories += 1;
        self.report.entries += 1;
        self.lost_and_found = Some(number);
        Ok(number)
    }

    fn read(&self, number: u64) -> Result<Option<Node>> {
        let bytes = self.kv.get(&pairs::node(number))?;
        bytes.map(|bytes| decode(number, &bytes)).transpose()
    }
}
