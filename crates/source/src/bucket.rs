// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A prefix of a bucket as a source: objects are files, common prefixes are directories.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use terrace_backends::object::{Prefix, PrefixObject, PrefixPage, S3Settings};
use terrace_core::{Error, ErrorKind, Result};
use terrace_fuse::FileSystemStatus;

use crate::calls::is_unreachable;
use crate::meta::Meta;
use crate::source::{Listing, MountedBelow, Name, Source, SourceFile};

const OPERATION: &str = "open the source";
/// Names that one request lists, as Amazon has it.
const PAGE_NAMES: usize = 1000;
/// Longest name of a file, and longest name of an object.
const NAME_BYTES_MAX: usize = 255;
const KEY_BYTES_MAX: usize = 1024;
/// A small file is fetched by one request.
const PIECE_BYTES: usize = crate::cache::WHOLE_BYTES_MAX as usize;
/// A good size for reads of programs: a block of the cache.
const BLOCK_BYTES: u32 = 1 << 20;
/// Names that the service refuses and that are logged, each once.
const LOGGED_MAX: usize = 100;

/// The owner of the files of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Permissions that are withheld. That of writing is in any case.
    pub umask: u32,
}

/// What is below a prefix of a bucket, as a source.
///
/// An object `PREFIX/a/b` is the file `a/b`, in the directory `a`, which there is as long as some name begins with
/// `PREFIX/a/`. Where there is also an object `PREFIX/a`, that is what `a` names.
pub struct Bucket {
    identity: String,
    shared: Arc<Shared>,
}

struct Shared {
    prefix: Prefix,
    owner: BucketOwner,
    /// The last request had no answer of use.
    is_failing: AtomicBool,
    /// A name that cannot be that of a file has been logged.
    has_logged_name: AtomicBool,
    /// It has been logged that the service refuses names that are missing.
    has_logged_missing: AtomicBool,
    /// Names that the service refuses and that have been logged.
    refused: Mutex<HashSet<String>>,
}

impl Bucket {
    /// Opens a prefix, within the deadline of the settings: the bucket has to be there, the credentials have to
    /// allow listing it, and something has to be below the prefix, where there is one. One request.
    ///
    /// # Errors
    ///
    /// `NotFound` (nothing below the prefix), `Denied`, `Invalid`, `Io` (also for a bucket that there is not).
    pub fn open(settings: &S3Settings, owner: BucketOwner) -> Result<Self> {
        let prefix = Prefix::open(settings)?;
        let identity = format!("bucket {} at {}", prefix.target(), prefix.bucket_url());
        let shared = Shared {
            prefix,
            owner,
            is_failing: AtomicBool::new(false),
            has_logged_name: AtomicBool::new(false),
            has_logged_missing: AtomicBool::new(false),
            refused: Mutex::default(),
        };
        let page = first_page(&shared.prefix, "", 1)?;
        if is_empty(&page) && !settings.prefix.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, OPERATION)
                .because("there is no object below this prefix")
                .with("source", shared.prefix.target()));
        }
        Ok(Self { identity, shared: Arc::new(shared) })
    }
}

impl Source for Bucket {
    fn target(&self) -> &str {
        self.shared.prefix.target()
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn mounted_below(&self, _: &Path) -> Option<MountedBelow> {
        None
    }

    fn look(&self, path: &Path) -> Result<Meta, Errno> {
        let shared = &self.shared;
        if path.as_os_str().is_empty() {
            shared.check_root()?;
            return Ok(shared.directory(path));
        }
        let Some(key) = key_of(path) else { return shared.answer(Err(Errno::NOENT)) };
        match shared.ask_object(key, |prefix| prefix.look(key)) {
            Ok(Some(object)) => return Ok(shared.file(path, &object)),
            Ok(None) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        // The answer does not tell a missing object from a missing bucket; this one does.
        let below = format!("{key}/");
        let page = shared.ask(&below, |prefix| first_page(prefix, &below, 1))?;
        if is_empty(&page) { Err(Errno::NOENT) } else { Ok(shared.directory(path)) }
    }

    fn look_in(&self, directory: &Path, _: &Meta, name: &OsStr) -> Result<Meta, Errno> {
        // All of a bucket has one owner.
        self.look(&directory.join(name))
    }

    fn shown(&self, meta: Meta) -> Meta {
        let mode = match meta.is_file() {
            true => self.shared.file_mode(),
            false => self.shared.directory_mode(),
        };
        Meta { mode, uid: self.shared.owner.uid, gid: self.shared.owner.gid, ..meta }
    }

    fn list(&self, path: &Path, _: Option<&Meta>) -> Result<Box<dyn Listing>, Errno> {
        let shared = &self.shared;
        let below = match key_of(path) {
            _ if path.as_os_str().is_empty() => String::new(),
            Some(key) => format!("{key}/"),
            None => return shared.answer(Err(Errno::NOENT)),
        };
        let page = shared.ask(&below, |prefix| first_page(prefix, &below, PAGE_NAMES))?;
        if is_empty(&page) && !below.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut names = Names {
            shared: Arc::clone(shared),
            path: path.into(),
            below,
            next: None,
            fetched: None,
            shadows: Vec::new(),
        };
        let directory = FileType::Directory.as_raw_mode();
        let own = |name: &[u8], path: &Path| Name {
            name: name.into(),
            inode: inode_of(path),
            mode: directory,
            meta: None,
        };
        let mut first = vec![own(b".", path), own(b"..", path.parent().unwrap_or(path))];
        first.extend(names.names(page));
        names.fetched = Some(first);
        Ok(Box::new(names))
    }

    fn open(&self, path: &Path, seen: &Meta) -> Result<Box<dyn SourceFile>, Errno> {
        let shared = &self.shared;
        let key = key_of(path).filter(|_| seen.is_file()).ok_or(Errno::STALE)?;
        shared.answer(Ok(()))?;
        Ok(Box::new(Opened { shared: Arc::clone(shared), key: key.into(), meta: seen.clone() }))
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn read_link(&self, _: &Path, _: &Meta) -> Result<Vec<u8>, Errno> {
        // There are none.
        self.shared.answer(Err(Errno::INVAL))
    }

    fn status(&self) -> Result<FileSystemStatus, Errno> {
        // A bucket has no bounds that a request returns.
        self.shared.answer(Ok(FileSystemStatus {
            block_bytes: 4096,
            name_bytes_max: NAME_BYTES_MAX as u32,
            ..FileSystemStatus::default()
        }))
    }
}

impl Shared {
    /// Sends a request that concerns what has this name, or begins with it.
    fn ask<T>(&self, name: &str, request: impl FnOnce(&Prefix) -> Result<T>) -> Result<T, Errno> {
        match request(&self.prefix) {
            // The service refuses it for this name alone, or for the whole bucket: the root tells.
            Err(error) if is_refused(&error) => {
                tracing::debug!(error = error.chain(), "a request to the bucket is refused");
                self.check_root()?;
                Err(self.refused(name, &error))
            }
            answer => self.noted(answer),
        }
    }

    /// Sends a request for an object.
    ///
    /// # Errors
    ///
    /// `ENOENT` also where the service refuses the request, and a listing does not have the object: services answer 403
    /// for a missing object to credentials that may not list it (`docs/how-to/cache-a-bucket.md`).
    fn ask_object<T>(
        &self,
        key: &str,
        request: impl FnOnce(&Prefix) -> Result<T>,
    ) -> Result<T, Errno> {
        let error = match request(&self.prefix) {
            Err(error) if is_refused(&error) => error,
            answer => return self.noted(answer),
        };
        tracing::debug!(error = error.chain(), "a request to the bucket is refused");
        // The first of all names that begin with this one is the name itself.
        let page = self.ask(key, |prefix| first_page(prefix, key, 1))?;
        if page.objects.iter().any(|(rest, _)| rest.is_empty()) {
            return Err(self.refused(key, &error));
        }
        if error.kind() == ErrorKind::Denied
            && !self.has_logged_missing.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                name = key,
                "the service denies access to a name that is missing, so each look at such a name costs one listing more: \
                 its policy lacks s3:ListBucket without a condition on s3:prefix; others are not logged"
            );
        }
        Err(Errno::NOENT)
    }

    /// What a program gets where the service refuses requests for one name. The rest of the bucket is not affected.
    fn refused(&self, name: &str, error: &Error) -> Errno {
        let errno = match (error.os_error(), error.kind()) {
            (Some(number), _) => Errno::from_raw_os_error(number),
            (None, ErrorKind::Denied) => Errno::ACCESS,
            (None, ErrorKind::Invalid) => Errno::INVAL,
            (None, _) => Errno::OPNOTSUPP,
        };
        let mut logged = crate::lock(&self.refused);
        if logged.len() < LOGGED_MAX && logged.insert(name.into()) {
            tracing::warn!(
                name,
                %errno,
                error = error.chain(),
                "the service refuses requests for this name; the rest of the bucket is not affected"
            );
        }
        errno
    }

    fn check_root(&self) -> Result<(), Errno> {
        self.noted(self.prefix.list("", None, 1)).map(drop)
    }

    /// What a program gets for an answer, of which the first one after others that tells of the bucket is logged.
    fn noted<T>(&self, answer: Result<T>) -> Result<T, Errno> {
        let answer = answer.map_err(|error| (errno_of(&error), error));
        let is_failing = answer.as_ref().is_err_and(|(errno, _)| is_unreachable(*errno));
        let was_failing = self.is_failing.swap(is_failing, Ordering::Relaxed);
        answer.map_err(|(errno, error)| {
            match is_failing && !was_failing {
                true => tracing::warn!(error = error.chain(), "a request to the bucket failed"),
                false => tracing::debug!(error = error.chain(), "a request to the bucket failed"),
            }
            errno
        })
    }

    /// An answer that needs no request. Behind a request that failed it needs one all the same: callers take
    /// every answer for one of the service.
    fn answer<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if self.is_failing.load(Ordering::Relaxed) {
            self.check_root()?;
        }
        answer
    }

    fn file(&self, path: &Path, object: &PrefixObject) -> Meta {
        let modified = (object.modified_s, 0);
        Meta {
            size_bytes: object.size_bytes,
            blocks: object.size_bytes.div_ceil(512),
            accessed: modified,
            modified,
            changed: modified,
            etag: object.tag.clone(),
            ..self.meta(path, self.file_mode())
        }
    }

    fn directory(&self, path: &Path) -> Meta {
        self.meta(path, self.directory_mode())
    }

    fn file_mode(&self) -> u32 {
        FileType::RegularFile.as_raw_mode() | 0o444 & !self.owner.umask
    }

    fn directory_mode(&self) -> u32 {
        FileType::Directory.as_raw_mode() | 0o555 & !self.owner.umask
    }

    fn meta(&self, path: &Path, mode: u32) -> Meta {
        Meta {
            inode: inode_of(path),
            mode,
            // Of a directory: how many are in it is not known.
            links: 1,
            uid: self.owner.uid,
            gid: self.owner.gid,
            device: 0,
            size_bytes: 0,
            blocks: 0,
            block_bytes: BLOCK_BYTES,
            accessed: (0, 0),
            modified: (0, 0),
            changed: (0, 0),
            etag: None,
        }
    }
}

/// An object that is read in one state.
struct Opened {
    shared: Arc<Shared>,
    key: String,
    meta: Meta,
}

impl SourceFile for Opened {
    fn look(&self) -> Result<Meta, Errno> {
        self.shared.answer(Ok(self.meta.clone()))
    }

    fn look_again(&self) -> Result<Meta, Errno> {
        // Each read is on the condition that the object is in this state.
        self.look()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let end = self.meta.size_bytes.min(offset_bytes.saturating_add(buffer.len() as u64));
        if offset_bytes >= end {
            return self.shared.answer(Ok(0));
        }
        let object = PrefixObject {
            size_bytes: self.meta.size_bytes,
            modified_s: self.meta.modified.0,
            tag: self.meta.etag.clone(),
        };
        let range = offset_bytes..end;
        let read =
            self.shared.ask_object(&self.key, |prefix| prefix.read(&self.key, &object, range));
        let bytes = read.map_err(|errno| match errno {
            // It was there.
            Errno::NOENT => Errno::STALE,
            other => other,
        })?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// A directory that is being listed.
struct Names {
    shared: Arc<Shared>,
    path: PathBuf,
    /// What all names begin with, but for the prefix of the source.
    below: String,
    /// Continues the listing; `None` behind its last page.
    next: Option<String>,
    /// The first page, before it is taken.
    fetched: Option<Vec<Name>>,
    /// Files that were listed whose names the next ones may continue with `/`, the shortest first.
    shadows: Vec<String>,
}

impl Listing for Names {
    fn next_page(&mut self) -> Result<Vec<Name>, Errno> {
        if let Some(page) = self.fetched.take() {
            return Ok(page);
        }
        while let Some(next) = self.next.take() {
            let shared = Arc::clone(&self.shared);
            let page = shared
                .ask(&self.below, |prefix| prefix.list(&self.below, Some(&next), PAGE_NAMES))?;
            let names = self.names(page);
            // A page of which all names are left out is not the end.
            if !names.is_empty() {
                return Ok(names);
            }
        }
        self.shared.answer(Ok(Vec::new()))
    }
}

impl Names {
    /// The names of a page that files can have, in the order of their keys.
    fn names(&mut self, page: PrefixPage) -> Vec<Name> {
        self.next = page.next;
        let objects = page.objects.into_iter().map(|(key, object)| (key, Some(object)));
        let parts = page.parts.into_iter().map(|key| (key, None));
        let mut keys: Vec<_> = objects.chain(parts).collect();
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        keys.into_iter().filter_map(|(key, object)| self.name(&key, object)).collect()
    }

    fn name(&mut self, key: &str, object: Option<PrefixObject>) -> Option<Name> {
        while self.shadows.last().is_some_and(|shadow| !key.starts_with(shadow)) {
            self.shadows.pop();
        }
        let name = key.strip_suffix('/').unwrap_or(key);
        // The object `a/` marks the directory `a`, which is listed.
        if key.is_empty() {
            return None;
        }
        if !is_file_name(name) {
            if !self.shared.has_logged_name.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    directory = self.below,
                    ?name,
                    "the name of an object cannot be that of a file, and is left out; others are not logged"
                );
            }
            return None;
        }
        let path = self.path.join(name);
        let meta = match object {
            Some(object) => {
                self.shadows.push(key.into());
                self.shared.file(&path, &object)
            }
            // An object has the name already.
            None if self.shadows.iter().any(|shadow| shadow == name) => return None,
            None => self.shared.directory(&path),
        };
        Some(Name {
            name: name.as_bytes().into(),
            inode: meta.inode,
            mode: meta.mode & !0o7777,
            meta: Some(Box::new(meta)),
        })
    }
}

/// Lists what begins with `below` up to the first page that has names, or the last one: a service may return empty
/// pages before it.
fn first_page(prefix: &Prefix, below: &str, names_max: usize) -> Result<PrefixPage> {
    let mut page = prefix.list(below, None, names_max)?;
    while is_empty(&page)
        && let Some(next) = page.next
    {
        page = prefix.list(below, Some(&next), names_max)?;
    }
    Ok(page)
}

fn is_empty(page: &PrefixPage) -> bool {
    page.objects.is_empty() && page.parts.is_empty()
}

/// The name of the object at a path; `None` where no object of this source can have it.
fn key_of(path: &Path) -> Option<&str> {
    let key = path.to_str()?;
    let is_key = key.len() <= KEY_BYTES_MAX && key.split('/').all(is_file_name);
    is_key.then_some(key)
}

/// Whether a part of an object's name can be the name of a file here: the client sends no control characters.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(|character: char| character.is_ascii_control() || character == '/')
}

/// The inode number of a path: the same for all states of an object, and after a restart.
fn inode_of(path: &Path) -> u64 {
    let hash = Sha256::digest(path.as_os_str().as_bytes());
    let number = u64::from_be_bytes(hash[..8].try_into().expect("a hash has 32 bytes"));
    // Programs take 0 for a name that is not used.
    number.max(1)
}

/// Whether the service has answered, and does not carry out the request: another try is refused, too.
fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid | ErrorKind::Unsupported)
}

/// What a program gets for an error of the client that concerns the whole bucket.
fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Stale => Errno::STALE,
        ErrorKind::Denied => Errno::KEYREJECTED,
        _ => Errno::REMOTEIO,
    }
}
