// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every entry against its name and the node that it leads to.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::walk::Walk;
use super::{Checker, DamageKind};
use crate::entries::{Bucket, Entry, hash};
use crate::failure::{Failure, Result};
use crate::node::{Kind, ROOT};
use crate::pairs;
use crate::tree::check_name;

/// What becomes of an entry.
enum Fate {
    /// It stays, perhaps with another kind.
    Stays(Kind),
    /// It goes.
    Goes,
}

impl Checker<'_> {
    pub(super) fn entries(&mut self) -> Result<()> {
        let mut walk = Walk::new(self.kv, pairs::ENTRY);
        while let Some(directory) = walk.number(&mut self.report.foreign)? {
            let Some((key, value)) = walk.take(directory)? else { continue };
            let hash = pairs::hash_of(&key).ok_or(Failure::of(Errno::IO))?;
            self.looked();
            if self.bucket(directory, hash, &key, &value)? {
                walk.resume_after(&key);
            }
        }
        Ok(())
    }

    /// Entries with one hash. Whether others may have come in behind them.
    fn bucket(&mut self, directory: u64, at: u64, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.table.directory(directory).is_none() {
            self.found(
                DamageKind::StrayEntry,
                directory,
                "what is no directory has entries".into(),
            );
            self.change(|txn| txn.delete(key))?;
            return Ok(false);
        }
        let Ok(before) = Bucket::decode(value) else {
            self.found(DamageKind::DamagedEntry, directory, "an entry cannot be read".into());
            self.change(|txn| txn.delete(key))?;
            return Ok(false);
        };
        let mut kept = Bucket::default();
        let mut moved = Vec::new();
        for entry in &before.0 {
            if check_name(&entry.name).is_err() {
                self.found(DamageKind::ImpossibleName, directory, shown(&entry.name));
                continue;
            }
            if kept.find(&entry.name).is_some() {
                self.found(DamageKind::DuplicateName, directory, shown(&entry.name));
                continue;
            }
            if let Some(right) = self.right_hash(&entry.name, at, directory) {
                moved.push((entry.clone(), right));
                continue;
            }
            if let Fate::Stays(kind) = self.lead(directory, at, entry) {
                kept.0.push(Entry { kind, ..entry.clone() });
            }
        }
        if reindex(&mut kept)? {
            let detail = "two entries have one position".into();
            self.found(DamageKind::DuplicateName, directory, detail);
        }
        let has_moved = !moved.is_empty();
        let mut changed = BTreeMap::new();
        if kept != before {
            changed.insert(key.to_vec(), kept);
        }
        for (entry, right) in moved {
            self.move_entry(directory, at, entry, right, &mut changed)?;
        }
        if !changed.is_empty() {
            // At once: a check that is killed loses no name.
            self.change(|txn| {
                changed.iter().try_for_each(|(key, bucket)| match bucket.encode() {
                    Some(bytes) => txn.put(key, &bytes),
                    None => txn.delete(key),
                })
            })?;
        }
        Ok(has_moved)
    }

    /// The hash under which a name belongs, where that is another one and something is to be done.
    fn right_hash(&mut self, name: &[u8], at: u64, directory: u64) -> Option<u64> {
        let known = self.superblock?;
        let right = hash(known.superblock.seed, name);
        if right == at {
            return None;
        }
        if !known.is_new {
            self.found(DamageKind::MisplacedEntry, directory, shown(name));
        }
        self.mending.is_some().then_some(right)
    }

    /// Puts an entry where it is looked for, in what is to be `changed`. One that comes further behind is
    /// met there again.
    fn move_entry(
        &mut self,
        directory: u64,
        at: u64,
        entry: Entry,
        right: u64,
        changed: &mut BTreeMap<Vec<u8>, Bucket>,
    ) -> Result<()> {
        let key = pairs::entry(directory, right);
        let mut there = match changed.get(&key) {
            Some(there) => there.clone(),
            None => {
                let there = self.kv.get(&key)?.map(|bytes| Bucket::decode(&bytes)).transpose();
                there.unwrap_or_default().unwrap_or_default()
            }
        };
        if there.find(&entry.name).is_some() {
            self.found(DamageKind::DuplicateName, directory, shown(&entry.name));
            return Ok(());
        }
        there.add(&entry.name, entry.number, entry.kind)?;
        let index = there.find(&entry.name).map_or(0, |entry| entry.index);
        if right < at {
            let entry = Entry { index, ..entry };
            match self.lead(directory, right, &entry) {
                Fate::Stays(kind) => {
                    there.0.iter_mut().filter(|one| one.index == index).for_each(|one| {
                        one.kind = kind;
                    });
                }
                Fate::Goes => return Ok(()),
            }
        }
        changed.insert(key, there);
        Ok(())
    }

    /// Follows an entry, and counts it.
    fn lead(&mut self, directory: u64, at: u64, entry: &Entry) -> Fate {
        self.report.entries += 1;
        let kind = if self.table.directory(entry.number).is_some() {
            if !self.lead_to_directory(directory, at, entry) {
                return Fate::Goes;
            }
            Kind::Directory
        } else {
            let Some(row) = self.table.file(entry.number) else {
                let detail = format!("{} leads to node {}", shown(&entry.name), entry.number);
                self.found(DamageKind::DanglingEntry, directory, detail);
                return Fate::Goes;
            };
            row.names += 1;
            Kind::from_mode(u32::from(row.kind) << 12).unwrap_or(Kind::File)
        };
        if kind != entry.kind {
            let detail = format!("{}: {:?}, not {:?}", shown(&entry.name), kind, entry.kind);
            self.found(DamageKind::WrongEntryKind, directory, detail);
        }
        self.count(directory, kind, 1);
        Fate::Stays(kind)
    }

    /// Whether the directory keeps this name: it has one, in the directory that it says it is in if
    /// there is one there.
    fn lead_to_directory(&mut self, directory: u64, at: u64, entry: &Entry) -> bool {
        let number = entry.number;
        let row = self.table.directory(number).expect("it was just found");
        let earlier = (row.found_in, row.found_hash);
        let is_better = row.parent == directory && earlier.0 != directory;
        if number != ROOT && (earlier.0 == 0 || is_better) {
            row.found_in = directory;
            row.found_hash = at;
        }
        if number != ROOT && earlier.0 == 0 {
            return true;
        }
        self.found(DamageKind::ExtraName, number, format!("{} as well", shown(&entry.name)));
        if number == ROOT || !is_better {
            return false;
        }
        self.count(earlier.0, Kind::Directory, -1);
        // What cannot be removed now is found by the next check.
        let _ = self.remove_entry(earlier.0, earlier.1, number);
        true
    }

    pub(super) fn count(&mut self, directory: u64, kind: Kind, by: i64) {
        if let Some(row) = self.table.directory(directory) {
            row.entries = row.entries.saturating_add_signed(by);
            if kind.is_directory() {
                row.directories = row.directories.saturating_add_signed(by as i32);
            }
        }
    }

    /// Takes the entry away that leads to a directory. By its number: positions may have changed since it
    /// was found, and no other entry that stayed leads there.
    pub(super) fn remove_entry(&self, directory: u64, at: u64, number: u64) -> Result<()> {
        let key = pairs::entry(directory, at);
        self.change(|txn| {
            let Some(bytes) = txn.get(&key)? else { return Ok(()) };
            let Ok(mut bucket) = Bucket::decode(&bytes) else { return Ok(()) };
            bucket.0.retain(|entry| entry.number != number);
            match bucket.encode() {
                Some(bytes) => txn.put(&key, &bytes),
                None => txn.delete(&key),
            }
        })
    }
}

/// Gives entries with one index others; whether there were any.
fn reindex(bucket: &mut Bucket) -> Result<bool> {
    let mut indexes: Vec<u8> = bucket.0.iter().map(|entry| entry.index).collect();
    indexes.sort_unstable();
    indexes.dedup();
    if indexes.len() == bucket.0.len() {
        return Ok(false);
    }
    for entry in std::mem::take(&mut bucket.0) {
        bucket.add(&entry.name, entry.number, entry.kind)?;
    }
    Ok(true)
}

fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
