// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack as a backend.

use std::sync::Arc;

use terrace_core::{
    Access, Atomicity, Backend, Capability, Cursor, Draft, Error, ErrorKind, Identity, Key,
    NAME_BYTES_MAX, Object, Op, Open, Page, Persistency, Result, Semantics, Space, Stat,
    Superblock, TierBackend, Writes,
};

use crate::Stack;
use crate::catalog::map::Write;
use crate::front::execute;
use crate::io::atomic::WholeObject;
use crate::io::object::StackObject;
use crate::memory::entry::Entry;
use crate::room::space;
use crate::shared::Shared;

impl Stack {
    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    fn unsupported(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Unsupported, operation).with("target", self.target())
    }

    fn entry(&self, operation: &'static str, key: &Key) -> Result<Arc<Entry>> {
        let entry = self.shared().borrow_entry(key)?;
        entry.ok_or_else(|| Error::new(ErrorKind::NotFound, operation).with("key", key))
    }

    fn check_identities(&self, operation: &'static str) -> Result<()> {
        if self.capability().identity {
            return Ok(());
        }
        Err(self.unsupported(operation).because("a tier of the store keeps nothing over a crash"))
    }

    /// Opens an object, whatever the atomicity of its operations.
    pub(crate) fn open_object(&self, key: &Key, how: &Open) -> Result<StackObject> {
        let shared = self.shared();
        shared.check_owner("open object")?;
        if how.access == Access::Write {
            self.check_persistency(how)?;
        }
        let entry = shared.open_entry(key, how)?;
        let level = shared.level(&how.semantics);
        Ok(StackObject::new(Arc::clone(shared), entry, how.access, level))
    }

    fn check_persistency(&self, how: &Open) -> Result<()> {
        if how.semantics.persistency <= self.capability().persistency {
            return Ok(());
        }
        let reason = match how.semantics.persistency {
            Persistency::Shared => {
                "the level shared needs a tier in a bucket (backend s3), and the log of the catalog there: other \
                 backends have no conditional write"
            }
            _ => "neither the tiers nor the catalog can keep what is asked for",
        };
        Err(self
            .unsupported("open object")
            .because(reason)
            .with("persistency", how.semantics.persistency))
    }

    /// Size and times of an object, of which no operation that asks for it is seen in part.
    pub(crate) fn stat_whole(&self, key: &Key) -> Result<Stat> {
        let entry = self.entry("stat object", key)?;
        let _turn = self.shared().turns.shared(entry.object_id);
        self.shared().stat_opened(&entry)
    }
}

/// A cursor is this byte and, unless nothing was listed yet, the last name that was.
const CURSOR_TAG: u8 = b'>';

fn write_cursor(last: Option<&str>) -> Cursor {
    let mut bytes = vec![CURSOR_TAG];
    bytes.extend(last.unwrap_or_default().as_bytes());
    Cursor(bytes)
}

/// The name after which a listing goes on; `None` at the beginning.
fn read_cursor<'a>(cursor: &'a Cursor, prefix: &str) -> Result<Option<&'a str>> {
    if cursor.is_start() {
        return Ok(None);
    }
    let name = cursor.0.strip_prefix(&[CURSOR_TAG]).map(std::str::from_utf8);
    match name {
        Some(Ok("")) => Ok(None),
        Some(Ok(name)) if name.starts_with(prefix) && name.len() <= NAME_BYTES_MAX => {
            Ok(Some(name))
        }
        _ => Err(Error::invalid("list objects", "the cursor is not one of this listing")),
    }
}

impl Stack {
    /// Capacity and use as a namespace sees them: those of all tiers, or, where its bytes are
    /// limited, what it holds and may still take.
    ///
    /// # Errors
    ///
    /// As [`Backend::space`].
    pub fn space_of(&self, namespace: &str) -> Result<Space> {
        let shared = self.shared();
        let space = space::of(&shared.tiers)?;
        let usage = shared.usages.of(namespace);
        let Some(limit_bytes) = usage.bytes.limit() else { return Ok(space) };
        let used_bytes = usage.bytes.used();
        let free_bytes = space.capacity_bytes.saturating_sub(space.used_bytes);
        let left_bytes = limit_bytes.saturating_sub(used_bytes).min(free_bytes);
        let capacity_bytes = used_bytes.saturating_add(left_bytes);
        Ok(Space { capacity_bytes, used_bytes, file_system: None })
    }
}

impl Backend for Stack {
    fn target(&self) -> &str {
        &self.shared().target
    }

    fn capability(&self) -> Capability {
        let tiers = &self.shared().tiers;
        let strongest = tiers.present().map(|tier| tier.capability.persistency).max();
        let strongest = strongest.unwrap_or(Persistency::None);
        Capability {
            atomicity: Atomicity::Operation,
            persistency: match self.shared().is_shareable() {
                true => Persistency::Shared,
                false => {
                    strongest.min(Persistency::Storage).min(self.shared().catalog.persistency())
                }
            },
            sparse: tiers.present().all(|tier| tier.capability.sparse),
            ordered_listing: true,
            // What an outer store syncs must be durable, wherever the policy puts it.
            identity: !tiers.present().any(crate::tiers::list::TierState::is_volatile),
            leases: tiers.present().any(|tier| tier.capability.leases),
            keeps_data: tiers.present().all(|tier| tier.capability.keeps_data),
            labels: true,
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
            packed: false,
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.capability().check_atomicity("open object", how.semantics.atomicity)?;
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        let object = self.open_object(key, how)?;
        if how.semantics.atomicity >= Atomicity::Operation {
            return Ok(Box::new(WholeObject(object)));
        }
        Ok(Box::new(object))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        self.capability().check_atomicity("replace an object", how.semantics.atomicity)?;
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        self.check_persistency(how)?;
        Ok(Box::new(self.shared().begin_draft(key, how)?))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.shared().stat_object(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.shared().delete_object(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let after = read_cursor(cursor, prefix)?;
        let keys = self.shared().catalog.list(namespace, prefix, after, max)?;
        let is_full = keys.len() == max;
        let last = keys.last().map(|key| key.name()).or(after);
        let next = is_full.then(|| write_cursor(last));
        Ok(Page { keys, next })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.shared().catalog.namespaces()
    }

    fn space(&self) -> Result<Space> {
        space::of(&self.shared().tiers)
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        execute::execute(self, operations, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.shared().sync_all()
    }

    fn sync_all(&self) -> Result<()> {
        self.shared().sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Stack {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        const OPERATION: &str = "read an identity";
        self.check_identities(OPERATION)?;
        let entry = self.entry(OPERATION, key)?;
        let identity = crate::lock(&entry.identity).clone();
        Ok(identity.map(Arc::unwrap_or_clone))
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        const OPERATION: &str = "write an identity";
        self.check_identities(OPERATION)?;
        self.shared().check_writable(OPERATION)?;
        let entry = self.entry(OPERATION, key)?;
        let _changes = crate::lock(&entry.changes);
        entry.check_exists(OPERATION)?;
        let next = Some(Arc::new(identity.clone()));
        let before = std::mem::replace(&mut *crate::lock(&entry.identity), next);
        let written = self.shared().catalog.commit(&[Write::Put(&entry.key, &entry.record_now())]);
        if written.is_err() {
            *crate::lock(&entry.identity) = before;
        }
        written.map(drop)
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.check_identities("read a superblock")?;
        self.shared().catalog.superblock()
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        const OPERATION: &str = "write a superblock";
        self.check_identities(OPERATION)?;
        self.shared().check_writable(OPERATION)?;
        self.shared().catalog.set_superblock(superblock)
    }
}
