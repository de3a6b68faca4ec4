// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and symbolic links that lost their name to another one, for programs that are on their way to
//! them.
//!
//! Who opens a file walks to its node, and asks for the node then; who follows a link asks where it
//! leads. Where another one gets the name between the two, the one before has to be there still:
//! POSIX has a name that is replaced lead to one or the other at any time. The kernel tries again
//! only once.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use rustix::io::Errno;

use super::{Files, unexpected};
use crate::failure::Result;
use crate::lock;
use crate::node::Kind;
use crate::request::{RenameHow, Reply, Request};

/// What is kept: as many as the kernel remembers without a name.
#[derive(Default)]
pub(super) struct Kept {
    /// Files, which are open for that.
    files: Mutex<HashSet<u64>>,
    /// Where links led: nothing else is asked of them.
    links: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Kept {
    /// Whether a file without a name can be opened.
    pub(super) fn contains(&self, number: u64) -> bool {
        lock(&self.files).contains(&number)
    }
}

impl Files {
    /// Moves a name as [`Files::rename`] does. Where nobody else uses the files, a file that it replaces
    /// can be opened, and a link followed, until [`Files::forget`].
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
            true => self.keep_replaced(to),
            false => None,
        };
        let Some(number) = replaced else { return self.rename(from, to, how, owner) };
        let moved = self.rename_as_told(from, to, how, owner);
        let is_replaced = matches!(&moved, Ok(Reply::Gone { number: gone, .. }) if *gone == number);
        if !is_replaced {
            self.forget(number)?;
        }
        self.after_removal(&moved?)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone, `INVAL` for what is no link.
    pub fn target(&self, number: u64) -> Result<Vec<u8>> {
        let asked = self.metadata.call(&Request::Target { number });
        match (asked, lock(&self.kept.links).get(&number)) {
            (Ok(Reply::Bytes(target)), _) => Ok(target),
            (Ok(other), _) => Err(unexpected(&other)),
            (Err(failure), Some(target)) if failure.errno() == Errno::STALE => Ok(target.clone()),
            (Err(failure), _) => Err(failure),
        }
    }

    /// Lets go of what has no name: nobody is on the way to it any more.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn forget(&self, number: u64) -> Result<()> {
        lock(&self.kept.links).remove(&number);
        match lock(&self.kept.files).remove(&number) {
            true => self.close_with_metadata(number, false, None),
            false => Ok(()),
        }
    }

    /// Lets go of all.
    pub(super) fn forget_all(&self) -> Result<()> {
        lock(&self.kept.links).clear();
        let kept: Vec<_> = lock(&self.kept.files).drain().collect();
        kept.into_iter().try_for_each(|number| self.close_with_metadata(number, false, None))
    }

    /// Keeps what has this name, where that is its last one, before the kernel knows that it is
    /// replaced, and can forget it; its number. Whatever else is there, or is wrong, the rename tells.
    fn keep_replaced(&self, (directory, name): (u64, &[u8])) -> Option<u64> {
        let node = self.ask_node(&Request::Lookup { directory, name }).ok()?;
        let number = node.number;
        match (node.kind, node.links) {
            (Kind::File, 1) => {
                self.metadata.call(&Request::Open { number, is_for_writing: false }).ok()?;
                lock(&self.kept.files).insert(number);
                Some(number)
            }
            (Kind::Symlink, 1) => {
                let target = self.target(number).ok()?;
                lock(&self.kept.links).insert(number, target);
                Some(number)
            }
            _ => None,
        }
    }
}
