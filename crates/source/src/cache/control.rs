// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to the process that uses a cache, over a socket in its directory.
//!
//! A connection carries one request and its answer, each one value of JSON. Only the user that the process runs as,
//! and root, can connect.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};
use terrace_core::{Applied, Clock, Error, ErrorKind, Result};

use super::epochs::Epochs;
use super::evict::Index;
use super::{COPIES, CacheReport, Shared, each_file};
use crate::source::target_of;

/// Its name in the directory of the cache.
pub(super) const SOCKET: &str = "control";
const LOOK: &str = "look at the cache";
const EVICT: &str = "evict from the cache";
/// Longest request: the longest path, as numbers.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// How long the other side may take to send or to take a value, and the process to say what it holds.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Status,
    /// A path below the source, as bytes.
    Evict(Vec<u8>),
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Status(CacheStatus),
    Evicted { files: u64, bytes: u64 },
    Failed(String),
}

/// What a cache holds, whether or not a process uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// What it is of: the path of a directory.
    pub source: String,
    /// Its directory, absolute.
    #[serde(skip)]
    pub directory: PathBuf,
    /// The process that uses it, and what for.
    pub user: Option<(u32, String)>,
    /// What it holds; where no process uses it, only `used_bytes` and `copies` are known.
    pub report: CacheReport,
}

impl CacheStatus {
    /// What a cache holds: asks the process that uses it, else counts its copies.
    ///
    /// # Errors
    ///
    /// `Invalid` for a directory that is no cache, `Denied`, `Unreachable` where the process does not answer,
    /// `Corrupt`, `Io`.
    pub fn of(directory: &Path) -> Result<Self> {
        let failed = |error| Error::from_io(LOOK, error).with("cache", directory.display());
        let absolute = directory.canonicalize().map_err(failed)?;
        let Some(state) = Epochs::state_of(directory)? else {
            let reason = "the directory is no cache of a mount, and on no mount with a cache";
            return Err(Error::invalid(LOOK, reason).with("directory", directory.display()));
        };
        if let Some(stream) = connect(directory).map_err(failed)? {
            let answer = ask(stream, &Request::Status, Some(EXCHANGE_TIME_MAX));
            return match answer.map_err(|error| unanswered(LOOK, directory, error))? {
                Answer::Status(status) => Ok(Self { directory: absolute, ..status }),
                other => Err(unexpected(LOOK, directory, other)),
            };
        }
        let mut index = Index::new(None, 0);
        each_file(&directory.join(COPIES), &|| false, &mut |key, bytes, used_ns| {
            if let Some(bytes) = bytes {
                index.add_found(key, bytes, used_ns);
            }
        })
        .map_err(failed)?;
        Ok(Self {
            source: target(&state.source),
            directory: absolute,
            user: None,
            report: CacheReport {
                used_bytes: index.used_bytes(),
                copies: index.len() as u64,
                is_counted: true,
                ..CacheReport::default()
            },
        })
    }
}

/// Removes the copies of what is at or below a path of the source from a cache that a process uses; of all for the
/// empty path. Copies that are open stay readable. Returns how many files these were, and their bytes in the cache.
///
/// # Errors
///
/// `Unreachable` where no process uses the cache or it does not answer, `Denied`, `Io`.
pub fn evict(directory: &Path, path: &Path) -> Result<(u64, u64)> {
    let failed = |error| Error::from_io(EVICT, error).with("cache", directory.display());
    let Some(stream) = connect(directory).map_err(failed)? else {
        let kind = ErrorKind::Unreachable { applied: Applied::No };
        return Err(Error::new(kind, EVICT)
            .because("no process uses it")
            .with("cache", directory.display()));
    };
    // A cache of a million copies takes a while.
    let answer = ask(stream, &Request::Evict(path.as_os_str().as_bytes().to_vec()), None);
    match answer.map_err(|error| unanswered(EVICT, directory, error))? {
        Answer::Evicted { files, bytes } => Ok((files, bytes)),
        other => Err(unexpected(EVICT, directory, other)),
    }
}

/// The socket of a cache. Dropped, it is closed.
pub(super) struct Control {
    listener: Arc<UnixListener>,
    path: PathBuf,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Begins to answer. Without a socket the cache works all the same, so failing is logged.
    pub(super) fn start(shared: &Arc<Shared>) -> Option<Self> {
        Self::try_start(shared)
            .inspect_err(|error| {
                tracing::warn!(%error, cache = %shared.directory.display(),
                    "`terrace cache` cannot reach this mount");
            })
            .ok()
    }

    fn try_start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (directory, place) = place(&shared.directory)?;
        // What a process that was killed has left: this one has the lock.
        let _ = fs::remove_file(&place);
        let listener = Arc::new(UnixListener::bind(&place)?);
        fs::set_permissions(&place, Permissions::from_mode(0o600))?;
        drop(directory);
        let is_ending = Arc::<AtomicBool>::default();
        let work = {
            let (listener, is_ending) = (Arc::clone(&listener), Arc::clone(&is_ending));
            let shared = Arc::clone(shared);
            move || serve(&listener, &shared, &is_ending)
        };
        let thread = thread::Builder::new().name("terrace-control".into()).spawn(work)?;
        let path = shared.directory.join(SOCKET);
        Ok(Self { listener, path, is_ending, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        let _ = fs::remove_file(&self.path);
        // Wakes up the thread that accepts.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, shared: &Shared, is_ending: &AtomicBool) {
    let is_ending = || is_ending.load(Ordering::Acquire);
    loop {
        let accepted = listener.accept();
        if is_ending() {
            return;
        }
        let answered = accepted.map(|(stream, _)| answer(stream, shared, &is_ending));
        match answered {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a request to the cache was not answered"),
            Err(error) => {
                tracing::warn!(%error, "a request to the cache was not accepted");
                shared.clock.sleep(PAUSE);
            }
        }
    }
}

fn answer(mut stream: UnixStream, shared: &Shared, is_ending: &dyn Fn() -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(EXCHANGE_TIME_MAX))?;
    stream.set_write_timeout(Some(EXCHANGE_TIME_MAX))?;
    let mut request = Vec::new();
    (&stream).take(REQUEST_BYTES_MAX).read_to_end(&mut request)?;
    let answer = match serde_json::from_slice(&request)? {
        Request::Status => Answer::Status(CacheStatus {
            source: target(&shared.epochs.source()),
            directory: shared.directory.clone(),
            user: Some((std::process::id(), shared.purpose.clone())),
            report: shared.report(),
        }),
        Request::Evict(path) => {
            match shared.evict(Path::new(&OsString::from_vec(path)), is_ending) {
                Ok((files, bytes)) => Answer::Evicted { files, bytes },
                Err(error) => Answer::Failed(error.to_string()),
            }
        }
    };
    stream.write_all(&serde_json::to_vec(&answer)?)
}

/// A connection to the process that uses a cache; `None` where there is none.
fn connect(directory: &Path) -> io::Result<Option<UnixStream>> {
    let (_directory, place) = place(directory)?;
    match UnixStream::connect(place) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends a request and returns its answer, for which it waits so long at most.
fn ask(
    mut stream: UnixStream,
    request: &Request,
    patience: Option<Duration>,
) -> io::Result<Answer> {
    stream.set_write_timeout(Some(EXCHANGE_TIME_MAX))?;
    stream.set_read_timeout(patience)?;
    stream.write_all(&serde_json::to_vec(request)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// A path of the socket that is short enough for `sun_path`, as long as the descriptor is open.
fn place(directory: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    let place = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
    Ok((opened, place.into()))
}

fn target(identity: &str) -> String {
    target_of(identity).into()
}

fn unanswered(operation: &'static str, directory: &Path, error: io::Error) -> Error {
    let kind = ErrorKind::Unreachable { applied: Applied::Unknown };
    Error::new(kind, operation)
        .because(format!("the process that uses it does not answer: {error}"))
        .with("cache", directory.display())
}

fn unexpected(operation: &'static str, directory: &Path, answer: Answer) -> Error {
    let reason = match answer {
        Answer::Failed(reason) => reason,
        other => format!("an unexpected answer: {other:?}"),
    };
    Error::new(ErrorKind::Io, operation).because(reason).with("cache", directory.display())
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, CacheSettings};
    use super::*;

    #[test]
    fn a_cache_is_asked_at_a_path_longer_than_that_of_a_socket() {
        let ground = tempfile::tempdir().expect("a directory");
        let directory = ground.path().join("d".repeat(200));
        let settings = CacheSettings {
            directory: directory.clone(),
            bytes_max: Some(1 << 20),
            purpose: "a test".into(),
        };
        let source = "directory /a inode inode 7";
        let cache = Cache::open(&settings, source).expect("a cache");
        let status = CacheStatus::of(&directory).expect("it answers");
        assert_eq!(status.user, Some((std::process::id(), "a test".into())));
        assert_eq!((status.source.as_str(), status.report.bytes_max), ("/a inode", 1 << 20));
        assert_eq!(status.directory, cache.directory());
        assert_eq!(evict(&directory, Path::new("")).expect("it answers"), (0, 0));
        // What is no request is not answered, and the next one is.
        let (_opened, place) = place(&directory).expect("a directory");
        let mut stream = UnixStream::connect(place).expect("it accepts");
        stream.write_all(b"nothing").expect("it reads");
        stream.shutdown(Shutdown::Write).expect("connected");
        assert_eq!(stream.read_to_end(&mut Vec::new()).expect("it closes"), 0);
        assert!(CacheStatus::of(&directory).is_ok());
        drop(cache);
        assert!(!directory.join(SOCKET).exists());
        let status = CacheStatus::of(&directory).expect("it is counted");
        assert_eq!((status.user, status.report.copies), (None, 0));
        let refused = evict(&directory, Path::new("")).expect_err("no process").kind();
        assert_eq!(refused, ErrorKind::Unreachable { applied: Applied::No });
        let refused = CacheStatus::of(ground.path()).expect_err("no cache").kind();
        assert_eq!(refused, ErrorKind::Invalid);
    }
}
