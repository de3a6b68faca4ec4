// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a bucket does as a source beside the contract: names, pages, requests, refusals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::S3Settings;
use terrace_source::{Bucket, Name, Source};
use terrace_testkit::s3::{BUCKET, S3Fault, S3FaultPoint};

use crate::origin::{OWNER, Origin, Remote, listed, names};

fn fault(kind: &'static str, name: &str, fault: S3Fault) -> S3FaultPoint {
    S3FaultPoint { kind, name: name.into(), times: 1_000_000, fault }
}

/// Requests since the last call, by kind.
fn counts(remote: &Remote) -> BTreeMap<&'static str, u64> {
    remote.server.counts()
}

#[test]
fn files_have_the_attributes_of_objects() {
    let remote = Remote::new();
    remote.put("dir/file", b"bytes");
    let bucket = remote.bucket();
    let file = bucket.look(Path::new("dir/file")).expect("it is there");
    assert_eq!((file.uid, file.gid), (1234, 4321));
    assert_eq!((file.mode, file.size_bytes, file.blocks), (0o100_440, 5, 1));
    // What the service of the tests says of every object.
    assert_eq!(file.modified, (1_767_225_600, 0));
    assert!(file.etag.as_ref().is_some_and(|tag| tag.starts_with('"') && tag.ends_with('"')));
    let directory = bucket.look(Path::new("dir")).expect("it is there");
    assert_eq!((directory.mode, directory.modified), (0o040_550, (0, 0)));
    assert_eq!(bucket.target(), "s3://bucket/sets");
    let identity = format!("bucket s3://bucket/sets at {}/{BUCKET}", remote.server.endpoint());
    assert_eq!(bucket.identity(), identity);
}

#[test]
fn names_that_cannot_be_files_are_left_out() {
    let remote = Remote::new();
    let legal = ["100%41", "a b+c&d<e>\"f'", "é", "~x", "back\\slash", "ünï/côde"];
    let long = "l".repeat(256);
    for name in legal {
        remote.put(name, name.as_bytes());
    }
    for name in ["/lead", "x//y", "x/./y", "x/../y", "new\nline", "nul\0", long.as_str()] {
        remote.put(name, b"hidden");
    }
    remote.put(&format!("x/{long}/y"), b"hidden");
    remote.put("x/file", b"shown");
    // Marks of directories.
    remote.put("x/", b"");
    remote.put("marked/", b"");
    remote.put("marked/deep/", b"");
    remote.put("", b"");
    let bucket = remote.bucket();
    let mut expected: Vec<_> = legal.iter().map(|name| name.split('/').next()).collect();
    expected.extend([Some("x"), Some("marked")]);
    expected.sort_unstable();
    let root = listed(&bucket, "");
    assert_eq!(root.iter().map(|name| Some(name.as_str())).collect::<Vec<_>>(), expected);
    assert_eq!(listed(&bucket, "x"), ["file"]);
    assert_eq!(listed(&bucket, "marked"), ["deep"]);
    assert_eq!(listed(&bucket, "marked/deep"), [""; 0]);
    for name in legal {
        let path = Path::new(name);
        let seen = bucket.look(path).expect("it is listed");
        let mut bytes = vec![0; name.len()];
        let file = bucket.open(path, &seen).expect("it is listed");
        assert_eq!(file.read_at(0, &mut bytes), Ok(name.len()), "{name}");
        assert_eq!(bytes, name.as_bytes());
    }
    counts(&remote);
    for name in [long.as_str(), "new\nline", "x/./y"] {
        assert_eq!(bucket.look(Path::new(name)).err(), Some(Errno::NOENT), "{name:?}");
    }
    assert_eq!(counts(&remote), BTreeMap::new(), "no request can be sent for these");
}

#[test]
fn an_object_hides_the_directory_of_its_name() {
    let remote = Remote::new();
    remote.put("a", b"object");
    // The directory is some pages behind the object.
    for number in 0..2500 {
        remote.put(&format!("a-{number:04}"), b"");
    }
    remote.put("a/below", b"hidden");
    remote.put("b/below", b"shown");
    let bucket = remote.bucket();
    let all = names(bucket.list(Path::new(""), None).expect("a directory"));
    let of_name = |wanted: &str| {
        let found = all.iter().filter(|name| *name.name == *wanted.as_bytes());
        found.map(|name| name.mode).collect::<Vec<_>>()
    };
    assert_eq!((of_name("a"), of_name("b")), (vec![0o100_000], vec![0o040_000]));
    assert!(bucket.look(Path::new("a")).expect("it is there").is_file());
    assert_eq!(all.len(), 2 + 2502);
}

#[test]
fn a_directory_is_listed_page_by_page() {
    let remote = Remote::new();
    for number in 0..3000 {
        remote.put(&format!("many/{number:04}"), b"");
        remote.put(&format!("many/dir-{}/deep/{number:04}", number % 2), b"");
    }
    let bucket = remote.bucket();
    counts(&remote);
    let mut listing = bucket.list(Path::new("many"), None).expect("a directory");
    assert_eq!(counts(&remote), [("LIST", 1)].into());
    let first = listing.next_page().expect("a page");
    assert_eq!(counts(&remote), BTreeMap::new(), "the first page is there");
    assert_eq!(first.len(), 1002);
    let mut all = first;
    all.extend(names(listing));
    assert_eq!(counts(&remote), [("LIST", 3)].into());
    let shown = all.iter().filter(|name| name.meta.is_some());
    let mut shown: Vec<_> = shown.map(|name: &Name| name.name.clone()).collect();
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), 3002);
    assert_eq!(counts(&remote), BTreeMap::new());
}

#[test]
fn requests_are_those_that_the_pages_say() {
    let remote = Remote::new();
    remote.put("dir/file", b"bytes");
    counts(&remote);
    let bucket = remote.bucket();
    assert_eq!(counts(&remote), [("LIST", 1)].into(), "opening");
    let seen = bucket.look(Path::new("dir/file")).expect("it is there");
    assert_eq!(counts(&remote), [("HEAD", 1)].into(), "a file");
    bucket.look(Path::new("dir")).expect("it is there");
    assert_eq!(counts(&remote), [("HEAD", 1), ("LIST", 1)].into(), "a directory");
    assert_eq!(bucket.look(Path::new("none")).err(), Some(Errno::NOENT));
    assert_eq!(counts(&remote), [("HEAD", 1), ("LIST", 1)].into(), "what is missing");
    let file = bucket.open(Path::new("dir/file"), &seen).expect("it is there");
    file.look().expect("it is open");
    assert_eq!(counts(&remote), BTreeMap::new(), "an open");
    file.read_at(1, &mut [0; 3]).expect("readable");
    assert_eq!(counts(&remote), [("GET", 1)].into(), "a read");
    assert_eq!(remote.server.bytes().1, 3 + listing_bytes(&remote), "only what is asked for");
    bucket.status().expect("it is known");
    assert_eq!(counts(&remote), BTreeMap::new());
}

/// Bytes of the three listings of the test before.
fn listing_bytes(remote: &Remote) -> u64 {
    remote.server.bytes();
    let bucket = remote.bucket();
    let _ = bucket.look(Path::new("dir"));
    let _ = bucket.look(Path::new("none"));
    counts(remote);
    remote.server.bytes().1
}

#[test]
fn a_bucket_that_cannot_be_opened_is_named_with_the_reason() {
    let remote = Remote::new();
    remote.put("file", b"bytes");
    let refused =
        |settings: S3Settings| Bucket::open(&settings, OWNER).err().expect("refused").chain();
    let settings = remote.settings();
    let missing = refused(S3Settings { bucket: "other".into(), ..settings.clone() });
    assert!(missing.contains("there is no such bucket") && missing.contains("s3://other/sets"));
    let empty = refused(S3Settings { prefix: "nothing".into(), ..settings.clone() });
    assert!(empty.contains("no object below this prefix source=s3://bucket/nothing"), "{empty}");
    let region = refused(S3Settings { region: Some("elsewhere".into()), ..settings.clone() });
    assert!(region.contains("in another region"), "{region}");
    let text = fs::read_to_string(remote.keys()).expect("it is there");
    fs::write(remote.keys(), text.replace("secret/", "wrong/")).expect("room");
    let secret = refused(settings.clone());
    assert!(secret.contains("the secret key is wrong") && secret.contains("s3://bucket/sets"));
    fs::write(remote.keys(), text.replace("AKID", "NONE")).expect("room");
    let key = refused(settings.clone());
    assert!(key.contains("does not know the access key") && !key.contains("NONE"), "{key}");
    fs::write(remote.keys(), text).expect("room");
    // An empty bucket is no mistake.
    let root = S3Settings { prefix: String::new(), ..settings.clone() };
    for name in remote.server.names() {
        remote.server.remove(&name);
    }
    let bucket = Bucket::open(&root, OWNER).expect("it is there");
    assert_eq!(listed(&bucket, ""), [""; 0]);
    let endpoint = remote.server.endpoint();
    drop(remote);
    let gone = S3Settings {
        endpoint: Some(endpoint),
        deadline: Duration::from_secs(2),
        credentials: None,
        ..settings
    };
    let gone = with_keys(gone, refused);
    assert!(gone.contains("cannot be reached"), "{gone}");
}

/// Credentials in a directory of their own, as that of the server has gone.
fn with_keys(settings: S3Settings, call: impl Fn(S3Settings) -> String) -> String {
    let ground = tempfile::tempdir().expect("a directory");
    let keys = ground.path().join("keys");
    fs::write(&keys, "[default]\naws_access_key_id=A\naws_secret_access_key=B\n").expect("room");
    call(S3Settings { credentials: Some(keys), ..settings })
}

#[test]
fn a_denied_object_is_told_from_a_denied_bucket() {
    let remote = Remote::new();
    remote.put("open", b"bytes");
    remote.put("secret", b"bytes");
    let bucket = remote.bucket();
    let denied = S3Fault::Refuse(403, "AccessDenied");
    remote.server.inject(fault("", "secret", denied));
    assert_eq!(bucket.look(Path::new("secret")).err(), Some(Errno::ACCESS));
    assert!(bucket.look(Path::new("open")).is_ok());
    remote.server.inject(fault("", "", denied));
    assert_eq!(bucket.look(Path::new("open")).err(), Some(Errno::KEYREJECTED));
    assert_eq!(bucket.list(Path::new(""), None).err(), Some(Errno::KEYREJECTED));
    // What needs no request asks all the same, so that no caller takes the bucket for one that answers.
    assert_eq!(bucket.status().err(), Some(Errno::KEYREJECTED));
    remote.server.heal();
    assert!(bucket.status().is_ok());
    assert!(bucket.look(Path::new("secret")).is_ok());
}

#[test]
fn a_refused_object_takes_no_other_along() {
    let remote = Remote::new();
    for name in ["open", "archived", "locked", "odd", "dir/file"] {
        remote.put(name, b"bytes");
    }
    let bucket = remote.bucket();
    let read = |name: &str| {
        let seen = bucket.look(Path::new(name))?;
        bucket.open(Path::new(name), &seen)?.read_at(0, &mut [0; 5])
    };
    let refuse = |kind, name, code| {
        let status = if code == "InvalidObjectState" { 403 } else { 400 };
        remote.server.inject(fault(kind, name, S3Fault::Refuse(status, code)));
    };
    refuse("GET", "archived", "InvalidObjectState");
    refuse("GET", "locked", "InvalidRequest");
    refuse("HEAD", "odd", "InvalidRequest");
    refuse("HEAD", "too-long", "KeyTooLongError");
    assert_eq!(read("archived"), Err(Errno::NODATA));
    assert_eq!(read("locked"), Err(Errno::OPNOTSUPP));
    assert_eq!(read("odd"), Err(Errno::OPNOTSUPP), "its head is refused");
    assert_eq!(read("too-long"), Err(Errno::NOENT), "no object can have this name");
    counts(&remote);
    assert!(bucket.status().is_ok());
    assert_eq!(counts(&remote), BTreeMap::new(), "the bucket counts as one that answers");
    assert_eq!(read("open"), Ok(5));
    // A listing that is refused, and the one of the root behind it is not.
    let too_long = S3Fault::Refuse(400, "KeyTooLongError");
    remote.server.inject(S3FaultPoint { times: 1, ..fault("LIST", "", too_long) });
    assert_eq!(bucket.list(Path::new("dir"), None).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(listed(&bucket, "dir"), ["file"]);
    // All of the bucket is.
    refuse("", "", "InvalidRequest");
    assert_eq!(read("open"), Err(Errno::REMOTEIO));
    assert_eq!(bucket.status().err(), Some(Errno::REMOTEIO));
}

#[test]
fn a_missing_name_is_not_found_where_the_service_answers_403() {
    let remote = Remote::new();
    for name in ["dir/file", "dir-1", "gone"] {
        remote.put(name, b"bytes");
    }
    let bucket = remote.bucket();
    let gone = bucket.look(Path::new("gone")).expect("it is there");
    let gone = bucket.open(Path::new("gone"), &gone).expect("it is there");
    remote.server.remove("sets/gone");
    // As it answers for names that are missing to a key that may not list the whole bucket.
    for (kind, name) in [("HEAD", ""), ("GET", "gone")] {
        remote.server.inject(fault(kind, name, S3Fault::Refuse(403, "AccessDenied")));
    }
    counts(&remote);
    assert_eq!(bucket.look(Path::new("none")).err(), Some(Errno::NOENT));
    assert_eq!(counts(&remote), [("HEAD", 1), ("LIST", 2)].into());
    for name in ["di", "dir/none", "dir/file/below", "dir-"] {
        assert_eq!(bucket.look(Path::new(name)).err(), Some(Errno::NOENT), "{name}");
    }
    assert!(!bucket.look(Path::new("dir")).expect("a directory").is_file());
    assert_eq!(bucket.look(Path::new("dir-1")).err(), Some(Errno::ACCESS), "it is there");
    assert_eq!(gone.read_at(0, &mut [0; 5]), Err(Errno::STALE));
}

#[test]
fn a_bucket_that_vanishes_takes_no_file_along() {
    let remote = Remote::new();
    remote.put("file", b"bytes");
    let bucket = remote.bucket();
    let path = Path::new("file");
    let seen = bucket.look(path).expect("it is there");
    let taken = remote.server.take_bucket();
    // Not that the file is missing: copies of it stay.
    assert_eq!(bucket.look(path).err(), Some(Errno::REMOTEIO));
    assert_eq!(bucket.list(Path::new(""), None).err(), Some(Errno::REMOTEIO));
    remote.server.put_back(taken);
    let file = bucket.open(path, &seen).expect("it is there");
    assert_eq!(file.read_at(0, &mut [0; 5]), Ok(5));
}

#[test]
fn an_empty_page_is_not_the_end_of_a_listing() {
    let remote = Remote::new();
    remote.put("dir/file", b"bytes");
    let empty = |times| {
        remote.server.inject(S3FaultPoint { times, ..fault("LIST", "", S3Fault::EmptyPage) });
    };
    empty(1);
    let bucket = remote.bucket();
    assert_eq!(remote.server.heal(), 0);
    empty(2);
    assert!(bucket.look(Path::new("dir")).is_ok());
    assert_eq!(remote.server.heal(), 0);
    empty(2);
    assert_eq!(listed(&bucket, "dir"), ["file"]);
    assert_eq!(remote.server.heal(), 0);
    empty(2);
    assert_eq!(bucket.look(Path::new("none")).err(), Some(Errno::NOENT));
}

#[test]
fn a_request_that_fails_for_a_moment_is_repeated() {
    let remote = Remote::new();
    remote.put("file", b"bytes");
    let bucket = remote.bucket();
    for kind in ["HEAD", "LIST", "GET"] {
        let busy = S3Fault::Refuse(503, "SlowDown");
        remote.server.inject(S3FaultPoint { times: 2, ..fault(kind, "", busy) });
    }
    assert_eq!(listed(&bucket, ""), ["file"]);
    let seen = bucket.look(Path::new("file")).expect("it is there");
    let file = bucket.open(Path::new("file"), &seen).expect("it is there");
    let mut bytes = [0; 5];
    assert_eq!(file.read_at(0, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"bytes");
    assert_eq!(remote.server.heal(), 0);
}
