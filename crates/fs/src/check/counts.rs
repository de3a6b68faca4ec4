// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every node against the entries that were found.

use super::walk::Walk;
use super::{Checker, DamageKind};
use crate::failure::Result;
use crate::node::{Node, ROOT};
use crate::pairs;
use crate::record::{decode, encode};

impl Checker<'_> {
    pub(super) fn counts(&mut self) -> Result<()> {
        let mut walk = Walk::new(self.kv, pairs::NODE);
        while let Some(number) = walk.number(&mut 0)? {
            let Some((_, value)) = walk.take(number)? else { continue };
            self.looked();
            // What cannot be read was reported.
            let Ok(before) = decode(number, &value) else { continue };
            let node = match before.kind.is_directory() {
                true => self.counted_directory(before.clone())?,
                false => self.counted_file(before.clone())?,
            };
            if node != before {
                self.change(|txn| txn.put(&pairs::node(number), &encode(&node)))?;
            }
        }
        Ok(())
    }

    fn counted_directory(&mut self, mut node: Node) -> Result<Node> {
        let Some(row) = self.table.directory(node.number) else { return Ok(node) };
        let (is_remade, is_nameless, entries) = (row.is_remade, row.is_nameless, row.entries);
        let (found_in, links) = (row.found_in, row.directories.saturating_add(2));
        if is_nameless && found_in == 0 {
            return Ok(node);
        }
        if is_nameless {
            self.found(DamageKind::WrongNameless, node.number, "it has a name".into());
            self.change(|txn| txn.delete(&pairs::nameless(node.number)))?;
        }
        let parent = match (node.number, found_in) {
            (ROOT, _) => ROOT,
            // It would come to `lost+found`.
            (_, 0) => node.parent,
            (_, found_in) => found_in,
        };
        if !is_remade {
            self.compare(DamageKind::WrongLinks, node.number, node.links.into(), links.into());
            self.compare(DamageKind::WrongSize, node.number, node.size, entries);
            self.compare(DamageKind::WrongParent, node.number, node.parent, parent);
        }
        node.links = links;
        node.size = entries;
        node.parent = parent;
        Ok(node)
    }

    fn counted_file(&mut self, mut node: Node) -> Result<Node> {
        let number = node.number;
        let Some(row) = self.table.file(number) else { return Ok(node) };
        let (names, has_mark, is_remade) = (row.names, row.has_mark, row.is_remade);
        if names == 0 {
            return Ok(node);
        }
        if has_mark {
            self.found(DamageKind::WrongNameless, number, "it has a name".into());
            self.change(|txn| txn.delete(&pairs::nameless(number)))?;
        }
        if !is_remade {
            self.compare(DamageKind::WrongLinks, number, node.links.into(), names.into());
        }
        node.links = names;
        Ok(node)
    }

    fn compare(&mut self, kind: DamageKind, number: u64, said: u64, found: u64) {
        if said != found {
            self.found(kind, number, format!("{said}, not {found}"));
        }
    }
}
