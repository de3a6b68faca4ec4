// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects as files in a directory of a local file system.
//!
//! `docs/formats/file-tier.md` says what is where.

#[doc(hidden)]
pub mod fuzzing;
pub(super) mod identity;
mod listing;
mod object;
mod path;
pub(super) mod superblock;
mod system;
mod unsynced;

use std::ffi::CStr;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use terrace_core::{
    Access, Atomicity, Backend, BatchOrdering, Capability, Create, Cursor, Error, ErrorKind,
    FileSystem, Identity, Key, Object, Op, Open, Page, Persistency, Reply, Request, Result,
    Semantics, Space, Stat, Superblock, TierBackend, execute_each, execute_strictly,
};

use self::object::FileObject;
use self::path::ObjectPath;
use self::unsynced::{Change, Unsynced};

/// Keeps each object as a file below a directory.
///
/// - The directory stays the same one while this is open, even if it is renamed or its path is
///   mounted over. Once it was removed, everything fails with `Io`.
/// - Files it did not make are left alone and are in no listing.
/// - A deleted object stays readable through its open handles.
#[derive(Clone, Debug)]
pub struct File {
    shared: Arc<Shared>,
}

/// The path of the file that a key names, below the directory of its tier.
pub fn path_below(key: &Key) -> String {
    // It is ASCII: everything else is escaped.
    String::from_utf8_lossy(ObjectPath::new(key).as_bytes()).into_owned()
}

/// How to open a [`File`] backend.
#[derive(Clone, Copy, Debug)]
pub struct FileSettings {
    /// What it may hold; `space` reports it, the accounts of the stack enforce it.
    pub capacity_bytes: u64,
    /// Whether every change is `Denied`.
    pub read_only: bool,
}

#[derive(Debug)]
struct Shared {
    root: OwnedFd,
    target: String,
    settings: FileSettings,
    has_identities: bool,
    unsynced: Unsynced,
    superblock_turn: Mutex<()>,
}

/// One append at a time to a file, whatever its handle and backend: the place is found, then written.
/// Chosen by the key; enough that appends to different objects seldom wait for each other.
static APPEND_TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// The extended attribute that holds an object's identity.
const IDENTITY_NAME: &CStr = c"user.terrace";

/// An object's directories may be removed by others as often while it is created.
const CREATE_ATTEMPTS: usize = 100;

impl File {
    /// Opens the directory `directory`, which must exist.
    ///
    /// # Errors
    ///
    /// `NotFound` (no such directory), `Invalid` (not a directory), `Denied`, `Io`.
    pub fn open(directory: &Path, settings: FileSettings) -> Result<Self> {
        const OPERATION: &str = "open a tier";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |errno| {
            let error = Error::from_io(OPERATION, std::io::Error::from(errno));
            match errno {
                Errno::NOENT => error.because(
                    "its directory is missing; mount its disk, or make the directory if the \
                     tier is new",
                ),
                Errno::NOTDIR => Error::invalid(OPERATION, "its path is not a directory"),
                _ => error,
            }
            .with("directory", directory.display())
        };
        let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
        if !settings.read_only {
            let permissions = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            rustix::fs::accessat(&root, ".", permissions, AtFlags::empty()).map_err(|errno| {
                failed(errno).because(
                    "nothing can be written to its directory; change its permissions or its \
                     mount, or open the store for reading only",
                )
            })?;
        }
        let has_identities = has_identities(root.as_fd()).map_err(failed)?;
        let shared = Shared {
            root,
            target: format!("file:{}", directory.display()),
            settings,
            has_identities,
            unsynced: Unsynced::default(),
            superblock_turn: Mutex::new(()),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn open_object(&self, key: &Key, how: &Open) -> Result<FileObject> {
        let shared = &self.shared;
        self.capability().check_atomicity("open an object", how.semantics.atomicity)?;
        how.check_label(&self.capability())?;
        shared.check_how(how)?;
        let path = ObjectPath::new(key);
        let opened = shared.open_file(&path, how)?;
        let named = |error: Error| shared.name(error, Some(key));
        let object = FileObject::new(shared, key, path, opened.file, how);
        if !opened.is_new {
            return Ok(object);
        }
        if let Some(identity) = &how.identity {
            let kept = object.keep_identity(identity);
            if let Err(error) = kept {
                // The caller takes it for not created, so it must not stay.
                let _ = shared.delete(object.path());
                return Err(named(error));
            }
        }
        Ok(object)
    }

    /// Creates an object durably but for its name, which the caller syncs.
    fn create_from_batch(&self, key: &Key, data: &[u8], semantics: &Semantics) -> Result<Reply> {
        let how = Open::create_new().with_semantics(*semantics);
        let object = self.open_object(key, &how)?;
        object.write_at(0, &[std::io::IoSlice::new(data)])?;
        Ok(Reply::Done)
    }
}

/// Whether the file system keeps extended attributes of users.
fn has_identities(root: BorrowedFd<'_>) -> Result<bool, Errno> {
    match rustix::fs::fgetxattr(root, IDENTITY_NAME, &mut [0u8; 1]) {
        Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(true),
        Err(Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

impl Backend for File {
    fn target(&self) -> &str {
        &self.shared.target
    }

    fn capability(&self) -> Capability {
        Capability {
            persistency: Persistency::Storage,
            sparse: true,
            identity: self.shared.has_identities,
            leases: true,
            ..Capability::LEAST
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let object =
            self.open_object(key, how).map_err(|error| self.shared.name(error, Some(key)))?;
        if object.is_durable() {
            self.shared
                .unsynced
                .sync_name(self.shared.root.as_fd(), object.path())
                .map_err(|error| self.shared.name(error, Some(key)))?;
        }
        Ok(Box::new(object))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.shared.stat(&ObjectPath::new(key)).map_err(|error| self.shared.name(error, Some(key)))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.shared
            .check_writable("delete an object")
            .and_then(|()| self.shared.delete(&ObjectPath::new(key)))
            .map_err(|error| self.shared.name(error, Some(key)))
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        listing::list(self.shared.root.as_fd(), namespace, prefix, cursor, max)
            .and_then(|page| self.shared.check_root("list objects").map(|()| page))
            .map_err(|error| self.shared.name(error, None))
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        listing::namespaces(self.shared.root.as_fd())
            .and_then(|names| self.shared.check_root("list namespaces").map(|()| names))
            .map_err(|error| self.shared.name(error, None))
    }

    fn space(&self) -> Result<Space> {
        self.shared.space().map_err(|error| self.shared.name(error, None))
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        if semantics.persistency < Persistency::Storage || semantics.atomicity > Atomicity::None {
            return execute_each(self, operations, semantics);
        }
        if semantics.ordering == BatchOrdering::Strict {
            return execute_strictly(self, operations, semantics);
        }
        // Names are synced once for the whole batch, bytes by the handle that wrote them.
        for operation in operations.iter_mut() {
            match &operation.request {
                Request::Create { key, data, .. } => {
                    let created = self.create_from_batch(key, data, semantics);
                    let named = created.map_err(|error| self.shared.name(error, Some(key)));
                    operation.outcome = Some(named);
                }
                _ => execute_each(self, std::slice::from_mut(operation), semantics),
            }
        }
        let changes_names = |operation: &&mut Op<'_>| {
            matches!(operation.request, Request::Create { .. } | Request::Delete { .. })
                && matches!(operation.outcome, Some(Ok(_)))
        };
        let mut changed = operations.iter_mut().filter(changes_names).peekable();
        if changed.peek().is_none() || self.sync().is_ok() {
            return;
        }
        // The failure is sticky, so each slot gets an error of its own.
        for operation in changed {
            operation.outcome = Some(self.sync().map(|()| Reply::Done));
        }
    }

    fn sync(&self) -> Result<()> {
        self.shared
            .check_root("sync a tier")
            .and_then(|()| self.shared.unsynced.sync(self.shared.root.as_fd()))
            .map_err(|error| self.shared.name(error, None))
    }

    fn sync_all(&self) -> Result<()> {
        self.shared
            .check_root("sync a tier")
            .and_then(|()| self.shared.unsynced.sync_all(self.shared.root.as_fd()))
            .map_err(|error| self.shared.name(error, None))
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for File {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.shared
            .identity(&ObjectPath::new(key))
            .map_err(|error| self.shared.name(error, Some(key)))
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.shared
            .set_identity(&ObjectPath::new(key), identity)
            .map_err(|error| self.shared.name(error, Some(key)))
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.shared
            .check_identities("read the superblock")
            .and_then(|()| superblock::read(self.shared.root.as_fd()))
            .and_then(|found| self.shared.check_root("read the superblock").map(|()| found))
            .map_err(|error| self.shared.name(error, None))
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        const OPERATION: &str = "write the superblock";
        let _turn = self.shared.superblock_turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared
            .check_identities(OPERATION)
            .and_then(|()| self.shared.check_writable(OPERATION))
            .and_then(|()| self.shared.check_root(OPERATION))
            .and_then(|()| superblock::write(self.shared.root.as_fd(), superblock))
            .map_err(|error| self.shared.name(error, None))
    }
}

/// An open file and whether it was made.
struct Opened {
    file: OwnedFd,
    is_new: bool,
}

impl Shared {
    /// Adds what inner functions do not know.
    fn name(&self, error: Error, key: Option<&Key>) -> Error {
        let error = match key {
            Some(key) => error.with("key", key),
            None => error,
        };
        error.with("target", &self.target)
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.settings.read_only {
            return Err(Error::new(ErrorKind::Denied, operation)
                .because("the tier was opened for reading only"));
        }
        Ok(())
    }

    fn check_how(&self, how: &Open) -> Result<()> {
        if how.access == Access::Write || how.create == Create::New {
            self.check_writable("open an object for writing")?;
        }
        if how.identity.is_some() { self.check_identities("keep an identity") } else { Ok(()) }
    }

    fn check_identities(&self, operation: &'static str) -> Result<()> {
        if self.has_identities {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because("the file system has no extended attributes for users"))
    }

    /// Tells an object that is missing from a tier that is.
    fn check_root(&self, operation: &'static str) -> Result<()> {
        let status = rustix::fs::fstat(&self.root).map_err(|e| system::error(operation, e))?;
        if status.st_nlink == 0 { Err(system::root_is_gone(operation)) } else { Ok(()) }
    }

    fn missing(&self, operation: &'static str) -> Error {
        match self.check_root(operation) {
            Ok(()) => Error::new(ErrorKind::NotFound, operation),
            Err(error) => error,
        }
    }

    fn open_file(&self, path: &ObjectPath, how: &Open) -> Result<Opened> {
        const OPERATION: &str = "open an object";
        let access = match how.access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        for _ in 0..CREATE_ATTEMPTS {
            if how.create != Create::New {
                match openat(&self.root, path, access) {
                    Ok(file) => return Ok(Opened { file, is_new: false }),
                    Err(Errno::NOENT) if how.create == Create::Never => {
                        return Err(self.missing(OPERATION));
                    }
                    Err(Errno::NOENT) => self.check_writable("create an object")?,
                    Err(errno) => return Err(system::error(OPERATION, errno)),
                }
            }
            let _changing = self.unsynced.changing();
            match openat(&self.root, path, access | OFlags::CREATE | OFlags::EXCL) {
                Ok(file) => {
                    self.unsynced.note(path.directory());
                    return Ok(Opened { file, is_new: true });
                }
                Err(Errno::EXIST) if how.create == Create::IfMissing => {}
                Err(Errno::NOENT) => self.make_directories(path)?,
                Err(errno) => return Err(system::error("create an object", errno)),
            }
        }
        Err(Error::new(ErrorKind::Busy, "create an object")
            .because("others keep creating and deleting it"))
    }

    /// Makes what is missing above a file. The caller holds `changing`.
    fn make_directories(&self, path: &ObjectPath) -> Result<()> {
        for directory in path.directories() {
            match rustix::fs::mkdirat(&self.root, directory, system::DIRECTORY_MODE) {
                Ok(()) => {
                    self.unsynced.note(path::parent(directory));
                }
                Err(Errno::EXIST) => {}
                // Another thread removed the one above; the caller tries again.
                Err(Errno::NOENT) if path::parent(directory) != b"." => return Ok(()),
                Err(Errno::NOENT) => {
                    self.check_root("create an object")?;
                    return Err(Error::new(ErrorKind::Io, "create a directory")
                        .because("the file system of the tier refuses every name"));
                }
                Err(errno) => return Err(system::error("create a directory", errno)),
            }
        }
        Ok(())
    }

    fn stat(&self, path: &ObjectPath) -> Result<Stat> {
        const OPERATION: &str = "stat an object";
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statx(&self.root, path.as_c_str(), flags, system::STAT_MASK) {
            Ok(status) => match FileType::from_raw_mode(status.stx_mode.into()) {
                FileType::RegularFile => Ok(system::stat(&status)),
                _ => Err(system::error(OPERATION, Errno::ISDIR)),
            },
            Err(Errno::NOENT) => Err(self.missing(OPERATION)),
            Err(errno) => Err(system::error(OPERATION, errno)),
        }
    }

    fn delete(&self, path: &ObjectPath) -> Result<()> {
        const OPERATION: &str = "delete an object";
        let _changing = self.unsynced.changing();
        match rustix::fs::unlinkat(&self.root, path.as_c_str(), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(self.missing(OPERATION)),
            Err(errno) => return Err(system::error(OPERATION, errno)),
        }
        self.unsynced.note(path.directory());
        // A long name leaves directories of its own behind, unless others share them.
        let continued = |directory: &&[u8]| path::is_continued(directory);
        for directory in path.directories().rev().take_while(continued) {
            if rustix::fs::unlinkat(&self.root, directory, AtFlags::REMOVEDIR).is_err() {
                break;
            }
            self.unsynced.note(path::parent(directory));
        }
        Ok(())
    }

    fn identity(&self, path: &ObjectPath) -> Result<Option<Identity>> {
        const OPERATION: &str = "read an identity";
        self.check_identities(OPERATION)?;
        let file = self.open_existing(OPERATION, path)?;
        let mut bytes = [0u8; identity::IDENTITY_BYTES_MAX];
        match rustix::fs::fgetxattr(&file, IDENTITY_NAME, &mut bytes) {
            Ok(length) => identity::decode(&bytes[..length]).map(Some),
            Err(Errno::NODATA) => Ok(None),
            Err(Errno::RANGE) => Err(Error::new(ErrorKind::Corrupt, OPERATION)
                .because("it is longer than any that this program writes")),
            Err(errno) => Err(system::error(OPERATION, errno)),
        }
    }

    fn set_identity(&self, path: &ObjectPath, identity: &Identity) -> Result<()> {
        const OPERATION: &str = "set an identity";
        self.check_identities(OPERATION)?;
        self.check_writable(OPERATION)?;
        let file = self.open_existing(OPERATION, path)?;
        self.keep_identity(file.as_fd(), path, identity).map(|_| ())
    }

    fn keep_identity(
        &self,
        file: BorrowedFd<'_>,
        path: &ObjectPath,
        identity: &Identity,
    ) -> Result<Change> {
        let _changing = self.unsynced.changing();
        let bytes = identity::encode(identity);
        rustix::fs::fsetxattr(file, IDENTITY_NAME, &bytes, XattrFlags::empty())
            .map_err(|errno| system::error("set an identity", errno))?;
        Ok(self.unsynced.note(path.as_bytes()))
    }

    fn open_existing(&self, operation: &'static str, path: &ObjectPath) -> Result<OwnedFd> {
        openat(&self.root, path, OFlags::RDONLY).map_err(|errno| match errno {
            Errno::NOENT => self.missing(operation),
            _ => system::error(operation, errno),
        })
    }

    /// What of the configured capacity the file system can still give counts as free, all else as
    /// used: files of others take room too. Two system calls, no walk.
    fn space(&self) -> Result<Space> {
        let failed = |errno| system::error("ask for the space of a tier", errno);
        let status = rustix::fs::fstatvfs(&self.root).map_err(failed)?;
        let device = rustix::fs::fstat(&self.root).map_err(failed)?.st_dev;
        let size_bytes = status.f_blocks.saturating_mul(status.f_frsize);
        let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
        let capacity_bytes = self.settings.capacity_bytes.min(size_bytes);
        let used_bytes = capacity_bytes.saturating_sub(free_bytes);
        // One that tells of no blocks at all tells nothing.
        let known = |bytes| if status.f_blocks == 0 { u64::MAX } else { bytes };
        let file_system = FileSystem {
            number: device,
            size_bytes: known(size_bytes),
            available_bytes: known(free_bytes),
        };
        Ok(Space { capacity_bytes, used_bytes, file_system: Some(file_system) })
    }
}

/// What a thread holds while it appends to the object.
fn append_turn(key: &Key) -> &'static Mutex<()> {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    &APPEND_TURNS[hash as usize % APPEND_TURNS.len()]
}

/// Opens a file below the root. A symbolic link in its place is refused.
fn openat(root: &OwnedFd, path: &ObjectPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(root, path.as_c_str(), flags, system::FILE_MODE);
    rustix::io::retry_on_intr(open)
}
