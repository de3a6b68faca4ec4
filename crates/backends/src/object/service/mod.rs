// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects on a service that takes them as a whole, whatever its protocol is.
//!
//! An object is one object of the service: written once, as a whole, never overwritten, so that no
//! request depends on another one's being seen. What is kept beside the bytes is in its metadata; what
//! changes of that later is in a small object of its own.

pub(super) mod client;
pub(super) mod failure;
pub(super) mod names;
mod object;
mod readahead;
pub(super) mod record;
pub(super) mod requests;
pub(super) mod upload;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use terrace_core::{
    Access, Backend, Capability, Clock, Create, Cursor, Error, ErrorKind, Identity, Key, Object,
    Op, Open, Page, Result, Semantics, Space, Stat, Superblock, SystemClock, TierBackend, Writes,
};

use self::client::Condition;
use self::object::{ServiceObject, State};
use self::readahead::Readahead;
use self::record::Record;
use self::requests::{Service, lock};
use self::upload::Upload;
use super::file::superblock;
use super::{create_whole, execute_creating};

/// First byte of every cursor.
const CURSOR_TAG: u8 = b's';

/// Most names that one request lists.
const PAGE_NAMES: usize = 1000;

/// Objects whose attributes are cached from their opening, or a look at them, until `identity` or
/// `set_identity` takes them.
const REMEMBERED_MAX: usize = 256;

/// Tries to write the superblock, or attributes: a conditional write is not repeated by the client.
const CONDITIONAL_TRIES_MAX: u32 = 4;

/// Where a service is, and how it is reached.
pub(crate) trait Settings {
    /// Prepares requests; makes none.
    fn open(&self) -> Result<Service>;
}

/// A tier on a service: what is below a prefix of its names.
pub struct ServiceTier<S> {
    shared: Arc<Shared>,
    capacity_bytes: u64,
    is_read_only: bool,
    settings: PhantomData<fn(&S)>,
}

/// What a tier and its open objects share.
struct Shared {
    service: Arc<Service>,
    readahead: Readahead,
    clock: SystemClock,
    /// Attributes that were found just now.
    remembered: Mutex<HashMap<Key, Known>>,
    /// The superblock as it was read or written last; `None` before.
    superblock: Mutex<Option<Condition>>,
}

/// The attributes of an object, and what a change of them expects to find.
#[derive(Clone)]
struct Known {
    record: Record,
    /// The object that holds them once they were changed.
    condition: Condition,
}

#[allow(private_bounds)]
impl<S: Settings> ServiceTier<S> {
    /// Prepares requests to a service; makes none.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Denied` (a file of credentials that cannot be read).
    pub fn open(settings: &S, capacity_bytes: u64, is_read_only: bool) -> Result<Self> {
        let shared = Arc::new(Shared {
            service: Arc::new(settings.open()?),
            readahead: Readahead::default(),
            clock: SystemClock::default(),
            remembered: Mutex::default(),
            superblock: Mutex::default(),
        });
        Ok(Self { shared, capacity_bytes, is_read_only, settings: PhantomData })
    }
}

impl<S> ServiceTier<S> {
    /// Whether nothing is kept below the prefix, but a superblock that counts as missing.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn is_empty(&self) -> Result<bool> {
        let service = &self.shared.service;
        let superblock = format!("{}{}", service.root, names::SUPERBLOCK);
        let (found, _) = service.list(&service.root, None, 2)?;
        if found.iter().any(|name| *name != superblock) {
            return Ok(false);
        }
        Ok(found.is_empty()
            || service.get_tagged("open a tier", &object_path(&superblock)?)?.is_none())
    }

    /// Removes everything below the prefix that a tier keeps there, and nothing else.
    ///
    /// # Errors
    ///
    /// What the service says.
    pub fn clear(&self) -> Result<()> {
        const OPERATION: &str = "clear a tier";
        self.check_writable(OPERATION)?;
        let service = &self.shared.service;
        let catalog = service.client.limits().has_catalog.then_some(names::CATALOG);
        for kind in [names::OBJECTS, names::ATTRIBUTES].into_iter().chain(catalog) {
            let prefix = format!("{}{kind}", service.root);
            loop {
                let (found, _) = service.list(&prefix, None, PAGE_NAMES)?;
                let Some(last) = found.last().cloned() else { break };
                for name in found {
                    service.delete(OPERATION, &object_path(&name)?)?;
                }
                // A listing may be late; what it repeats is deleted once more, at most once.
                let (again, _) = service.list(&prefix, Some(last), 1)?;
                if again.is_empty() {
                    break;
                }
            }
        }
        // Last: until then it shows whose tier this is.
        let superblock = format!("{}{}", service.root, names::SUPERBLOCK);
        service.delete(OPERATION, &object_path(&superblock)?)?;
        service.remove_directories()
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.is_read_only {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Denied, operation)
                .because("the tier is open for reading only")
                .with("target", self.target())),
        }
    }

    fn create(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.check_writable("create an object")?;
        let now_ns = self.shared.clock.wall_ns();
        let record = Record {
            created_ns: now_ns,
            modified_ns: now_ns,
            identity: how.identity.as_deref().cloned(),
        };
        let service = &self.shared.service;
        let path = names::path(&service.root, names::OBJECTS, key)?;
        let upload = Upload::new(service, path.clone(), record, how.size_hint_bytes);
        Ok(self.handle(key, path, Access::Write, State::Writing(Box::new(upload))))
    }

    fn existing(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        if how.access == Access::Write {
            self.check_writable("open an object for writing")?;
        }
        let (size_bytes, known) = self.shared.look("open an object", key)?;
        let record = known.record.clone();
        self.shared.remember(key, known);
        let path = names::path(&self.shared.service.root, names::OBJECTS, key)?;
        Ok(self.handle(key, path, how.access, State::There { size_bytes, record }))
    }

    fn handle(
        &self,
        key: &Key,
        path: object_store::path::Path,
        access: Access,
        state: State,
    ) -> Box<dyn Object> {
        Box::new(ServiceObject {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            path,
            access,
            state: Mutex::new(state),
        })
    }
}

impl Shared {
    /// Caches attributes for the request that follows.
    fn remember(&self, key: &Key, known: Known) {
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(key.clone(), known);
    }

    /// Size and attributes of an object.
    fn look(&self, operation: &'static str, key: &Key) -> Result<(u64, Known)> {
        let service = &self.service;
        let path = names::path(&service.root, names::OBJECTS, key)?;
        let attributes = names::path(&service.root, names::ATTRIBUTES, key)?;
        let found = service.look(operation, &path, &attributes);
        let (head, changed) = found.map_err(|error| error.with("key", key))?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, operation)
                .with("key", key)
                .with("target", &service.target)
        })?;
        let (record, condition) = match (changed, head.record) {
            (Some((changed, tag)), _) => (Record::decode(&changed), Condition::Tag(tag)),
            (None, Some(text)) => (Record::from_text(&text), Condition::Missing),
            // Not ours; `fsck` says so.
            (None, None) => (
                Ok(Record {
                    created_ns: head.modified_ns,
                    modified_ns: head.modified_ns,
                    identity: None,
                }),
                Condition::Missing,
            ),
        };
        let record =
            record.map_err(|error| error.with("key", key).with("target", &service.target))?;
        Ok((head.size_bytes, Known { record, condition }))
    }

    /// Replaces the attributes of an object by what `change` makes of them: those that are `known`, else
    /// those that it has now. Each write names what it replaces, so that one which the service carries out
    /// after a later one changes nothing.
    fn change_record(
        &self,
        operation: &'static str,
        key: &Key,
        mut known: Option<Known>,
        change: impl Fn(&mut Record),
    ) -> Result<Record> {
        let path = names::path(&self.service.root, names::ATTRIBUTES, key)?;
        lock(&self.remembered).remove(key);
        let end_ns = self.clock.now_ns() + self.service.deadline.as_nanos() as u64;
        let mut tries = 0;
        loop {
            tries += 1;
            let known = match known.take() {
                Some(known) => known,
                None => self.look(operation, key)?.1,
            };
            let mut next = known.record.clone();
            change(&mut next);
            // An earlier try may have been carried out without an answer.
            if tries > 1 && next == known.record {
                return Ok(next);
            }
            let bytes = Bytes::from(next.encode());
            let is_last = tries >= CONDITIONAL_TRIES_MAX;
            match self.service.put_if(operation, &path, bytes, known.condition) {
                Ok(Some(_)) => return Ok(next),
                Ok(None) if !is_last => {}
                Ok(None) => {
                    return Err(Error::new(ErrorKind::Busy, operation)
                        .because("another process changes the attributes of the object")
                        .with("key", key)
                        .with("target", &self.service.target));
                }
                Err(error)
                    if is_last
                        || error.kind() != ErrorKind::Io
                        || self.clock.now_ns() >= end_ns =>
                {
                    return Err(error.with("key", key));
                }
                Err(_) => {}
            }
        }
    }
}

impl<S> Backend for ServiceTier<S> {
    fn target(&self) -> &str {
        &self.shared.service.target
    }

    fn capability(&self) -> Capability {
        let limits = self.shared.service.client.limits();
        Capability {
            persistency: limits.persistency,
            identity: true,
            writes: Writes::Whole,
            object_bytes_max: limits.object_bytes_max,
            ..Capability::LEAST
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.capability()
            .check_open("open an object", how)
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        match how.create {
            Create::New => self.create(key, how),
            Create::Never => self.existing(key, how),
            Create::IfMissing => match self.existing(key, how) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.create(key, how),
                other => other,
            },
        }
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        let (size_bytes, known) = self.shared.look("stat an object", key)?;
        let found = stat(size_bytes, &known.record);
        // A check of the length comes before a change of the identity.
        self.shared.remember(key, known);
        Ok(found)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        const OPERATION: &str = "delete an object";
        self.check_writable(OPERATION)?;
        let service = &self.shared.service;
        let path = names::path(&service.root, names::OBJECTS, key)?;
        let attributes = names::path(&service.root, names::ATTRIBUTES, key)?;
        lock(&self.shared.remembered).remove(key);
        self.shared.readahead.forget(&path);
        // The bytes first: without its attributes an object would be what it was at first.
        service
            .delete(OPERATION, &path)
            .and_then(|()| service.delete(OPERATION, &attributes))
            .map_err(|error| error.with("key", key))
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let service = &self.shared.service;
        if cursor.is_start() && !self.is_read_only {
            // A listing from the start is a recovery or a check: both clean up. Without the permission they go on.
            match service.clean_up() {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!(target_name = %service.target, count, "what uploads of before have left was removed");
                }
                Err(error) => {
                    tracing::debug!(target_name = %service.target, error = %error.chain(), "what uploads of before have left cannot be removed");
                }
            }
        }
        let root = format!("{}{}{}/", service.root, names::OBJECTS, names::escape(namespace));
        let start = format!("{root}{}", names::escape(prefix));
        let mut after = match cursor.0.split_first() {
            None => None,
            Some((&CURSOR_TAG, name)) => {
                Some(format!("{root}{}", std::str::from_utf8(name).map_err(bad_cursor)?))
            }
            Some(_) => return Err(bad_cursor("the tag is wrong")),
        };
        let mut page = Page::default();
        loop {
            let left = max - page.keys.len();
            if left == 0 {
                let last = after.as_deref().and_then(|name| name.strip_prefix(&root));
                page.next = match last {
                    Some(last) => Some(Cursor([&[CURSOR_TAG], last.as_bytes()].concat())),
                    None => Some(cursor.clone()),
                };
                return Ok(page);
            }
            let (names, has_more) = service.list(&start, after.clone(), left.min(PAGE_NAMES))?;
            add_keys(&mut page.keys, namespace, &root, &names)?;
            match names.last() {
                Some(last) if has_more => after = Some(last.clone()),
                _ => return Ok(page),
            }
        }
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let service = &self.shared.service;
        let parts = service.list_directories(&format!("{}{}", service.root, names::OBJECTS))?;
        let mut found: Vec<_> = parts.iter().filter_map(|part| names::unescape(part)).collect();
        found.sort();
        Ok(found)
    }

    fn space(&self) -> Result<Space> {
        Ok(Space { capacity_bytes: self.capacity_bytes, used_bytes: 0, file_system: None })
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        let create = |key: &Key, data: &[u8]| create_whole(self, key, data, semantics);
        execute_creating(self, operations, create, semantics);
    }

    fn sync(&self) -> Result<()> {
        // What was acknowledged is durable.
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

/// Adds the objects whose names are below `root`.
fn add_keys(keys: &mut Vec<Key>, namespace: &str, root: &str, names: &[String]) -> Result<()> {
    for name in names {
        let inside = name.strip_prefix(root).and_then(names::unescape);
        // Names that this backend does not write are foreign.
        if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
            keys.push(Key::new(namespace, &inside)?);
        }
    }
    Ok(())
}

impl<S> TierBackend for ServiceTier<S> {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        let remembered = lock(&self.shared.remembered).remove(key);
        let known = match remembered {
            Some(known) => known,
            None => self.shared.look("read an identity", key)?.1,
        };
        Ok(known.record.identity)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        const OPERATION: &str = "set an identity";
        self.check_writable(OPERATION)?;
        let known = lock(&self.shared.remembered).remove(key);
        let change = |record: &mut Record| record.identity = Some(identity.clone());
        self.shared.change_record(OPERATION, key, known, change).map(drop)
    }

    fn replaced_identities(&self, namespace: &str) -> Result<Option<Vec<Key>>> {
        let service = &self.shared.service;
        let root = format!("{}{}{}/", service.root, names::ATTRIBUTES, names::escape(namespace));
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let (names, has_more) = service.list(&root, after, PAGE_NAMES)?;
            add_keys(&mut keys, namespace, &root, &names)?;
            after = names.last().cloned();
            if !has_more || after.is_none() {
                return Ok(Some(keys));
            }
        }
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        const OPERATION: &str = "read the superblock";
        let service = &self.shared.service;
        let path = object_path(&format!("{}{}", service.root, names::SUPERBLOCK))?;
        let found = service.get_tagged(OPERATION, &path)?;
        let condition =
            found.as_ref().map_or(Condition::Missing, |(_, tag)| Condition::Tag(tag.clone()));
        *lock(&self.shared.superblock) = Some(condition);
        let Some((bytes, _)) = found else { return Ok(None) };
        superblock::decode(&bytes).map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, OPERATION)
                .because(
                    "its text is not as this program or an earlier one writes it; where no store uses what is there, \
                     delete `superblock` (and `superblock=2`, if there is one) and try again, else put back the \
                     files of before",
                )
                .with("target", self.target())
        })
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        const OPERATION: &str = "write the superblock";
        self.check_writable(OPERATION)?;
        let service = &self.shared.service;
        let path = object_path(&format!("{}{}", service.root, names::SUPERBLOCK))?;
        let bytes = Bytes::from(superblock::encode(superblock));
        let mut known = lock(&self.shared.superblock);
        // Another machine may have taken the store over since it was read.
        let condition = known.clone().unwrap_or(Condition::Any);
        let mut tries = 0;
        let tag = loop {
            tries += 1;
            let written = service.put_if(OPERATION, &path, bytes.clone(), condition.clone());
            if let Ok(Some(tag)) = written {
                break tag;
            }
            // The answer to an earlier try may be lost.
            match service.get_tagged(OPERATION, &path)? {
                Some((found, tag)) if found == bytes => break tag,
                _ if written.is_ok() => {
                    return Err(Error::new(ErrorKind::Denied, OPERATION)
                        .because(
                            "another process has written it since: the store is open elsewhere",
                        )
                        .with("target", self.target()));
                }
                _ if tries < CONDITIONAL_TRIES_MAX => {}
                _ => return written.map(drop),
            }
        };
        *known = Some(Condition::Tag(tag));
        Ok(())
    }
}

pub(super) fn object_path(name: &str) -> Result<object_store::path::Path> {
    object_store::path::Path::parse(name)
        .map_err(|error| Error::invalid("name an object of a service", error.to_string()))
}

fn stat(size_bytes: u64, record: &Record) -> Stat {
    Stat {
        size_bytes,
        allocated_bytes: size_bytes,
        created_ns: record.created_ns,
        modified_ns: record.modified_ns,
        is_labelled: false,
        is_held: false,
    }
}

fn bad_cursor(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("list objects", "the cursor was not made by this backend").caused_by(source)
}
