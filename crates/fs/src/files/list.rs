// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use std::time::Duration;

use super::{Files, FilesOptions, unexpected};
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
        let request = Request::List { directory, after, max, with_nodes };
        self.listed(&request).map(|entries| self.as_all_known(entries, |_| true))
    }

    /// The same with what is known without asking the tiers: where others use the files, too,
    /// nothing is known of those that are being written, or were when their writer died. And how long ago it was
    /// asked for; it may have been fetched with others.
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
    ) -> Result<(Vec<Listed>, Duration)> {
        let FilesOptions { is_alone, believed_for, .. } = self.options;
        let may_ask = |node: &Node| is_alone || !node.is_written;
        if with_nodes && !is_alone && !believed_for.is_zero() {
            let ahead = self.metadata.list_ahead(directory, after, max as usize, believed_for)?;
            if let Some((entries, age)) = ahead {
                return Ok((self.as_all_known(entries, may_ask), age));
            }
        }
        let request = Request::List { directory, after, max, with_nodes };
        let entries = self.listed(&request)?;
        Ok((self.as_all_known(entries, may_ask), Duration::ZERO))
    }

    fn listed(&self, request: &Request<'_>) -> Result<Vec<Listed>> {
        match self.metadata.call(request)? {
            Reply::Listing(entries) => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }

    /// Entries with what is known of those of which that `is_told`.
    fn as_all_known(
        &self,
        mut entries: Vec<Listed>,
        is_told: impl Fn(&Node) -> bool,
    ) -> Vec<Listed> {
        for entry in &mut entries {
            let node = entry.node.take().filter(&is_told);
            // What cannot be asked of one concerns none of the others.
            entry.node = node.and_then(|node| self.as_known(node).ok());
        }
        entries
    }
}
