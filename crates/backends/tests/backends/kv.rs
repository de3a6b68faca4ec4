// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The key-value engines keep the promises of `Kv`.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use terrace_backends::kv::{ENGINES, open_kv};
use terrace_core::{ErrorKind, Kv};
use terrace_testkit::{kv_reopen_suite, kv_suite};

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A new engine and the directory that it lives in.
fn engine(name: &str) -> (Arc<dyn Kv>, TempDir) {
    let directory = temporary();
    (open_kv(name, &directory.path().join("catalog")).expect("open"), directory)
}

kv_suite!(fjall, engine("fjall"));
kv_suite!(lmdb, engine("lmdb"));
kv_suite!(memory, engine("memory"));

kv_reopen_suite!(fjall_reopened, {
    let directory = temporary();
    let path = directory.path().join("catalog");
    (move || open_kv("fjall", &path).expect("open"), directory)
});

kv_reopen_suite!(lmdb_reopened, {
    let directory = temporary();
    let path = directory.path().join("catalog");
    (move || open_kv("lmdb", &path).expect("open"), directory)
});

/// Fails when an engine was added and not its line above.
#[test]
fn every_engine_is_tested() {
    let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
    assert_eq!(names, ["fjall", "lmdb", "memory"]);
}

#[test]
fn an_unknown_engine_is_named_with_those_that_exist() {
    let error = open_kv("fjal", Path::new("unused")).err().expect("unknown");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("fjall, lmdb, memory") && text.contains("engine=fjal"), "{text}");
}
