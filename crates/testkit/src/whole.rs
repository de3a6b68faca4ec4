// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes of a backend one that takes whole objects only: bytes are gathered, and reach the backend with
//! the sync.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Backend, BackendExt, Capability, Create, Cursor, End, Error, ErrorKind, Identity, Key, Object,
    Op, Open, Page, Persistency, Reply, Request, Result, Semantics, Space, Stat, Superblock,
    TierBackend, Writes, execute_each,
};

/// A backend whose objects are written once.
pub struct Whole {
    inner: Arc<dyn Backend>,
}

impl Whole {
    /// Objects are kept in `inner`.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner }
    }
}

fn unsupported<T>(operation: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, operation).because("objects are written once"))
}

impl Backend for Whole {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn capability(&self) -> Capability {
        Capability {
            persistency: Persistency::Shared,
            sparse: false,
            leases: false,
            labels: false,
            writes: Writes::Whole,
            ..self.inner.capability()
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        how.check_label(&self.capability())?;
        let there = match how.create {
            Create::New => None,
            Create::Never | Create::IfMissing => match self.inner.open(key, &Open::read()) {
                Err(error)
                    if how.create == Create::IfMissing && error.kind() == ErrorKind::NotFound =>
                {
                    None
                }
                opened => Some(opened?),
            },
        };
        let state = match there {
            Some(object) => State::There(object),
            None => State::Gathered {
                bytes: Vec::new(),
                modified_ns: None,
                identity: how.identity.clone(),
            },
        };
        Ok(Box::new(WholeObject {
            inner: Arc::clone(&self.inner),
            key: key.clone(),
            state: Mutex::new(state),
        }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.inner.stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.inner.delete(key)?;
        self.inner.sync()
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.inner.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.inner.namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        for operation in operations {
            match &operation.request {
                Request::Create { key, data, .. } => {
                    let made = self.open(key, &Open::create_new()).and_then(|object| {
                        object.write_at(0, &[IoSlice::new(data)])?;
                        object.sync()
                    });
                    operation.outcome = Some(made.map(|()| Reply::Done));
                }
                _ => execute_each(self, std::slice::from_mut(operation), semantics),
            }
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Whole {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.inner.identity(key)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.inner.set_identity(key, identity)?;
        self.inner.sync()
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.inner.superblock()
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.inner.set_superblock(superblock)
    }
}

struct WholeObject {
    inner: Arc<dyn Backend>,
    key: Key,
    state: Mutex<State>,
}

enum State {
    Gathered { bytes: Vec<u8>, modified_ns: Option<u64>, identity: Option<Arc<Identity>> },
    There(Box<dyn Object>),
    Failed,
}

impl WholeObject {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `change` change what is gathered.
    fn gather<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> Result<T>) -> Result<T> {
        match &mut *self.state() {
            State::Gathered { bytes, .. } => change(bytes),
            _ => unsupported("write a whole object"),
        }
    }

    /// Asks the object, once it is there.
    fn ask<T>(&self, ask: impl FnOnce(&dyn Object) -> Result<T>) -> Result<T> {
        match &*self.state() {
            State::There(object) => ask(&**object),
            _ => unsupported("read a whole object"),
        }
    }
}

/// Makes an object of what was gathered, or nothing.
fn make(
    inner: &dyn Backend,
    key: &Key,
    bytes: &[u8],
    modified_ns: Option<u64>,
    identity: &Option<Arc<Identity>>,
) -> Result<Box<dyn Object>> {
    let semantics = Semantics::at_level(Persistency::None);
    let how = Open { identity: identity.clone(), ..Open::create_new() }.with_semantics(semantics);
    let object = inner.open(key, &how)?;
    let filled = (|| {
        object.write_at(0, &[IoSlice::new(bytes)])?;
        if let Some(modified_ns) = modified_ns {
            object.set_modified(modified_ns)?;
        }
        object.sync()?;
        inner.sync()
    })();
    match filled {
        Ok(()) => Ok(object),
        Err(error) => {
            let _ = inner.delete_if_exists(key);
            Err(error)
        }
    }
}

impl Object for WholeObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.ask(|object| object.read_at(offset_bytes, buffers))
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.gather(|bytes| {
            if offset_bytes < bytes.len() as u64 {
                return unsupported("write a whole object");
            }
            bytes.resize(offset_bytes as usize, 0);
            data.iter().for_each(|part| bytes.extend_from_slice(part));
            Ok(())
        })
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.gather(|bytes| {
            let start = bytes.len() as u64;
            data.iter().for_each(|part| bytes.extend_from_slice(part));
            Ok(start)
        })
    }

    fn set_len(&self, length_bytes: u64) -> Result<()> {
        if let State::There(object) = &*self.state()
            && object.stat()?.size_bytes == length_bytes
        {
            return Ok(());
        }
        self.gather(|bytes| {
            if length_bytes < bytes.len() as u64 {
                return unsupported("cut a whole object");
            }
            bytes.resize(length_bytes as usize, 0);
            Ok(())
        })
    }

    fn allocate(&self, _: Range<u64>, _: End) -> Result<()> {
        unsupported("allocate")
    }

    fn punch(&self, _: Range<u64>) -> Result<()> {
        unsupported("punch")
    }

    fn stat(&self) -> Result<Stat> {
        match &*self.state() {
            State::Gathered { bytes, modified_ns, .. } => Ok(Stat {
                size_bytes: bytes.len() as u64,
                allocated_bytes: bytes.len() as u64,
                modified_ns: modified_ns.unwrap_or_default(),
                ..Stat::default()
            }),
            State::There(object) => object.stat(),
            State::Failed => unsupported("stat"),
        }
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        match &mut *self.state() {
            State::Gathered { modified_ns, .. } => *modified_ns = Some(wall_ns),
            State::There(object) if object.stat()?.modified_ns == wall_ns => {}
            State::There(_) => {
                // That handle may be one for reading.
                let how = Open::write().with_semantics(Semantics::at_level(Persistency::None));
                let object = self.inner.open(&self.key, &how)?;
                object.set_modified(wall_ns)?;
                object.sync()?;
            }
            State::Failed => return unsupported("set the time of an object"),
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        let made = match &*state {
            State::There(_) => return Ok(()),
            State::Failed => return unsupported("sync"),
            State::Gathered { bytes, modified_ns, identity } => {
                make(&*self.inner, &self.key, bytes, *modified_ns, identity)
            }
        };
        match made {
            Ok(object) => {
                *state = State::There(object);
                Ok(())
            }
            Err(error) => {
                *state = State::Failed;
                Err(error)
            }
        }
    }
}
