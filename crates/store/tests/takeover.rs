// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The level `shared`: another machine takes a store over from its bucket, and the owner before is fenced.
//! `TERRACE_TAKEOVERS` is how often an owner is killed; `make soak` tries 100.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use terrace_backends::object::Bucket;
use terrace_core::{
    Backend, Clock, Create, ErrorKind, Key, ObjectExt, Open, Persistency, Random, Result,
    Semantics, SystemClock,
};
use terrace_settings::Settings;
use terrace_store::{MoveKind, OpenOptions, Store, TakenOver};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};
use terrace_testkit::{pattern_bytes, seeds};

/// A bucket, and directories that stand for machines.
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

    fn path(&self, machine: &str) -> PathBuf {
        self.home.path().join(machine)
    }

    fn bucket(&self) -> String {
        format!(
            "[[tier]]\nname = \"cold\"\nbackend = \"s3\"\nbucket = \"{BUCKET}\"\nprefix = \"s\"\n\
             endpoint = \"{}\"\nregion = \"{REGION}\"\ncredentials = \"{}\"\ndeadline = \"20s\"\n",
            self.server.endpoint(),
            self.path("keys").display()
        )
    }

    /// A store on the machine `a`.
    fn made() -> (Self, Store) {
        let world = Self::new();
        world.init("");
        let store = world.open("a").expect("it opens");
        (world, store)
    }

    /// Makes that store, with further settings of its bucket.
    fn init(&self, further: &str) {
        let text = format!(
            "[store]\n[[tier]]\nname = \"fast\"\npath = \"fast\"\n{}{further}[catalog]\n\
             engine = \"fjall\"\npath = \"catalog\"\n",
            self.bucket()
        );
        Store::init(&self.path("a"), &text).expect("made");
    }

    /// Replaces a field of the owner object in the bucket by zeros, as if another machine had written it.
    fn change_owner(&self, field: &str) {
        let text = std::fs::read_to_string(self.path("a").join("owner")).expect("it is there");
        let begin = format!("\"{field}\": \"");
        let (_, rest) = text.split_once(&begin).expect("it has the field");
        let (value, _) = rest.split_once('"').expect("it ends");
        self.server.plant("s/c/owner", text.replace(value, &"0".repeat(32)).as_bytes());
    }

    fn open(&self, machine: &str) -> Result<Store> {
        let path = self.path(machine);
        let options = OpenOptions { attach: false, ..OpenOptions::default() };
        Store::open_with(path.to_str().expect("text"), options)
    }

    fn take_over(&self, machine: &str) -> Result<TakenOver> {
        self.take_over_with(machine, "")
    }

    /// The same with further settings of the bucket.
    fn take_over_with(&self, machine: &str, further: &str) -> Result<TakenOver> {
        let text = format!(
            "[store]\n{}{further}[catalog]\nengine = \"fjall\"\npath = \"catalog\"\n",
            self.bucket()
        );
        Store::take_over(&self.path(machine), &text, &mut |_| {})
    }

    /// The machine is lost with all that is on it.
    fn lose(&self, machine: &str, store: Store) {
        // Neither closed nor dropped: its process is killed.
        std::mem::forget(store);
        std::fs::remove_dir_all(self.path(machine)).expect("removed");
    }

    /// What the bucket has of the catalog under this name.
    fn document(&self, name: &str) -> Vec<u8> {
        let text =
            format!("[store]\n[[tier]]\nname = \"fast\"\npath = \"fast\"\n{}", self.bucket());
        let settings = Settings::parse(&text, "").expect("legal");
        let tier = settings.tiers.iter().find_map(|tier| tier.s3.as_ref()).expect("it has one");
        let found = Bucket::open(tier).and_then(|bucket| bucket.get(name)).expect("read");
        found.expect("it is there").bytes.to_vec()
    }

    /// The names of all objects of logs, in order.
    fn logs(&self) -> Vec<String> {
        let mut names = self.server.names();
        names.retain(|name| name.contains("/c/log-"));
        names.sort();
        names
    }

    fn inject(&self, kind: &'static str, name: &str, times: u64, fault: S3Fault) {
        self.server.inject(S3FaultPoint { kind, name: name.into(), times, fault });
    }
}

fn key(name: &str) -> Key {
    Key::new("t", name).expect("legal")
}

fn data(name: &str, bytes: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7, |sum: u64, byte| sum * 31 + u64::from(byte));
    pattern_bytes(seed, 0, 0, bytes)
}

fn put(store: &Store, name: &str, bytes: &[u8], level: Persistency) -> Result<()> {
    let how = Open { create: Create::IfMissing, ..Open::create() };
    let draft = store.draft(&key(name), &how.with_semantics(Semantics::at_level(level)))?;
    draft.object().write(0, bytes)?;
    draft.publish().map(drop)
}

fn get(store: &Store, name: &str) -> Result<Vec<u8>> {
    let object = store.open(&key(name), &Open::read())?;
    let mut bytes = vec![0; object.stat()?.size_bytes as usize];
    let mut at = 0;
    while at < bytes.len() {
        at += object.read(at as u64, &mut bytes[at..])?;
    }
    Ok(bytes)
}

fn objects(server: &S3Server) -> usize {
    server.names().iter().filter(|name| name.contains("/o/seg/")).count()
}

#[test]
fn what_was_acknowledged_at_level_shared_is_there() {
    let (world, store) = World::made();
    for (name, bytes) in [("small", 10), ("large", 3 << 20), ("empty", 0)] {
        put(&store, name, &data(name, bytes), Persistency::Shared).expect("acknowledged");
    }
    put(&store, "local", b"only here", Persistency::Storage).expect("acknowledged");
    put(&store, "gone", b"deleted", Persistency::Shared).expect("acknowledged");
    store.delete(&key("gone")).expect("deleted");
    put(&store, "small", &data("newer", 20), Persistency::Shared).expect("replaced");
    world.lose("a", store);
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.term, 2);
    assert_eq!((taken.report.objects, taken.report.bytes), (3, (3 << 20) + 20));
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "small").expect("there"), data("newer", 20));
    assert_eq!(get(&store, "large").expect("there"), data("large", 3 << 20));
    assert_eq!(get(&store, "empty").expect("there"), b"");
    assert_eq!(get(&store, "gone").expect_err("deleted").kind(), ErrorKind::NotFound);
    // Its name was in the log by then, and its bytes on no tier that is left.
    assert_eq!(taken.report.unreachable_keys, ["t/local"]);
    assert_eq!(get(&store, "local").expect_err("unreachable").kind(), ErrorKind::Io);
    // The new owner is one like the first.
    put(&store, "next", &data("next", 1000), Persistency::Shared).expect("acknowledged");
    world.lose("b", store);
    let taken = world.take_over("c").expect("taken over");
    assert_eq!(taken.term, 3);
    let store = world.open("c").expect("it opens");
    assert_eq!(get(&store, "next").expect("there"), data("next", 1000));
    assert_eq!(get(&store, "large").expect("there"), data("large", 3 << 20));
    store.close().expect("closed");
}

#[test]
fn versions_outlive_the_machine_and_are_no_present_values() {
    const KEEPS: &str = "keep_deleted = \"7d\"\n";
    let world = World::new();
    world.init(KEEPS);
    let store = world.open("a").expect("it opens");
    put(&store, "gone", &data("gone", 5000), Persistency::Shared).expect("acknowledged");
    put(&store, "new", &data("old", 6000), Persistency::Shared).expect("acknowledged");
    put(&store, "local", &data("local", 7000), Persistency::Process).expect("acknowledged");
    for ticket in
        store.admin().migrate(&key("local"), "cold", MoveKind::Move, 0, "test").expect("queued")
    {
        store.admin().wait(ticket, Duration::from_secs(20)).expect("known").expect("ends");
    }
    // Recalled: the bucket has the value of before, and the machine the present one.
    let object = store.open(&key("local"), &Open::write()).expect("opens");
    object.write(0, b"changed").expect("written");
    drop(object);
    store.delete(&key("gone")).expect("deleted");
    put(&store, "new", &data("new", 100), Persistency::Shared).expect("replaced");
    world.lose("a", store);
    let taken = world.take_over_with("b", KEEPS).expect("taken over");
    assert_eq!(taken.report.unreachable_keys, ["t/local"]);
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "new").expect("there"), data("new", 100));
    assert_eq!(get(&store, "gone").expect_err("deleted").kind(), ErrorKind::NotFound);
    for (name, old) in
        [("gone", data("gone", 5000)), ("new", data("old", 6000)), ("local", data("local", 7000))]
    {
        let back = format!("{name}/back");
        let made = store.admin().undelete(&key(name), None, &key(&back), false, &mut |_, _| true);
        made.unwrap_or_else(|error| panic!("{name}: {}", error.chain()));
        assert_eq!(get(&store, &back).expect("there"), old, "{name}");
    }
    store.close().expect("closed");
}

#[test]
fn a_write_in_place_keeps_the_bytes_of_the_last_sync() {
    let (world, store) = World::made();
    let how = Open::create().with_semantics(Semantics::at_level(Persistency::Process));
    let object = store.open(&key("log"), &how).expect("made");
    object.write(0, &[1; 5000]).expect("written");
    drop(object);
    // A promise of this level for what was written before.
    let how = Open::write().with_semantics(Semantics::at_level(Persistency::Shared));
    drop(store.open(&key("log"), &how).expect("raised"));
    let object = store.open(&key("log"), &Open::write()).expect("opens");
    object.write(100, &[2; 10]).expect("written");
    object.sync().expect("synced at what the object is promised");
    object.write(200, &[3; 10]).expect("written, and never synced");
    // The record says so on the tier, too.
    put(&store, "other", b"x", Persistency::Shared).expect("acknowledged");
    std::mem::forget(object);
    world.lose("a", store);
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.report.unreachable, 0, "{taken:?}");
    let store = world.open("b").expect("it opens");
    let mut expected = vec![1; 5000];
    expected[100..110].fill(2);
    assert_eq!(get(&store, "log").expect("there"), expected);
    store.close().expect("closed");
}

#[test]
fn a_draft_gets_the_level_that_its_key_has_when_it_is_published() {
    let (world, store) = World::made();
    let how = Open { create: Create::IfMissing, ..Open::create() };
    let how = how.with_semantics(Semantics::at_level(Persistency::Storage));
    let draft = store.draft(&key("one"), &how).expect("begins");
    draft.object().write(0, &data("draft", 5000)).expect("written");
    put(&store, "one", &data("meanwhile", 3000), Persistency::Shared).expect("acknowledged");
    draft.publish().expect("acknowledged");
    drop(draft);
    world.lose("a", store);
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.report.unreachable, 0, "{taken:?}");
    let store = world.open("b").expect("it opens");
    assert!(get(&store, "one").expect("there") == data("draft", 5000));
    store.close().expect("closed");
}

#[test]
fn what_is_retained_outlives_a_restart_and_goes_with_the_next_sync() {
    let (world, store) = World::made();
    put(&store, "one", &data("one", 4000), Persistency::Shared).expect("acknowledged");
    let object = store.open(&key("one"), &Open::write()).expect("opens");
    object.write(0, b"unsynced").expect("written");
    drop(object);
    store.close().expect("closed");
    drop(store);
    let store = world.open("a").expect("it opens");
    assert_eq!(objects(&world.server), 1, "the bytes of the last sync");
    let object = store.open(&key("one"), &Open::write()).expect("opens");
    object.sync().expect("synced");
    drop(object);
    store.close().expect("closed");
    drop(store);
    assert_eq!(objects(&world.server), 1, "the newer ones");
    let store = world.open("a").expect("it opens");
    store.delete(&key("one")).expect("deleted");
    store.close().expect("closed");
    assert_eq!(objects(&world.server), 0);
}

#[test]
fn a_recall_from_a_compressed_bucket_keeps_the_bytes_of_the_last_sync() {
    let world = World::new();
    let cold = world.bucket() + "compress = \"zstd:1\"\n";
    let catalog = "[catalog]\nengine = \"fjall\"\npath = \"catalog\"\n";
    let fast = "[[tier]]\nname = \"fast\"\npath = \"fast\"\n";
    Store::init(&world.path("a"), &format!("[store]\n{fast}{cold}{catalog}")).expect("made");
    let store = world.open("a").expect("it opens");
    let bytes = b"all work and no play ".repeat(5000);
    put(&store, "one", &bytes, Persistency::Shared).expect("acknowledged");
    store.admin().migrate(&key("one"), "cold", MoveKind::Move, 0, "test").expect("queued");
    assert!(store.admin().wait_idle(Duration::from_secs(20)).expect("asked"));
    // It is recalled, and never synced.
    let object = store.open(&key("one"), &Open::write()).expect("opens");
    object.write(0, b"unsynced").expect("written");
    assert!(store.admin().wait_idle(Duration::from_secs(20)).expect("asked"));
    put(&store, "other", b"x", Persistency::Shared).expect("acknowledged");
    std::mem::forget(object);
    world.lose("a", store);
    // Without the setting nothing is changed.
    let refused = world.take_over("b").expect_err("the frames are not understood");
    assert!(refused.chain().contains("compress"), "{}", refused.chain());
    let text = format!("[store]\n{cold}{catalog}");
    let taken = Store::take_over(&world.path("c"), &text, &mut |_| {}).expect("taken over");
    assert_eq!(taken.report.unreachable, 0, "{taken:?}");
    let store = world.open("c").expect("it opens");
    assert!(get(&store, "one").expect("there") == bytes);
    store.close().expect("closed");
}

#[test]
fn an_owner_that_was_taken_over_refuses_and_changes_nothing() {
    let (world, store) = World::made();
    put(&store, "kept", &data("kept", 100_000), Persistency::Shared).expect("acknowledged");
    let object = store.open(&key("kept"), &Open::write()).expect("opens");
    world.take_over("b").expect("taken over");
    let new = world.open("b").expect("it opens");
    put(&new, "mine", b"of the new owner", Persistency::Shared).expect("acknowledged");
    let before = world.server.names();
    // The first commit that waits for the log finds its end.
    let refused = put(&store, "late", b"x", Persistency::Shared).expect_err("fenced");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.chain().contains("taken over by the host"), "{}", refused.chain());
    assert!(store.fenced().is_some());
    for refused in [
        put(&store, "late", b"x", Persistency::Process).expect_err("fenced"),
        get(&store, "kept").expect_err("fenced"),
        object.write(0, b"late").expect_err("fenced"),
        store.delete(&key("kept")).expect_err("fenced"),
        store.close().expect_err("fenced"),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    }
    drop((object, store));
    let refused = world.open("a").map(drop).expect_err("it is another's");
    assert!(refused.chain().contains("taken over by the host"), "{}", refused.chain());
    let read = OpenOptions { access: terrace_core::Access::Read, ..OpenOptions::default() };
    let path = world.path("a");
    let refused = Store::open_with(path.to_str().expect("text"), read).map(drop);
    assert_eq!(refused.expect_err("it is another's").kind(), ErrorKind::Denied);
    // What it sent meanwhile is a file that nothing names.
    let of_new = |names: Vec<String>| {
        let mut names: Vec<_> = names.into_iter().filter(|name| before.contains(name)).collect();
        names.sort();
        names
    };
    let mut sorted = before.clone();
    sorted.sort();
    assert_eq!(of_new(world.server.names()), sorted);
    assert_eq!(get(&new, "kept").expect("there"), data("kept", 100_000));
    new.close().expect("closed");
    drop(new);
    let new = world.open("b").expect("it opens again");
    assert_eq!(get(&new, "mine").expect("there"), b"of the new owner");
    assert_eq!(get(&new, "late").expect_err("never there").kind(), ErrorKind::NotFound);
    new.close().expect("closed");
}

#[test]
fn of_two_takeovers_at_once_one_wins() {
    for _ in 0..4 {
        let (world, store) = World::made();
        put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
        world.lose("a", store);
        let barrier = Barrier::new(2);
        let take = |machine| {
            barrier.wait();
            world.take_over(machine)
        };
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| take("b"));
            let other = scope.spawn(|| take("c"));
            (one.join().expect("no panic"), other.join().expect("no panic"))
        });
        let (winner, lost) = match (one, other) {
            (Ok(_), Err(error)) => ("b", error),
            (Err(error), Ok(_)) => ("c", error),
            (Ok(one), Ok(other)) => {
                // One after the other: then the first is fenced by the second.
                let last = if one.term > other.term { ("b", "c") } else { ("c", "b") };
                assert_ne!(one.term, other.term);
                let refused = world.open(last.1).map(drop).expect_err("fenced");
                (last.0, refused)
            }
            (Err(one), Err(other)) => panic!("{} {}", one.chain(), other.chain()),
        };
        let kinds = [ErrorKind::Busy, ErrorKind::Denied, ErrorKind::Stale];
        assert!(kinds.contains(&lost.kind()), "{}", lost.chain());
        let store = world.open(winner).expect("it opens");
        assert_eq!(get(&store, "kept").expect("there"), b"bytes");
        store.close().expect("closed");
    }
}

#[test]
fn a_takeover_that_failed_goes_on_in_its_directory() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    put(&store, "local", b"bytes", Persistency::Process).expect("acknowledged");
    put(&store, "last", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    let text = |tier: &str| {
        format!(
            "[store]\n[[tier]]\nname = \"{tier}\"\npath = \"{tier}\"\n{}[catalog]\nengine = \"fjall\"\n",
            world.bucket()
        )
    };
    let take = |tier| Store::take_over(&world.path("b"), &text(tier), &mut |_| {});
    let refused = take("fast").expect_err("the machine before has one of this name");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{}", refused.chain());
    assert_eq!(take("nvme").expect("taken over").term, 2);
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    store.close().expect("closed");
}

#[test]
fn an_opening_that_is_paused_over_a_takeover_fails() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    // It has read the owner, and lists the log behind the seal.
    world.inject("LIST", "", 1, S3Fault::Stall(Duration::from_secs(3)));
    world.server.counts();
    thread::scope(|scope| {
        let paused = scope.spawn(|| world.open("a").map(drop));
        let clock = SystemClock::default();
        while !world.server.counts().contains_key("LIST") && !paused.is_finished() {
            clock.sleep(Duration::from_millis(2));
        }
        world.take_over("b").expect("taken over");
        let refused = paused.join().expect("no panic").expect_err("it is another's");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
        assert!(refused.chain().contains("taken over by the host"), "{}", refused.chain());
    });
    let new = world.open("b").expect("it opens");
    assert_eq!(get(&new, "kept").expect("there"), b"bytes");
    new.close().expect("closed");
}

/// A supervisor has started the owner again after a crash, and its recovery stalls.
#[test]
fn a_recovery_that_is_paused_over_a_takeover_deletes_nothing() {
    let (world, store) = World::made();
    store.close().expect("closed");
    drop(store);
    let path = world.path("a");
    let owner = Owner::start(&path);
    let client = Store::open(path.to_str().expect("text")).expect("it is served");
    put(&client, "kept", &data("kept", 5000), Persistency::Shared).expect("acknowledged");
    owner.signal(Signal::KILL);
    drop((owner, client));
    // It owns the store still, and is about to list its files.
    world.inject("LIST", "/o/seg/", 1, S3Fault::Hold);
    thread::scope(|scope| {
        let paused = scope.spawn(|| world.open("a"));
        world.server.wait_held();
        world.take_over("b").expect("taken over");
        let new = world.open("b").expect("it opens");
        put(&new, "mine", &data("mine", 6000), Persistency::Shared).expect("acknowledged");
        let before = world.server.names();
        world.server.release();
        // Whether it opens or not, it finds the seal.
        if let Ok(old) = paused.join().expect("no panic") {
            let refused = put(&old, "late", b"x", Persistency::Shared).expect_err("fenced");
            assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
            let _ = old.close();
        }
        let now = world.server.names();
        for name in before.iter().filter(|name| name.contains("/o/")) {
            assert!(now.contains(name), "{name} is gone");
        }
        world.lose("b", new);
    });
    world.take_over("c").expect("taken over");
    let store = world.open("c").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), data("kept", 5000));
    assert_eq!(get(&store, "mine").expect("there"), data("mine", 6000));
    store.close().expect("closed");
}

/// The owner before deletes a file between the listing of a recovery and the look at it.
#[test]
fn a_recovery_passes_over_a_file_that_is_gone_by_then() {
    const FILE: &str = "0000000000000fff.0.fff";
    let (world, store) = World::made();
    store.close().expect("closed");
    drop(store);
    let path = world.path("a");
    let owner = Owner::start(&path);
    owner.signal(Signal::KILL);
    drop(owner);
    world.server.plant(&format!("s/o/seg/{FILE}"), b"bytes");
    world.inject("HEAD", FILE, 100, S3Fault::Refuse(404, "NoSuchKey"));
    let store = world.open("a").expect("it opens");
    let notes = store.opening_notes();
    assert!(notes.iter().any(|note| note.contains("it was recovered")), "{notes:?}");
    assert!(world.server.heal() < 100, "it was looked at");
    store.close().expect("closed");
}

#[test]
fn an_owner_that_was_taken_over_cannot_remove_the_tier() {
    let (world, store) = World::made();
    // Its log is there, and it has nothing more to write.
    let pair = (b"k".as_slice(), Some(b"v".as_slice()));
    store.kv_apply("ns", &[pair], Persistency::Shared).expect("applied");
    world.take_over("b").expect("taken over");
    let refused = store.admin().remove_tier("cold").expect_err("it is another's");
    assert!(refused.chain().contains("taken over by the host"), "{}", refused.chain());
    let new = world.open("b").expect("it opens");
    assert_eq!(new.kv_get("ns", b"k").expect("read").as_deref(), Some(b"v".as_slice()));
    new.close().expect("closed");
}

#[test]
fn a_checkpoint_of_a_replaced_owner_acknowledges_nothing() {
    let world = World::new();
    world.init("");
    // Shorter than the pause of the thread that reads the owner object.
    world.inject("PUT", "/c/root-", 1, S3Fault::Stall(Duration::from_millis(700)));
    let store = world.open("a").expect("it opens");
    world.change_owner("token");
    let refused = put(&store, "late", b"x", Persistency::Shared).expect_err("fenced");
    assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    assert!(store.fenced().is_some());
    // What another machine has taken over is not removed with the tier.
    let _ = store.admin().remove_tier("cold");
    assert!(world.server.names().iter().any(|name| name == "s/c/owner"));
}

#[test]
fn a_log_that_cannot_be_read_at_first_is_given_later() {
    let (world, store) = World::made();
    put(&store, "one", b"1", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    world.inject("LIST", "", 1, S3Fault::Refuse(403, "AccessDenied"));
    let store = world.open("a").expect("it opens");
    let notes = store.opening_notes();
    assert!(notes.iter().any(|note| note.contains("the level shared is not given")), "{notes:?}");
    put(&store, "two", b"2", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    world.take_over("b").expect("taken over");
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "one").expect("there"), b"1");
    assert_eq!(get(&store, "two").expect("there"), b"2");
    store.close().expect("closed");
}

#[test]
fn an_opening_without_its_owner_file_says_so() {
    let (world, store) = World::made();
    store.close().expect("closed");
    drop(store);
    let file = world.path("a").join("owner");
    let refused = |words: &str| {
        let refused = world.open("a").map(drop).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
        assert!(refused.chain().contains(words), "{}", refused.chain());
    };
    let own = std::fs::read(&file).expect("it is there");
    std::fs::remove_file(&file).expect("removed");
    refused("no file `owner`");
    std::fs::write(&file, &own).expect("written");
    world.change_owner("store");
    refused("another store (00000000000000000000000000000000)");
    world.server.plant("s/c/owner", &own);
    world.open("a").expect("it opens").close().expect("closed");
}

#[test]
fn a_takeover_with_wrong_settings_fences_nothing() {
    let (world, store) = World::made();
    put(&store, "first", b"1", Persistency::Shared).expect("acknowledged");
    let packed = "[[tier]]\nname = \"packed\"\npath = \"packed\"\nencrypt = \"none.key\"\n";
    let bucket = world.bucket();
    let other_name = bucket.replace("\"cold\"", "\"other\"");
    let wrong = [(format!("{packed}{bucket}"), "none.key"), (other_name, "under the name")];
    for (tiers, words) in wrong {
        let text = format!(
            "[store]\n[[tier]]\nname = \"nvme\"\npath = \"nvme\"\n{tiers}[catalog]\n\
             engine = \"fjall\"\npath = \"catalog\"\n"
        );
        let refused = Store::take_over(&world.path("b"), &text, &mut |_| {});
        let refused = refused.expect_err("the settings are wrong");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
        assert!(refused.chain().contains(words), "{}", refused.chain());
        assert!(!world.path("b").exists(), "nothing is left");
    }
    put(&store, "second", b"2", Persistency::Shared).expect("it is the owner still");
    store.close().expect("closed");
}

#[test]
fn a_damaged_head_of_the_last_log_object_is_an_error() {
    let (world, store) = World::made();
    put(&store, "first", b"1", Persistency::Shared).expect("acknowledged");
    put(&store, "last", b"2", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    let last = world.logs().pop().expect("the log has objects");
    world.server.damage(&last, 0);
    let refused = world.take_over("b").expect_err("commits are missing");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{}", refused.chain());
    assert!(refused.chain().contains("head"), "{}", refused.chain());
    world.server.damage(&last, 0);
    world.take_over("b").expect("taken over");
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "last").expect("there"), b"2");
    store.close().expect("closed");
}

#[test]
fn what_is_in_a_bucket_that_was_not_given_is_found_with_it() {
    let (world, store) = World::made();
    let further = world.bucket().replace("\"cold\"", "\"colder\"").replace("\"s\"", "\"s2\"");
    store.admin().add_tier(&further, None).expect("added");
    put(&store, "moved", &data("moved", 5000), Persistency::Shared).expect("acknowledged");
    for ticket in
        store.admin().migrate(&key("moved"), "colder", MoveKind::Move, 0, "test").expect("queued")
    {
        store.admin().wait(ticket, Duration::from_secs(20)).expect("known").expect("ends");
    }
    store.admin().drop_copy(&key("moved"), "cold").expect("the other bucket has it");
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.report.unreachable_keys, ["t/moved"]);
    assert_eq!(taken.report.missing_tiers, ["colder"]);
    remove(&world.path("b"));
    // The last one has the log.
    let text = format!(
        "[store]\n[[tier]]\nname = \"nvme\"\npath = \"nvme\"\n{further}{}[catalog]\n\
         engine = \"fjall\"\npath = \"catalog\"\n",
        world.bucket()
    );
    let taken = Store::take_over(&world.path("c"), &text, &mut |_| {}).expect("taken over");
    assert_eq!(taken.report.unreachable, 0, "{taken:?}");
    let store = world.open("c").expect("it opens");
    assert!(get(&store, "moved").expect("there") == data("moved", 5000));
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    store.close().expect("closed");
}

#[test]
fn a_missing_object_of_the_log_is_an_error() {
    let (world, store) = World::made();
    for name in ["first", "second", "third"] {
        put(&store, name, name.as_bytes(), Persistency::Shared).expect("acknowledged");
    }
    world.lose("a", store);
    let logs = world.logs();
    world.server.remove(&logs[logs.len() - 2]);
    let refused = world.take_over("b").expect_err("commits are missing");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{}", refused.chain());
    assert!(refused.chain().contains("missing"), "{}", refused.chain());
    assert_eq!(world.logs(), [&logs[..logs.len() - 2], &logs[logs.len() - 1..]].concat());
}

#[test]
fn a_sync_needs_no_deletion_of_old_checkpoints() {
    let (world, store) = World::made();
    put(&store, "first", b"1", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    drop(Owner::start(&world.path("a")));
    world.inject("DELETE", "/c/", u64::MAX, S3Fault::Refuse(403, "AccessDenied"));
    // The thread that writes checkpoints fails, and the sync writes the one that its log begins with.
    world.inject("PUT", "/c/checkpoint-", 1, S3Fault::Hold);
    world.inject("PUT", "/c/root-", 1, S3Fault::Refuse(403, "AccessDenied"));
    let store = world.open("a").expect("it opens");
    world.server.wait_held();
    world.server.release();
    put(&store, "second", b"2", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
}

#[test]
fn a_takeover_leaves_only_roots_and_ends_of_earlier_terms() {
    let (world, store) = World::made();
    for name in ["first", "second", "third"] {
        put(&store, name, name.as_bytes(), Persistency::Shared).expect("acknowledged");
    }
    world.lose("a", store);
    // A checkpoint whose root was never written.
    world.server.plant("s/c/checkpoint-0001-00000000000000ff", b"left");
    let of_term = |term: &str| {
        let mut names = world.server.names();
        names.retain(|name| name.contains(&format!("-{term}")));
        names
    };
    for (machine, term, before) in [("b", "0002", "0001"), ("c", "0003", "0002")] {
        world.take_over(machine).expect("taken over");
        let left = of_term(before);
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].contains("/c/log-"), "{left:?}");
        assert!(left.contains(&format!("s/c/root-{before}")), "{left:?}");
        let own = of_term(term);
        assert_eq!(own.iter().filter(|name| name.contains("checkpoint")).count(), 1, "{own:?}");
        let store = world.open(machine).expect("it opens");
        for name in ["first", "second", "third"] {
            assert_eq!(get(&store, name).expect("there"), name.as_bytes());
        }
        put(&store, "more", machine.as_bytes(), Persistency::Shared).expect("acknowledged");
        world.lose(machine, store);
    }
    assert_eq!(of_term("0001").len(), 2, "they stay");
}

#[test]
fn a_takeover_that_failed_behind_its_root_goes_on_with_that() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    world.take_over("b").expect("taken over");
    // As one that fails in its last step does.
    std::fs::remove_file(world.path("b").join("terrace.toml")).expect("removed");
    assert_eq!(world.take_over("b").expect("taken over").term, 2);
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    put(&store, "more", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("b", store);
    world.take_over("c").expect("taken over");
    let store = world.open("c").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    assert_eq!(get(&store, "more").expect("there"), b"bytes");
    store.close().expect("closed");
}

/// The owner is killed while it writes a root, is started again, and acknowledges more behind the next root.
#[test]
fn a_root_that_is_written_late_replaces_no_later_one() {
    let (world, store) = World::made();
    put(&store, "first", b"1", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    // One that was killed makes another checkpoint with its next opening.
    drop(Owner::start(&world.path("a")));
    world.inject("PUT", "/c/root-", 1, S3Fault::Hold);
    let owner = Owner::start(&world.path("a"));
    world.server.wait_held();
    drop(owner);
    let store = world.open("a").expect("it opens");
    put(&store, "second", b"2", Persistency::Shared).expect("acknowledged");
    world.server.release();
    put(&store, "third", b"3", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.report.unreachable, 0, "{taken:?}");
    let store = world.open("b").expect("it opens");
    for (name, bytes) in [("first", b"1"), ("second", b"2"), ("third", b"3")] {
        assert_eq!(get(&store, name).expect("there"), bytes);
    }
    store.close().expect("closed");
}

/// A takeover has read the catalog and ended. The owner before was paused in the middle of a checkpoint.
#[test]
fn a_takeover_that_is_tried_again_begins_with_the_same_root() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    drop(Owner::start(&world.path("a")));
    world.inject("PUT", "/c/root-", 1, S3Fault::Hold);
    let owner = Owner::start(&world.path("a"));
    world.server.wait_held();
    owner.signal(Signal::STOP);
    world.inject("PUT", "/c/root-0002", u64::MAX, S3Fault::Refuse(403, "AccessDenied"));
    world.take_over("b").expect_err("it has no root of its own");
    world.server.heal();
    let root = world.document("root-0001");
    world.server.release();
    assert_eq!(world.document("root-0001"), root, "the late one is refused");
    let taken = world.take_over("b").expect("taken over");
    assert_eq!(taken.term, 2);
    owner.signal(Signal::CONT);
    drop(owner);
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    store.close().expect("closed");
}

#[test]
fn an_interrupted_takeover_does_not_fence_a_later_one() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    world.inject("PUT", "/c/root-0002", u64::MAX, S3Fault::Refuse(403, "AccessDenied"));
    world.take_over("b").expect_err("it has no root of its own");
    world.server.heal();
    assert_eq!(world.take_over("c").expect("taken over").term, 3);
    let store = world.open("c").expect("it opens");
    for _ in 0..2 {
        let refused = world.take_over("b").expect_err("it is another's by now");
        assert_eq!(refused.kind(), ErrorKind::Busy, "{}", refused.chain());
        assert!(refused.chain().contains("another takeover came first"), "{}", refused.chain());
    }
    put(&store, "more", b"bytes", Persistency::Shared).expect("it owns the store still");
    assert_eq!(store.fenced(), None);
    world.lose("c", store);
    // Another directory is another takeover.
    assert_eq!(world.take_over("d").expect("taken over").term, 4);
}

#[test]
fn a_takeover_that_came_second_does_so_again() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    world.lose("a", store);
    // It has read the owner of before.
    world.inject("PUT", "/c/owner", 1, S3Fault::Hold);
    thread::scope(|scope| {
        let second = scope.spawn(|| world.take_over("b"));
        world.server.wait_held();
        world.take_over("c").expect("taken over");
        world.server.release();
        let refused = second.join().expect("no panic").expect_err("another came first");
        assert_eq!(refused.kind(), ErrorKind::Busy, "{}", refused.chain());
    });
    let refused = world.take_over("b").expect_err("another came first");
    assert_eq!(refused.kind(), ErrorKind::Busy, "{}", refused.chain());
    let store = world.open("c").expect("it opens");
    put(&store, "more", b"bytes", Persistency::Shared).expect("it owns the store still");
    store.close().expect("closed");
}

#[test]
fn the_files_of_a_store_that_was_taken_over_are_not_cleared() {
    let (world, store) = World::made();
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    world.take_over("b").expect("taken over");
    let refused = Store::clear_tiers(&world.path("a")).expect_err("it is another machine's");
    assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    assert_eq!(
        Store::clear_tiers(&world.path("b")).expect_err("it is open").kind(),
        ErrorKind::Busy
    );
    store.close().expect("closed");
    drop(store);
    for _ in 0..2 {
        Store::clear_tiers(&world.path("b")).expect("cleared, also again");
        assert_eq!(world.server.names(), Vec::<String>::new());
    }
}

#[test]
fn a_further_bucket_does_not_move_the_log() {
    let (world, store) = World::made();
    let section = world.bucket().replace("\"cold\"", "\"colder\"").replace("\"s\"", "\"s2\"");
    store.admin().add_tier(&section, None).expect("added");
    store.close().expect("closed");
    drop(store);
    let store = world.open("a").expect("it opens");
    put(&store, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    assert!(!world.server.names().iter().any(|name| name.starts_with("s2/c/")), "it moved");
    world.lose("a", store);
    assert_eq!(world.take_over("b").expect("taken over").term, 2);
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "kept").expect("there"), b"bytes");
    store.close().expect("closed");
}

/// The bucket with the log does not answer the owner before, and another bucket does.
#[test]
fn an_owner_without_the_bucket_of_the_log_deletes_from_no_other() {
    let (world, store) = World::made();
    let further = world.bucket().replace("\"cold\"", "\"colder\"").replace("\"s\"", "\"s2\"");
    store.admin().add_tier(&further, None).expect("added");
    put(&store, "moved", &data("moved", 5000), Persistency::Storage).expect("written");
    for ticket in
        store.admin().migrate(&key("moved"), "colder", MoveKind::Move, 0, "test").expect("queued")
    {
        store.admin().wait(ticket, Duration::from_secs(20)).expect("known").expect("ends");
    }
    store.close().expect("closed");
    drop(store);
    let file = world.path("a").join("terrace.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let text = text.replacen(&world.server.endpoint(), "http://127.0.0.1:1", 1);
    std::fs::write(&file, text).expect("written");
    let path = world.path("a");
    let options = OpenOptions { attach: false, degraded: true, ..OpenOptions::default() };
    let old = Store::open_with(path.to_str().expect("text"), options).expect("it opens");
    let notes = old.opening_notes();
    assert!(notes.iter().any(|note| note.contains("is not known")), "{notes:?}");
    let text = format!(
        "[store]\n[[tier]]\nname = \"nvme\"\npath = \"nvme\"\n{further}{}[catalog]\nengine = \"fjall\"\npath = \"catalog\"\n",
        world.bucket()
    );
    Store::take_over(&world.path("b"), &text, &mut |_| {}).expect("taken over");
    let new = world.open("b").expect("it opens");
    old.delete(&key("moved")).expect("deleted there");
    old.close().expect("closed");
    assert!(get(&new, "moved").expect("there") == data("moved", 5000));
    new.close().expect("closed");
}

/// Writes a key that only this user can read.
fn write_key(path: &Path) {
    std::fs::write(path, [b'7'; 64]).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("set");
}

#[test]
fn an_encrypted_bucket_gets_no_catalog() {
    let world = World::new();
    let key_file = world.path("cold.key");
    write_key(&key_file);
    world.init(&format!("encrypt = \"{}\"\n", key_file.display()));
    let store = world.open("a").expect("it opens");
    put(&store, "kept", b"bytes", Persistency::Storage).expect("written");
    put(&store, "other", b"bytes", Persistency::Shared).expect_err("the level is not given");
    store.close().expect("closed");
    drop(store);
    let names = world.server.names();
    assert!(!names.iter().any(|name| name.contains("/c/")), "{names:?}");
    // A tier without its key is not an offline one.
    std::fs::remove_file(&key_file).expect("removed");
    let path = world.path("a");
    let options = OpenOptions { attach: false, degraded: true, ..OpenOptions::default() };
    let refused = Store::open_with(path.to_str().expect("text"), options).map(drop);
    let refused = refused.expect_err("it needs the key");
    assert_eq!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    assert!(refused.chain().contains("cold.key"), "{}", refused.chain());
}

#[test]
fn lost_answers_lose_and_duplicate_nothing() {
    let (world, store) = World::made();
    for (round, name) in ["/o/seg/", "/c/log-", "/c/root-", "/c/checkpoint-"].iter().enumerate() {
        world.inject("PUT", name, 2, S3Fault::LoseAnswer);
        let name = format!("object-{round}");
        put(&store, &name, &data(&name, 50_000), Persistency::Shared).expect("acknowledged");
    }
    world.lose("a", store);
    world.server.heal();
    world.inject("PUT", "/c/", 6, S3Fault::LoseAnswer);
    world.take_over("b").expect("taken over");
    world.server.heal();
    let store = world.open("b").expect("it opens");
    for round in 0..4 {
        let name = format!("object-{round}");
        assert_eq!(get(&store, &name).expect("there"), data(&name, 50_000));
    }
    store.close().expect("closed");
}

#[test]
fn an_acknowledged_put_is_one_data_request_and_one_of_the_log() {
    let (world, store) = World::made();
    // The first waits for the checkpoint that the log begins with.
    put(&store, "first", b"x", Persistency::Shared).expect("acknowledged");
    world.server.counts();
    put(&store, "counted", &data("counted", 1 << 20), Persistency::Shared).expect("acknowledged");
    let puts = world.server.counts().get("PUT").copied();
    // The log is also written for what nobody waits for, once a second.
    assert!(puts == Some(2) || puts == Some(3), "{puts:?}");
    // Others wait for the same request.
    world.inject("PUT", "/c/log-", 1, S3Fault::Stall(std::time::Duration::from_millis(300)));
    let names: Vec<_> = (0..16).map(|number| format!("g{number}")).collect();
    thread::scope(|scope| {
        for name in &names {
            let store = &store;
            scope.spawn(move || {
                put(store, name, &data(name, 1000), Persistency::Shared).expect("acknowledged")
            });
        }
    });
    let puts = world.server.counts()["PUT"];
    assert!((17..=16 + 6).contains(&puts), "16 of data, and few of the log: {puts}");
    store.close().expect("closed");
}

#[test]
fn a_drop_while_the_bucket_stalls_ends_clean() {
    let (world, store) = World::made();
    put(&store, "moved", &data("moved", 1000), Persistency::Storage).expect("acknowledged");
    for ticket in
        store.admin().migrate(&key("moved"), "cold", MoveKind::Move, 0, "test").expect("queued")
    {
        store.admin().wait(ticket, Duration::from_secs(20)).expect("known").expect("ends");
    }
    put(&store, "kept", &data("kept", 1000), Persistency::Shared).expect("acknowledged");
    // The thread that deletes files waits for the log, with a reference to the open store.
    world.inject("PUT", "/c/log-", 1, S3Fault::Hold);
    store.delete(&key("moved")).expect("deleted");
    world.server.wait_held();
    // Without `close`, and before the bucket answers.
    thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(store));
        SystemClock::default().sleep(Duration::from_millis(300));
        world.server.release();
        dropping.join().expect("dropped");
    });
    let store = world.open("a").expect("it opens");
    assert_eq!(store.opening_notes(), Vec::<String>::new(), "no recovery");
    assert_eq!(get(&store, "kept").expect("there"), data("kept", 1000));
    store.close().expect("closed");
}

#[test]
fn a_clean_close_goes_on_with_its_log_and_is_taken_over_too() {
    let (world, store) = World::made();
    put(&store, "one", b"1", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    let checkpoints = |server: &S3Server| {
        server.names().into_iter().filter(|name| name.contains("/checkpoint-")).collect::<Vec<_>>()
    };
    let before = checkpoints(&world.server);
    assert_eq!(before.len(), 1);
    let store = world.open("a").expect("it opens");
    put(&store, "two", b"2", Persistency::Shared).expect("acknowledged");
    store.close().expect("closed");
    drop(store);
    assert_eq!(checkpoints(&world.server), before, "the log went on");
    remove(&world.path("a"));
    world.take_over("b").expect("taken over");
    let store = world.open("b").expect("it opens");
    assert_eq!(get(&store, "one").expect("there"), b"1");
    assert_eq!(get(&store, "two").expect("there"), b"2");
    store.close().expect("closed");
}

#[test]
fn a_lost_catalog_is_made_anew_from_the_bucket() {
    let (world, store) = World::made();
    put(&store, "one", b"1", Persistency::Shared).expect("acknowledged");
    store
        .kv_apply("ns", &[(b"k".as_slice(), Some(b"v".as_slice()))], Persistency::Shared)
        .expect("applied");
    store.close().expect("closed");
    drop(store);
    remove(&world.path("a").join("catalog"));
    let path = world.path("a");
    let rebuilt = terrace_recovery::rebuild(
        path.to_str().expect("text"),
        terrace_recovery::Source::Checkpoint,
        false,
        &mut |_, _| {},
    );
    let rebuilt = rebuilt.expect("made anew");
    let used = rebuilt.checkpoint.expect("a checkpoint was there");
    assert!(used.file.to_string_lossy().starts_with("s3://"), "{used:?}");
    let store = world.open("a").expect("it opens");
    assert_eq!(get(&store, "one").expect("there"), b"1");
    assert_eq!(store.kv_get("ns", b"k").expect("read").as_deref(), Some(b"v".as_slice()));
    store.close().expect("closed");
}

fn remove(path: &Path) {
    std::fs::remove_dir_all(path).expect("removed");
}

/// Owns and serves the store of a directory in a process of its own, for the tests below.
#[test]
#[ignore = "a process of other tests"]
fn owner() {
    let Ok(directory) = std::env::var(OWNER) else { return };
    let options = OpenOptions { attach: false, ..OpenOptions::default() };
    let store = Store::open_with(&directory, options).expect("it opens");
    println!("\n{READY}");
    let error = store.serve(&AtomicBool::new(false)).expect_err("it is fenced");
    eprintln!("{}", error.chain());
    std::process::exit(9);
}

const OWNER: &str = "TERRACE_TEST_OWNER";
const READY: &str = "the store is served";

/// A process that owns a store; killed when it is dropped.
struct Owner(Child);

impl Owner {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "owner", "--ignored", "--nocapture"]).env(OWNER, directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let is_ready = |line: std::io::Result<String>| line.is_ok_and(|line| line == READY);
        assert!(lines.into_iter().any(is_ready), "it ended before it was ready");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it was not waited for");
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ROUNDS: u64 = 3;
const WORKERS: u64 = 4;
const NAMES: u64 = 6;
const LENGTH_MAX: u64 = 150_000;

/// What may be under a name: the last value that was acknowledged, and one that was under way.
type Expected = BTreeMap<String, Vec<Option<Vec<u8>>>>;

/// Changes objects of its own as a client, until the owner is gone.
fn work(store: &Store, worker: u64, seed: u64, acknowledged: &AtomicU64) -> Expected {
    let mut random = Random::new(seed << 8 ^ worker);
    let mut expected = Expected::new();
    loop {
        let name = format!("w{worker}/{}", random.next_u64() % NAMES);
        let known = expected.entry(name.clone()).or_insert_with(|| vec![None]);
        let is_there = known[0].is_some();
        let length = random.next_u64() % LENGTH_MAX;
        let next = match random.next_u64() % 5 {
            0 if is_there => None,
            _ => Some(pattern_bytes(random.next_u64(), 0, 0, length as usize)),
        };
        let done = match next {
            None => {
                known.push(None);
                store.delete(&key(&name))
            }
            // In place: a prefix, and a sync at what the object is promised.
            Some(bytes) if is_there && random.next_u64().is_multiple_of(3) => {
                let mut whole = known[0].clone().expect("it is there");
                let count = bytes.len().min(whole.len()).min(5000);
                whole[..count].copy_from_slice(&bytes[..count]);
                known.push(Some(whole));
                store.open(&key(&name), &Open::write()).and_then(|object| {
                    object.write(0, &bytes[..count])?;
                    object.sync()
                })
            }
            Some(bytes) => {
                known.push(Some(bytes.clone()));
                put(store, &name, &bytes, Persistency::Shared)
            }
        };
        if done.is_err() {
            return expected;
        }
        let value = known.pop().expect("it was pushed");
        *known = vec![value];
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether each byte is one of those that are allowed there: a write in place was under way.
fn is_mixture(found: &[u8], allowed: &[Option<Vec<u8>>]) -> bool {
    let same: Vec<_> = allowed.iter().flatten().filter(|one| one.len() == found.len()).collect();
    same.len() == 2
        && found.iter().enumerate().all(|(at, byte)| same.iter().any(|one| one[at] == *byte))
}

#[test]
fn nothing_acknowledged_is_lost_with_the_machine() {
    let rounds = std::env::var("TERRACE_TAKEOVERS").ok().and_then(|text| text.parse().ok());
    let mut compared = 0;
    for seed in seeds(rounds.unwrap_or(ROUNDS)) {
        let (world, store) = World::made();
        store.close().expect("closed");
        drop(store);
        let directory = world.path("a");
        let owner = Owner::start(&directory);
        // A client of before the kill is never an owner.
        let client = Store::open(directory.to_str().expect("text")).expect("it is served");
        assert!(client.is_attached());
        let acknowledged = AtomicU64::new(0);
        let most = Random::new(seed).next_u64() % 80;
        let expected: Vec<Expected> = thread::scope(|scope| {
            let (client, acknowledged) = (&client, &acknowledged);
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| scope.spawn(move || work(client, worker, seed, acknowledged)))
                .collect();
            while acknowledged.load(Ordering::SeqCst) < most {
                assert!(!workers.iter().any(|worker| worker.is_finished()), "the owner lives");
                thread::yield_now();
            }
            owner.signal(Signal::KILL);
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        drop((owner, client));
        remove(&directory);
        assert_eq!(world.take_over("b").expect("taken over").term, 2);
        let store = world.open("b").expect("it opens");
        for (name, allowed) in expected.iter().flatten() {
            let found = match get(&store, name) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                found => Some(found.unwrap_or_else(|error| panic!("{name}: {}", error.chain()))),
            };
            compared += found.as_ref().map_or(0, Vec::len);
            let is_right = allowed.contains(&found)
                || found.as_ref().is_some_and(|found| is_mixture(found, allowed));
            let lengths = |all: &[Option<Vec<u8>>]| {
                all.iter().map(|one| one.as_ref().map(Vec::len)).collect::<Vec<_>>()
            };
            assert!(
                is_right,
                "seed {seed}: {name}: found {:?}, allowed {:?}",
                lengths(&[found]),
                lengths(allowed)
            );
        }
        let report = store.admin().check(true, &mut |_, _| true).expect("checked");
        assert!(report.problems.iter().all(|one| one.kind.starts_with("unknown")), "{report:?}");
        store.close().expect("closed");
    }
    println!("compared {compared} bytes");
}

#[test]
fn a_paused_owner_that_goes_on_ends_and_changes_nothing() {
    let (world, store) = World::made();
    store.close().expect("closed");
    drop(store);
    let mut owner = Owner::start(&world.path("a"));
    let path = world.path("a");
    let client = Store::open(path.to_str().expect("text")).expect("it is served");
    put(&client, "kept", b"bytes", Persistency::Shared).expect("acknowledged");
    owner.signal(Signal::STOP);
    world.take_over("b").expect("taken over");
    let new = world.open("b").expect("it opens");
    put(&new, "mine", b"of the new owner", Persistency::Shared).expect("acknowledged");
    let before = world.server.names();
    owner.signal(Signal::CONT);
    // With and without a request it finds out, and ends.
    let late = put(&client, "late", b"late", Persistency::Shared);
    assert!(late.is_err());
    let mut told = String::new();
    owner.0.stderr.take().expect("a pipe").read_to_string(&mut told).expect("read");
    assert!(told.contains("taken over by the host"), "{told}");
    assert_eq!(owner.0.wait().expect("it ends").code(), Some(9));
    let now = world.server.names();
    for name in before {
        assert!(now.contains(&name), "{name} is gone");
    }
    let refused = world.open("a").map(drop).expect_err("it is another's");
    assert!(refused.chain().contains("taken over by the host"), "{}", refused.chain());
    assert_eq!(get(&new, "kept").expect("there"), b"bytes");
    assert_eq!(get(&new, "late").expect_err("never there").kind(), ErrorKind::NotFound);
    new.close().expect("closed");
    drop(new);
    let new = world.open("b").expect("it opens again");
    assert_eq!(get(&new, "mine").expect("there"), b"of the new owner");
    new.close().expect("closed");
}
