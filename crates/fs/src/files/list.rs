// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use super::{Files, unexpected};
use crate::failure::Result;
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
        let mut entries = self.entries(directory, after, max, with_nodes)?;
        for entry in &mut entries {
            // What cannot be asked of one concerns none of the others.
            entry.node = entry.node.take().and_then(|node| self.as_known(node).ok());
        }
        Ok(entries)
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
        let mut entries = self.entries(directory, after, max, with_nodes)?;
        let is_settled = |entry: &Listed| entry.node.as_ref().is_none_or(|node| !node.is_written);
        for entry in &mut entries {
            let may_ask = self.options.is_alone || is_settled(entry);
            let node = entry.node.take().filter(|_| may_ask);
            entry.node = node.and_then(|node| self.as_known(node).ok());
        }
        Ok(entries)
    }

    fn entries(
        &self,
        directory: u64,
        after: u64,
        max: u32,
        with_nodes: bool,
    ) -> Result<Vec<Listed>> {
        match self.metadata.call(&Request::List { directory, after, max, with_nodes })? {
            Reply::Listing(entries) => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }
}
