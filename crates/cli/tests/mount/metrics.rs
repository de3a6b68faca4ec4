// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--metrics` of a mount: what the kernel asked, what caches answered, and the store where the mount owns it.

use std::collections::BTreeSet;

use rustix::io::Errno;
use terrace_testkit::openmetrics::Scrape;

use crate::scene::{Scene, Served};
use crate::watched_names::watched_names;

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

fn scrape(address: &str) -> Scrape {
    Scrape::of(address).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn a_mount_of_a_server_counts_requests_and_caches() {
    let Some(scene) = Scene::new() else { return };
    let served = Served::start(&scene);
    let mut mounted = scene.mount_served(&served, "mnt", &METRICS);
    let file = mounted.path().join("file");
    let before = scrape(&mounted.metrics());
    std::fs::write(&file, vec![1; 100_000]).expect("there is room");
    assert_eq!(std::fs::read(&file).expect("it is there").len(), 100_000);
    for number in 0..5 {
        let missing = mounted.path().join(format!("missing{number}"));
        let error = std::fs::metadata(missing).expect_err("it is not there");
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
    let after = scrape(&mounted.metrics());
    let requests = |scrape: &Scrape, operation: &str| {
        scrape.value("terrace_mount_request_seconds_count", &[("operation", operation)])
    };
    for (operation, at_least) in [("lookup", 5.0), ("open", 2.0), ("write", 1.0)] {
        let grew = requests(&after, operation) - requests(&before, operation);
        assert!(grew >= at_least, "{operation}: {grew}");
    }
    let missing = [("errno", "ENOENT")];
    // A name that is absent is an entry without a node, and no error, where the kernel may remember that.
    let grew = after.value("terrace_mount_errors_total", &missing)
        - before.value("terrace_mount_errors_total", &missing);
    assert!(grew <= 6.0, "{grew}");
    assert!(after.sum("terrace_mount_cache_lookups_total") > 0.0);
    let found = after.families.keys().map(String::as_str);
    let found: BTreeSet<_> = found.filter(|name| name.starts_with("terrace_mount")).collect();
    let documented = [
        "terrace_mount",
        "terrace_mount_cache_lookups",
        "terrace_mount_errors",
        "terrace_mount_request_seconds",
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), documented);
    for name in watched_names().iter().filter(|name| name.starts_with("terrace_mount")) {
        assert!(after.names().contains(name.as_str()), "{name} is in a dashboard or a rule alone");
    }
    assert!(
        after.names().iter().all(|name| !name.starts_with("terrace_tier")),
        "the server has them"
    );
    mounted.unmount();
}

#[test]
fn a_mount_that_owns_its_store_exports_its_tiers() {
    let Some(scene) = Scene::new() else { return };
    let mut mounted = scene.mount("mnt", &[&METRICS[..], &["--io", "served"]].concat());
    std::fs::write(mounted.path().join("file"), vec![1; 100_000]).expect("there is room");
    let after = scrape(&mounted.metrics());
    let written = [("tier", "fast"), ("operation", "write")];
    assert_eq!(after.value("terrace_tier_operation_bytes_total", &written), 100_000.0);
    let place = mounted.path().display().to_string();
    let store = scene.path("store").display().to_string();
    let info = [("mountpoint", place.as_str()), ("store", &store), ("io", "served")];
    assert_eq!(after.value("terrace_mount_info", &info), 1.0);
    // Others use it through the control socket.
    scene.ok(["ls"]);
    let sessions =
        scrape(&mounted.metrics()).value("terrace_server_requests_total", &[("server", "control")]);
    assert!(sessions > 0.0);
    mounted.unmount();
}
