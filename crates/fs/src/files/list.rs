// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use super::{Files, unexpected};
use crate::failure::Result;
use crate::node::Node;
use crate::request::{Listed, Reply, Request};

impl Files {
    /// Entries of a directory behind a position, with what is known of them where that is asked for;
    /// nothing is of what was removed meanwhile, or whose server does not answer.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn list(
        &self,
        directory: u64,
        after: u64,
        max: u32,
        with_nodes: bool,
    ) -> Result<Vec<Listed>> {
        self.listed((directory, after, max, with_nodes), |_| true)
    }

    /// The same with what can be told without asking the tiers: where others use the files, too,
    /// nothing is known of those that somebody writes, or wrote when he died.
    ///
    /// # Errors
    ///
    /// As [`Files::list`].
    pub fn list_at_once(
        &self,
        directory: u64,
        after: u64,
        max: u32,
        with_nodes: bool,
    ) -> Result<Vec<Listed>> {
        let may_ask = |node: &Node| self.options.is_alone || !node.is_written;
        self.listed((directory, after, max, with_nodes), may_ask)
    }

    fn listed(
        &self,
        (directory, after, max, with_nodes): (u64, u64, u32, bool),
        is_told: impl Fn(&Node) -> bool,
    ) -> Result<Vec<Listed>> {
        let request = Request::List { directory, after, max, with_nodes };
        let mut entries = match self.metadata.call(&request)? {
            Reply::Listing(entries) => entries,
            other => return Err(unexpected(&other)),
        };
        for entry in &mut entries {
            let node = entry.node.take().filter(&is_told);
            // What cannot be asked of one concerns none of the others.
            entry.node = node.and_then(|node| self.as_known(node).ok());
        }
        Ok(entries)
    }
}
