// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an initialisation that fails removes from a bucket.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use terrace_core::{BackendExt, Clock, ErrorKind, Key, Result, SystemClock};
use terrace_store::{MoveKind, Store};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

/// A bucket, and directories of stores.
struct World {
    home: TempDir,
    server: S3Server,
}

impl World {
    fn new() -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let keys =
            format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
        std::fs::write(home.path().join("keys"), keys).expect("written");
        Self { home, server: S3Server::start() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Makes a store with a tier of each prefix in the bucket.
    fn init(&self, store: &str, prefixes: &[&str]) -> Result<()> {
        let mut text = "[store]\n[[tier]]\nname = \"fast\"\npath = \"fast\"\n".to_owned();
        for prefix in prefixes {
            text += &format!(
                "[[tier]]\nname = \"{prefix}\"\nbackend = \"s3\"\nbucket = \"{BUCKET}\"\nprefix = \"{prefix}\"\n\
                 endpoint = \"{}\"\nregion = \"{REGION}\"\ncredentials = \"{}\"\ndeadline = \"20s\"\n",
                self.server.endpoint(),
                self.path("keys").display()
            );
        }
        Store::init(&self.path(store), &text)
    }

    fn inject(&self, name: &str, times: u64, fault: S3Fault) {
        self.server.inject(S3FaultPoint { kind: "PUT", name: name.into(), times, fault });
    }
}

fn open(path: &Path) -> Store {
    Store::open(path.to_str().expect("text")).expect("opened")
}

#[test]
fn a_failed_init_leaves_the_tier_of_another_store() {
    let world = World::new();
    // The bucket was found empty; the superblock is written once the other store has its own there.
    world.inject("cold", 1, S3Fault::Stall(Duration::from_secs(4)));
    thread::scope(|scope| {
        let late = scope.spawn(|| world.init("late", &["cold"]));
        let clock = SystemClock::default();
        while !world.server.counts().contains_key("PUT") && !late.is_finished() {
            clock.sleep(Duration::from_millis(2));
        }
        world.init("first", &["cold"]).expect("made");
        let store = open(&world.path("first"));
        let name = Key::new("app", "kept").expect("legal");
        store.write_all(&name, b"bytes").expect("written");
        store.admin().migrate(&name, "cold", MoveKind::Move, 0, "test").expect("queued");
        assert!(store.admin().wait_idle(Duration::from_secs(20)).expect("asked"));
        let refused = late.join().expect("no panic").expect_err("it is another's");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
        assert_eq!(store.read_all(&name).expect("there"), b"bytes");
        store.close().expect("closed");
    });
    open(&world.path("first")).close().expect("closed");
    assert!(!world.path("late").exists());
}

#[test]
fn a_failed_init_removes_its_own_tier() {
    let world = World::new();
    // Also the tries that follow the first one.
    world.inject("two", 100, S3Fault::Refuse(403, "AccessDenied"));
    let failed = world.init("store", &["one", "two"]).expect_err("refused");
    assert_eq!(failed.kind(), ErrorKind::Denied, "{}", failed.chain());
    assert_eq!(world.server.names(), [] as [&str; 0]);
    assert!(!world.path("store").exists());
    world.server.heal();
    world.init("store", &["one", "two"]).expect("made");
    open(&world.path("store")).close().expect("closed");
}

#[test]
fn a_tier_that_is_not_of_the_store_is_not_cleared() {
    let world = World::new();
    world.init("mine", &["cold"]).expect("made");
    world.init("other", &["other"]).expect("made");
    for name in ["mine", "other"] {
        open(&world.path(name)).close().expect("closed");
    }
    // As after a mistake in the configuration.
    let file = world.path("mine").join("terrace.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    let swapped = text.replace("prefix = \"cold\"", "prefix = \"other\"");
    std::fs::write(&file, swapped).expect("written");
    let before = world.server.names();
    let refused = Store::clear_tiers(&world.path("mine")).expect_err("it is another one's");
    assert!(refused.chain().contains("another store"), "{}", refused.chain());
    assert_eq!(world.server.names(), before);
    // A directory that lost its superblock, and not its files.
    let fast = world.path("other").join("fast");
    std::fs::remove_file(fast.join(".terrace-superblock")).expect("removed");
    std::fs::write(fast.join("left"), b"").expect("written");
    let refused = Store::clear_tiers(&world.path("other")).expect_err("whose is it?");
    assert_eq!(refused.kind(), ErrorKind::Exists, "{}", refused.chain());
    assert!(fast.join("left").exists());
}
