// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where checkpoints are kept: objects in a store, or files in a directory.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use terrace_store::{
    Backend, BackendExt, Clock, Error, ErrorKind, Key, Op, Open, Persistency, Reply, Request,
    Result, Semantics,
};

use crate::checkpoint::HEADER_BYTES;

/// How the names of all checkpoints begin; a number of six digits follows, so that they order as
/// the numbers do.
const PREFIX: &str = "checkpoint-";

/// Keeps checkpoints by their names.
pub trait Place {
    /// Makes checkpoint `number`, which survives what `persistency` says once this returns.
    ///
    /// # Errors
    ///
    /// `Exists` where it is there already, and everything a write can meet.
    fn create(
        &self,
        number: u64,
        persistency: Persistency,
        header: &[u8; HEADER_BYTES],
        points: &[u8],
    ) -> Result<()>;

    /// The names of all checkpoints, in order.
    ///
    /// # Errors
    ///
    /// Everything that listing can meet.
    fn names(&self) -> Result<Vec<String>>;

    /// Reads `sizes[i]` bytes at the same offset of every name.
    ///
    /// # Errors
    ///
    /// `Corrupt` where one ends too early, and everything a read can meet.
    fn read(&self, names: &[String], offset_bytes: u64, sizes: &[usize]) -> Result<Vec<Vec<u8>>>;
}

/// Objects in a namespace of a store, those of a batch read at once.
pub struct InStore<'a> {
    backend: &'a dyn Backend,
    namespace: &'a str,
}

impl<'a> InStore<'a> {
    /// Keeps checkpoints in `namespace`.
    pub fn new(backend: &'a dyn Backend, namespace: &'a str) -> Self {
        Self { backend, namespace }
    }
}

impl Place for InStore<'_> {
    fn create(
        &self,
        number: u64,
        persistency: Persistency,
        header: &[u8; HEADER_BYTES],
        points: &[u8],
    ) -> Result<()> {
        let key = Key::new(self.namespace, &name(number))?;
        let size_hint_bytes = Some((HEADER_BYTES + points.len()) as u64);
        let semantics = Semantics::at_level(persistency);
        let how = Open { size_hint_bytes, semantics, ..Open::create_new() };
        let object = self.backend.open(&key, &how)?;
        object.write_at(0, &[IoSlice::new(header), IoSlice::new(points)])
    }

    fn names(&self) -> Result<Vec<String>> {
        let keys = self.backend.list_all(self.namespace, PREFIX)?;
        Ok(keys.iter().map(|key| key.name().to_owned()).collect())
    }

    fn read(&self, names: &[String], offset_bytes: u64, sizes: &[usize]) -> Result<Vec<Vec<u8>>> {
        let keys: Vec<_> =
            names.iter().map(|name| Key::new(self.namespace, name)).collect::<Result<_>>()?;
        let mut buffers: Vec<_> = sizes.iter().map(|bytes| vec![0; *bytes]).collect();
        let mut operations: Vec<_> = keys
            .iter()
            .zip(&mut buffers)
            .map(|(key, buffer)| Op::new(Request::Read { key, offset_bytes, buffer }))
            .collect();
        // Whoever only reads has nothing that could be lost.
        self.backend.execute(&mut operations, &Semantics::at_level(Persistency::None));

        for ((operation, name), want) in operations.into_iter().zip(names).zip(sizes) {
            match operation.outcome.expect("execute fills every outcome")? {
                Reply::Count(count) if count == *want => {}
                _ => return Err(cut(name)),
            }
        }
        Ok(buffers)
    }
}

/// Files in a directory of any file system, one after the other.
pub struct InFiles {
    directory: PathBuf,
}

impl InFiles {
    /// Keeps checkpoints in `directory`, which exists.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Place for InFiles {
    fn create(
        &self,
        number: u64,
        persistency: Persistency,
        header: &[u8; HEADER_BYTES],
        points: &[u8],
    ) -> Result<()> {
        let path = self.path(&name(number));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(header)?;
            file.write_all(points)?;
            if persistency == Persistency::Storage {
                file.sync_all()?;
                // The name as well.
                File::open(&self.directory)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| failed("write a checkpoint", &path, error))
    }

    fn names(&self) -> Result<Vec<String>> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.directory)? {
                let name = entry?.file_name();
                names.extend(name.to_str().filter(|it| it.starts_with(PREFIX)).map(str::to_owned));
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|error| failed("list the checkpoints", &self.directory, error))
    }

    fn read(&self, names: &[String], offset_bytes: u64, sizes: &[usize]) -> Result<Vec<Vec<u8>>> {
        let read = |(name, bytes): (&String, &usize)| {
            let path = self.path(name);
            let mut buffer = vec![0; *bytes];
            let done =
                File::open(&path).and_then(|file| file.read_exact_at(&mut buffer, offset_bytes));
            match done {
                Ok(()) => Ok(buffer),
                Err(error) if error.kind() == IoErrorKind::UnexpectedEof => Err(cut(name)),
                Err(error) => Err(failed("read a checkpoint", &path, error)),
            }
        };
        names.iter().zip(sizes).map(read).collect()
    }
}

/// Another place, and the time that its checkpoints took.
pub struct Timed<'a> {
    place: &'a dyn Place,
    clock: &'a dyn Clock,
    create_ns: Cell<u64>,
}

impl<'a> Timed<'a> {
    /// Counts from zero.
    pub fn new(place: &'a dyn Place, clock: &'a dyn Clock) -> Self {
        Self { place, clock, create_ns: Cell::default() }
    }

    /// Spent making checkpoints so far.
    pub fn create_ns(&self) -> u64 {
        self.create_ns.get()
    }
}

impl Place for Timed<'_> {
    fn create(
        &self,
        number: u64,
        persistency: Persistency,
        header: &[u8; HEADER_BYTES],
        points: &[u8],
    ) -> Result<()> {
        let start_ns = self.clock.now_ns();
        let done = self.place.create(number, persistency, header, points);
        self.create_ns.set(self.create_ns.get() + self.clock.now_ns() - start_ns);
        done
    }

    fn names(&self) -> Result<Vec<String>> {
        self.place.names()
    }

    fn read(&self, names: &[String], offset_bytes: u64, sizes: &[usize]) -> Result<Vec<Vec<u8>>> {
        self.place.read(names, offset_bytes, sizes)
    }
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number:06}")
}

fn cut(name: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a checkpoint")
        .because("it ends too early")
        .with("name", name)
}

fn failed(operation: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::from_io(operation, error).with("path", path.display())
}
