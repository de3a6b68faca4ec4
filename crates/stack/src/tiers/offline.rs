// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tier that cannot be used: stands in its place, so that the others stay readable.

use terrace_core::{
    Backend, Capability, Cursor, Error, ErrorKind, Identity, Key, Object, Open, Page, Persistency,
    Result, Space, Stat, Superblock, TierBackend,
};

/// Fails every call with the reason why the tier is offline.
#[derive(Debug)]
pub struct Offline {
    target: String,
    reason: String,
    object_bytes_max: u64,
}

impl Offline {
    /// Stands for the tier at `target`.
    pub fn new(target: String, reason: String) -> Self {
        Self { target, reason, object_bytes_max: u64::MAX }
    }

    /// Gives the largest object of the tier: objects that are made meanwhile are cut so that they can move there
    /// later.
    pub fn with_object_bytes_max(self, object_bytes_max: u64) -> Self {
        Self { object_bytes_max, ..self }
    }

    fn refuse<T>(&self, operation: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Io, operation)
            .because(format!("the tier is offline: {}", self.reason))
            .with("target", &self.target))
    }
}

impl Backend for Offline {
    fn target(&self) -> &str {
        &self.target
    }

    /// That of a file tier, with the bound of this one: what is there was promised that much.
    fn capability(&self) -> Capability {
        Capability {
            persistency: Persistency::Storage,
            sparse: true,
            identity: true,
            object_bytes_max: self.object_bytes_max,
            ..Capability::LEAST
        }
    }

    fn open(&self, _: &Key, _: &Open) -> Result<Box<dyn Object>> {
        self.refuse("open an object")
    }

    fn stat(&self, _: &Key) -> Result<Stat> {
        self.refuse("look at an object")
    }

    fn delete(&self, _: &Key) -> Result<()> {
        self.refuse("delete an object")
    }

    fn list(&self, _: &str, _: &str, _: &Cursor, _: usize) -> Result<Page> {
        self.refuse("list objects")
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.refuse("list namespaces")
    }

    fn space(&self) -> Result<Space> {
        self.refuse("look at the space")
    }

    fn sync(&self) -> Result<()> {
        self.refuse("sync a tier")
    }

    fn sync_all(&self) -> Result<()> {
        self.refuse("sync a tier")
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Offline {
    fn identity(&self, _: &Key) -> Result<Option<Identity>> {
        self.refuse("read an identity")
    }

    fn set_identity(&self, _: &Key, _: &Identity) -> Result<()> {
        self.refuse("write an identity")
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.refuse("read the superblock")
    }

    fn set_superblock(&self, _: &Superblock) -> Result<()> {
        self.refuse("write the superblock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_tells_why() {
        let offline = Offline::new("file:/gone".into(), "its directory is missing".into());
        let error = offline.namespaces().expect_err("offline");
        assert_eq!(error.kind(), ErrorKind::Io);
        let text = "cannot list namespaces: the tier is offline: its directory is missing \
                    target=file:/gone";
        assert_eq!(error.to_string(), text);
    }
}
