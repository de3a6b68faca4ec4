// SPDX-License-Identifier: Apache-2.0 OR MIT
//! More names for a node.

use rustix::io::Errno;

use super::{
    Tree, check_name, get_bucket, get_living_directory, get_node, put_bucket, put_node, touch,
};
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::pairs;

impl Tree {
    /// Gives a node one more name; also one that was made without, but not one that was removed.
    pub(super) fn link(&self, number: u64, directory: u64, name: &[u8]) -> Result<Node> {
        check_name(name)?;
        let hash = self.hash(name);
        let now = self.now();
        // Its last name is not taken away, nor is it closed, in between.
        let mut holds = self.holds.lock(number);
        let was_removed = holds.get(&number).is_some_and(|hold| hold.was_removed);
        let node = self.change(|txn| {
            let mut node = get_node(&mut *txn, number)?;
            if node.kind.is_directory() {
                return Err(Errno::PERM.into());
            }
            if was_removed {
                return Err(Errno::NOENT.into());
            }
            let mut parent = get_living_directory(&mut *txn, directory)?;
            let mut bucket = get_bucket(&mut *txn, directory, hash)?;
            if bucket.find(name).is_some() {
                return Err(Errno::EXIST.into());
            }
            bucket.add(name, number, node.kind)?;
            put_bucket(txn, directory, hash, &bucket)?;
            if node.links == 0 {
                txn.delete(&pairs::nameless(number))?;
            }
            node.links = node.links.checked_add(1).ok_or(Failure::of(Errno::MLINK))?;
            node.changed = now.after(node.changed);
            node.parent = directory;
            put_node(txn, &node)?;
            parent.size += 1;
            touch(&mut parent, now);
            put_node(txn, &parent)?;
            Ok(node)
        })?;
        if let Some(hold) = holds.get_mut(&number) {
            hold.is_nameless = false;
        }
        Ok(node)
    }
}
