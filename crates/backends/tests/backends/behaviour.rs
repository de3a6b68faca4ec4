// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every backend and every wrapper keeps the promises of `Backend` and `Object`.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use terrace_backends::object::{Faults, Faulty, Rates, Throttle};
use terrace_backends::{BACKENDS, Place, open_backend};
use terrace_core::Backend;
use terrace_testkit::{ManualClock, behaviour_suite};

/// A new backend of the registry and the directory that it may live in.
fn backend(name: &str) -> (Arc<dyn Backend>, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let needs_path = BACKENDS.iter().any(|entry| entry.name == name && entry.needs_path);
    let path = needs_path.then_some(directory.path());
    let place = Place { path, capacity_bytes: 64 << 20, read_only: false };
    (open_backend(name, &place).expect("open"), directory)
}

fn throttled(name: &str) -> (Arc<dyn Backend>, TempDir) {
    let (inner, directory) = backend(name);
    let rates = Rates {
        latency: Duration::from_millis(5),
        read_bytes_per_s: Some(1e9),
        write_bytes_per_s: Some(1e8),
        parallelism: 3,
    };
    (Arc::new(Throttle::new(inner, rates, Arc::new(ManualClock::new()))), directory)
}

fn faulty(name: &str) -> (Arc<dyn Backend>, TempDir) {
    let (inner, directory) = backend(name);
    (Arc::new(Faulty::new(inner, Faults::new(0))), directory)
}

/// The suite on each of these backends of the registry, by their names there.
macro_rules! registered {
    ($($name:ident),+) => {
        $(behaviour_suite!($name, backend(stringify!($name)));)+
        const TESTED: &[&str] = &[$(stringify!($name)),+];
    };
}

registered!(file, memory, null);
behaviour_suite!(throttled_memory, throttled("memory"));
behaviour_suite!(throttled_file, throttled("file"));
behaviour_suite!(faulty_memory, faulty("memory"));
behaviour_suite!(faulty_file, faulty("file"));

#[test]
fn every_backend_is_tested() {
    let names = BACKENDS.iter().map(|entry| entry.name);
    let missing: Vec<_> = names.filter(|name| !TESTED.contains(name)).collect();
    assert!(missing.is_empty(), "no suite runs on {missing:?}: add them to `registered!` above");
}
