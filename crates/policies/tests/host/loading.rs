// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is loaded, what is refused and why, and how long it lives.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use terrace_core::{ErrorKind, Hint, Interest, Key, Layout, Placed, Placement, Placer, TierIndex};
use terrace_policies::host;

use crate::build;
use crate::world::{load, two_tiers};

fn table(define: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("policy.so");
    build::fixture("table.c", define, &path);
    (dir, path)
}

/// Where a placer puts `abc/x`.
pub(crate) fn place(placer: &dyn Placer) -> Placed {
    let key = Key::parse("abc/x").expect("legal");
    let (hint, start_bytes) = (Hint::default(), 0);
    placer.place(&Placement { key: &key, hint, size_hint_bytes: None, segment: 0, start_bytes })
}

#[test]
fn a_library_that_cannot_be_used_is_refused_with_the_reason() {
    let cases = [
        ("NO_SYMBOL", ErrorKind::Invalid, "does not export terrace_policy_entry"),
        (
            "OTHER_VERSION",
            ErrorKind::Unsupported,
            "version 7 of terrace_policy.h, this program has version 1",
        ),
        ("NO_TABLE", ErrorKind::Unsupported, "this program has version 1"),
        ("SHORT_TABLE", ErrorKind::Invalid, "too short struct_bytes=16 struct_bytes_min=120"),
        ("BAD_NAME", ErrorKind::Invalid, "1 to 64 bytes of UTF-8"),
        ("ABSURD_NAME", ErrorKind::Invalid, "1 to 64 bytes of UTF-8"),
        ("NO_NAME", ErrorKind::Invalid, "1 to 64 bytes of UTF-8"),
        ("NO_PLAN", ErrorKind::Invalid, "no plan function"),
        ("REFUSES", ErrorKind::Invalid, "these tiers are \u{fffd} wrong"),
        ("NO_INSTANCE", ErrorKind::Invalid, "made no instance"),
    ];
    for (define, kind, reason) in cases {
        let (_dir, path) = table(define);
        let error = load(&path, &[]).err().unwrap_or_else(|| panic!("{define} is refused"));
        assert_eq!(error.kind(), kind, "{define}: {error}");
        assert!(error.to_string().contains(reason), "{define}: {error}");
        assert!(error.to_string().contains("policy.so"), "{define}: {error}");
    }
}

#[test]
fn a_library_that_does_not_start_is_left_behind() {
    let (_dir, path) = table("HANGS");
    let (refused, is_refused) = channel();
    thread::spawn(move || {
        let error = host::load_within(Duration::from_millis(10), &path, &two_tiers(), &[]).err();
        let _ = refused.send(error.map(|error| error.to_string()));
    });
    // Long for a busy machine; nobody waits for it unless the call hangs.
    let error = is_refused.recv_timeout(Duration::from_secs(60)).expect("the call is left behind");
    let error = error.expect("refused");
    assert!(error.contains("no answer within 10ms"), "{error}");
    assert!(error.contains("policy.so"), "{error}");
    let (_dir, good) = table("GOOD");
    host::load_within(Duration::from_secs(60), &good, &two_tiers(), &[])
        .expect("another one loads");
}

#[test]
fn a_file_that_is_no_library_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = dir.path().join("text.so");
    std::fs::write(&text, "not a library").expect("writes");
    let empty = dir.path().join("empty.so");
    std::fs::write(&empty, "").expect("writes");
    let missing = dir.path().join("missing.so");
    let cases = [
        (missing, ErrorKind::NotFound, "missing.so"),
        (text, ErrorKind::Invalid, "no shared library for this machine"),
        (empty, ErrorKind::Invalid, "no shared library for this machine"),
        (dir.path().to_owned(), ErrorKind::Invalid, "not a file"),
    ];
    for (path, kind, reason) in cases {
        let error = load(&path, &[]).err().expect("refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!error.chain().contains("/proc/"), "people know their own path: {error}");
    }
}

#[test]
fn a_rebuilt_library_is_loaded_beside_the_running_one() {
    let (dir, path) = table("GOOD");
    let old = load(&path, &[]).expect("loads");
    let better = dir.path().join("better.so");
    build::fixture("table.c", "BETTER", &better);
    // In place, as `cp` does it: the running library must not notice.
    std::fs::write(&path, std::fs::read(&better).expect("reads")).expect("writes");
    let new = load(&path, &[]).expect("loads");
    assert_eq!(place(&*old.placer()), Placed::on(TierIndex(0)));
    assert_eq!(place(&*new.placer()), Placed::on(TierIndex(1)));
    drop(old);
    assert_eq!(place(&*load(&path, &[]).expect("loads").placer()), Placed::on(TierIndex(1)));
}

#[test]
fn a_placer_outlives_its_policy_in_many_threads() {
    let policy = load(build::lru(), &[("place", "1")]).expect("loads");
    let placer = policy.placer();
    drop(policy);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    assert_eq!(place(&*placer), Placed::on(TierIndex(1)));
                }
            });
        }
    });
}

#[test]
fn the_host_takes_the_interest_that_it_knows() {
    let interest = |define| {
        let (_dir, path) = table(define);
        load(&path, &[]).expect("loads").interest()
    };
    assert_eq!(interest("GOOD"), Interest::NONE);
    assert_eq!(interest("BETTER"), Interest { stat: false, sync: true });
}

#[test]
fn a_policy_without_publish_places_from_nothing() {
    let (_dir, path) = table("BETTER");
    let policy = load(&path, &[]).expect("loads");
    assert_eq!(place(&*policy.placer()), Placed { tier: TierIndex(1), layout: Layout::One });
    assert!(policy.placer().is_foreign(), "a stack does without it where it hangs");
    assert_eq!(policy.parameters(), []);
    let error = load(&path, &[("high", "1")]).err().expect("it has none");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no parameters"), "{error}");
}
