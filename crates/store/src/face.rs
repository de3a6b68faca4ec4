// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store as a backend.

use terrace_core::{
    Backend, Capability, Cursor, Identity, Key, Object, Op, Open, Page, Result, Semantics, Space,
    Stat, Superblock,
};

use crate::Store;
use crate::store::Side;

impl Store {
    fn backend(&self) -> &dyn Backend {
        match &self.side {
            Side::Owned(owned) => &owned.stack,
            Side::Attached(link) => link,
        }
    }
}

impl Backend for Store {
    fn target(&self) -> &str {
        self.backend().target()
    }

    fn capability(&self) -> Capability {
        self.backend().capability()
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.backend().open(key, how)
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

    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.backend().identity(key)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.backend().set_identity(key, identity)
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.backend().superblock()
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.backend().set_superblock(superblock)
    }

    fn sync(&self) -> Result<()> {
        self.backend().sync()
    }
}
