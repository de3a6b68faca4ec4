// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a pool, a user or a cluster, and what only a pool does.

use std::process::Command;
use std::time::Duration;

use terrace_backends::object::{Rados, RadosSettings};
use terrace_core::{
    Backend, BackendExt, Clock, Create, Error, ErrorKind, ObjectExt, Open, Result, Superblock,
    SystemClock, TierBackend,
};
use terrace_testkit::pattern_bytes;

use super::{cluster, filled, how, key, open, settings};

/// Longest that a request may take that is to fail.
const DEADLINE: Duration = Duration::from_secs(2);

/// What a busy machine adds to a deadline.
const SLACK: Duration = Duration::from_secs(5);

fn refused(settings: &RadosSettings) -> Error {
    let settings = RadosSettings { deadline: DEADLINE, ..settings.clone() };
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let error = Rados::open(&settings, u64::MAX, false).err().expect("refused");
    let took = Duration::from_nanos(clock.now_ns() - began_ns);
    assert!(took < DEADLINE + SLACK, "{took:?}");
    let text = error.chain();
    assert!(text.contains("target=rados://"), "{text}");
    error
}

#[track_caller]
fn assert_refused(settings: &RadosSettings, kind: ErrorKind, words: &str) {
    let error = refused(settings);
    assert_eq!(error.kind(), kind, "{}", error.chain());
    assert!(error.chain().contains(words), "{}", error.chain());
}

#[test]
fn a_missing_pool_is_named() {
    let settings = RadosSettings { pool: "missing".into(), ..settings() };
    assert_refused(&settings, ErrorKind::Io, "no such pool");
}

#[test]
fn a_wrong_key_is_named_and_not_repeated() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    const KEY: &str = "AQBdRGRmAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==";
    std::fs::write(file.path(), format!("[client.terrace]\nkey = {KEY}\n")).expect("written");
    let settings = RadosSettings { keyring: Some(file.path().into()), ..settings() };
    let error = refused(&settings);
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert!(error.chain().contains("refuse the key"), "{}", error.chain());
    assert!(!error.chain().contains(KEY), "{}", error.chain());
}

#[test]
fn a_missing_key_is_named() {
    let keyring = Some(cluster().join("reader.keyring"));
    let of_another = RadosSettings { keyring, ..settings() };
    assert_refused(&of_another, ErrorKind::Denied, "key");
    let keyring = Some("/nonexistent/keyring".into());
    let missing = RadosSettings { keyring, ..settings() };
    assert_refused(&missing, ErrorKind::Denied, "keyring=/nonexistent/keyring");
}

#[test]
fn a_missing_configuration_is_named() {
    let configuration = Some("/nonexistent/ceph.conf".into());
    let settings = RadosSettings { configuration, ..settings() };
    assert_refused(&settings, ErrorKind::Invalid, "conf=/nonexistent/ceph.conf");
}

#[test]
fn a_silent_monitor_is_named_within_the_deadline() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[global]\nmon host = [v2:{address}]\n")).expect("written");
    let settings = RadosSettings { configuration: Some(file.path().into()), ..settings() };
    assert_refused(&settings, ErrorKind::Io, "no monitor of the cluster answers within 2s");
    drop(silent);
    // The same where the connection is refused.
    assert_refused(&settings, ErrorKind::Io, "no monitor of the cluster answers within 2s");
}

#[test]
fn an_erasure_code_without_overwrites_is_refused() {
    let settings =
        RadosSettings { pool: "erasure".into(), user: "admin".into(), keyring: None, ..settings() };
    assert_refused(&settings, ErrorKind::Unsupported, "allow_ec_overwrites");
}

#[test]
fn a_user_that_may_only_read_reads_and_is_denied_the_rest() {
    let writer = settings();
    filled(&open(&writer), "one", b"bytes");
    let keyring = Some(cluster().join("reader.keyring"));
    let reader = RadosSettings { user: "reader".into(), keyring, ..writer };
    let backend = open(&reader);
    assert_eq!(backend.read_all(&key("one")).expect("read"), b"bytes");
    assert_eq!(backend.list_all("seg", "").expect("listed"), [key("one")]);
    let object = backend.open(&key("one"), &how(Create::Never)).expect("opened");
    let results = [
        object.write(0, b"x"),
        backend.open(&key("two"), &how(Create::New)).map(drop),
        backend.delete(&key("one")),
    ];
    for result in results {
        let error = result.expect_err("denied");
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
        assert!(error.chain().contains("capabilities"), "{}", error.chain());
    }
}

#[test]
fn a_tier_for_reading_changes_nothing() {
    let settings = settings();
    filled(&open(&settings), "one", b"bytes");
    let reader = Rados::open(&settings, u64::MAX, true).expect("opened");
    let denied = |result: Result<()>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Denied);
    };
    denied(reader.open(&key("one"), &how(Create::Never)).map(drop));
    denied(reader.open(&key("two"), &how(Create::New)).map(drop));
    denied(reader.delete(&key("one")));
    denied(reader.clear());
    assert_eq!(reader.read_all(&key("one")).expect("read"), b"bytes");
}

#[test]
fn a_full_pool_refuses_writes_and_takes_deletions() {
    let backend = open(&RadosSettings { pool: "small".into(), ..settings() });
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let mut number = 0;
    // The quota is 8 MiB; the monitors notice some seconds later that it is reached.
    let error = loop {
        let made = backend.open(&key(&format!("{number}")), &how(Create::New));
        let written = made.and_then(|object| object.write(0, &[7; 1 << 20]));
        match written {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        let took = Duration::from_nanos(clock.now_ns() - began_ns);
        assert!(took < Duration::from_secs(60), "{number} MiB in a quota of 8 MiB");
        clock.sleep(Duration::from_millis(200));
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    for name in backend.list_all("seg", "").expect("listed") {
        backend.delete(&name).expect("a full pool is emptied");
    }
}

#[test]
fn an_object_has_a_longest_length() {
    let backend = open(&settings());
    let object = filled(&backend, "a", b"abc");
    let most = backend.capability().object_bytes_max;
    for result in [object.write(most, b"x"), object.set_len(most + 1)] {
        assert_eq!(result.expect_err("too long").kind(), ErrorKind::NoSpace);
    }
    object.set_len(most).expect("as long as it may be");
    let error = object.append(&[std::io::IoSlice::new(b"x")]).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(object.stat().expect("stat").size_bytes, most);
}

#[test]
fn requests_of_many_pieces_are_whole() {
    let backend = open(&settings());
    let data = pattern_bytes(1, 0, 0, 41 << 20);
    let object = filled(&backend, "a", &data);
    assert!(object.read_to_end().expect("read") == data);
    let mut whole = vec![0; 64 << 20];
    assert_eq!(object.read(3, &mut whole).expect("read"), data.len() - 3);
    assert!(whole[..data.len() - 3] == data[3..]);
    let start = object.append(&[std::io::IoSlice::new(&data[..9 << 20])]).expect("appended");
    assert_eq!(start, data.len() as u64);
    object.read_exact(start, &mut whole[..9 << 20]).expect("read");
    assert!(whole[..9 << 20] == data[..9 << 20]);
}

fn superblock(epoch: u64) -> Superblock {
    Superblock {
        store_id: 1,
        tier: "cold".into(),
        format_version: 1,
        feature_bits: 0,
        epoch,
        frames: None,
    }
}

#[test]
fn a_superblock_that_another_has_written_is_not_overwritten() {
    let settings = settings();
    let (one, other) = (open(&settings), open(&settings));
    assert!(one.is_empty().expect("asked"));
    for backend in [&one, &other] {
        assert_eq!(backend.superblock().expect("read"), None);
    }
    one.set_superblock(&superblock(1)).expect("made");
    // Also the same text.
    for epoch in [1, 2] {
        let error = other.set_superblock(&superblock(epoch)).expect_err("it is there by now");
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    }
    other.superblock().expect("read");
    other.set_superblock(&superblock(3)).expect("written");
    let error = one.set_superblock(&superblock(4)).expect_err("it was replaced");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert_eq!(one.superblock().expect("read"), Some(superblock(3)));
    assert!(!one.is_empty().expect("asked"));
}

/// Runs a command of Ceph as the administrator.
fn run(command: &str, arguments: &[&str]) {
    let configuration = cluster().join("ceph.conf");
    let ran = Command::new(command).arg("-c").arg(configuration).args(arguments).output();
    let ran = ran.expect("it starts");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_name_that_is_no_key_is_foreign() {
    let settings = settings();
    let backend = open(&settings);
    filled(&backend, "one", b"bytes");
    let long = format!("o/seg/{}", "x".repeat(1500));
    for name in [long.as_str(), "o//x", "o/seg"] {
        run("rados", &["-p", "terrace", "-N", &settings.namespace, "put", name, "/dev/null"]);
    }
    assert_eq!(backend.list_all("seg", "").expect("listed"), [key("one")]);
    assert_eq!(backend.namespaces().expect("listed"), ["seg"]);
}

#[test]
fn objects_of_a_deleted_pool_are_not_missing() {
    let settings =
        RadosSettings { user: "admin".into(), keyring: None, pool: "gone".into(), ..settings() };
    run("ceph", &["osd", "pool", "create", "gone", "1"]);
    let backend = open(&settings);
    filled(&backend, "one", b"bytes");
    backend.set_superblock(&superblock(1)).expect("made");
    run("ceph", &["config", "set", "mon", "mon_allow_pool_delete", "true"]);
    run("ceph", &["osd", "pool", "delete", "gone", "gone", "--yes-i-really-really-mean-it"]);
    let errors = [
        backend.superblock().expect_err("deleted"),
        backend.set_superblock(&superblock(2)).expect_err("deleted"),
        backend.stat(&key("one")).expect_err("deleted"),
        backend.open(&key("one"), &Open::read()).map(drop).expect_err("deleted"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
        assert!(error.chain().contains("the pool was deleted"), "{}", error.chain());
    }
}

#[test]
fn only_what_is_the_tiers_is_cleared() {
    let settings = settings();
    let backend = open(&settings);
    filled(&backend, "one", b"bytes");
    backend.set_superblock(&superblock(1)).expect("made");
    let other = open(&RadosSettings { namespace: format!("{}-b", settings.namespace), ..settings });
    filled(&other, "one", b"bytes");
    backend.clear().expect("cleared");
    assert!(backend.is_empty().expect("asked"));
    assert_eq!(other.read_all(&key("one")).expect("read"), b"bytes");
}

#[test]
fn long_listings_are_walked_in_parts() {
    let backend = open(&settings());
    // More than one request lists.
    for number in 0..1100 {
        backend.open(&key(&format!("{number:04}")), &how(Create::New)).expect("created");
    }
    let mut names = backend.list_all("seg", "").expect("listed");
    names.sort();
    assert_eq!(names.len(), 1100);
    assert_eq!(names[1099], key("1099"));
    assert_eq!(backend.list_all("seg", "01").expect("listed").len(), 100);
    assert_eq!(backend.namespaces().expect("listed"), ["seg"]);
}

#[test]
fn a_handle_for_reading_follows_what_is_written() {
    let backend = open(&settings());
    let object = filled(&backend, "a", b"abc");
    let reader = backend.open(&key("a"), &Open::read()).expect("opened");
    object.append(&[std::io::IoSlice::new(b"def")]).expect("appended");
    assert_eq!(reader.read_to_end().expect("read"), b"abcdef");
}
