// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::later::Later;
use crate::{
    Atomicity, BatchOrdering, Error, ErrorKind, FileLease, Hint, Identity, Key, Persistency,
    ReadSummary, Result, Semantics, Superblock, check_extent,
};

/// A place that keeps the bytes of objects.
///
/// A directory, a stack of tiers and a remote server are all backends. One suite,
/// `terrace_testkit::behaviour`, states what each method must do and runs against all of them.
///
/// # Contract
///
/// - Methods may be called from many threads at once and may block.
/// - Offsets and lengths are in bytes; an offset plus a length fits in 63 bits, else `Invalid`.
/// - A key never names anything outside its namespace and the backend's own directory.
/// - The methods with a default are for what only some backends can do; the default is right for
///   all others. A wrapper that is to forward all of them carries
///   `#[deny(clippy::missing_trait_methods)]`. Conveniences live in [`BackendExt`].
/// - What only a tier of a stack needs is in [`TierBackend`].
pub trait Backend: Send + Sync {
    /// Address in logs and errors, for example `file:/scratch/t1`.
    fn target(&self) -> &str;

    /// What this backend can do. Constant for its lifetime.
    fn capability(&self) -> Capability;

    /// Opens an object, creating it where `how` says so.
    ///
    /// - The handle stays usable when the object is deleted meanwhile: reads then either go on
    ///   or fail with `NotFound`; they never see another object's bytes.
    /// - An object that is created is empty and visible to others when this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Exists` (with [`Create::New`]), `NoSpace`, `Denied`, `Unsupported` (semantics
    /// this backend cannot meet, a label without `capability().labels`), `Invalid` (a label that
    /// is empty or too long), `Io`.
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>>;

    /// Begins a new value of an object, which replaces the old one when it is published.
    ///
    /// `how.create` says what must be there when it is published, `how.access` is ignored. A backend
    /// that cannot switch a key atomically refuses.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`]; `Unsupported` where values are not replaced atomically.
    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let _ = how;
        Err(Error::new(ErrorKind::Unsupported, "replace an object")
            .because("objects are not replaced atomically here")
            .with("key", key)
            .with("target", self.target()))
    }

    /// Returns an object's size and times. Errors: `NotFound`, `Io`.
    fn stat(&self, key: &Key) -> Result<Stat>;

    /// Removes an object; its name is free when this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied`, `Io`. After an error other than `NotFound` the object is either
    /// whole or gone.
    fn delete(&self, key: &Key) -> Result<()>;

    /// Lists up to `max` keys of a namespace whose names start with `prefix`, from `cursor` on.
    ///
    /// - An object that exists throughout a walk is returned exactly once; one that is created or
    ///   deleted during it, at most once.
    /// - In order of the names where `capability().ordered_listing`.
    /// - A page may be empty and still have a next cursor.
    ///
    /// # Errors
    ///
    /// `Invalid` (a cursor that this backend did not make), `Io`.
    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page>;

    /// The namespaces that hold objects, in order.
    fn namespaces(&self) -> Result<Vec<String>>;

    /// Capacity and use in bytes.
    fn space(&self) -> Result<Space>;

    /// Carries out the operations of a batch, which share `semantics`, and fills every `outcome`.
    ///
    /// - Those on one object run in the order given, and so do all of them where `semantics` ask
    ///   for a strict ordering; else those on different objects run in any order and at the same
    ///   time.
    /// - One that fails does not stop the others, whatever the ordering.
    /// - Where `semantics` ask for an atomicity above `capability().atomicity`, every operation is
    ///   refused as `Unsupported`, also those that change nothing.
    ///
    /// The default is [`execute_each`].
    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        execute_each(self, operations, semantics);
    }

    /// What a stack needs of its tiers; `None` where this cannot be one.
    fn tier(&self) -> Option<&dyn TierBackend> {
        None
    }

    /// Makes creations, deletions and identities durable that were acknowledged before the call
    /// (directories, not the bytes of objects: see [`Object::sync`]).
    fn sync(&self) -> Result<()>;

    /// Makes everything durable that was acknowledged before the call: what [`Backend::sync`] does,
    /// and the bytes of all objects, as [`Object::sync`] would on each. For many objects at once;
    /// it may also wait for what others wrote to the same device.
    ///
    /// # Errors
    ///
    /// As [`Backend::sync`]; afterwards nothing is known of the bytes of any object that was not
    /// synced before.
    fn sync_all(&self) -> Result<()>;
}

/// What a backend keeps beside objects so that it can be a tier: the identity of each object, and a
/// superblock that names the store.
///
/// On a `dyn Backend` the same methods are `Unsupported` where [`Backend::tier`] is `None`.
pub trait TierBackend: Send + Sync {
    /// Reads the identity stored with an object; `None` where it has none.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Corrupt`, `Unsupported` (without `capability().identity`), `Io`.
    fn identity(&self, key: &Key) -> Result<Option<Identity>>;

    /// Replaces the identity stored with an object. Errors as [`TierBackend::identity`].
    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()>;

    /// Reads the backend's superblock; `None` on a fresh one.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Unsupported` (without `capability().identity`), `Io`.
    fn superblock(&self) -> Result<Option<Superblock>>;

    /// Replaces the superblock, durably and atomically.
    fn set_superblock(&self, superblock: &Superblock) -> Result<()>;
}

impl dyn Backend + '_ {
    fn as_tier(&self, operation: &'static str) -> Result<&dyn TierBackend> {
        self.tier().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, operation).with("target", self.target())
        })
    }

    /// See [`TierBackend::identity`].
    pub fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.as_tier("read an identity")?.identity(key)
    }

    /// See [`TierBackend::set_identity`].
    pub fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.as_tier("write an identity")?.set_identity(key, identity)
    }

    /// See [`TierBackend::superblock`].
    pub fn superblock(&self) -> Result<Option<Superblock>> {
        self.as_tier("read a superblock")?.superblock()
    }

    /// See [`TierBackend::set_superblock`].
    pub fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.as_tier("write a superblock")?.set_superblock(superblock)
    }
}

/// An open object.
///
/// # Contract
///
/// - Methods may be called from many threads at once and may block.
/// - After a failed write, each byte of the written extent is old or new; all others, and the bytes
///   before a growing end, are unchanged. `Semantics` ask for more.
/// - A failed `sync` is sticky: every later `sync` of the handle fails too, because the lost
///   pages are not tried again by the kernel.
pub trait Object: Send + Sync {
    /// Reads into `buffers` one after the other; returns the bytes read, fewer than asked for
    /// only at the end of the object. Holes read as zeros.
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize>;

    /// Begins reads and writes that complete asynchronously, where this can.
    fn later(&self) -> Option<&dyn Later> {
        None
    }

    /// Writes all of `data` one after the other, growing the object as needed. A gap before
    /// `offset_bytes` reads as zeros.
    ///
    /// # Errors
    ///
    /// `NoSpace`, `Denied` (opened for reading), `Io`.
    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()>;

    /// Writes all of `data` at the end and returns where it begins. Appends never overlap.
    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64>;

    /// Cuts or grows the object; growth reads as zeros and takes no room where
    /// `capability().sparse`.
    ///
    /// - Room that was [reserved](Object::allocate) behind the end is given back, also where the
    ///   object has that size already; where it grows, the room stays.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Reserves room for a range, so that writing there cannot run out of space. The bytes do not
    /// change.
    ///
    /// - With [`End::Grows`] the object grows to the end of the range.
    /// - With [`End::Stays`] it keeps its size. What lies behind its end is neither read nor found
    ///   by `next_data`; a later write or `set_len` that makes the object longer grows into it. It
    ///   is kept, also over restarts, until [`Object::set_len`] gives it back or the object is
    ///   deleted.
    ///
    /// # Errors
    ///
    /// `NoSpace`, `Unsupported`. Then nothing is promised, but for what several devices or servers
    /// may keep of a range on which they do not agree.
    fn allocate(&self, range: Range<u64>, end: End) -> Result<()>;

    /// Makes a range read as zeros and frees its room where `capability().sparse`; never changes
    /// the size, nor what is reserved behind the end.
    fn punch(&self, range: Range<u64>) -> Result<()>;

    /// The first range at or after `offset_bytes` that may hold data; `None` when only a hole
    /// remains. A backend that knows no holes returns everything up to the end, as the default does.
    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let rest = offset_bytes..self.stat()?.size_bytes;
        Ok((!rest.is_empty()).then_some(rest))
    }

    /// Size and times of the open object.
    fn stat(&self) -> Result<Stat>;

    /// Sets the time of the last modification, so that a migration can leave it as it was.
    fn set_modified(&self, wall_ns: u64) -> Result<()>;

    /// Makes everything written through any handle before the call as durable as
    /// `capability().persistency` allows; after success it survives what that level says.
    fn sync(&self) -> Result<()>;

    /// What lends the file that holds the object's bytes; `None` where no file of this machine does.
    fn file(&self) -> Option<&dyn ObjectFile> {
        None
    }

    /// The label that the object was created with, known since it was opened: no I/O.
    fn label(&self) -> Option<Arc<[u8]>> {
        None
    }
}

/// An open object whose bytes are in a file of this machine, which others may use directly.
///
/// On a `dyn Object` the same methods lend nothing where [`Object::file`] is `None`.
pub trait ObjectFile: Send + Sync {
    /// A descriptor for reading of the file that holds exactly this object's bytes, where there is
    /// one and nothing between it and the caller would be bypassed; else `None`, which another time
    /// may be another answer.
    ///
    /// - It allows nothing but reading, also where this handle does.
    /// - Where the file may stop being the object while the handle is open, the lease comes with a
    ///   word: it is changed before a write that goes elsewhere is acknowledged, and before the
    ///   object's deletion is. A reader of the file that finds the word unchanged *afterwards* has
    ///   read what this handle could have read in the same time.
    /// - A short read is the end of the object, where the word is unchanged.
    /// - It ends with this handle at the latest.
    ///
    /// # Errors
    ///
    /// `Io`.
    fn lease_file(&self) -> Result<Option<FileLease>>;

    /// A descriptor of the file that holds exactly this object's bytes, which stays the object's
    /// only file until this handle is dropped: for a reader that cannot look at a word, as a kernel
    /// that reads and writes the file for a mount. `None` where that cannot be promised, which
    /// another time may be another answer.
    ///
    /// - It allows reading, with [`Access::Write`] writing as well, and nothing else.
    /// - What is written through it is written to the object: reads through any handle find it, and
    ///   a `sync` through any handle covers it. The end of the file is the end of the object.
    /// - The object may be written through handles, too, and be deleted. The descriptor is that of
    ///   the file then, as any other.
    /// - A handle may be asked several times, and several handles of an object at a time, each for
    ///   reading or for writing: as long as one of them is open they get the same file.
    /// - An object that was held for writing leaves the file only once no process can write to it
    ///   any more: descriptors and mappings may outlive the handle, and the object then stays until
    ///   they are gone. What outlives a handle that held it for *reading* may show old bytes.
    ///
    /// # Errors
    ///
    /// `Denied` (for writing, from a handle for reading), `NotFound` (for writing, once deleted),
    /// `Io`.
    fn hold_file(&self, access: Access) -> Result<Option<File>>;

    /// What limits the growth of the object through a descriptor of [`ObjectFile::hold_file`] for
    /// writing, as of now. The kernel makes that file longer without asking the backend.
    ///
    /// # Errors
    ///
    /// `Io`, where a medium cannot be asked for its space.
    fn held_growth(&self) -> Result<HeldGrowth>;

    /// Counts reads that were done through a lease of this handle, as if they had been done through
    /// the handle; does nothing where reads are not counted, and once the object is deleted.
    fn note_reads(&self, reads: &ReadSummary);
}

impl dyn Object + '_ {
    /// See [`ObjectFile::lease_file`].
    pub fn lease_file(&self) -> Result<Option<FileLease>> {
        self.file().map_or(Ok(None), |file| file.lease_file())
    }

    /// See [`ObjectFile::hold_file`].
    pub fn hold_file(&self, access: Access) -> Result<Option<File>> {
        self.file().map_or(Ok(None), |file| file.hold_file(access))
    }

    /// See [`ObjectFile::held_growth`]: `Unbounded` where there is no file.
    pub fn held_growth(&self) -> Result<HeldGrowth> {
        self.file().map_or(Ok(HeldGrowth::Unbounded), |file| file.held_growth())
    }

    /// See [`ObjectFile::note_reads`].
    pub fn note_reads(&self, reads: &ReadSummary) {
        if let Some(file) = self.file() {
            file.note_reads(reads);
        }
    }
}

/// A new value of an object, written beside the old one: see [`Backend::draft`].
///
/// # Contract
///
/// - No key names it before [`Draft::publish`]: it is not listed, and readers get the old value.
/// - A draft that is dropped, or whose process ends, before it is published leaves nothing.
pub trait Draft: Send + Sync {
    /// The handle through which the new value is written. It stays usable after the publication;
    /// after the draft was dropped unpublished, operations on it fail with `NotFound`.
    fn object(&self) -> Arc<dyn Object>;

    /// Makes the key name the new value, atomically: every open gets the old value or the new one.
    /// Returns the [label](Object::label) of the value that it replaced, where that had one and it is
    /// known.
    ///
    /// - Handles on the old value behave as those on a deleted object.
    /// - The bytes are durable before a key that had a value names them, unless the semantics of
    ///   the draft promise nothing over a crash. A loss of power leaves the old value or the new.
    /// - No write may be in progress through the handle.
    ///
    /// # Errors
    ///
    /// `Exists` (with [`Create::New`]), `NotFound` (with [`Create::Never`], or where the
    /// draft was discarded), `Invalid` (published before), `NoSpace`, `Io`, `Unreachable`. The key then
    /// names the old value, unless it is `Unreachable` with [`Applied::Unknown`](crate::Applied). After
    /// a failed sync, or where a server has lost it, the draft is discarded; else it may be published
    /// again.
    fn publish(&self) -> Result<Option<Arc<[u8]>>>;
}

/// Longest label of an object: room for a layout over some dozens of servers, small enough for an
/// extended attribute beside the rest of an identity.
pub const LABEL_BYTES_MAX: usize = 512;

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The strongest that operations on objects get; more is refused as `Unsupported`.
    pub atomicity: Atomicity,
    /// The strongest level that `sync` gives.
    pub persistency: Persistency,
    /// Holes take no room and `next_data` finds them.
    pub sparse: bool,
    /// `list` returns names in order.
    pub ordered_listing: bool,
    /// Identities and superblocks are kept.
    pub identity: bool,
    /// `lease_file` and `hold_file` may give descriptors; without it there are none.
    pub leases: bool,
    /// What is written can be read back (false only for `null`).
    pub keeps_data: bool,
    /// Labels are kept.
    pub labels: bool,
    /// How an object gets its bytes.
    pub writes: Writes,
    /// Largest object; `u64::MAX` without a bound.
    pub object_bytes_max: u64,
}

/// How the objects of a backend get their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// At any offset, at any time.
    #[default]
    InPlace,
    /// Once, as a whole, as object stores take them.
    ///
    /// - An object is written through the handle that created it, each write where the one before
    ///   ended or behind that; a gap reads as zeros. It is not visible before
    ///   [`Object::sync`] has succeeded on this handle. A handle that is dropped before leaves nothing.
    /// - Afterwards its bytes never change: every handle refuses writes, cuts and holes as
    ///   `Unsupported`. Time and identity can be replaced.
    /// - Bytes cannot be read before the sync.
    /// - The caller never uses a name twice, and the backend need not notice.
    /// - A deletion of what is not there may succeed.
    Whole,
}

impl Writes {
    /// The word used in reports.
    pub fn word(self) -> &'static str {
        match self {
            Writes::InPlace => "in-place",
            Writes::Whole => "whole",
        }
    }
}

impl Capability {
    /// What every backend can do; others say what they can do beyond it.
    pub const LEAST: Self = Self {
        atomicity: Atomicity::None,
        persistency: Persistency::None,
        sparse: false,
        ordered_listing: false,
        identity: false,
        leases: false,
        keeps_data: true,
        labels: false,
        writes: Writes::InPlace,
        object_bytes_max: u64::MAX,
    };

    /// Refuses to open an object with semantics that the backend cannot meet, or a label that it
    /// cannot keep.
    ///
    /// # Errors
    ///
    /// `Unsupported`, `Invalid`.
    pub fn check_open(&self, operation: &'static str, how: &Open) -> Result<()> {
        self.check_atomicity(operation, how.semantics.atomicity)?;
        let asked = how.semantics.persistency;
        if how.access == Access::Write && asked > self.persistency {
            return Err(Error::new(ErrorKind::Unsupported, operation)
                .because("the backend keeps less over a crash")
                .with("persistency", asked)
                .with("strongest", self.persistency));
        }
        how.check_label(self)
    }

    /// Refuses an atomicity that the backend does not give.
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    pub fn check_atomicity(&self, operation: &'static str, asked: Atomicity) -> Result<()> {
        if asked <= self.atomicity {
            return Ok(());
        }
        let reason = match asked {
            Atomicity::Batch => {
                "operations on objects take effect one by one; only pairs are changed together"
            }
            Atomicity::None | Atomicity::Operation => "parts of an operation may be seen here",
        };
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because(reason)
            .with("atomicity", asked)
            .with("strongest", self.atomicity))
    }
}

/// What becomes of the end of an object where room is reserved behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It moves to the end of the room, which reads as zeros.
    Grows,
    /// It stays where it is.
    Stays,
}

/// What to do when an object is missing or there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The object must exist.
    #[default]
    Never,
    /// Make it if it is missing.
    IfMissing,
    /// It must not exist.
    New,
}

/// What a handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read only; writing is `Denied`.
    Read,
    /// Read and write.
    #[default]
    Write,
}

impl Access {
    /// Refuses a change of an object that was opened for reading. Errors: `Denied`.
    pub fn check_change(self, key: &Key) -> Result<()> {
        match self {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(ErrorKind::Denied, "change an object")
                .because("it was opened for reading")
                .with("key", key)),
        }
    }
}

/// How to open an object.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// Whether to create it.
    pub create: Create,
    /// What the handle may do.
    pub access: Access,
    /// The size that the object will have, where known.
    pub size_hint_bytes: Option<u64>,
    /// Length of the pieces that an object is cut into that is created; `None` leaves it to the
    /// backend.
    pub segment_bytes: Option<u64>,
    /// Requirements on every operation through the handle.
    pub semantics: Semantics,
    /// Advice for the policy.
    pub hint: Hint,
    /// Stored with an object that is created.
    pub identity: Option<Arc<Identity>>,
    /// Stored with an object that is created and never changed: 1 to [`LABEL_BYTES_MAX`] bytes that
    /// mean something to the caller that wrote them.
    pub label: Option<Arc<[u8]>>,
}

impl Open {
    /// An existing object for reading.
    pub fn read() -> Self {
        Self { access: Access::Read, ..Self::default() }
    }

    /// An existing object for reading and writing.
    pub fn write() -> Self {
        Self::default()
    }

    /// An object for reading and writing that is made if it is missing.
    pub fn create() -> Self {
        Self { create: Create::IfMissing, ..Self::default() }
    }

    /// A new object for reading and writing.
    pub fn create_new() -> Self {
        Self { create: Create::New, ..Self::default() }
    }

    /// The same with these semantics.
    pub fn with_semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// The same with this label.
    pub fn with_label(mut self, label: &[u8]) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Whether a backend with this capability can keep the label that is asked for.
    ///
    /// # Errors
    ///
    /// `Unsupported`, `Invalid`.
    pub fn check_label(&self, capability: &Capability) -> Result<()> {
        let Some(label) = &self.label else { return Ok(()) };
        if !capability.labels {
            return Err(Error::new(ErrorKind::Unsupported, "open an object")
                .because("no labels are kept here"));
        }
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(Error::invalid("open an object", "the label has a wrong length")
                .with("label_bytes", label.len())
                .with("label_bytes_max", LABEL_BYTES_MAX));
        }
        Ok(())
    }
}

/// Size and times of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Length.
    pub size_bytes: u64,
    /// Room taken on the medium, as far as the backend knows.
    pub allocated_bytes: u64,
    /// When it was created, nanoseconds since 1970; 0 where unknown.
    pub created_ns: u64,
    /// When its bytes last changed, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Whether it was created with a label: see [`Object::label`].
    pub is_labelled: bool,
    /// Whether a process on this machine may change its bytes past the backend: see
    /// [`ObjectFile::hold_file`].
    pub is_held: bool,
}

/// Capacity and use of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What it can hold; `u64::MAX` where there is no bound.
    pub capacity_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// The file system that its room is part of, where it is one.
    pub file_system: Option<FileSystem>,
}

/// What limits the growth of an object that is written past its handles: [`ObjectFile::held_growth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldGrowth {
    /// The file system of its file. Once that is full, no tier that may have the object's bytes has
    /// room, and no capacity or quota was exceeded before.
    Full,
    /// The file system of its file, while other tiers that may have the object's bytes have room.
    OneFile,
    /// Nothing that keeps it within a bound: the capacity of its tier, or the quota of its namespace.
    Unbounded,
}

/// A file system of a machine that backends are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Which one: on one machine, backends with the same take from each other's room.
    pub number: u64,
    /// Its size; `u64::MAX` where it has none.
    pub size_bytes: u64,
    /// What is available on it.
    pub available_bytes: u64,
}

/// Where a listing goes on; made by the backend and opaque to everyone else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Cursor {
    /// Where every listing starts.
    pub fn start() -> Self {
        Self::default()
    }

    /// Whether this is the start.
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys found.
    pub keys: Vec<Key>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// One operation of a batch and the slot for its result.
#[derive(Debug)]
pub struct Op<'a> {
    /// What to do.
    pub request: Request<'a>,
    /// What came of it; `None` until the batch was executed.
    pub outcome: Option<Result<Reply>>,
}

impl<'a> Op<'a> {
    /// An operation that has not run.
    pub fn new(request: Request<'a>) -> Self {
        Self { request, outcome: None }
    }
}

/// What an operation of a batch does.
#[derive(Debug)]
pub enum Request<'a> {
    /// Creates a new object that holds `data`.
    Create {
        /// The object.
        key: &'a Key,
        /// Its first bytes; may be empty.
        data: &'a [u8],
        /// Advice for the policy.
        hint: Hint,
    },
    /// Reads into `buffer`; the reply counts the bytes.
    Read {
        /// The object.
        key: &'a Key,
        /// Where to begin.
        offset_bytes: u64,
        /// Where to put the bytes.
        buffer: &'a mut [u8],
    },
    /// Writes all of `data`.
    Write {
        /// The object, which must exist.
        key: &'a Key,
        /// Where to begin.
        offset_bytes: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Returns size and times.
    Stat {
        /// The object.
        key: &'a Key,
    },
    /// Removes the object.
    Delete {
        /// The object.
        key: &'a Key,
    },
}

impl Request<'_> {
    /// Where it begins to read or write; 0 for all others.
    pub fn offset_bytes(&self) -> u64 {
        match self {
            Request::Read { offset_bytes, .. } | Request::Write { offset_bytes, .. } => {
                *offset_bytes
            }
            _ => 0,
        }
    }

    /// The bytes that it brings; empty for those that bring none.
    pub fn data(&self) -> &[u8] {
        match self {
            Request::Create { data, .. } | Request::Write { data, .. } => data,
            _ => &[],
        }
    }

    /// How many bytes it brings or asks for.
    pub fn length_bytes(&self) -> usize {
        match self {
            Request::Read { buffer, .. } => buffer.len(),
            other => other.data().len(),
        }
    }

    /// The object that the operation is about.
    pub fn key(&self) -> &Key {
        match self {
            Request::Create { key, .. }
            | Request::Read { key, .. }
            | Request::Write { key, .. }
            | Request::Stat { key }
            | Request::Delete { key } => key,
        }
    }
}

/// What an operation of a batch returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Created, written or deleted.
    Done,
    /// Bytes read.
    Count(usize),
    /// Size and times.
    Stat(Stat),
}

/// Carries out a batch one operation after the other; what a backend without a better way calls
/// from [`Backend::execute`]. A create with data is two operations on the backend and a stat asks
/// for nothing, so a backend that gives atomicity carries these out by itself.
pub fn execute_each<B: Backend + ?Sized>(
    backend: &B,
    operations: &mut [Op<'_>],
    semantics: &Semantics,
) {
    for operation in operations {
        let asked = semantics.atomicity;
        let outcome = match asked {
            Atomicity::None => Ok(()),
            _ => backend.capability().check_atomicity("run a batch", asked),
        };
        let run = |()| execute_one(backend, &mut operation.request, semantics);
        operation.outcome = Some(outcome.and_then(run));
    }
}

/// Carries out a batch that asks for a strict ordering: each operation as a batch of its own, so that
/// what the backend would do once for all of them is done before the next one begins.
pub fn execute_strictly(backend: &dyn Backend, operations: &mut [Op<'_>], semantics: &Semantics) {
    let alone = Semantics { ordering: BatchOrdering::Relaxed, ..*semantics };
    for operation in operations {
        backend.execute(std::slice::from_mut(operation), &alone);
    }
}

fn execute_one<B: Backend + ?Sized>(
    backend: &B,
    request: &mut Request<'_>,
    semantics: &Semantics,
) -> Result<Reply> {
    let how = |create, access| Open { create, access, semantics: *semantics, ..Open::default() };
    match request {
        Request::Create { key, data, hint } => {
            let open = Open {
                hint: *hint,
                size_hint_bytes: Some(data.len() as u64),
                ..how(Create::New, Access::Write)
            };
            let object = backend.open(key, &open)?;
            if !data.is_empty() {
                // The object is there by now.
                object.write_at(0, &[IoSlice::new(data)]).map_err(Error::in_part)?;
            }
            Ok(Reply::Done)
        }
        Request::Read { key, offset_bytes, buffer } => {
            let how = how(Create::Never, Access::Read);
            let read = |object: Box<dyn Object>| {
                object.read_at(*offset_bytes, &mut [IoSliceMut::new(buffer)])
            };
            with_object(|| backend.open(key, &how), read).map(Reply::Count)
        }
        Request::Write { key, offset_bytes, data } => {
            let object = backend.open(key, &how(Create::Never, Access::Write))?;
            object.write_at(*offset_bytes, &[IoSlice::new(data)])?;
            Ok(Reply::Done)
        }
        Request::Stat { key } => backend.stat(key).map(Reply::Stat),
        Request::Delete { key } => backend.delete(key).map(|()| Reply::Done),
    }
}

/// Opens an object and gives it to `work`; does both again where `work` fails with `NotFound`, because
/// the object was replaced after it was opened and its handle goes on with what was deleted.
///
/// # Errors
///
/// Those of `open` and `work`; `Busy` where it is replaced all the time.
pub fn with_object<T>(
    mut open: impl FnMut() -> Result<Box<dyn Object>>,
    mut work: impl FnMut(Box<dyn Object>) -> Result<T>,
) -> Result<T> {
    const ATTEMPTS_MAX: usize = 100;
    for _ in 0..ATTEMPTS_MAX {
        match work(open()?) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Err(Error::new(ErrorKind::Busy, "read an object").because("it is replaced all the time"))
}

/// Conveniences over every [`Backend`].
pub trait BackendExt: Backend {
    /// Reads a whole object.
    fn read_all(&self, key: &Key) -> Result<Vec<u8>> {
        with_object(|| self.open(key, &Open::read()), |object| object.read_to_end())
    }

    /// Makes an object hold exactly `data`, creating it if it is missing.
    fn write_all(&self, key: &Key, data: &[u8]) -> Result<()> {
        let object = self.open(key, &Open::create())?;
        object.set_len(0)?;
        object.write_at(0, &[IoSlice::new(data)])
    }

    /// Makes an object hold exactly `data`, atomically: readers get the old value or the new one, and
    /// after an error the old one. Errors as [`Backend::draft`] and [`Draft::publish`].
    fn put(&self, key: &Key, data: &[u8], how: &Open) -> Result<()> {
        let how = Open { size_hint_bytes: Some(data.len() as u64), ..how.clone() };
        let draft = self.draft(key, &how)?;
        if !data.is_empty() {
            draft.object().write_at(0, &[IoSlice::new(data)])?;
        }
        draft.publish().map(drop)
    }

    /// Removes an object that may be missing.
    fn delete_if_exists(&self, key: &Key) -> Result<()> {
        match self.delete(key) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// All keys of a namespace that start with `prefix`, in order.
    fn list_all(&self, namespace: &str, prefix: &str) -> Result<Vec<Key>> {
        const PAGE_KEYS: usize = 1000;
        let mut keys = Vec::new();
        let mut cursor = Cursor::start();
        loop {
            let page = self.list(namespace, prefix, &cursor, PAGE_KEYS)?;
            keys.extend(page.keys);
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        keys.sort();
        Ok(keys)
    }
}

impl<B: Backend + ?Sized> BackendExt for B {}

/// Conveniences over every [`Object`].
pub trait ObjectExt: Object {
    /// Reads into one buffer.
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_at(offset_bytes, &mut [IoSliceMut::new(buffer)])
    }

    /// Fills one buffer; the end of the object before that is `Invalid`.
    fn read_exact(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let want = buffer.len();
        let count = self.read(offset_bytes, buffer)?;
        if count < want {
            return Err(Error::invalid("read", "the object ends before the range does")
                .with("offset_bytes", offset_bytes)
                .with("want_bytes", want)
                .with("got_bytes", count));
        }
        Ok(())
    }

    /// Writes one buffer.
    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.write_at(offset_bytes, &[IoSlice::new(data)])
    }

    /// Reads everything.
    fn read_to_end(&self) -> Result<Vec<u8>> {
        const STEP_BYTES: usize = 1 << 20;
        let mut data = Vec::new();
        loop {
            let start = data.len();
            data.resize(start + STEP_BYTES, 0);
            let count = self.read(start as u64, &mut data[start..])?;
            data.truncate(start + count);
            if count < STEP_BYTES {
                return Ok(data);
            }
        }
    }
}

impl<O: Object + ?Sized> ObjectExt for O {}
