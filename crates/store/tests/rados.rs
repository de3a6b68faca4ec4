// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store with a tier in a pool of a real cluster, which `make test-engines` starts: `TERRACE_CEPH` is its
//! directory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use terrace_backends::object::{Rados, RadosSettings};
use terrace_core::{Backend, BackendExt, ErrorKind, Key, ObjectExt, Open, Persistency, TierIndex};
use terrace_store::{MoveKind, OpenOptions, Store};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};
use terrace_testkit::{behaviour_suite, pattern_bytes};

const SLOW: TierIndex = TierIndex(1);

/// Longest that a migration takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

fn cluster() -> PathBuf {
    std::env::var_os("TERRACE_CEPH").expect("`make test-engines` sets it").into()
}

/// An empty namespace, as the user of whom the documentation lists the capabilities.
fn settings() -> RadosSettings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    RadosSettings {
        namespace: format!("store-{}-{number}", std::process::id()),
        user: "terrace".into(),
        configuration: Some(cluster().join("ceph.conf")),
        keyring: Some(cluster().join("terrace.keyring")),
        ..RadosSettings::new("terrace")
    }
}

fn section(settings: &RadosSettings, more: &str) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().expect("given").display().to_string();
    format!(
        "[[tier]]\nname = \"cold\"\nbackend = \"rados\"\npool = \"terrace\"\nnamespace = \"{}\"\n\
         user = \"terrace\"\nconf = \"{}\"\nkeyring = \"{}\"\n{more}",
        settings.namespace,
        path(&settings.configuration),
        path(&settings.keyring)
    )
}

const FAST: &str = "[[tier]]\nname = \"fast\"\npath = \"fast\"\ncapacity = \"1GiB\"\n";
const CATALOG: &str = "[catalog]\nengine = \"fjall\"\npath = \"catalog\"\n";

struct Scene {
    store: Box<Store>,
    home: TempDir,
    settings: RadosSettings,
}

fn opened(home: &TempDir) -> Box<Store> {
    let options = OpenOptions { attach: false, ..OpenOptions::default() };
    let path = home.path().join("store");
    Box::new(Store::open_with(path.to_str().expect("text"), options).expect("opens"))
}

impl Scene {
    fn new(tiers: impl Fn(&RadosSettings) -> String) -> Self {
        let (home, settings) = (TempDir::new().expect("a directory"), settings());
        let text = format!("{}{CATALOG}", tiers(&settings));
        Store::init(&home.path().join("store"), &text).expect("made");
        Self { store: opened(&home), home, settings }
    }

    fn two() -> Self {
        Self::new(|settings| format!("{FAST}{}", section(settings, "")))
    }

    fn pool(&self) -> Rados {
        Rados::open(&self.settings, u64::MAX, true).expect("opened")
    }

    fn migrate(&self, name: &Key, to: TierIndex) {
        let stack = self.store.stack().expect("it is here");
        for ticket in stack.migrate(name, to, MoveKind::Move, 0, "test").expect("asked") {
            let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
            assert_eq!(ended.outcome.as_deref(), Some("done"), "{ended:?}");
        }
    }

    fn tiers_of(&self, name: &Key) -> Vec<(String, u64)> {
        let report = self.store.stack().expect("it is here").explain(name).expect("exists");
        report.segments.into_iter().map(|segment| (segment.tier, segment.size_bytes)).collect()
    }

    fn assert_sound(&self) {
        let stack = self.store.stack().expect("it is here");
        let check = stack.check(true, &mut |_, _| {}).expect("checks");
        assert!(check.problems.is_empty(), "{:?}", check.problems);
    }
}

fn key(name: &str) -> Key {
    Key::new("t", name).expect("legal")
}

fn put(store: &Store, name: &str, data: &[u8]) {
    store.write_all(&key(name), data).expect("written");
}

/// Everything is in the pool.
fn alone() -> (Box<Store>, TempDir) {
    let Scene { store, home, .. } = Scene::new(|settings| section(settings, ""));
    (store, home)
}

behaviour_suite!(store_on_rados, alone());

#[test]
fn a_long_object_is_cut_moved_written_in_place_and_moved_back() {
    const MIB: u64 = 1 << 20;
    let scene = Scene::two();
    let mut data = pattern_bytes(1, 0, 0, 150 << 20);
    put(&scene.store, "long", &data);
    scene.migrate(&key("long"), SLOW);
    let cold = |bytes| ("cold".to_owned(), bytes);
    assert_eq!(scene.tiers_of(&key("long")), [cold(64 * MIB), cold(64 * MIB), cold(22 * MIB)]);
    let listed = scene.pool().list_all("seg", "").expect("listed");
    assert_eq!(listed.len(), 3);
    let object = scene.store.open(&key("long"), &Open::write()).expect("opens");
    // Over the border of two segments.
    let border = 64 << 20;
    object.write(border - 5, b"0123456789").expect("written");
    data[border as usize - 5..border as usize + 5].copy_from_slice(b"0123456789");
    assert_eq!(scene.tiers_of(&key("long"))[0].0, "cold", "it is written where it is");
    object.sync().expect("synced");
    drop(object);
    assert!(scene.store.read_all(&key("long")).expect("read") == data);
    scene.assert_sound();
    scene.migrate(&key("long"), TierIndex(0));
    assert!(scene.store.read_all(&key("long")).expect("read") == data);
    scene.assert_sound();
    assert!(scene.tiers_of(&key("long")).iter().all(|(tier, _)| tier == "fast"));
}

#[test]
fn a_store_that_was_killed_finds_what_was_synced() {
    let Scene { store, home, settings } = Scene::two();
    let scene = Scene { store, home, settings };
    let data = pattern_bytes(2, 0, 0, 300_000);
    for number in 0..10 {
        put(&scene.store, &format!("{number}"), &data);
        scene.migrate(&key(&format!("{number}")), SLOW);
    }
    let object = scene.store.open(&key("3"), &Open::write()).expect("opens");
    object.write(0, b"changed").expect("written");
    object.sync().expect("synced");
    drop(object);
    scene.store.sync_all().expect("synced");
    // Dropped without a close.
    let Scene { store, home, settings } = scene;
    drop(store);
    let scene = Scene { store: opened(&home), home, settings };
    for number in 0..10 {
        let mut expected = data.clone();
        if number == 3 {
            expected[..7].copy_from_slice(b"changed");
        }
        let found = scene.store.read_all(&key(&format!("{number}"))).expect("read");
        assert!(found == expected, "{number}");
    }
    scene.assert_sound();
}

#[test]
fn a_compressed_tier_in_a_pool_gives_back_what_it_got() {
    let scene =
        Scene::new(|settings| format!("{FAST}{}", section(settings, "compress = \"zstd:3\"\n")));
    let data = vec![7; 3 << 20];
    put(&scene.store, "even", &data);
    scene.migrate(&key("even"), SLOW);
    assert!(scene.store.read_all(&key("even")).expect("read") == data);
    let name = scene.pool().list_all("seg", "").expect("listed").remove(0);
    assert!(scene.pool().stat(&name).expect("there").size_bytes < 100_000);
    scene.assert_sound();
}

#[test]
fn the_pool_survives_the_machine_and_promises_no_takeover() {
    let scene = Scene::two();
    let tiers = scene.store.admin().tiers().expect("listed");
    assert_eq!(tiers[1].persistency, "shared");
    assert_eq!(tiers[1].writes, "in-place");
    assert_eq!(tiers[1].target, scene.settings.target());
    assert_eq!(scene.store.capability().persistency, Persistency::Storage);
    let at_level = terrace_core::Semantics::at_level(Persistency::Shared);
    let how = Open::create().with_semantics(at_level);
    let error = scene.store.open(&key("a"), &how).err().expect("there is no log in a bucket");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
}

#[test]
fn the_level_shared_needs_a_copy_in_a_bucket() {
    let server = S3Server::start();
    let keys = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    std::fs::write(keys.path(), text).expect("written");
    let scene = Scene::new(|settings| {
        format!(
            "{}[[tier]]\nname = \"bucket\"\nbackend = \"s3\"\nbucket = \"{BUCKET}\"\n\
             endpoint = \"{}\"\nregion = \"{REGION}\"\ncredentials = \"{}\"\n",
            section(settings, ""),
            server.endpoint(),
            keys.path().display()
        )
    });
    let at_level = terrace_core::Semantics::at_level(Persistency::Shared);
    let how = Open::create().with_semantics(at_level);
    let object = scene.store.open(&key("a"), &how).expect("opens");
    object.write(0, &[7; 10_000]).expect("written");
    object.sync().expect("synced");
    let report = scene.store.stack().expect("it is here").explain(&key("a")).expect("exists");
    assert_eq!(report.segments[0].tier, "cold");
    // A machine that takes over has what is in the bucket, and not the pool.
    assert_eq!(report.segments[0].copies, ["bucket"]);
}

#[test]
fn a_namespace_that_is_in_use_is_refused() {
    let scene = Scene::two();
    let init = |settings: &RadosSettings| {
        let home = TempDir::new().expect("a directory");
        let text = format!("{FAST}{}{CATALOG}", section(settings, ""));
        let error = Store::init(&home.path().join("store"), &text).expect_err("refused");
        assert!(!home.path().join("store/terrace.toml").exists());
        error
    };
    let error = init(&scene.settings);
    assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
    assert!(error.chain().contains("a tier of a store"), "{}", error.chain());
    let foreign = settings();
    let pool = Rados::open(&foreign, u64::MAX, false).expect("opened");
    pool.write_all(&key("foreign"), b"bytes").expect("written");
    let error = init(&foreign);
    assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
    assert!(error.chain().contains("another `namespace`"), "{}", error.chain());
    assert_eq!(pool.read_all(&key("foreign")).expect("it stays"), b"bytes");
    // A store that cannot be made leaves nothing.
    let unmade = settings();
    let home = TempDir::new().expect("a directory");
    let text = format!(
        "{}{}{CATALOG}",
        section(&unmade, ""),
        section(&unmade, "").replace("cold", "twin")
    );
    let error = Store::init(&home.path().join("store"), &text).expect_err("one namespace twice");
    assert_ne!(error.kind(), ErrorKind::Io, "{}", error.chain());
    let pool = Rados::open(&unmade, u64::MAX, true).expect("opened");
    assert!(pool.is_empty().expect("asked"));
}
