// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OSDs that stop and come back. `make test-engines` runs this when nothing else uses the cluster.

use std::process::Command;
use std::time::Duration;

use terrace_backends::object::RadosSettings;
use terrace_core::{
    Backend, BackendExt, Clock, Create, Error, ErrorKind, ObjectExt, Result, SystemClock,
};
use terrace_testkit::pattern_bytes;

use super::{cluster, filled, how, key, open, settings};

/// OSDs of the cluster.
const OSDS: [u32; 2] = [0, 1];

/// Longest that a request may take while no OSD answers.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a busy machine adds to a deadline.
const SLACK: Duration = Duration::from_secs(5);

/// From the return of an OSD to the first request that it serves.
const RECOVERED: Duration = Duration::from_secs(60);

fn script(command: &str, osd: u32) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/ceph-cluster.sh");
    let ran = Command::new(script).arg(command).arg(cluster()).arg(osd.to_string()).status();
    assert!(ran.expect("the script starts").success(), "{command} {osd}");
}

/// Sends a signal to an OSD.
fn signal(signal: &str, osd: u32) {
    let file = cluster().join(format!("run/osd.{osd}.pid"));
    let pid = std::fs::read_to_string(file).expect("it runs");
    let ran = Command::new("kill").arg(signal).arg(pid.trim()).status();
    assert!(ran.expect("kill starts").success());
}

fn failing<T>(call: impl FnOnce() -> Result<T>) -> Error {
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let error = call().err().expect("no OSD answers");
    let took = Duration::from_nanos(clock.now_ns() - began_ns);
    assert!(took < DEADLINE + SLACK, "{took:?}");
    error
}

/// Calls until it succeeds.
fn eventually<T>(call: impl Fn() -> Result<T>) -> T {
    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) => {
                let took = Duration::from_nanos(clock.now_ns() - began_ns);
                assert!(took < RECOVERED, "{took:?}: {}", error.chain());
            }
        }
    }
}

/// Continues the OSDs, also when the test fails.
struct Continue;

impl Drop for Continue {
    fn drop(&mut self) {
        OSDS.into_iter().for_each(|osd| signal("-CONT", osd));
    }
}

#[test]
#[ignore = "stops the OSDs that other tests use"]
fn requests_fail_within_the_deadline_while_osds_are_stopped_and_go_on_later() {
    let backend = open(&RadosSettings { deadline: DEADLINE, ..settings() });
    let data = pattern_bytes(1, 0, 0, 300_000);
    let object = filled(&backend, "a", &data);
    {
        let _continue = Continue;
        OSDS.into_iter().for_each(|osd| signal("-STOP", osd));
        let calls: [(&str, &dyn Fn() -> Result<()>); 6] = [
            ("read", &|| object.read(0, &mut [0; 5]).map(drop)),
            ("write", &|| object.write(0, &data[..5])),
            ("append", &|| object.append(&[]).map(drop)),
            ("create", &|| backend.open(&key("b"), &how(Create::New)).map(drop)),
            ("stat", &|| backend.stat(&key("a")).map(drop)),
            ("list", &|| backend.list_all("seg", "").map(drop)),
        ];
        for (what, call) in calls {
            let error = failing(call);
            assert_eq!(error.kind(), ErrorKind::Io, "{what}: {}", error.chain());
            assert!(error.chain().contains("within 5s"), "{what}: {}", error.chain());
        }
    }
    eventually(|| object.write(0, &data[..5]));
    assert!(eventually(|| backend.read_all(&key("a"))) == data);
    eventually(|| backend.list_all("seg", ""));
}

#[test]
#[ignore = "ends an OSD that other tests use"]
fn an_osd_that_ends_and_comes_back_loses_nothing() {
    let backend = open(&settings());
    let data = pattern_bytes(2, 0, 0, 5 << 20);
    let before: Vec<_> = (0..8).map(|number| format!("before-{number}")).collect();
    before.iter().for_each(|name| drop(filled(&backend, name, &data)));
    script("stop", 0);
    // The other replica serves, once the monitors have noticed; a request waits for that.
    for name in &before {
        assert!(eventually(|| backend.read_all(&key(name))) == data, "{name}");
    }
    let object = backend.open(&key("before-0"), &how(Create::Never)).expect("opened");
    eventually(|| object.write(7, b"changed"));
    drop(filled(&backend, "meanwhile", &data));
    script("start", 0);
    script("stop", 1);
    // What was written without the first one is on the second only, until it has recovered: requests for it
    // wait and fail, and nothing older is returned.
    let seen = backend.read_all(&key("meanwhile"));
    assert!(seen.is_err() || seen.is_ok_and(|bytes| bytes == data));
    script("start", 1);
    let mut changed = data.clone();
    changed[7..14].copy_from_slice(b"changed");
    assert!(eventually(|| backend.read_all(&key("before-0"))) == changed);
    assert!(eventually(|| backend.read_all(&key("meanwhile"))) == data);
}
