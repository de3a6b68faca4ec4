// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pool of a real cluster keeps the promises of backends. `make test-engines` starts the cluster and says
//! where it is: its directory, as `tools/ceph-cluster.sh` makes it, is in the variable `TERRACE_CEPH`.

mod faults;
mod pool;
mod suite;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use terrace_backends::object::{Rados, RadosSettings};
use terrace_core::{Create, Key, Object, ObjectExt, Open, Persistency, Semantics};

/// As long as a request may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn cluster() -> PathBuf {
    std::env::var_os("TERRACE_CEPH").expect("`make test-engines` sets it").into()
}

/// An empty namespace of a pool, as the user of whom the documentation lists the capabilities.
fn settings() -> RadosSettings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    RadosSettings {
        namespace: format!("{}-{number}", std::process::id()),
        user: "terrace".into(),
        configuration: Some(cluster().join("ceph.conf")),
        keyring: Some(cluster().join("terrace.keyring")),
        deadline: DEADLINE,
        ..RadosSettings::new("terrace")
    }
}

fn open(settings: &RadosSettings) -> Rados {
    Rados::open(settings, u64::MAX, false).expect("opened")
}

fn key(name: &str) -> Key {
    Key::new("seg", name).expect("legal")
}

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::Shared))
}

fn filled(backend: &dyn terrace_core::Backend, name: &str, data: &[u8]) -> Box<dyn Object> {
    let object = backend.open(&key(name), &how(Create::New)).expect("created");
    object.write(0, data).expect("written");
    object
}
