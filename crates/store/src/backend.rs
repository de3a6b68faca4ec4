// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store as a backend.

use terrace_client::striped::is_part;
use terrace_core::{
    Backend, Capability, Cursor, Draft, Error, ErrorKind, Key, Object, Op, Open, Page, Result,
    Semantics, Space, Stat, TierBackend,
};

use crate::Store;
use crate::store::Side;

impl Store {
    fn backend(&self) -> &dyn Backend {
        match &self.side {
            Side::Owned(owned) => &owned.stack,
            Side::Attached(link) => &*link.backend,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Store {
    fn target(&self) -> &str {
        self.backend().target()
    }

    fn capability(&self) -> Capability {
        // Identities are for a stack over this one, and that has it for itself.
        Capability { identity: false, ..self.backend().capability() }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let object = self.backend().open(key, how)?;
        // A caller that took it for the object would read, or cut off, a part of it.
        if object.label().is_some_and(|label| is_part(key, &label)) {
            return Err(Error::new(ErrorKind::Unsupported, "open object")
                .because(
                    "it lies over several servers, and this is one of them; open all of them \
                     together, terrace://HOST,HOST or terrace+map:///FILE",
                )
                .with("key", key)
                .with("target", self.target()));
        }
        Ok(object)
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        // A part of an object over several servers is refused; over all of them there is none.
        let has_parts = self.capability().labels;
        if has_parts && self.backend().stat(key).is_ok_and(|stat| stat.is_labelled) {
            self.open(key, &Open::read())?;
        }
        self.backend().draft(key, how)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.backend().stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.backend().delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.backend().list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.backend().namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.backend().space()
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        self.backend().execute(operations, semantics);
    }

    /// What its tiers keep is for its own stack.
    fn tier(&self) -> Option<&dyn TierBackend> {
        None
    }

    fn sync(&self) -> Result<()> {
        self.backend().sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.backend().sync_all()
    }
}
