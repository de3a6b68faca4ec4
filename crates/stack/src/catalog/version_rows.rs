// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of versions, and of the files that they name, in the catalog.

use std::sync::Arc;

use terrace_core::{Key, Kv, KvExt, KvRange, Pair, Result};

use crate::catalog::format::{KEPT, VERSION, scoped};
use crate::catalog::map::{Catalog, GarbageRow, Write, garbage_key};
use crate::catalog::record::TierNumbers;
use crate::catalog::versions::{
    Keeping, KeptRow, KeptState, Version, kept_key, parse_version_key, version_key,
};

/// Rows of files that are read, and then changed, together.
const PAGE: usize = 256;

impl KeptRow {
    /// The file as one that is to be deleted.
    pub(crate) fn garbage(&self) -> GarbageRow {
        let (object_id, segment, place, bytes) =
            (self.object_id, self.segment, self.place, self.bytes);
        GarbageRow { object_id, segment, place, bytes }
    }

    /// Writes it.
    pub(crate) fn put(&self, tiers: &TierNumbers) -> Write<'static> {
        Write::Row(kept_key(self.place.file), Some(self.encode(tiers)))
    }

    /// Removes that of a file.
    pub(crate) fn gone(file: u64) -> Write<'static> {
        Write::Row(kept_key(file), None)
    }
}

impl Catalog {
    /// Sets which tiers keep what leaves them; none without it.
    pub(crate) fn set_keeping(&self, keeping: Option<Keeping>) {
        self.keeping.store(keeping.map(Arc::new));
    }

    /// The row of a file that a version names.
    pub(crate) fn kept(&self, file: u64) -> Result<Option<KeptRow>> {
        let bytes = self.kv().get(&kept_key(file))?;
        bytes.map(|bytes| KeptRow::decode(&bytes, &self.tiers)).transpose()
    }

    /// Calls `each` for every file that a version names. A row that cannot be read is given as its error.
    pub(crate) fn for_each_kept(
        &self,
        each: &mut dyn FnMut(Result<KeptRow>) -> Result<()>,
    ) -> Result<()> {
        self.kv().for_each(KvRange::prefix(&[KEPT]), &mut |_, value| {
            each(KeptRow::decode(value, &self.tiers))
        })
    }

    /// The files among those that versions name for which `is_wanted` is true, as far as their rows can be read.
    pub(crate) fn kept_where(
        &self,
        is_wanted: &mut dyn FnMut(&KeptRow) -> bool,
    ) -> Result<Vec<KeptRow>> {
        let mut all = Vec::new();
        self.for_each_kept(&mut |row| {
            all.extend(row.ok().filter(|row| is_wanted(row)));
            Ok(())
        })?;
        Ok(all)
    }

    /// Some of the files that versions name, behind the row `after`, as far as their rows can be read; and where to go
    /// on, if more follow.
    pub(crate) fn kept_page(
        &self,
        after: Option<&[u8]>,
    ) -> Result<(Vec<KeptRow>, Option<Vec<u8>>)> {
        let range = KvRange::prefix(&[KEPT]);
        let range = after.map_or(range.clone(), |row| range.after(row));
        let mut pairs = self.kv().scan(&range, PAGE)?;
        let decode = |(_, value): &Pair| KeptRow::decode(value, &self.tiers).ok();
        let rows = pairs.iter().filter_map(decode).collect();
        let last = pairs.pop().map(|(row, _)| row);
        Ok((rows, last.filter(|_| pairs.len() + 1 == PAGE)))
    }

    /// Calls `each` for every version, with the key of its object. One that cannot be read is given as its error.
    pub(crate) fn for_each_version(
        &self,
        each: &mut dyn FnMut(Result<(Key, Version)>) -> Result<()>,
    ) -> Result<()> {
        for_each_version(self.kv(), &[VERSION], each)
    }

    /// One version of an object.
    pub(crate) fn version(&self, key: &Key, id: u64) -> Result<Option<Version>> {
        let bytes = self.kv().get(&version_key(key, id))?;
        let decode = |bytes: Vec<u8>| Version::decode(id, &bytes);
        bytes.map(decode).transpose().map_err(|error| error.with("key", key))
    }

    /// The versions of an object that can be read, the latest first.
    pub(crate) fn versions(&self, key: &Key) -> Result<Vec<Version>> {
        let mut found = Vec::new();
        let mut prefix = scoped(VERSION, key.namespace(), key.name().as_bytes());
        prefix.push(0);
        for_each_version(self.kv(), &prefix, &mut |version| {
            found.extend(version.ok().map(|(_, version)| version));
            Ok(())
        })?;
        found.sort_by_key(|version| std::cmp::Reverse((version.since_ns, version.id)));
        Ok(found)
    }

    /// Commits the changes of those files whose rows are still as they were read; returns for which it did.
    pub(crate) fn change_kept(&self, changes: &[(&KeptRow, Vec<Write<'_>>)]) -> Result<Vec<bool>> {
        let mut is_done = Vec::new();
        self.commit_with(&mut |txn| {
            is_done.clear();
            for (row, writes) in changes {
                let now = txn.get(&kept_key(row.place.file))?;
                let is_same = now.is_some_and(|now| now == row.encode(&self.tiers));
                is_done.push(is_same);
                for write in writes.iter().filter(|_| is_same) {
                    write.apply(&self.tiers, txn)?;
                }
            }
            Ok(())
        })?;
        Ok(is_done)
    }

    /// Forgets a version. A file that it named and that is not kept yet is deleted with its object from now on,
    /// unless a later version names it. One that is garbage already may have a marker, with which it is deleted.
    pub(crate) fn end_version(&self, key: &Key, version: &Version) -> Result<()> {
        let row_key = version_key(key, version.id);
        self.commit_with(&mut |txn| {
            for segment in version.segments.iter().filter(|segment| segment.is_kept) {
                let file_key = kept_key(segment.file);
                let Some(bytes) = txn.get(&file_key)? else { continue };
                let Ok(row) = KeptRow::decode(&bytes, &self.tiers) else { continue };
                if row.state != KeptState::Named || row.version != version.id {
                    continue;
                }
                match txn.get(&garbage_key(segment.file))? {
                    Some(_) => {
                        let expired = KeptRow { state: KeptState::Expired, ..row };
                        txn.put(&file_key, &expired.encode(&self.tiers))?;
                    }
                    None => txn.delete(&file_key)?,
                }
            }
            txn.delete(&row_key)
        })
    }
}

fn for_each_version(
    kv: &dyn Kv,
    prefix: &[u8],
    each: &mut dyn FnMut(Result<(Key, Version)>) -> Result<()>,
) -> Result<()> {
    kv.for_each(KvRange::prefix(prefix), &mut |row, value| {
        let version = parse_version_key(row).and_then(|(key, id)| {
            let version = Version::decode(id, value).map_err(|error| error.with("key", &key))?;
            Ok((key, version))
        });
        each(version)
    })
}
