// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use std::ops::Bound;

use rustix::io::Errno;

use super::{TRIES_MAX, Tree, find_node, get_bucket};
use crate::entries::{Bucket, Entry, after};
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::pairs;
use crate::request::Listed;

/// Most entries in one answer, whatever was asked for.
const LISTED_MAX: usize = 4096;

impl Tree {
    /// Entries behind a position, in order; fewer than asked for only at the end.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the directory was removed.
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
                for mut entry in Bucket::decode(value)?.0 {
                    if hash == first_hash && entry.index < first_index {
                        continue;
                    }
                    if found.len() == max {
                        break 'pages;
                    }
                    let mut node = None;
                    if with_nodes {
                        node = self.follow(directory, hash, &mut entry)?;
                        // The name was removed since the entry was read.
                        if node.is_none() {
                            continue;
                        }
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
        // Only one without entries can have been removed.
        if found.is_empty() && find_node(self, directory)?.is_none_or(|node| node.links == 0) {
            return Err(Errno::NOENT.into());
        }
        Ok(found)
    }

    /// The node that an entry leads to. Where it was removed since the entry was read, the name may lead to
    /// another one by now, and the entry does then; `None` where the name is gone.
    fn follow(&self, directory: u64, hash: u64, entry: &mut Entry) -> Result<Option<Node>> {
        for _ in 0..TRIES_MAX {
            if let Some(node) = find_node(self, entry.number)? {
                return Ok(Some(node));
            }
            let bucket = get_bucket(self, directory, hash)?;
            match bucket.find(&entry.name) {
                Some(now) if now.number != entry.number => {
                    (entry.number, entry.kind) = (now.number, now.kind);
                }
                // Both go at once: a name that still leads there is damaged, and hides no others.
                _ => return Ok(None),
            }
        }
        Err(Errno::AGAIN.into())
    }
}
