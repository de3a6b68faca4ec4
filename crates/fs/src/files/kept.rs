// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that lost their name to another one, for programs that are on their way to them.
//!
//! Who opens a file walks to its node, and asks for the node then. Where another file gets the name
//! between the two, the one before has to be there still: POSIX has a name that is replaced lead to
//! one or the other at any time. The kernel tries again only once.

use std::collections::HashSet;
use std::sync::Mutex;

use super::Files;
use crate::failure::Result;
use crate::lock;
use crate::node::Kind;
use crate::request::{RenameHow, Reply, Request};

/// The files that are kept: as many as the kernel remembers without a name.
#[derive(Default)]
pub(super) struct Kept(Mutex<HashSet<u64>>);

impl Kept {
    /// Whether a file without a name can be opened.
    pub(super) fn contains(&self, number: u64) -> bool {
        lock(&self.0).contains(&number)
    }
}

impl Files {
    /// Moves a name as [`Files::rename`] does. Where nobody else uses the files, a file that it replaces
    /// can be opened until [`Files::forget`].
    ///
    /// # Errors
    ///
    /// As [`Files::rename`].
    pub fn rename_keeping(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
        owner: (u32, u32),
    ) -> Result<()> {
        let replaced = match self.options.is_alone && !how.exchanges && !how.keeps_existing {
            true => self.open_replaced(to),
            false => None,
        };
        let Some(number) = replaced else { return self.rename(from, to, how, owner) };
        // Before the kernel knows that it is replaced, and can forget it.
        lock(&self.kept.0).insert(number);
        let moved = self.rename_as_told(from, to, how, owner);
        let is_replaced = matches!(&moved, Ok(Reply::Gone { number: gone, .. }) if *gone == number);
        if !is_replaced {
            self.forget(number)?;
        }
        self.after_removal(&moved?)
    }

    /// Lets go of a file without a name: nobody is on the way to it any more.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn forget(&self, number: u64) -> Result<()> {
        match lock(&self.kept.0).remove(&number) {
            true => self.close_with_metadata(number, false, None),
            false => Ok(()),
        }
    }

    /// Lets go of all.
    pub(super) fn forget_all(&self) -> Result<()> {
        let kept: Vec<_> = lock(&self.kept.0).drain().collect();
        kept.into_iter().try_for_each(|number| self.close_with_metadata(number, false, None))
    }

    /// Opens the file whose last name this is; whatever else is there, or is wrong, the rename tells.
    fn open_replaced(&self, (directory, name): (u64, &[u8])) -> Option<u64> {
        let node = self.ask_node(&Request::Lookup { directory, name }).ok()?;
        let number = (node.kind == Kind::File && node.links == 1).then_some(node.number)?;
        self.metadata.call(&Request::Open { number, is_for_writing: false }).ok()?;
        Some(number)
    }
}
