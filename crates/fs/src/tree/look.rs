// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding nodes.

use rustix::io::Errno;

use super::{TRIES_MAX, Tree, find_node, get_bucket, get_directory, get_node};
use crate::failure::{Failure, Result};
use crate::node::{NAME_BYTES_MAX, Node};
use crate::pairs;

impl Tree {
    /// What a name leads to.
    pub(super) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node> {
        match name {
            b"." => return get_node(self, directory),
            b".." => return get_node(self, get_directory(self, directory)?.parent),
            name if name.len() > NAME_BYTES_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ => {}
        }
        let hash = self.hash(name);
        for _ in 0..TRIES_MAX {
            let bucket = get_bucket(self, directory, hash)?;
            let Some(entry) = bucket.find(name) else {
                return match get_directory(self, directory)?.links {
                    0 => Err(Errno::STALE.into()),
                    _ => Err(Errno::NOENT.into()),
                };
            };
            if let Some(node) = find_node(self, entry.number)? {
                return Ok(node);
            }
        }
        Err(Failure::corrupt(&format!("a name in directory {directory} leads to no node")))
    }

    pub(super) fn node(&self, number: u64) -> Result<Node> {
        get_node(self, number)
    }

    /// Where a symbolic link leads.
    pub(super) fn target(&self, number: u64) -> Result<Vec<u8>> {
        let node = get_node(self, number)?;
        if node.kind != crate::node::Kind::Symlink {
            return Err(Errno::INVAL.into());
        }
        if let Some(target) = self.kv.get(&pairs::content(number))? {
            return Ok(target);
        }
        // Both go at once, and never one alone: it was removed since the first look, or is damaged.
        get_node(self, number)?;
        Err(Failure::corrupt(&format!("link {number} leads nowhere")))
    }
}
