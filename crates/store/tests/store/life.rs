// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From init to close, and who may have a store when.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

use terrace_recovery::Source;
use terrace_settings::Settings;
use terrace_store::{
    Access, Backend, BackendExt, Error, ErrorKind, ObjectExt, Open, OpenOptions, Persistency,
    PolicySource, Store,
};

use crate::scene::{POLICY, Scene, TIERS, files, key};

#[test]
fn what_was_written_is_there_after_opening_again() {
    let scene = Scene::new();
    let store = scene.open();
    assert!(!store.is_attached() && store.stack().is_some());
    store.write_all(&key("a/x"), b"hello").expect("room");
    store.kv_put("a", b"pair", b"value", Persistency::Process).expect("room");
    store.close().expect("it closes");
    drop(store);

    let store = scene.open();
    assert_eq!(store.opening_notes(), Vec::<String>::new());
    assert_eq!(store.read_all(&key("a/x")).expect("kept"), b"hello");
    assert_eq!(store.kv_get("a", b"pair").expect("kept").as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_store_that_is_dropped_is_closed() {
    let scene = Scene::new();
    scene.open().write_all(&key("a/x"), b"hello").expect("room");
    let store = scene.open();
    assert_eq!(store.opening_notes(), Vec::<String>::new());
    assert_eq!(store.read_all(&key("a/x")).expect("kept"), b"hello");
}

#[test]
fn there_is_room_for_descriptors_before_they_are_used() {
    let scene = Scene::new();
    let _store = scene.open();
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("it is told");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let least = limit.unwrap_or(u64::MAX).min(16 << 10);
    assert!(room.trim().parse::<u64>().expect("a number") >= least, "{room}");
}

#[test]
fn an_address_may_have_its_scheme() {
    let scene = Scene::new();
    let store = Store::open(&format!("terrace+dir:{}", scene.address())).expect("it opens");
    assert_eq!(store.admin().tiers().expect("healthy").len(), 2);
}

#[test]
fn the_example_settings_make_a_store() {
    let scene = Scene::with(&Settings::example());
    let store = scene.open();
    assert_eq!(store.admin().policy().expect("readable").expect("it has one").name, "lru");
}

#[test]
fn init_refuses_what_is_there_and_changes_nothing() {
    let scene = Scene::new();
    let before = files(&scene.store_directory());
    let error = Store::init(&scene.store_directory(), TIERS).expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert_eq!(files(&scene.store_directory()), before);

    let other = Scene::empty();
    std::fs::create_dir_all(other.path("store/fast")).expect("writable");
    std::fs::write(other.path("store/fast/mine"), b"precious").expect("writable");
    let before = files(&other.store_directory());
    let error = Store::init(&other.store_directory(), TIERS).expect_err("not empty");
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert!(error.to_string().contains("store/fast"), "{error}");
    assert_eq!(files(&other.store_directory()), before);
}

#[test]
fn init_leaves_nothing_behind_when_it_fails() {
    for (settings, kind) in [
        ("[[tier]]\nname = \"t\"", ErrorKind::Invalid),
        (
            "[[tier]]\nname = \"t\"\npath = \"t\"\n[[tier]]\nname = \"u\"\npath = \"../file/u\"\n",
            ErrorKind::Invalid,
        ),
        (
            "[[tier]]\nname = \"t\"\npath = \"t\"\n[[tier]]\nname = \"u\"\npath = \"../taken\"\n",
            ErrorKind::Exists,
        ),
    ] {
        let scene = Scene::empty();
        std::fs::write(scene.path("file"), b"").expect("writable");
        std::fs::create_dir(scene.path("taken")).expect("writable");
        std::fs::write(scene.path("taken/mine"), b"precious").expect("writable");
        let before = files(&scene.path(""));
        let error = Store::init(&scene.store_directory(), settings).expect_err(settings);
        assert_eq!(error.kind(), kind, "{}", error.chain());
        assert_eq!(files(&scene.path("")), before);
    }
}

/// Has several make a store at the same time, `settings` of each; the stores that were made.
fn made_at_once(scene: &Scene, settings: impl Fn(usize) -> String + Sync) -> Vec<PathBuf> {
    const AT_ONCE: usize = 4;
    let barrier = Barrier::new(AT_ONCE);
    let make = |index: usize| {
        let directory = scene.path(&format!("store{index}"));
        barrier.wait();
        match Store::init(&directory, &settings(index)) {
            Ok(()) => Some(directory),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Exists | ErrorKind::Busy), "{error}");
                assert!(!directory.join("terrace.toml").exists());
                None
            }
        }
    };
    thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = (0..AT_ONCE).map(|index| scope.spawn(move || make(index))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn who_makes_a_store_of_the_directories_of_another_one_leaves_that_whole() {
    for round in 0_usize..40 {
        let scene = Scene::empty();
        let shared: &[&str] = [&["tier"][..], &["catalog"], &["tier", "catalog"]][round % 3];
        // Both as new ones and as empty ones.
        for name in shared.iter().filter(|_| round.is_multiple_of(2)) {
            std::fs::create_dir(scene.path(name)).expect("made");
        }
        let made = made_at_once(&scene, |index| {
            let of = |name: &str| match shared.contains(&name) {
                true => scene.path(name),
                false => scene.path(&format!("{name}{index}")),
            };
            format!(
                "[catalog]\npath = \"{}\"\n[[tier]]\nname = \"fast\"\npath = \"{}\"\n\
                 capacity = \"64MiB\"\n",
                of("catalog").display(),
                of("tier").display()
            )
        });
        assert!(made.len() <= 1, "{made:?}");
        for directory in made {
            let store = Store::open(directory.to_str().expect("UTF-8")).expect("it is whole");
            store.write_all(&key("a/x"), b"hello").expect("room");
        }
    }
}

#[test]
fn tiers_that_are_new_file_systems_are_taken() {
    let scene = Scene::empty();
    std::fs::create_dir_all(scene.path("store/fast/lost+found")).expect("writable");
    Store::init(&scene.store_directory(), TIERS).expect("as good as empty");
    scene.open().write_all(&key("a/x"), b"hello").expect("room");
    assert!(scene.path("store/fast/lost+found").is_dir());
}

#[test]
fn a_directory_without_a_store_is_not_found() {
    let scene = Scene::empty();
    for address in [scene.address(), scene.path("").display().to_string()] {
        let error = Store::open(&address).err().expect("none there");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("terrace init"), "{error}");
    }
    assert_eq!(files(&scene.path("")), []);
}

fn busy(result: Result<Store, Error>) -> String {
    let error = result.err().expect("somebody has it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    error.chain()
}

#[test]
fn only_one_owns_a_store() {
    let scene = Scene::new();
    let mut attached = scene.attached();
    let own = || OpenOptions { attach: false, ..OpenOptions::default() };
    let options = [
        own(),
        OpenOptions { dry_run: Some(true), ..OpenOptions::default() },
        OpenOptions { policy_wrapper: Some(Box::new(|policy| policy)), ..OpenOptions::default() },
    ];
    for options in options {
        let text = busy(Store::open_with(&scene.address(), options));
        assert!(text.contains(&std::process::id().to_string()), "{text}");
    }
    assert_eq!(
        attached.serve(&AtomicBool::new(true)).expect_err("attached").kind(),
        ErrorKind::Busy
    );
    attached.close().expect("nothing to do");
    attached.write_all(&key("a/x"), b"still open").expect("room");
    attached.stop();
    drop(attached);
    let store = Store::open_with(&scene.address(), own()).expect("free again");
    assert_eq!(store.read_all(&key("a/x")).expect("kept"), b"still open");
}

/// It may be about to end when it is asked.
#[test]
fn who_wants_a_store_for_itself_waits_for_an_owner_that_ends() {
    let scene = Scene::new();
    for round in 0..6 {
        let mut attached = scene.attached();
        attached.write_all(&key("a/x"), b"kept").expect("room");
        thread::scope(|scope| {
            let address = scene.address();
            let (begun, begins) = std::sync::mpsc::channel();
            let other = scope.spawn(move || {
                begun.send(()).expect("it is waited for");
                let options = OpenOptions { attach: false, ..OpenOptions::default() };
                match round % 2 {
                    0 => Store::open_with(&address, options).map(drop),
                    _ => {
                        let source = Source::PresentCatalog;
                        terrace_recovery::rebuild(&address, source, false, &mut |_, _| {}).map(drop)
                    }
                }
            });
            begins.recv().expect("it begins");
            attached.stop();
            drop(attached);
            other.join().expect("no panic").expect("it gets it");
        });
    }
}

#[test]
fn the_socket_belongs_to_the_user_and_goes_with_the_owner() {
    let scene = Scene::new();
    let socket = scene.store_directory().join("control.sock");
    // Left behind by an owner that was killed.
    drop(UnixListener::bind(&socket).expect("a new socket"));
    let mut attached = scene.attached();
    let mode = socket.metadata().expect("it is served").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    attached.admin().tiers().expect("it answers");
    attached.stop();
    drop(attached);
    assert!(!socket.exists());
}

#[test]
fn long_paths_can_be_attached_to() {
    let scene = Scene::empty();
    let directory = scene.path(&"long/".repeat(60));
    Store::init(&directory, TIERS).expect("it can be made");
    let owner = Store::open(directory.to_str().expect("UTF-8")).expect("it opens");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| owner.serve(&stop).expect("it serves"));
        let attached = Store::open(directory.to_str().expect("UTF-8")).expect("it attaches");
        assert!(attached.is_attached());
        assert_eq!(attached.admin().tiers().expect("it answers").len(), 2);
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

#[test]
fn calls_to_an_owner_that_has_gone_fail_and_do_not_hang() {
    let scene = Scene::new();
    let mut attached = scene.attached();
    attached.write_all(&key("a/x"), b"hello").expect("room");
    let object = attached.open(&key("a/x"), &Open::read()).expect("it is there");
    attached.stop();
    let unreachable = |error: Error| {
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{}", error.chain());
    };
    unreachable(attached.stat(&key("a/x")).expect_err("nobody answers"));
    unreachable(attached.admin().tiers().expect_err("nobody answers"));
    unreachable(object.read(0, &mut [0; 5]).expect_err("nobody answers"));
    assert_eq!(attached.owner.read_all(&key("a/x")).expect("kept"), b"hello");
}

#[test]
fn objects_of_an_attached_process_are_closed_with_it() {
    let scene = Scene::new();
    let attached = scene.attached();
    attached.write_all(&key("a/x"), b"hello").expect("room");
    let opens = || attached.owner.admin().explain(&key("a/x")).expect("it is there").opens;
    let object = attached.open(&key("a/x"), &Open::write()).expect("it is there");
    assert_eq!(opens(), 1);
    drop(object);
    // Behind what the object told when it was closed.
    attached.stat(&key("a/x")).expect("it is there");
    assert_eq!(opens(), 0);

    let second = scene.open();
    assert!(second.is_attached());
    // As if the process had been killed: nobody says that the object is closed.
    std::mem::forget(second.open(&key("a/x"), &Open::write()).expect("it is there"));
    drop(second);
    assert_eq!(attached.read_all(&key("a/x")).expect("kept"), b"hello");
}

#[test]
fn many_threads_use_one_attached_store() {
    const THREADS: u8 = 8;
    let scene = Scene::new();
    let attached = scene.attached();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store: &Store = &attached;
            scope.spawn(move || {
                for round in 0..20 {
                    let key = key(&format!("a/{thread}-{round}"));
                    let data = vec![thread; 3000];
                    store.write_all(&key, &data).expect("room");
                    assert_eq!(store.read_all(&key).expect("just written"), data);
                }
            });
        }
    });
    assert_eq!(attached.list_all("a", "").expect("readable").len(), usize::from(THREADS) * 20);
}

#[test]
fn a_store_that_is_open_for_reading_changes_nothing() {
    let scene = Scene::new();
    scene.open().write_all(&key("a/x"), b"hello").expect("room");
    let store = scene.open_for_reading().expect("healthy");
    assert_eq!(store.read_all(&key("a/x")).expect("kept"), b"hello");
    let policy = store.admin().policy().expect("readable").expect("it has one");
    assert_eq!(policy.name, "pinned");
    assert!(!policy.parameters.is_empty());
    let denied = |error: Error| assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    denied(store.write_all(&key("a/y"), b"").expect_err("read-only"));
    denied(store.delete(&key("a/x")).expect_err("read-only"));
    denied(store.admin().pin(&key("a/x")).expect_err("read-only"));
    denied(store.kv_put("a", b"k", b"v", Persistency::Process).expect_err("read-only"));
    denied(store.admin().set_policy(&PolicySource::named("lru"), &[]).expect_err("read-only"));
    denied(store.admin().set_parameter("tier", "slow").expect_err("read-only"));
    denied(store.admin().set_dry_run(true).expect_err("read-only"));
    denied(store.admin().set_calls(Some(5), None).expect_err("read-only"));
    denied(store.admin().run_policy().expect_err("read-only"));
    denied(store.serve(&AtomicBool::new(true)).expect_err("read-only"));
    store.close().expect("nothing to do");
    drop(store);
    assert_eq!(scene.open().read_all(&key("a/x")).expect("kept"), b"hello");
}

#[test]
fn a_store_without_a_policy_has_none() {
    let scene = Scene::with(TIERS);
    assert_eq!(scene.open().admin().policy().expect("readable"), None);
    assert_eq!(scene.attached().admin().policy().expect("readable"), None);
    let store = scene.open_for_reading().expect("healthy");
    assert_eq!(store.admin().policy().expect("readable"), None);
}

#[test]
fn a_policy_can_be_watched_and_run_dry() {
    let scene = Scene::with(&format!("{TIERS}{POLICY}"));
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = OpenOptions {
        access: Access::Write,
        dry_run: Some(true),
        policy_wrapper: Some(Box::new(move |policy| {
            sender.send(policy.parameters().len()).expect("the test listens");
            policy
        })),
        ..OpenOptions::default()
    };
    let store = Store::open_with(&scene.address(), options).expect("healthy");
    assert!(receiver.recv().expect("it was wrapped") > 0);
    assert!(store.admin().policy().expect("readable").expect("it has one").is_dry_run);
    drop(store);
    let policy = scene.open().admin().policy().expect("readable").expect("it has one");
    assert!(!policy.is_dry_run, "an option is not kept");
}
