// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use std::ops::Bound;

use super::{Tree, find_node};
use crate::entries::{Bucket, after};
use crate::failure::{Failure, Result};
use crate::pairs;
use crate::request::Listed;

/// Most entries in one answer, whatever was asked for.
const LISTED_MAX: usize = 4096;

impl Tree {
    /// Entries behind a position, in order; fewer than asked for only at the end. A directory that
    /// was removed has none.
    pub(super) fn list(
        &self,
        directory: u64,
        position: u64,
        max: u32,
        with_nodes: bool,
    ) -> Result<Vec<Listed>> {
        let max = (max as usize).clamp(1, LISTED_MAX);
        let (first_hash, first_index) = after(position);
        let mut range = pairs::entries(directory);
        range.start = Bound::Included(pairs::entry(directory, first_hash));
        let mut found = Vec::new();
        'pages: loop {
            let page = self.kv.scan(&range, max)?;
            for (key, value) in &page {
                let hash = pairs::hash_of(key)
                    .ok_or_else(|| Failure::corrupt("the key of an entry is short"))?;
                for entry in Bucket::decode(value)?.0 {
                    if hash == first_hash && entry.index < first_index {
                        continue;
                    }
                    if found.len() == max {
                        break 'pages;
                    }
                    let node = if with_nodes { find_node(self, entry.number)? } else { None };
                    // It was removed since the entry was read.
                    if with_nodes && node.is_none() {
                        continue;
                    }
                    let position = entry.position(hash);
                    let (number, kind) = (entry.number, entry.kind);
                    found.push(Listed { name: entry.name, position, number, kind, node });
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == max && found.len() < max => {
                    range = range.after(key);
                }
                _ => break,
            }
        }
        Ok(found)
    }
}
