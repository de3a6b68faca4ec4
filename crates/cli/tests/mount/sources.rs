// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that are mounted as they are, behind a cache.

use std::ffi::CString;
use std::fs::{self, File, FileTimes};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::Value;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Mountpoint, Scene, wait_until};

/// A directory `source` with some files, and mounts of it with the cache `cache`.
pub(crate) struct Shown {
    pub(crate) scene: Scene,
    pub(crate) source: PathBuf,
}

/// A running mount.
pub(crate) struct Mounted {
    process: Child,
    pub(crate) path: PathBuf,
    /// Whether the kernel reads copies itself.
    pub(crate) passes: bool,
}

impl Shown {
    fn new() -> Option<Self> {
        let scene = Scene::new()?;
        let source = scene.directory("source");
        fs::create_dir(source.join("below")).expect("room");
        let shown = Self { scene, source };
        shown.write("small", b"small file");
        shown.write("below/empty", b"");
        shown.write("below/long", &pattern(3 << 20, 7));
        symlink("../small", shown.source.join("below/link")).expect("room");
        Some(shown)
    }

    /// Writes a file of the source that was modified a while ago, as files that are copied have to be.
    fn write(&self, name: &str, bytes: &[u8]) {
        self.write_aged(name, bytes, Duration::from_secs(100));
    }

    fn write_aged(&self, name: &str, bytes: &[u8], age: Duration) {
        let path = self.source.join(name);
        fs::write(&path, bytes).expect("room");
        let wall = Duration::from_nanos(SystemClock::default().wall_ns());
        let modified = std::time::UNIX_EPOCH + wall - age;
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_times(FileTimes::new().set_modified(modified)).expect("it is ours");
    }

    pub(crate) fn command(&self, how: &[&str]) -> Command {
        let path = self.scene.directory("mnt");
        let source = self.source.to_str().expect("UTF-8");
        let mut command = self.scene.command(["mount", "--json", "-f", "--source", source]);
        command.args(["--cache", "cache"]).args(how).arg(path);
        command
    }

    pub(crate) fn mount(&self, how: &[&str]) -> Mounted {
        let mut command = self.command(how);
        command.stdout(Stdio::piped()).stderr(self.scene.log("source"));
        self.started(command.spawn().expect("the binary runs"))
    }

    /// Waits until a process serves.
    fn started(&self, mut process: Child) -> Mounted {
        let mut stdout = process.stdout.take().expect("it is a pipe");
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("it prints") == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        let ready: Value = serde_json::from_slice(&line).expect("it says that it is ready");
        assert_eq!(ready["ready"], true);
        let passes = ready["passthrough"] == true;
        Mounted { process, path: self.scene.path("mnt"), passes }
    }

    /// What a mount that must fail prints.
    pub(crate) fn refusal(&self, how: &[&str]) -> String {
        let output = self.command(how).output().expect("the binary runs");
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("it is text")
    }
}

impl Mounted {
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// How many bytes of a file are in the cache.
    pub(crate) fn cached_bytes(&self, name: &str) -> u64 {
        let mut value = [0; 32];
        let length = rustix::fs::getxattr(self.path.join(name), "user.terrace.cached", &mut value);
        let text = std::str::from_utf8(&value[..length.expect("it has one")]).expect("digits");
        text.parse().expect("a number")
    }

    /// What `terrace warm` of some names prints, which ends with a status.
    pub(crate) fn warm(&self, shown: &Shown, status: i32, names: &[&str]) -> (Value, String) {
        let paths = names.iter().map(|name| format!("mnt/{name}"));
        let mut command = shown.scene.command(["warm", "--json", "--bandwidth", "1GB/s"]);
        let output = command.args(paths).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let errors = String::from_utf8(output.stderr).expect("it is text");
        (serde_json::from_slice(&output.stdout).unwrap_or_default(), errors)
    }

    /// What `terrace cache show` of a path prints.
    pub(crate) fn status(&self, shown: &Shown, path: &str) -> Value {
        let text = shown.scene.ok(["cache", "show", "--json", path]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// How many files, and how many bytes, `terrace cache evict` of a path drops.
    pub(crate) fn evict(&self, shown: &Shown, name: &str) -> (u64, u64) {
        let path = self.path.join(name);
        let path = path.to_str().expect("UTF-8");
        let text = shown.scene.ok(["cache", "evict", "--json", path]);
        let done: Value = serde_json::from_str(&text).expect("JSON");
        let number = |name: &str| done[name].as_u64().expect("a number");
        (number("files"), number("bytes"))
    }

    pub(crate) fn unmount(mut self) {
        rustix::mount::unmount(&self.path, UnmountFlags::empty()).expect("nobody uses it");
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(seed) >> 3) as u8 ^ at as u8).collect()
}

/// All that `lstat` says of a tree, the bytes of files and the targets of links.
fn seen(root: &Path) -> Vec<(PathBuf, String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).expect("it is there");
        let bytes = if stat.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("listed").map(|entry| entry.expect("a name").path()),
            );
            Vec::new()
        } else if stat.is_symlink() {
            fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("readable")
        };
        // Reading changes the time of the last access.
        let stat = format!(
            "{} {:o} {} {} {} {} {} {} {} {}",
            stat.ino(),
            stat.mode(),
            stat.nlink(),
            stat.uid(),
            stat.gid(),
            stat.size(),
            stat.mtime(),
            stat.mtime_nsec(),
            stat.ctime(),
            stat.ctime_nsec()
        );
        found.push((path.strip_prefix(root).expect("below").into(), stat, bytes));
    }
    found.sort();
    found
}

#[test]
fn a_source_is_shown_as_it_is_and_cannot_be_written() {
    let Some(shown) = Shown::new() else { return };
    let secret = shown.source.join("secret");
    shown.write("secret", b"not for all");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("it is ours");
    std::os::unix::fs::chown(&secret, Some(1234), Some(4321)).expect("root may");
    let many = shown.source.join("many");
    fs::create_dir(&many).expect("room");
    for number in 0..2000 {
        File::create(many.join(format!("file-with-a-rather-long-name-{number}"))).expect("room");
    }
    for how in [&[][..], &["--io", "served"]] {
        let mounted = shown.mount(how);
        for _ in 0..2 {
            assert_eq!(seen(&mounted.path), seen(&shown.source), "{how:?}");
        }
        for change in [
            fs::write(mounted.path.join("new"), b"x"),
            fs::write(mounted.path.join("small"), b"x"),
            fs::remove_file(mounted.path.join("small")),
        ] {
            assert_eq!(change.expect_err("refused").kind(), ErrorKind::ReadOnlyFilesystem);
        }
        mounted.unmount();
    }
}

#[test]
fn changes_at_the_source_are_seen() {
    let Some(shown) = Shown::new() else { return };
    let mounted = shown.mount(&["--ttl", "0s"]);
    assert_eq!(mounted.read("small"), b"small file");
    let mut open = File::open(mounted.path.join("small")).expect("it is there");
    // As long as before, and modified at the same time; only the time of the change tells.
    let before = fs::metadata(shown.source.join("small")).expect("it is there");
    fs::write(shown.source.join("small"), b"SMALL FILE").expect("room");
    let times = FileTimes::new().set_modified(before.modified().expect("a time"));
    let file = File::options().write(true).open(shown.source.join("small")).expect("it is there");
    file.set_times(times).expect("it is ours");
    assert_eq!(mounted.read("small"), b"SMALL FILE");
    let mut old = String::new();
    open.read_to_string(&mut old).expect("an open file stays");
    assert_eq!(old, "small file");
    // Replaced by another file, removed, renamed with what is below.
    shown.write("next", b"replaced");
    fs::rename(shown.source.join("next"), shown.source.join("small")).expect("renamed");
    assert_eq!(mounted.read("small"), b"replaced");
    fs::remove_file(shown.source.join("small")).expect("removed");
    let missing = fs::read(mounted.path.join("small")).expect_err("it is gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::rename(shown.source.join("below"), shown.source.join("moved")).expect("renamed");
    assert_eq!(mounted.read("moved/long"), pattern(3 << 20, 7));
    assert!(!mounted.path.join("below").exists());
}

#[test]
fn a_file_that_grows_is_read_to_its_end_and_is_not_copied() {
    let Some(shown) = Shown::new() else { return };
    // Modified in the future, as by a server whose clock is ahead: it counts as being written.
    let path = shown.source.join("log");
    let ahead = Duration::from_nanos(SystemClock::default().wall_ns()) + Duration::from_secs(3600);
    let note = |bytes: &[u8]| {
        let file = File::options().append(true).create(true).open(&path).expect("room");
        std::io::Write::write_all(&mut &file, bytes).expect("room");
        let modified = std::time::UNIX_EPOCH + ahead;
        file.set_times(FileTimes::new().set_modified(modified)).expect("it is ours");
    };
    note(b"first,");
    let mounted = shown.mount(&["--ttl", "0s"]);
    let mut open = File::open(mounted.path.join("log")).expect("it is there");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    note(b"second");
    open.read_to_string(&mut text).expect("read on");
    assert_eq!(text, "first,second");
    assert_eq!(open.metadata().expect("open").len(), 12);
    assert_eq!(mounted.cached_bytes("log"), 0);
}

#[test]
fn a_restart_is_warm_also_after_a_kill() {
    let Some(shown) = Shown::new() else { return };
    let mounted = shown.mount(&[]);
    let expected = seen(&mounted.path);
    assert_eq!(mounted.cached_bytes("below/long"), 3 << 20);
    mounted.kill();
    let mounted = shown.mount(&[]);
    assert_eq!(mounted.cached_bytes("below/long"), 3 << 20, "before anything is read");
    assert_eq!(seen(&mounted.path), expected);
    mounted.unmount();
    // Bytes that changed under the same attributes show that they come from the cache.
    let copies = copies(&shown);
    let copy = copies.iter().find(|path| fs::metadata(path).is_ok_and(|found| found.len() == 10));
    let copy = File::options().write(true).open(copy.expect("there is a copy")).expect("ours");
    copy.write_all_at(b"MARK", 0).expect("room");
    let mounted = shown.mount(&[]);
    assert_eq!(mounted.read("small"), b"MARKl file");
    // A change at the source while nothing was mounted makes the copy void.
    mounted.unmount();
    shown.write("small", b"other file");
    let mounted = shown.mount(&[]);
    assert_eq!(mounted.read("small"), b"other file");
}

/// The files of the cache.
fn copies(shown: &Shown) -> Vec<PathBuf> {
    let root = shown.scene.path("cache/copies");
    let directories = fs::read_dir(root).expect("there are copies");
    let files =
        directories.flat_map(|one| fs::read_dir(one.expect("readable").path()).expect("one"));
    files.map(|entry| entry.expect("readable").path()).collect()
}

#[test]
fn a_kill_while_files_are_copied_leaves_no_wrong_bytes() {
    let Some(shown) = Shown::new() else { return };
    let expected: Vec<_> =
        (0..40).map(|seed| pattern((1 << 20) + 12_345 * seed, seed as u64)).collect();
    for (number, bytes) in expected.iter().enumerate() {
        shown.write(&format!("f{number}"), bytes);
    }
    for round in 0..6 {
        let mounted = shown.mount(&["--threads", "8"]);
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let path = mounted.path.clone();
                std::thread::spawn(move || {
                    // The mount ends below them.
                    (0..40)
                        .filter(|file| {
                            fs::read(path.join(format!("f{}", (file * 7 + reader) % 40))).is_ok()
                        })
                        .count()
                })
            })
            .collect();
        wait_until("some copies are made", || {
            shown.scene.path("cache/copies").exists() && copies(&shown).len() > 4 * (round + 1)
        });
        mounted.kill();
        for reader in readers {
            reader.join().expect("a reader ends");
        }
    }
    let mounted = shown.mount(&[]);
    for (number, bytes) in expected.iter().enumerate() {
        assert!(mounted.read(&format!("f{number}")) == *bytes, "f{number}");
    }
    assert_eq!(fs::read_dir(shown.scene.path("cache/drafts")).expect("there").count(), 0);
}

#[test]
fn a_full_cache_gives_up_what_was_not_used_for_longest() {
    let Some(shown) = Shown::new() else { return };
    for number in 0..12 {
        shown.write(&format!("f{number}"), &pattern(1 << 20, number));
    }
    let mounted = shown.mount(&["--cache-size", "5MiB"]);
    for number in 0..12 {
        assert!(mounted.read(&format!("f{number}")) == pattern(1 << 20, number));
    }
    assert_eq!(mounted.cached_bytes("f0"), 0);
    assert_eq!(mounted.cached_bytes("f11"), 1 << 20);
    let sizes = copies(&shown).into_iter().map(|path| fs::metadata(path).expect("there").len());
    assert!(sizes.sum::<u64>() <= 5 << 20);
    // What does not fit at all is read all the same.
    shown.write("large", &pattern(6 << 20, 3));
    assert!(mounted.read("large") == pattern(6 << 20, 3));
    assert_eq!(mounted.cached_bytes("large"), 0);
}

#[test]
fn a_reader_that_samples_a_large_file_fetches_only_what_it_touches() {
    let Some(shown) = Shown::new() else { return };
    let bytes = pattern((40 << 20) + 4321, 11);
    shown.write("large", &bytes);
    let mounted = shown.mount(&[]);
    let sample = |mounted: &Mounted, offset: usize| {
        let file = File::open(mounted.path.join("large")).expect("it is there");
        let mut part = vec![0; 5000];
        file.read_exact_at(&mut part, offset as u64).expect("read");
        assert!(part == bytes[offset..offset + 5000], "{offset}");
    };
    sample(&mounted, 20 << 20);
    assert_eq!(mounted.cached_bytes("large"), 1 << 20);
    // Over the border of two blocks, and at the end.
    sample(&mounted, (30 << 20) - 2000);
    sample(&mounted, bytes.len() - 5000);
    assert_eq!(mounted.cached_bytes("large"), (4 << 20) + 4321);
    mounted.kill();
    let mounted = shown.mount(&[]);
    assert_eq!(mounted.cached_bytes("large"), (4 << 20) + 4321, "the map outlives the process");
    assert!(mounted.read("large") == bytes);
    wait_until("all is there", || mounted.cached_bytes("large") == bytes.len() as u64);
    assert!(mounted.read("large") == bytes, "now an ordinary copy");
    mounted.unmount();
    // Whole by now: as long as the file, without a map behind it.
    let lengths: Vec<_> =
        copies(&shown).iter().map(|copy| fs::metadata(copy).expect("one").len()).collect();
    assert!(lengths.contains(&(bytes.len() as u64)), "{lengths:?}");
    // Another state of the file: no block of the old one is used.
    let other = pattern((40 << 20) + 4321, 13);
    shown.write_aged("large", &other, Duration::from_secs(50));
    let mounted = shown.mount(&[]);
    assert!(mounted.read("large") == other);
}

#[test]
fn a_large_file_that_does_not_fit_is_read_past_the_cache() {
    let Some(shown) = Shown::new() else { return };
    let bytes = pattern(24 << 20, 17);
    shown.write("large", &bytes);
    let mounted = shown.mount(&["--cache-size", "10MiB"]);
    for _ in 0..2 {
        assert!(mounted.read("large") == bytes);
    }
    let cached_bytes = mounted.cached_bytes("large");
    assert!(cached_bytes > 0 && cached_bytes <= 10 << 20, "{cached_bytes}");
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let Some(shown) = Shown::new() else { return };
    let mounted = shown.mount(&[]);
    let busy = shown.refusal(&[]);
    let process = format!("process={}", mounted.process.id());
    assert!(busy.contains(&process) && busy.contains("purpose=\\\"mount of"), "{busy}");
    mounted.unmount();
    let source = shown.source.to_str().expect("UTF-8").to_string();
    let refused = |arguments: &[&str], text: &str| {
        let mountpoint = shown.scene.directory("mnt");
        let mut command = shown.scene.command(["mount", "-f"]);
        let output = command.args(arguments).arg(mountpoint).output().expect("the binary runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(text), "{arguments:?}: {errors}");
    };
    let in_source = format!("{source}/cache");
    refused(&["--source", "missing", "--cache", "c"], "not found source=missing");
    refused(&["--source", "source/small", "--cache", "c"], "it is no directory");
    refused(&["--source", &source], "--source needs --cache DIR");
    refused(&["--source", &source, "--cache", &in_source], "the cache is in the source");
    refused(&["--source", &source, "--cache", "store"], "holds something else");
    refused(&["--source", &source, "--cache", "/proc/terrace"], "cannot open the cache");
    refused(&["--source", "fast", "--cache", "cache"], "copies of another source");
    refused(&["--source", &source, "--cache", "c", "--strict"], "for the mount of a store");
    refused(&["--ttl", "1s", "store"], "for --source option=--ttl");
}

#[test]
fn a_cache_that_another_process_gives_up_is_waited_for() {
    let Some(shown) = Shown::new() else { return };
    shown.mount(&[]).unmount();
    let lock = File::open(shown.scene.path("cache").join("lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    let mut command = shown.command(&[]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let clock = SystemClock::default();
    for _ in 0..20 {
        clock.sleep(Duration::from_millis(10));
        assert!(process.try_wait().expect("a process").is_none(), "it gave up");
    }
    drop(lock);
    shown.started(process).unmount();
}

#[test]
fn threads_are_those_that_are_given_also_where_stores_have_as_many() {
    let Some(shown) = Shown::new() else { return };
    for (how, count) in [(&["--threads", "4"][..], 4), (&[], 16)] {
        let mounted = shown.mount(how);
        let tasks = PathBuf::from(format!("/proc/{}/task", mounted.process.id()));
        let serving = || {
            let tasks = tasks.read_dir().expect("it runs").flatten();
            let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.trim_end() == "fuse").count()
        };
        // The first is the main thread. More would be begun only while all are held up.
        wait_until("all threads serve", || serving() + 1 >= count);
        assert_eq!(serving() + 1, count, "{how:?}");
        mounted.unmount();
    }
}

#[test]
fn passthrough_of_a_cache_on_a_stacked_file_system_is_refused() {
    let Some(shown) = Shown::new() else { return };
    let cache = shown.scene.directory("cache");
    let below = shown.scene.directory("below");
    let nothing = MountFlags::empty();
    rustix::mount::mount("tmpfs", &below, "tmpfs", nothing, None).expect("root may");
    let _below = Mountpoint(below.clone());
    for name in ["lower", "upper", "work"] {
        fs::create_dir(below.join(name)).expect("there is room");
    }
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| below.join(name));
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = CString::new(options).expect("no NUL");
    rustix::mount::mount("overlay", &cache, "overlay", nothing, Some(&*options)).expect("root may");
    let _cache = Mountpoint(cache);
    let refusal = shown.refusal(&["--io", "passthrough"]);
    assert!(refusal.contains("it is on overlayfs"), "{refusal}");
    let mounted = shown.mount(&[]);
    assert!(!mounted.passes, "the kernel would refuse each open");
    mounted.unmount();
}

#[test]
fn a_source_that_hangs_holds_up_only_what_is_not_cached() {
    let Some(shown) = Shown::new() else { return };
    // The source is itself a mount, whose process is stopped.
    let mut below = shown.scene.mount("hanging", &[]);
    let write = |name: &str, bytes: &[u8]| {
        let path = below.path().join(name);
        fs::write(&path, bytes).expect("room");
        let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_times(FileTimes::new().set_modified(old)).expect("it is ours");
    };
    fs::create_dir(below.path().join("in")).expect("room");
    write("in/cached", &pattern(20_000, 1));
    write("in/other", &pattern(20_000, 2));
    let shown = Shown { source: below.path().into(), scene: shown.scene };
    let mounted = shown.mount(&["--ttl", "0s", "--deadline", "5s"]);
    assert_eq!(mounted.read("in/cached"), pattern(20_000, 1));
    below.set_silent(true);
    assert_eq!(mounted.read("in/cached"), pattern(20_000, 1));
    let error = fs::read(mounted.path.join("in/other")).expect_err("the source does not answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(mounted.read("in/cached"), pattern(20_000, 1));
    below.set_silent(false);
    wait_until("the source answers", || fs::read(mounted.path.join("in/other")).is_ok());
    assert_eq!(mounted.read("in/other"), pattern(20_000, 2));
    mounted.unmount();
    below.unmount();
}

#[test]
fn a_source_that_hangs_fails_the_mount_at_its_deadline() {
    let Some(shown) = Shown::new() else { return };
    let mut below = shown.scene.mount("hanging", &[]);
    fs::create_dir(below.path().join("in")).expect("room");
    let shown = Shown { source: below.path().join("in"), scene: shown.scene };
    below.set_silent(true);
    let refusal = shown.refusal(&["--deadline", "300ms"]);
    assert!(refusal.contains("does not answer within 300ms"), "{refusal}");
    assert!(!shown.scene.path("cache").exists(), "nothing is made for it");
    below.set_silent(false);
    shown.mount(&[]).unmount();
    below.unmount();
}

#[test]
fn warm_copies_what_is_below_and_not_yet_in_the_cache() {
    let Some(shown) = Shown::new() else { return };
    let bytes = pattern((20 << 20) + 4321, 11);
    shown.write("below/large", &bytes);
    fs::create_dir_all(shown.source.join("below/deep/er")).expect("room");
    for number in 0..300 {
        shown.write(&format!("below/deep/er/f{number}"), &pattern(1000 + number, 3));
    }
    let ahead = Duration::from_nanos(SystemClock::default().wall_ns()) + Duration::from_secs(3600);
    let written = File::create(shown.source.join("written")).expect("room");
    written.write_all_at(b"still being written", 0).expect("room");
    let modified = std::time::UNIX_EPOCH + ahead;
    written.set_times(FileTimes::new().set_modified(modified)).expect("it is ours");
    let mounted = shown.mount(&[]);
    let mut part = [0; 100];
    let large = File::open(mounted.path.join("below/large")).expect("it is there");
    large.read_exact_at(&mut part, 10 << 20).expect("read");
    assert_eq!(mounted.read("below/deep/er/f0"), pattern(1000, 3));
    let (done, _) = mounted.warm(&shown, 0, &["below", "written"]);
    let small_bytes: u64 = (0..300).map(|number| 1000 + number).sum();
    let all_bytes = small_bytes + (3 << 20) + bytes.len() as u64 + 19;
    // The link is none of the files.
    assert_eq!((&done["files"], &done["bytes"]), (&304.into(), &all_bytes.into()), "{done}");
    let counts = (&done["cached_files"], &done["copied_files"], &done["uncached_files"]);
    assert_eq!(counts, (&1.into(), &302.into(), &1.into()), "{done}");
    assert_eq!(done["copied_bytes"], all_bytes - 19 - 1000 - (1 << 20), "{done}");
    assert_eq!(done["failed"], 0);
    assert_eq!(mounted.cached_bytes("below/large"), bytes.len() as u64);
    assert_eq!(mounted.cached_bytes("below/deep/er/f299"), 1299);
    assert_eq!(mounted.cached_bytes("below/long"), 3 << 20);
    assert_eq!((mounted.cached_bytes("small"), mounted.cached_bytes("written")), (0, 0));
    assert!(mounted.read("below/large") == bytes);
    let (done, _) = mounted.warm(&shown, 0, &["below"]);
    assert_eq!((&done["cached_files"], &done["copied_bytes"]), (&302.into(), &0.into()), "{done}");
    // A link that is named is followed.
    let (done, _) = mounted.warm(&shown, 0, &["below/link"]);
    assert_eq!((&done["files"], &done["copied_bytes"]), (&1.into(), &10.into()), "{done}");
    assert_eq!(mounted.cached_bytes("small"), 10);
}

#[test]
fn warm_says_what_it_cannot_read() {
    let Some(shown) = Shown::new() else { return };
    let outside = shown.scene.command(["warm", "source"]).output().expect("the binary runs");
    let errors = String::from_utf8_lossy(&outside.stderr).into_owned();
    assert_eq!(outside.status.code(), Some(2), "{errors}");
    assert!(errors.contains("it is on no mount of `terrace mount --source"), "{errors}");
    // The source is itself a mount, whose process is stopped.
    let mut below = shown.scene.mount("hanging", &[]);
    for name in ["cached", "other"] {
        let path = below.path().join(name);
        fs::write(&path, name).expect("room");
        let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_times(FileTimes::new().set_modified(old)).expect("it is ours");
    }
    let shown = Shown { source: below.path().into(), scene: shown.scene };
    let mounted = shown.mount(&["--ttl", "1d", "--deadline", "5s"]);
    let (_, missing) = mounted.warm(&shown, 3, &["cached", "missing"]);
    assert!(missing.contains("mnt/missing"), "{missing}");
    assert_eq!(mounted.cached_bytes("cached"), 0, "nothing was begun");
    assert_eq!(mounted.read("cached"), b"cached");
    fs::metadata(mounted.path.join("other")).expect("it is there");
    below.set_silent(true);
    let (done, errors) = mounted.warm(&shown, 1, &["cached", "other"]);
    assert_eq!((&done["cached_files"], &done["failed"]), (&1.into(), &1.into()), "{done}");
    assert!(errors.contains("mnt/other") && errors.lines().count() == 1, "{errors}");
    below.set_silent(false);
    let (done, _) = mounted.warm(&shown, 0, &["cached", "other"]);
    assert_eq!((&done["cached_files"], &done["copied_files"]), (&1.into(), &1.into()), "{done}");
    mounted.unmount();
    below.unmount();
}

#[test]
fn cache_shows_what_is_held_and_found() {
    let Some(shown) = Shown::new() else { return };
    let large = pattern(12 << 20, 5);
    shown.write("large", &large);
    let mounted = shown.mount(&["--cache-size", "64MiB"]);
    mounted.read("small");
    mounted.read("small");
    assert!(mounted.read("large") == large);
    wait_until("the start is counted", || mounted.status(&shown, "mnt")["is_counted"] == true);
    let status = mounted.status(&shown, "mnt/below");
    assert_eq!(status["source"], shown.source.to_str().expect("UTF-8"));
    assert_eq!(status["cache"], shown.scene.path("cache").to_str().expect("UTF-8"));
    assert_eq!(status["process"], mounted.process.id());
    assert!(status["purpose"].as_str().expect("text").starts_with("mount of "), "{status}");
    assert_eq!((&status["hits"], &status["misses"]), (&1.into(), &2.into()), "{status}");
    assert_eq!((&status["files"], &status["bytes_max"]), (&2.into(), &(64 << 20).into()));
    assert_eq!(status["fetched_bytes"], (12 << 20) + 10);
    let used_bytes = status["used_bytes"].as_u64().expect("a number");
    assert!((12 << 20..13 << 20).contains(&used_bytes), "{status}");
    assert_eq!(mounted.status(&shown, "cache"), status, "by the directory of the cache");
    let text = shown.scene.ok(["cache", "show", "mnt"]);
    assert!(text.contains("1 hit, 2 misses (33.3 % hits)"), "{text}");
    // A killed process leaves its socket.
    mounted.kill();
    assert!(shown.scene.path("cache/control").exists());
    let left: Value =
        serde_json::from_str(&shown.scene.ok(["cache", "show", "--json", "cache"])).expect("JSON");
    let of_process = ["process", "purpose", "bytes_max", "hits", "misses", "fetched_bytes"];
    assert!(of_process.iter().all(|name| left[name].is_null()), "{left}");
    assert_eq!((&left["files"], &left["source"]), (&2.into(), &status["source"]), "{left}");
    let left_bytes = left["used_bytes"].as_u64().expect("a number");
    assert!((12 << 20..13 << 20).contains(&left_bytes), "{left}");
    let mounted = shown.mount(&[]);
    assert_eq!(mounted.status(&shown, "mnt")["hits"], 0, "since this mount");
    mounted.unmount();
    assert!(!shown.scene.path("cache/control").exists());
    for path in ["mnt", "source"] {
        let output = shown.scene.command(["cache", "show", path]).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("is no cache of a mount"), "{errors}");
    }
}

#[test]
fn cache_evicts_what_is_named_and_nothing_else() {
    let Some(shown) = Shown::new() else { return };
    let large = pattern(12 << 20, 5);
    shown.write("below/large", &large);
    shown.write("below-not", b"a name that begins like the directory");
    fs::create_dir(shown.source.join("below/deep")).expect("room");
    shown.write("below/deep/one", &pattern(5000, 1));
    let mounted = shown.mount(&[]);
    let read_all = || {
        for name in ["small", "below/long", "below-not", "below/deep/one"] {
            assert_eq!(mounted.read(name), fs::read(shown.source.join(name)).expect("it is there"));
        }
    };
    read_all();
    let file = File::open(mounted.path.join("below/large")).expect("it is there");
    file.read_exact_at(&mut [0; 100], 5 << 20).expect("read");
    drop(file);
    // A file that is open stays readable, and its next open fetches it again.
    let mut open = File::open(mounted.path.join("small")).expect("it is there");
    assert_eq!(mounted.evict(&shown, "small"), (1, 10));
    assert_eq!(mounted.cached_bytes("small"), 0);
    let mut text = String::new();
    open.read_to_string(&mut text).expect("it stays");
    assert_eq!(text, "small file");
    drop(open);
    assert_eq!(mounted.cached_bytes("below/long"), 3 << 20);
    let before = mounted.status(&shown, "mnt");
    let (files, bytes) = mounted.evict(&shown, "below");
    // Only what is there of a large file counts: its block, and what the file system adds.
    let least = (3 << 20) + 5000 + (1 << 20);
    assert!(files == 3 && (least..least + (1 << 20)).contains(&bytes), "{files} {bytes}");
    let after = mounted.status(&shown, "mnt");
    assert_eq!((&before["files"], &after["files"]), (&4.into(), &1.into()));
    assert!(after["used_bytes"].as_u64() < Some(64 << 10), "{after}");
    for name in ["below/long", "below/large", "below/deep/one"] {
        assert_eq!(mounted.cached_bytes(name), 0, "{name}");
    }
    assert!(mounted.cached_bytes("below-not") > 0);
    read_all();
    // The kernel may release its first open late.
    wait_until("it is fetched again", || {
        assert!(mounted.read("below/large") == large);
        mounted.cached_bytes("below/large") == large.len() as u64
    });
    assert_eq!(mounted.evict(&shown, "").0, 5, "all");
    assert_eq!(mounted.evict(&shown, "below/large"), (0, 0));
    assert_eq!(mounted.status(&shown, "mnt")["files"], 0);
    read_all();
    let output =
        shown.scene.command(["cache", "evict", "source", "mnt"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("it is on no mount of"), "{errors}");
    assert_eq!(mounted.cached_bytes("small"), 0, "the others are done");
    mounted.unmount();
}
