// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefixes of buckets that are mounted as they are, behind a cache.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

use crate::scene::{Scene, wait_until};
use crate::sources::{Mounted, Shown, pattern};

/// A bucket with some objects below `sets`, and mounts of that with the cache `cache`.
struct Bucket {
    server: S3Server,
    shown: Shown,
}

impl Bucket {
    fn new() -> Option<Self> {
        let scene = Scene::new()?;
        let server = S3Server::start();
        let keys = scene.path("keys");
        let text =
            format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
        fs::write(&keys, text).expect("room");
        let address = format!(
            "s3://{BUCKET}/sets?endpoint={}&region={REGION}&credentials=keys",
            server.endpoint()
        );
        let bucket = Self { server, shown: Shown { scene, source: PathBuf::from(address) } };
        bucket.put("small", b"small file");
        bucket.put("below/long", &pattern(3 << 20, 7));
        bucket.put("below/empty", b"");
        bucket.server.plant("beside", b"not below the prefix");
        Some(bucket)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        self.server.plant(&format!("sets/{name}"), bytes);
    }

    fn mount(&self, how: &[&str]) -> Mounted {
        self.shown.mount(how)
    }

    /// Requests since the last call, by kind.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.server.counts()
    }

    /// Has all requests fail, or those whose object has a name with this in it.
    fn inject(&self, name: &str, fault: S3Fault) {
        self.server.inject(S3FaultPoint { kind: "", name: name.into(), times: 1_000_000, fault });
    }
}

fn none() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

/// Names of a directory on a mount, sorted.
fn listed(mounted: &Mounted, name: &str) -> Vec<String> {
    let entries = fs::read_dir(mounted.path.join(name)).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("a name").file_name().into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_bucket_is_shown_as_files_and_cannot_be_written() {
    let Some(bucket) = Bucket::new() else { return };
    for (how, uid, gid, mask) in [
        (&[][..], rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), 0),
        (&["--io", "served", "-o", "uid=1234,gid=4321,umask=027"], 1234, 4321, 0o027),
    ] {
        let mounted = bucket.mount(how);
        assert_eq!(listed(&mounted, ""), ["below", "small"]);
        assert_eq!(listed(&mounted, "below"), ["empty", "long"]);
        for _ in 0..2 {
            assert_eq!(mounted.read("small"), b"small file");
            assert_eq!(mounted.read("below/empty"), b"");
            assert!(mounted.read("below/long") == pattern(3 << 20, 7));
        }
        let file = fs::metadata(mounted.path.join("small")).expect("it is there");
        assert_eq!((file.uid(), file.gid(), file.mode()), (uid, gid, 0o100_444 & !mask));
        // What the service of the tests says of every object.
        assert_eq!((file.mtime(), file.mtime_nsec()), (1_767_225_600, 0));
        let directory = fs::metadata(mounted.path.join("below")).expect("it is there");
        assert_eq!((directory.uid(), directory.mode()), (uid, 0o040_555 & !mask));
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
fn requests_of_cold_and_warm_reads_are_those_of_the_page() {
    let Some(bucket) = Bucket::new() else { return };
    let large = pattern((9 << 20) + 4321, 3);
    bucket.put("large", &large);
    bucket.counts();
    let mounted = bucket.mount(&["--ttl", "1d"]);
    assert_eq!(bucket.counts(), [("LIST", 2)].into(), "a mount in the foreground");
    assert_eq!(mounted.read("small"), b"small file");
    assert_eq!(bucket.counts(), [("GET", 1), ("HEAD", 1)].into(), "the first read");
    assert_eq!(mounted.read("small"), b"small file");
    assert_eq!(bucket.counts(), none(), "the second read");
    fs::metadata(mounted.path.join("below")).expect("it is there");
    assert_eq!(bucket.counts(), [("HEAD", 1), ("LIST", 1)].into(), "a directory");
    assert!(!mounted.path.join("none").exists() && !mounted.path.join("none").exists());
    assert_eq!(bucket.counts(), [("HEAD", 1), ("LIST", 1)].into(), "what is missing, once");
    // A listing brings the attributes of what it lists.
    for entry in fs::read_dir(mounted.path.join("below")).expect("a directory") {
        entry.expect("a name").metadata().expect("it is there");
    }
    assert_eq!(bucket.counts(), [("LIST", 1)].into(), "a listing with attributes");
    assert!(mounted.read("below/long") == pattern(3 << 20, 7));
    assert_eq!(bucket.counts(), [("GET", 1)].into(), "a file that was listed");
    bucket.server.bytes();
    assert!(mounted.read("large") == large);
    let (_, sent_bytes) = bucket.server.bytes();
    assert_eq!(bucket.counts(), [("GET", 10), ("HEAD", 1)].into(), "each block once");
    assert_eq!(sent_bytes, large.len() as u64);
    wait_until("all is there", || mounted.cached_bytes("large") == large.len() as u64);
    assert!(mounted.read("large") == large);
    assert_eq!(bucket.counts(), none(), "a large file again");
    mounted.unmount();
    // A restart keeps the copies, and asks for the state of each file once.
    let mounted = bucket.mount(&["--ttl", "1d"]);
    bucket.counts();
    for _ in 0..2 {
        assert_eq!(mounted.read("small"), b"small file");
        assert!(mounted.read("large") == large);
    }
    assert_eq!(bucket.counts(), [("HEAD", 2)].into(), "after a restart");
    mounted.unmount();
}

#[test]
fn a_changed_object_is_another_file_and_no_mixture() {
    let Some(bucket) = Bucket::new() else { return };
    let old = pattern(12 << 20, 5);
    bucket.put("large", &old);
    let mounted = bucket.mount(&["--ttl", "0s"]);
    assert_eq!(mounted.read("small"), b"small file");
    let mut open = File::open(mounted.path.join("small")).expect("it is there");
    let number = open.metadata().expect("open").ino();
    // As long as before and of the same time; only the tag tells.
    bucket.put("small", b"SMALL FILE");
    assert_eq!(mounted.read("small"), b"SMALL FILE");
    assert_eq!(fs::metadata(mounted.path.join("small")).expect("it is there").ino(), number);
    let mut text = String::new();
    open.read_to_string(&mut text).expect("an open copy stays");
    assert_eq!(text, "small file");
    let file = File::open(mounted.path.join("large")).expect("it is there");
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).expect("read");
    assert!(part == old[..4096]);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    bucket.put("large", &new);
    let refused = file.read_exact_at(&mut part, 8 << 20).expect_err("another state");
    assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    file.read_exact_at(&mut part, 100).expect("a block that is there");
    assert!(part == old[100..4196]);
    assert!(mounted.read("large") == new);
    drop((open, file));
    mounted.unmount();
    // Changed while nothing is mounted: the copy is void.
    bucket.put("small", b"other file");
    let mounted = bucket.mount(&[]);
    assert_eq!(mounted.read("small"), b"other file");
    assert!(mounted.read("large") == new);
}

#[test]
fn a_change_within_the_time_to_live_is_met_by_the_open() {
    let Some(bucket) = Bucket::new() else { return };
    let mounted = bucket.mount(&["--ttl", "1d"]);
    // Known from a listing, and not read yet.
    for name in listed(&mounted, "") {
        fs::metadata(mounted.path.join(name)).expect("it is there");
    }
    bucket.put("small", b"changed");
    assert_eq!(mounted.read("small"), b"changed");
    listed(&mounted, "below");
    bucket.server.remove("sets/below/long");
    let missing = fs::read(mounted.path.join("below/long")).expect_err("it has gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn a_change_of_a_large_object_within_the_time_to_live_fails_one_read() {
    let Some(bucket) = Bucket::new() else { return };
    let (old, new) = (pattern(12 << 20, 5), pattern(12 << 20, 6));
    for name in ["listed", "looked", "gone"] {
        bucket.put(&format!("large/{name}"), &old);
    }
    let mounted = bucket.mount(&["--ttl", "1d"]);
    let read = |name: &str| fs::read(mounted.path.join("large").join(name));
    fs::metadata(mounted.path.join("large/looked")).expect("it is there");
    assert_eq!(listed(&mounted, "large"), ["gone", "listed", "looked"]);
    for name in ["listed", "looked"] {
        bucket.put(&format!("large/{name}"), &new);
    }
    bucket.server.remove("sets/large/gone");
    // No request of an open shows the change: the read does, and the next open sees it.
    for name in ["listed", "looked", "gone"] {
        let refused = read(name).expect_err("another state");
        assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()), "{name}");
    }
    assert!(read("listed").expect("the new state") == new);
    assert!(read("looked").expect("the new state") == new);
    assert_eq!(read("gone").expect_err("it has gone").kind(), ErrorKind::NotFound);
}

#[test]
fn a_vanished_object_is_not_found() {
    let Some(bucket) = Bucket::new() else { return };
    let large = pattern(12 << 20, 5);
    bucket.put("deep/er/large", &large);
    let mounted = bucket.mount(&["--ttl", "0s"]);
    assert_eq!(mounted.read("small"), b"small file");
    let file = File::open(mounted.path.join("deep/er/large")).expect("it is there");
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).expect("read");
    bucket.server.remove("sets/small");
    bucket.server.remove("sets/deep/er/large");
    for name in ["small", "deep/er/large", "deep/er", "deep"] {
        let missing = fs::metadata(mounted.path.join(name)).expect_err("it has gone");
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{name}");
    }
    let refused = file.read_exact_at(&mut part, 8 << 20).expect_err("it has gone");
    assert_eq!(refused.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    assert_eq!(listed(&mounted, ""), ["below"]);
}

#[test]
fn three_thousand_names_are_listed_in_pages() {
    let Some(bucket) = Bucket::new() else { return };
    for number in 0..3000 {
        bucket.put(&format!("many/file-with-a-rather-long-name-{number:04}"), b"x");
        bucket.put(&format!("other/{number:04}/deep/file"), b"x");
    }
    let mounted = bucket.mount(&["--ttl", "1d"]);
    fs::metadata(mounted.path.join("many")).expect("it is there");
    bucket.counts();
    let mut names = Vec::new();
    for entry in fs::read_dir(mounted.path.join("many")).expect("a directory") {
        let entry = entry.expect("a name");
        let found = entry.metadata().expect("it is there");
        assert_eq!((found.ino(), found.len()), (entry.ino(), 1));
        names.push(entry.file_name());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3000);
    assert_eq!(bucket.counts(), [("LIST", 3)].into(), "1000 names each, and no other request");
    // Directories of the bucket that are not looked at are not listed.
    assert_eq!(listed(&mounted, "other").len(), 3000);
    let counts = [("HEAD", 1), ("LIST", 1 + 3)];
    assert_eq!(bucket.counts(), counts.into(), "the look at the directory, and its names");
}

#[test]
fn what_is_cached_is_served_while_the_service_fails() {
    let Some(bucket) = Bucket::new() else { return };
    let large = pattern(12 << 20, 5);
    bucket.put("below/large", &large);
    bucket.put("below/other", b"other");
    let mounted = bucket.mount(&["--ttl", "0s", "--deadline", "3s"]);
    let part = |offset: u64| {
        let mut part = vec![0; 4096];
        let file = File::open(mounted.path.join("below/large"))?;
        file.read_exact_at(&mut part, offset).map(|()| part)
    };
    let cached = || {
        assert_eq!(mounted.read("small"), b"small file");
        assert!(mounted.read("below/long") == pattern(3 << 20, 7));
        assert!(part(5 << 20).expect("a block that is there") == large[5 << 20..(5 << 20) + 4096]);
    };
    cached();
    for (fault, errors) in [
        (S3Fault::Stall(Duration::from_secs(600)), &[Errno::TIMEDOUT, Errno::REMOTEIO][..]),
        (S3Fault::Refuse(503, "SlowDown"), &[Errno::TIMEDOUT, Errno::REMOTEIO]),
        (S3Fault::Refuse(403, "ExpiredToken"), &[Errno::KEYREJECTED, Errno::TIMEDOUT]),
    ] {
        bucket.inject("", fault);
        for _ in 0..2 {
            cached();
            let failures = [
                fs::read(mounted.path.join("below/other")).expect_err("no copy"),
                part(0).expect_err("no such block"),
                fs::read_dir(mounted.path.join("below"))
                    .and_then(|names| names.collect::<Result<Vec<_>, _>>())
                    .expect_err("a listing needs the service"),
            ];
            for failed in failures {
                let number = failed.raw_os_error();
                let is_named = errors.iter().any(|errno| number == Some(errno.raw_os_error()));
                assert!(is_named, "{fault:?}: {failed}");
            }
        }
        bucket.server.heal();
        wait_until("the service answers", || {
            fs::read(mounted.path.join("below/other")).is_ok_and(|bytes| bytes == b"other")
        });
        assert_eq!(mounted.evict(&bucket.shown, "below/other").0, 1);
    }
    // The service stops for good.
    let Bucket { server, shown } = bucket;
    drop(server);
    cached();
    let failed = fs::read(mounted.path.join("below/other")).expect_err("no copy");
    assert!(failed.kind() != ErrorKind::NotFound, "{failed}");
    cached();
    mounted.unmount();
    let log = fs::read_to_string(shown.scene.path("source.log")).expect("a log");
    assert!(log.contains("a request to the bucket failed"), "{log}");
    assert!(log.contains("ExpiredToken"), "{log}");
}

#[test]
fn a_denied_object_is_refused_and_the_others_are_not() {
    let Some(bucket) = Bucket::new() else { return };
    bucket.put("secret", b"not for this key");
    let mounted = bucket.mount(&["--ttl", "0s"]);
    bucket.inject("secret", S3Fault::Refuse(403, "AccessDenied"));
    let denied = fs::read(mounted.path.join("secret")).expect_err("it is denied");
    assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    assert_eq!(mounted.read("small"), b"small file");
}

#[test]
fn what_cannot_be_mounted_names_the_bucket_and_the_reason() {
    let Some(bucket) = Bucket::new() else { return };
    let source = bucket.shown.source.to_str().expect("UTF-8").to_string();
    let refused = |source: &str, how: &[&str], texts: &[&str]| {
        let path = bucket.shown.scene.directory("mnt");
        let mut command = bucket.shown.scene.command(["mount", "-f", "--source", source]);
        command.args(["--cache", "cache", "--deadline", "3s"]).args(how).arg(path);
        let output = command.output().expect("the binary runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{source}");
        for text in texts {
            assert!(errors.contains(text), "{source}: {text}: {errors}");
        }
        assert!(!errors.contains(SECRET), "{errors}");
    };
    let other = source.replace("s3://bucket", "s3://other");
    refused(&other, &[], &["there is no such bucket", "s3://other/sets"]);
    let nothing = source.replace("/sets", "/nothing");
    refused(&nothing, &[], &["no object below this prefix", "s3://bucket/nothing"]);
    let region = source.replace(REGION, "elsewhere");
    refused(&region, &[], &["in another region", "s3://bucket/sets"]);
    let profile = format!("{source}&profile=other");
    refused(&profile, &[], &["no such profile", "profile=other"]);
    refused(&format!("{source}&capacity=1TB"), &[], &["there is no key \"capacity\""]);
    refused(&source, &["-o", "umask=999"], &["umask is one to base 8"]);
    refused("s3://bucket//sets", &[], &["one `/` between them"]);
    let keys = bucket.shown.scene.path("keys");
    let text = fs::read_to_string(&keys).expect("it is there");
    fs::write(&keys, text.replace(SECRET, "another")).expect("room");
    refused(&source, &[], &["the secret key is wrong", "s3://bucket/sets"]);
    fs::write(&keys, &text).expect("room");
    bucket.server.inject(S3FaultPoint {
        kind: "",
        name: String::new(),
        times: 1_000_000,
        fault: S3Fault::Stall(Duration::from_secs(600)),
    });
    refused(&source, &[], &["s3://bucket/sets"]);
    bucket.server.heal();
    let gone = source.replace(&bucket.server.endpoint(), "http://127.0.0.1:1");
    refused(&gone, &[], &["cannot be reached", "s3://bucket/sets"]);
    // A cache of one source is none of another, also at another endpoint.
    bucket.mount(&[]).unmount();
    let directory = bucket.shown.scene.directory("plain");
    let directory = directory.to_str().expect("UTF-8");
    refused(directory, &[], &["copies of another source", "s3://bucket/sets"]);
    refused(directory, &["-o", "uid=1"], &["for buckets"]);
}

#[test]
fn a_bucket_is_mounted_in_the_background() {
    let Some(bucket) = Bucket::new() else { return };
    let path = bucket.shown.scene.directory("mnt");
    let source = bucket.shown.source.to_str().expect("UTF-8");
    let text = bucket.shown.scene.ok([
        "mount",
        "--source",
        source,
        "--cache",
        "cache",
        path.to_str().expect("UTF-8"),
    ]);
    let _mounted = crate::scene::Mountpoint(path.clone());
    assert!(text.contains("mounted s3://bucket/sets at"), "{text}");
    assert_eq!(bucket.counts(), [("LIST", 3)].into(), "that of the first process is one more");
    assert_eq!(fs::read(path.join("small")).expect("it is there"), b"small file");
    let mounts = fs::read_to_string("/proc/mounts").expect("readable");
    assert!(mounts.lines().any(|line| line.starts_with("s3://bucket/sets ")), "{mounts}");
}

#[test]
fn warm_and_cache_work_on_a_bucket() {
    let Some(bucket) = Bucket::new() else { return };
    let large = pattern((10 << 20) + 99, 11);
    bucket.put("below/large", &large);
    for number in 0..300 {
        bucket.put(&format!("below/deep/er/f{number}"), &pattern(1000 + number, 3));
    }
    let mounted = bucket.mount(&["--ttl", "1d"]);
    bucket.counts();
    let (done, _) = mounted.warm(&bucket.shown, 0, &["below"]);
    let small_bytes: u64 = (0..300).map(|number| 1000 + number).sum();
    let bytes = small_bytes + (3 << 20) + large.len() as u64;
    assert_eq!((&done["files"], &done["bytes"]), (&303.into(), &bytes.into()), "{done}");
    assert_eq!(done["copied_bytes"], bytes, "{done}");
    let counts = bucket.counts();
    // Each small file once, the large one by its blocks, the empty one not at all; three directories are listed.
    assert_eq!((counts["GET"], counts["LIST"]), (301 + 11, 3 + 1), "{counts:?}");
    assert_eq!(counts["HEAD"], 1, "that of the directory which is named");
    wait_until("all is there", || mounted.cached_bytes("below/large") == large.len() as u64);
    let (done, _) = mounted.warm(&bucket.shown, 0, &["below"]);
    assert_eq!((&done["copied_bytes"], &done["failed"]), (&0.into(), &0.into()), "{done}");
    assert_eq!(bucket.counts().get("GET"), None);
    let status = mounted.status(&bucket.shown, "mnt/below");
    assert_eq!(status["source"], "s3://bucket/sets", "{status}");
    assert_eq!(status["fetched_bytes"], bytes, "{status}");
    let (files, _) = mounted.evict(&bucket.shown, "below/deep");
    assert_eq!(files, 300);
    assert_eq!(mounted.cached_bytes("below/deep/er/f7"), 0);
    assert_eq!(mounted.cached_bytes("below/long"), 3 << 20);
    mounted.unmount();
    let left = bucket.shown.scene.ok(["cache", "show", "cache"]);
    assert!(left.contains("s3://bucket/sets"), "{left}");
}
