// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts in this process, of a directory that hangs or fails when a test wants it to.

mod file_systems;

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use tempfile::TempDir;
use terrace_backends::object::S3Settings;
use terrace_fuse::{FileSystemStatus, MountOptions, Unmounter};
use terrace_source::{
    Bucket, BucketOwner, Cache, CacheSettings, Directory, Listing, Meta, MountedBelow, Name,
    Source, SourceFile, SourceMount, SourceOptions,
};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

/// A directory whose calls wait as long as it hangs.
struct Hanging {
    inner: Directory,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    /// Calls elsewhere than at this path and below it do not wait.
    place: Mutex<PathBuf>,
    /// Calls that found it closed.
    waited: AtomicU64,
    read_bytes: Mutex<u64>,
    /// A file whose bytes cannot be read.
    fails: Mutex<Option<PathBuf>>,
    /// A file that grows by a byte whenever it is looked at.
    grows: Mutex<Option<PathBuf>>,
    /// The threads that closed files and listings, by name.
    closers: Mutex<Vec<String>>,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().expect("no panic") = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self, path: &Path) {
        if !path.starts_with(&*self.place.lock().expect("no panic")) {
            return;
        }
        let closed = self.is_closed.lock().expect("no panic");
        self.waited.fetch_add(u64::from(*closed), Ordering::Relaxed);
        drop(self.opened.wait_while(closed, |is_closed| *is_closed).expect("no panic"));
    }

    fn note_close(&self) {
        let name = std::thread::current().name().unwrap_or_default().into();
        self.closers.lock().expect("no panic").push(name);
    }

    fn read_bytes(&self) -> u64 {
        *self.read_bytes.lock().expect("no panic")
    }
}

impl Source for Hanging {
    fn target(&self) -> &str {
        self.inner.target()
    }
    fn identity(&self) -> &str {
        self.inner.identity()
    }
    fn mounted_below(&self, path: &Path) -> Option<MountedBelow> {
        self.inner.mounted_below(path)
    }
    fn look(&self, path: &Path) -> Result<Meta, Errno> {
        self.gate.pass(path);
        let found = self.inner.look(path);
        if let Some(grows) = self.gate.grows.lock().expect("no panic").as_deref()
            && grows.ends_with(path)
            && !path.as_os_str().is_empty()
        {
            let mut file = File::options().append(true).open(grows).expect("it is there");
            file.write_all(b"x").expect("room");
        }
        found
    }
    fn look_in(&self, directory: &Path, seen: &Meta, name: &OsStr) -> Result<Meta, Errno> {
        self.gate.pass(&directory.join(name));
        self.inner.look_in(directory, seen, name)?;
        self.look(&directory.join(name))
    }
    fn shown(&self, meta: Meta) -> Meta {
        self.inner.shown(meta)
    }
    fn list(&self, path: &Path, seen: Option<&Meta>) -> Result<Box<dyn Listing>, Errno> {
        self.gate.pass(path);
        let inner = self.inner.list(path, seen)?;
        Ok(Box::new(HangingListing { inner, gate: Arc::clone(&self.gate) }))
    }
    fn open(&self, path: &Path, seen: &Meta) -> Result<Box<dyn SourceFile>, Errno> {
        self.gate.pass(path);
        let file = self.inner.open(path, seen)?;
        let fails = self.gate.fails.lock().expect("no panic").as_deref() == Some(path);
        let (gate, path) = (Arc::clone(&self.gate), path.into());
        Ok(Box::new(HangingFile { file, gate, path, fails }))
    }
    fn piece_bytes(&self) -> usize {
        self.inner.piece_bytes()
    }
    fn read_link(&self, path: &Path, seen: &Meta) -> Result<Vec<u8>, Errno> {
        self.gate.pass(path);
        self.inner.read_link(path, seen)
    }
    fn status(&self) -> Result<FileSystemStatus, Errno> {
        self.gate.pass(Path::new(""));
        self.inner.status()
    }
}

struct HangingFile {
    file: Box<dyn SourceFile>,
    gate: Arc<Gate>,
    path: PathBuf,
    fails: bool,
}

impl Drop for HangingFile {
    fn drop(&mut self) {
        self.gate.note_close();
    }
}

struct HangingListing {
    inner: Box<dyn Listing>,
    gate: Arc<Gate>,
}

impl Listing for HangingListing {
    fn next_page(&mut self) -> Result<Vec<Name>, Errno> {
        self.inner.next_page()
    }
}

impl Drop for HangingListing {
    fn drop(&mut self) {
        self.gate.note_close();
    }
}

impl SourceFile for HangingFile {
    fn look(&self) -> Result<Meta, Errno> {
        self.gate.pass(&self.path);
        self.file.look()
    }
    fn look_again(&self) -> Result<Meta, Errno> {
        self.gate.pass(&self.path);
        self.file.look_again()
    }
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.gate.pass(&self.path);
        if self.fails {
            return Err(Errno::IO);
        }
        let read = self.file.read_at(offset_bytes, buffer)?;
        *self.gate.read_bytes.lock().expect("no panic") += read as u64;
        Ok(read)
    }
}

/// A mounted source with its cache.
struct Mounted {
    path: PathBuf,
    gate: Arc<Gate>,
    cache: Arc<Cache>,
    unmounter: Unmounter,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.gate.set_closed(false);
        let _ = self.unmounter.unmount_lazily();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// A temporary directory with `source`, `cache` and `mnt`; `None` where this user may not mount.
fn ground() -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounts are tested as root");
        return None;
    }
    let ground = tempfile::tempdir().expect("a directory");
    for name in ["source", "mnt"] {
        fs::create_dir(ground.path().join(name)).expect("room");
    }
    Some(ground)
}

fn write(ground: &TempDir, name: &str, bytes: &[u8]) {
    let path = ground.path().join("source").join(name);
    fs::create_dir_all(path.parent().expect("in the source")).expect("room");
    fs::write(&path, bytes).expect("room");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::options().write(true).open(&path).expect("it is there");
    file.set_times(FileTimes::new().set_modified(old)).expect("it is ours");
}

fn mount(ground: &TempDir, ttl: Duration, deadline: Duration) -> Mounted {
    mount_sized(ground, ttl, deadline, 1 << 30)
}

fn mount_sized(ground: &TempDir, ttl: Duration, deadline: Duration, cache_bytes: u64) -> Mounted {
    let gate = Arc::new(Gate::default());
    let inner = Directory::open(&ground.path().join("source")).expect("a directory");
    let source: Arc<dyn Source> = Arc::new(Hanging { inner, gate: Arc::clone(&gate) });
    mount_source(ground, &source, gate, ttl, deadline, cache_bytes)
}

fn mount_source(
    ground: &TempDir,
    source: &Arc<dyn Source>,
    gate: Arc<Gate>,
    ttl: Duration,
    deadline: Duration,
    cache_bytes: u64,
) -> Mounted {
    mount_as(ground, source, gate, MountOptions::default(), (ttl, deadline), cache_bytes)
}

fn mount_as(
    ground: &TempDir,
    source: &Arc<dyn Source>,
    gate: Arc<Gate>,
    mount: MountOptions,
    (ttl, deadline): (Duration, Duration),
    cache_bytes: u64,
) -> Mounted {
    let settings = CacheSettings {
        directory: ground.path().join("cache"),
        bytes_max: Some(cache_bytes),
        purpose: "a test".into(),
    };
    let cache = Arc::new(Cache::open(&settings, source.identity()).expect("a cache"));
    let options = SourceOptions { mount, ttl, deadline, threads: 4, passes_through: true };
    let path = ground.path().join("mnt");
    let mounted = SourceMount::new(source, &cache, &path, &options).expect("mounted");
    let unmounter = mounted.unmounter();
    let serving = std::thread::spawn(move || mounted.serve().expect("served"));
    Mounted { path, gate, cache, unmounter, serving: Some(serving) }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251) as u8 ^ at as u8).collect()
}

/// Longer than any answer takes.
const PATIENT: Duration = Duration::from_secs(60);
/// A source that hangs costs this a few times; an answer of a directory takes far less.
const SHORT: Duration = Duration::from_secs(5);

#[test]
fn what_is_cached_is_served_while_the_source_hangs() {
    let Some(ground) = ground() else { return };
    write(&ground, "a/cached", b"cached");
    write(&ground, "a/other", b"other");
    let large = pattern(20 << 20);
    write(&ground, "a/large", &large);
    let mounted = mount(&ground, Duration::ZERO, SHORT);
    let read = |name: &str| fs::read(mounted.path.join(name));
    assert_eq!(read("a/cached").expect("read"), b"cached");
    let part = |offset: u64| {
        let mut part = vec![0; 4096];
        let file = File::open(mounted.path.join("a/large"))?;
        file.read_exact_at(&mut part, offset).map(|()| part)
    };
    assert_eq!(part(10 << 20).expect("read"), large[10 << 20..(10 << 20) + 4096]);
    mounted.gate.set_closed(true);
    for _ in 0..3 {
        assert_eq!(read("a/cached").expect("a copy"), b"cached");
        let there = part((10 << 20) + 8192).expect("a block that is there");
        assert_eq!(there, large[(10 << 20) + 8192..(10 << 20) + 8192 + 4096]);
    }
    assert_eq!(read("a/other").expect_err("no copy").kind(), ErrorKind::TimedOut);
    assert_eq!(part(0).expect_err("no such block").kind(), ErrorKind::TimedOut);
    assert_eq!(read("a/cached").expect("a copy"), b"cached");
    mounted.gate.set_closed(false);
    assert_eq!(read("a/other").expect("it answers again"), b"other");
    assert_eq!(part(0).expect("it answers again"), large[..4096]);
}

#[test]
fn an_outage_shows_the_owner_and_modes_of_this_mount() {
    let Some(ground) = ground() else { return };
    let server = S3Server::start();
    server.plant("sets/dir/file", b"bytes");
    let keys = ground.path().join("keys");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    fs::write(&keys, text).expect("room");
    let settings = S3Settings {
        prefix: "sets".into(),
        endpoint: Some(server.endpoint()),
        region: Some(REGION.into()),
        credentials: Some(keys),
        deadline: SHORT,
        ..S3Settings::new(BUCKET)
    };
    let mount = |uid, umask| {
        let owner = BucketOwner { uid, gid: uid, umask };
        let source: Arc<dyn Source> = Arc::new(Bucket::open(&settings, owner).expect("a bucket"));
        mount_source(&ground, &source, Arc::default(), Duration::ZERO, SHORT, 1 << 30)
    };
    let file = |mounted: &Mounted| fs::read(mounted.path.join("dir/file"));
    let mounted = mount(1, 0);
    assert_eq!(file(&mounted).expect("read"), b"bytes");
    drop(mounted);
    let mounted = mount(2, 0o077);
    let fault = S3Fault::Refuse(503, "SlowDown");
    server.inject(S3FaultPoint { kind: "", name: String::new(), times: 1_000_000, fault });
    for (name, mode) in [("", 0o040_500), ("dir", 0o040_500), ("dir/file", 0o100_400)] {
        let found = fs::metadata(mounted.path.join(name)).expect("it was looked at before");
        assert_eq!((found.uid(), found.gid(), found.mode()), (2, 2, mode), "{name:?}");
    }
    assert_eq!(file(&mounted).expect("a copy"), b"bytes");
    server.heal();
}

#[test]
fn a_warm_start_reads_nothing_from_the_source() {
    let Some(ground) = ground() else { return };
    let large = pattern((9 << 20) + 17);
    write(&ground, "large", &large);
    write(&ground, "small", b"small");
    let mounted = mount(&ground, PATIENT, PATIENT);
    assert!(fs::read(mounted.path.join("large")).expect("read") == large);
    assert_eq!(fs::read(mounted.path.join("small")).expect("read"), b"small");
    let once = (9 << 20) + 17 + 5;
    assert_eq!(mounted.gate.read_bytes(), once, "each byte is read once");
    assert_eq!(mounted.cache.report().fetched_bytes, once);
    drop(mounted);
    let mounted = mount(&ground, PATIENT, PATIENT);
    assert!(fs::read(mounted.path.join("large")).expect("read") == large);
    assert_eq!(fs::read(mounted.path.join("small")).expect("read"), b"small");
    assert_eq!(mounted.gate.read_bytes(), 0);
    let report = mounted.cache.report();
    assert_eq!((report.hits, report.misses), (2, 0));
}

#[test]
fn many_readers_of_one_file_fetch_it_once() {
    let Some(ground) = ground() else { return };
    let bytes = pattern(5 << 20);
    write(&ground, "file", &bytes);
    let large = pattern(12 << 20);
    write(&ground, "large", &large);
    let mounted = mount(&ground, PATIENT, PATIENT);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(fs::read(mounted.path.join("file")).expect("read") == bytes));
            scope.spawn(|| assert!(fs::read(mounted.path.join("large")).expect("read") == large));
        }
    });
    assert_eq!(mounted.gate.read_bytes(), 17 << 20);
}

#[test]
fn a_large_file_that_is_overwritten_while_it_is_read_leaves_no_mixed_copy() {
    let Some(ground) = ground() else { return };
    let old = pattern(20 << 20);
    write(&ground, "large", &old);
    let mounted = mount(&ground, Duration::ZERO, PATIENT);
    let file = File::open(mounted.path.join("large")).expect("it is there");
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).expect("read");
    assert_eq!(part, old[..4096]);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    write(&ground, "large", &new);
    // The open file is the one that is overwritten: what it was cannot be read any more.
    let refused = file.read_exact_at(&mut part, 15 << 20).expect_err("another state");
    assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    assert!(fs::read(mounted.path.join("large")).expect("read") == new);
    drop(file);
    drop(mounted);
    let mounted = mount(&ground, Duration::ZERO, PATIENT);
    assert!(fs::read(mounted.path.join("large")).expect("read") == new);
}

#[test]
fn a_large_file_that_is_replaced_is_read_as_one_of_both() {
    let Some(ground) = ground() else { return };
    let old = pattern(20 << 20);
    let new: Vec<u8> = pattern(24 << 20).iter().map(|byte| !byte).collect();
    write(&ground, "large", &old);
    write(&ground, "new", &new);
    let mounted = mount(&ground, PATIENT, PATIENT);
    let file = File::open(mounted.path.join("large")).expect("it is there");
    let mut part = vec![0; 5 << 20];
    file.read_exact_at(&mut part, 0).expect("read");
    assert!(part == old[..5 << 20]);
    let source = ground.path().join("source");
    fs::rename(source.join("new"), source.join("large")).expect("renamed");
    // What the kernel knows of the name is not too old yet.
    assert!(fs::read(mounted.path.join("large")).expect("read") == new);
    let mut rest = vec![0; 15 << 20];
    file.read_exact_at(&mut rest, 5 << 20).expect("an open file stays");
    assert!(rest == old[5 << 20..]);
    drop(file);
    assert!(fs::read(mounted.path.join("large")).expect("read") == new);
}

#[test]
fn a_file_larger_than_the_cache_is_read_once_and_evicts_nothing() {
    let Some(ground) = ground() else { return };
    let large = pattern(60 << 20);
    write(&ground, "large", &large);
    write(&ground, "small", b"small");
    let mounted = mount_sized(&ground, PATIENT, PATIENT, 20 << 20);
    assert_eq!(fs::read(mounted.path.join("small")).expect("read"), b"small");
    assert!(fs::read(mounted.path.join("large")).expect("read") == large);
    assert_eq!(mounted.gate.read_bytes(), (60 << 20) + 5, "each byte is read once");
    assert_eq!(fs::read(mounted.path.join("small")).expect("read"), b"small");
    let report = mounted.cache.report();
    assert_eq!((report.hits, report.evicted), (1, 0));
    assert!(report.fetched_bytes >= 16 << 20, "free room is used");
}

#[test]
fn a_file_that_the_cache_cannot_take_is_read_in_one_state() {
    let Some(ground) = ground() else { return };
    for (name, bytes) in [("file", 6 << 20), ("large", 12 << 20)] {
        let old = pattern(bytes);
        let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
        write(&ground, name, &old);
        let mounted = mount_sized(&ground, PATIENT, PATIENT, 0);
        let path = mounted.path.join(name);
        let mut part = vec![0; 4096];
        let file = File::open(&path).expect("it is there");
        file.read_exact_at(&mut part, 0).expect("read");
        assert_eq!(part, old[..4096]);
        write(&ground, name, &new);
        let refused = file.read_exact_at(&mut part, 5 << 20).expect_err("another state");
        assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()), "{name}");
        let file = File::open(&path).expect("it is there");
        file.read_exact_at(&mut part, 0).expect("read");
        assert_eq!(part, new[..4096]);
        write(&ground, "other", &old);
        let source = ground.path().join("source");
        fs::rename(source.join("other"), source.join(name)).expect("renamed");
        file.read_exact_at(&mut part, 5 << 20).expect("an open file stays");
        assert_eq!(part, new[5 << 20..(5 << 20) + 4096]);
    }
}

#[test]
fn a_directory_that_is_another_one_is_refused_for_a_cache() {
    let Some(ground) = ground() else { return };
    drop(mount(&ground, PATIENT, PATIENT));
    // As if nothing were mounted there any more.
    fs::rename(ground.path().join("source"), ground.path().join("away")).expect("renamed");
    fs::create_dir(ground.path().join("source")).expect("room");
    let source = Directory::open(&ground.path().join("source")).expect("a directory");
    let settings = CacheSettings {
        directory: ground.path().join("cache"),
        bytes_max: None,
        purpose: "a test".into(),
    };
    let refused = Cache::open(&settings, source.identity()).err().expect("refused").to_string();
    assert!(refused.contains("copies of another source"), "{refused}");
}

#[test]
fn a_file_that_is_being_written_can_be_opened() {
    let Some(ground) = ground() else { return };
    for ttl in [Duration::ZERO, PATIENT] {
        write(&ground, "log", b"x");
        let mounted = mount(&ground, ttl, PATIENT);
        *mounted.gate.grows.lock().expect("no panic") = Some(ground.path().join("source/log"));
        let path = mounted.path.join("log");
        for _ in 0..20 {
            let bytes = fs::read(&path).expect("it is there");
            assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == b'x'));
            assert!(fs::metadata(&path).expect("it is there").len() > 0);
        }
    }
}

#[test]
fn a_file_that_is_open_is_opened_again_without_its_copy() {
    let Some(ground) = ground() else { return };
    write(&ground, "file", b"bytes");
    let mounted = mount(&ground, PATIENT, PATIENT);
    let first = File::open(mounted.path.join("file")).expect("it is there");
    fs::remove_dir_all(ground.path().join("cache/copies")).expect("removed");
    assert_eq!(fs::read(mounted.path.join("file")).expect("it is there"), b"bytes");
    drop(first);
    assert_eq!(fs::read(mounted.path.join("file")).expect("from the source"), b"bytes");
}

#[test]
fn readers_of_a_file_fail_together_where_the_source_hangs() {
    let Some(ground) = ground() else { return };
    write(&ground, "file", b"bytes");
    let mounted = mount(&ground, PATIENT, SHORT);
    let path = mounted.path.join("file");
    fs::metadata(&path).expect("it is there");
    mounted.gate.set_closed(true);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(fs::read(&path).expect_err("no copy").kind(), ErrorKind::TimedOut);
            });
        }
    });
    let asked = mounted.gate.waited.load(Ordering::Relaxed);
    assert!(asked < 8, "{asked} calls waited for the deadline");
    mounted.gate.set_closed(false);
    assert_eq!(fs::read(&path).expect("it answers again"), b"bytes");
}

#[test]
fn a_source_that_hangs_at_the_start_is_an_error() {
    let Some(ground) = ground() else { return };
    write(&ground, "below/file", b"bytes");
    let mounted = mount(&ground, Duration::ZERO, Duration::from_secs(600));
    mounted.gate.set_closed(true);
    // A mount whose source hangs is a directory that hangs.
    let opened = Directory::open_within(&mounted.path.join("below"), Duration::from_millis(100));
    let refused = opened.expect_err("it hangs").to_string();
    assert!(refused.contains("does not answer within 100ms"), "{refused}");
    mounted.gate.set_closed(false);
    assert!(Directory::open_within(&mounted.path.join("below"), PATIENT).is_ok());
}

#[test]
fn a_file_that_cannot_be_read_brings_no_deleted_file_back() {
    let Some(ground) = ground() else { return };
    for name in ["bad", "deleted", "kept"] {
        write(&ground, name, b"bytes");
    }
    let mounted = mount(&ground, PATIENT, PATIENT);
    fs::read(mounted.path.join("deleted")).expect("it is there");
    drop(mounted);
    fs::remove_file(ground.path().join("source/deleted")).expect("it is there");
    // Nothing asks for the root meanwhile, whose answer would end the doubt about the source.
    let mounted = mount(&ground, PATIENT, PATIENT);
    let read = |name: &str| fs::read(mounted.path.join(name));
    *mounted.gate.fails.lock().expect("no panic") = Some("bad".into());
    let failed = read("bad").expect_err("planned");
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert_eq!(read("deleted").expect_err("it is gone").kind(), ErrorKind::NotFound);
    assert_eq!(read("kept").expect("it is there"), b"bytes");
}

#[test]
fn what_was_seen_to_be_gone_or_changed_is_not_served_while_the_source_hangs() {
    let Some(ground) = ground() else { return };
    for name in ["deleted", "changed", "same"] {
        write(&ground, name, b"old");
    }
    let mounted = mount(&ground, Duration::ZERO, SHORT);
    let at = |name: &str| mounted.path.join(name);
    for name in ["deleted", "changed", "same"] {
        assert_eq!(fs::read(at(name)).expect("it is there"), b"old");
    }
    fs::remove_file(ground.path().join("source/deleted")).expect("it is there");
    write(&ground, "changed", b"newer");
    assert_eq!(fs::metadata(at("deleted")).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(at("changed")).expect("it is there").len(), 5);
    mounted.gate.set_closed(true);
    for name in ["deleted", "changed"] {
        let failed = fs::read(at(name)).expect_err("nothing is known");
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
    }
    assert_eq!(fs::read(at("same")).expect("a copy"), b"old");
}

#[test]
fn a_recalled_state_lasts_until_the_source_answers() {
    let Some(ground) = ground() else { return };
    write(&ground, "file", b"old");
    drop({
        let mounted = mount(&ground, PATIENT, PATIENT);
        assert_eq!(fs::read(mounted.path.join("file")).expect("it is there"), b"old");
        mounted
    });
    let mounted = mount(&ground, PATIENT, SHORT);
    let path = mounted.path.join("file");
    mounted.gate.set_closed(true);
    assert_eq!(fs::read(&path).expect("a copy"), b"old");
    write(&ground, "file", b"newer");
    mounted.gate.set_closed(false);
    // By now it answers.
    while fs::metadata(mounted.path.join("missing")).expect_err("none").kind()
        != ErrorKind::NotFound
    {}
    assert_eq!(fs::read(&path).expect("it is there"), b"newer");
}

/// The kernel checks what was seen; the source is asked with the rights of root.
#[test]
fn nothing_is_shown_by_the_permissions_of_what_was_there_before() {
    let Some(ground) = ground() else { return };
    let allow = |name: &str, mode: u32| {
        let path = ground.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for name in ["public", "secret"] {
        write(&ground, name, &vec![name.as_bytes()[0]; 9 << 20]);
        // Written later than now: it does not come into the cache.
        let file = File::open(ground.path().join("source").join(name)).expect("it is there");
        let later = std::time::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        file.set_times(FileTimes::new().set_modified(later)).expect("it is ours");
    }
    write(&ground, "open/seen", b"seen");
    write(&ground, "closed/other", b"other");
    for directory in ["open", "closed"] {
        let link = ground.path().join("source").join(directory).join("link");
        std::os::unix::fs::symlink(directory, link).expect("room");
    }
    for (name, mode) in [("", 0o755), ("source", 0o755), ("source/open", 0o755)] {
        allow(name, mode);
    }
    allow("source/secret", 0o600);
    allow("source/closed", 0o700);
    let source: Arc<dyn Source> =
        Arc::new(Directory::open(&ground.path().join("source")).expect("a directory"));
    let options =
        MountOptions { allow_other: true, default_permissions: true, ..Default::default() };
    let mounted = mount_as(&ground, &source, Arc::default(), options, (PATIENT, PATIENT), 1 << 30);
    // Users without a name have these numbers.
    let other = |program: &str, name: &str| {
        let mut command = Command::new(program);
        let ended = command.arg(mounted.path.join(name)).uid(4242).gid(4242).output();
        ended.expect("it runs").status.success()
    };
    assert!(other("stat", "public") && other("cat", "open/seen") && !other("cat", "secret"));
    // Without reading where it leads: the kernel would keep that.
    assert!(other("find", "open/link"));
    let rename = |from: &str, to: &str| {
        let at = |name: &str| ground.path().join("source").join(name);
        fs::rename(at(from), at(to)).expect("renamed");
    };
    rename("secret", "public");
    assert!(!other("cat", "public"), "it is another file's bytes");
    rename("open", "before");
    rename("closed", "open");
    assert!(!other("readlink", "open/link"), "it is in a directory of root");
    assert!(!other("cat", "open/other"));
    assert!(!other("ls", "open"));
    assert!(other("cat", "before/seen"), "that is where it is");
}

#[test]
fn a_link_that_is_made_anew_leads_where_it_leads() {
    let Some(ground) = ground() else { return };
    let link = ground.path().join("source/link");
    std::os::unix::fs::symlink("before", &link).expect("room");
    let mounted = mount(&ground, Duration::ZERO, PATIENT);
    let shown = || fs::read_link(mounted.path.join("link")).expect("a link");
    assert_eq!(shown(), Path::new("before"));
    let inode = |path: &Path| fs::symlink_metadata(path).expect("it is there").ino();
    let old = inode(&link);
    let is_reused = (0..1000).any(|_| {
        fs::remove_file(&link).expect("it is ours");
        std::os::unix::fs::symlink("after", &link).expect("room");
        inode(&link) == old
    });
    println!("the inode number is reused: {is_reused}");
    assert_eq!(shown(), Path::new("after"));
}
