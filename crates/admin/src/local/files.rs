// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The use of file systems in a store that this process owns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Kv, Result};
use terrace_fs::{FileClock, Tree};

use super::owned::Owned;
use super::trees::Planted;

const OPEN: &str = "open a file system";

/// How long after a file system was opened its files may still be claimed by clients that had them
/// open before: longer than a client needs to notice and connect again.
const CLAIM_TIME: Duration = Duration::from_secs(90);

impl Owned {
    /// A file system that others may use, too.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is none, `Busy` where this process uses it alone or checks it, `Io`.
    pub fn shared_tree(&self, name: &str) -> Result<Arc<Tree>> {
        let mut trees = self.trees.lock();
        let planted = self.plant(&mut trees, name)?;
        if planted.is_taken {
            let busy = Error::new(ErrorKind::Busy, "use a file system")
                .because("the process that owns the store has it for itself alone")
                .with("name", name);
            return Err(self.lock.name_own(busy));
        }
        Ok(Arc::clone(&planted.tree))
    }

    fn plant<'a>(
        &self,
        trees: &'a mut HashMap<String, Planted>,
        name: &str,
    ) -> Result<&'a mut Planted> {
        if self.trees.checked().as_deref() == Some(name) {
            return Err(Error::new(ErrorKind::Busy, OPEN)
                .because("it is being checked")
                .with("name", name));
        }
        if !trees.contains_key(name) {
            let kv = self.stack.kv(name)?;
            let tree = open_tree(kv, &self.clock, name)?;
            tree.await_claims(CLAIM_TIME);
            tree.hand_on_garbage().map_err(|failure| failure.into_error(OPEN))?;
            trees.insert(name.into(), Planted { tree, is_taken: false });
        }
        Ok(trees.get_mut(name).expect("it was there or was just put there"))
    }

    /// A file system for this process alone.
    ///
    /// # Errors
    ///
    /// As [`Owned::shared_tree`]; `Busy` where others use it.
    pub fn tree_alone(self: &Arc<Self>, name: &str) -> Result<Alone> {
        let mut trees = self.trees.lock();
        let planted = self.plant(&mut trees, name)?;
        // The map has one; sessions of others have more.
        if planted.is_taken || Arc::strong_count(&planted.tree) > 1 {
            return Err(Error::new(ErrorKind::Busy, OPEN)
                .because("others use it at the moment")
                .with("name", name));
        }
        // A client that only reads leaves it to the next one.
        if self.access == Access::Write {
            planted.tree.discard_nameless().map_err(|failure| failure.into_error(OPEN))?;
        }
        planted.is_taken = true;
        let tree = Arc::clone(&planted.tree);
        drop(trees);
        Ok(Alone { owned: Arc::clone(self), name: name.into(), tree })
    }
}

/// The right to use a file system of an owned store without anybody else, until it is dropped.
pub struct Alone {
    owned: Arc<Owned>,
    name: String,
    tree: Arc<Tree>,
}

impl Alone {
    /// The file system.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some(planted) = self.owned.trees.lock().get_mut(&self.name) {
            planted.is_taken = false;
        }
    }
}

fn open_tree(kv: Arc<dyn Kv>, clock: &Arc<dyn Clock>, name: &str) -> Result<Arc<Tree>> {
    if !Tree::exists(&*kv).map_err(|failure| failure.into_error(OPEN))? {
        return Err(Error::new(ErrorKind::NotFound, OPEN)
            .because("the store has none of this name; `terrace mount` makes one")
            .with("name", name));
    }
    Tree::open(kv, FileClock::new(Arc::clone(clock))).map_err(|failure| failure.into_error(OPEN))
}
