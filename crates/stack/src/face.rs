// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack as a backend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use terrace_core::{
    Backend, Capability, Cursor, Error, ErrorKind, Identity, Key, NAME_BYTES_MAX, Object, Op, Open,
    Page, Persistency, Request, Result, Semantics, Space, Stat, Superblock, execute_each,
};

use crate::Stack;
use crate::catalog::Write;
use crate::entry::Entry;
use crate::object::StackObject;
use crate::shared::Shared;

/// From this latency on, a batch is worth threads of its own.
const SLOW_NS: u64 = 200_000;

/// Threads of one batch.
const BATCH_THREADS_MAX: usize = 16;

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

    /// Carries out a batch on several threads, one object's operations in order on one of them.
    fn execute_wide(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        let mut by_key: BTreeMap<Key, Vec<&mut Op<'_>>> = BTreeMap::new();
        for operation in operations {
            by_key.entry(operation.request.key().clone()).or_default().push(operation);
        }
        let groups: Vec<_> = by_key.into_values().map(Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                for operation in crate::lock(group).iter_mut() {
                    execute_each(self, std::slice::from_mut(&mut **operation), semantics);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..groups.len().min(BATCH_THREADS_MAX) {
                scope.spawn(work);
            }
            work();
        });
    }

    /// Creates the objects at the front of a batch with one commit; returns how many.
    fn create_together(&self, operations: &mut [Op<'_>], semantics: &Semantics) -> usize {
        /// Records that are committed together.
        const TOGETHER_MAX: usize = 1000;
        let mut seen = std::collections::HashSet::new();
        let count = operations
            .iter()
            .take(TOGETHER_MAX)
            .take_while(|operation| {
                matches!(operation.request, Request::Create { .. })
                    && seen.insert(operation.request.key().clone())
            })
            .count();
        if count > 1 {
            crate::batch::create(self.shared(), &mut operations[..count], semantics);
            return count;
        }
        0
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

impl Backend for Stack {
    fn target(&self) -> &str {
        &self.shared().target
    }

    fn capability(&self) -> Capability {
        let tiers = &self.shared().tiers;
        let strongest = tiers.present().map(|tier| tier.capability.persistency).max();
        let strongest = strongest.unwrap_or(Persistency::None);
        Capability {
            persistency: strongest.min(self.shared().catalog.persistency()),
            sparse: tiers.present().all(|tier| tier.capability.sparse),
            ordered_listing: true,
            // What an outer store syncs must be durable, wherever the policy puts it.
            identity: !tiers.present().any(crate::tiers::TierState::is_volatile),
            leases: tiers.present().any(|tier| tier.capability.leases),
            keeps_data: tiers.present().all(|tier| tier.capability.keeps_data),
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let shared = self.shared();
        if how.semantics.persistency > self.capability().persistency
            && how.access == terrace_core::Access::Write
        {
            return Err(self
                .unsupported("open object")
                .because("neither the tiers nor the catalog can keep what is asked for")
                .with("persistency", how.semantics.persistency));
        }
        let entry = shared.open_entry(key, how)?;
        let level = shared.level(&how.semantics);
        Ok(Box::new(StackObject::new(Arc::clone(shared), entry, how.access, level)))
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
        let tiers = &self.shared().tiers;
        let capacity = |sum: u64, tier: &crate::tiers::TierState| {
            sum.saturating_add(tier.figures.capacity_bytes)
        };
        let used = tiers.present().map(|tier| tier.account.taken()).sum();
        Ok(Space { capacity_bytes: tiers.present().fold(0, capacity), used_bytes: used })
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        let is_slow = self.shared().tiers.present().any(|tier| tier.figures.latency_ns >= SLOW_NS);
        if is_slow && operations.len() > 1 {
            return self.execute_wide(operations, semantics);
        }
        let mut rest = operations;
        while !rest.is_empty() {
            let created = self.create_together(rest, semantics);
            let done = if created > 0 {
                created
            } else {
                execute_each(self, &mut rest[..1], semantics);
                1
            };
            rest = &mut rest[done..];
        }
    }

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
        if entry.is_deleted() {
            return Err(Error::new(ErrorKind::NotFound, OPERATION).with("key", key));
        }
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

    fn sync(&self) -> Result<()> {
        self.shared().sync_all()
    }

    fn sync_all(&self) -> Result<()> {
        self.shared().sync_all()
    }
}
