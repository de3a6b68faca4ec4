// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store behind a server, in another process's place: objects, pairs, the control plane, and
//! files that are lent.

use std::sync::Arc;
use std::time::Duration;

use terrace_server::{Limits, Server};
use terrace_store::{
    Backend, BackendExt, ErrorKind, MoveKind, ObjectExt, Open, Persistency, PolicySource,
    Semantics, Store, SystemClock,
};
use terrace_testkit::behaviour_suite;
use terrace_transport::Endpoint;

use crate::scene::{Scene, key};

/// A store, its owner, and its server.
pub(crate) struct Served {
    pub(crate) remote: Store,
    pub(crate) owner: Store,
    pub(crate) scene: Scene,
    server: Server,
}

impl Served {
    pub(crate) fn over_tcp() -> Self {
        Self::over("127.0.0.1:0".parse().expect("legal"), Scene::new())
    }

    pub(crate) fn over_unix() -> Self {
        Self::over_unix_at(Scene::new()).0
    }

    /// Over a Unix socket, with its address for other processes.
    pub(crate) fn over_unix_at(scene: Scene) -> (Self, String) {
        let path = scene.path("serve.sock");
        let address = format!("terrace+unix://{}", path.display());
        (Self::over(Endpoint::Unix(path), scene), address)
    }

    fn over(endpoint: Endpoint, scene: Scene) -> Self {
        let owner = scene.open();
        let service = owner.service().expect("it is owned");
        let clock = Arc::new(SystemClock::default());
        let server = Server::new(service, None, Limits::default(), clock);
        let address = match server.listen(&endpoint).expect("listen") {
            Endpoint::Unix(path) => format!("terrace+unix://{}", path.display()),
            tcp => format!("terrace://{tcp}?secret=none"),
        };
        let remote = Store::open(&address).expect("reach it");
        Self { remote, owner, scene, server }
    }

    /// Ends the server; the owner goes on.
    pub(crate) fn end(&self) {
        self.server.end();
    }
}

behaviour_suite!(over_tcp, {
    let served = Served::over_tcp();
    (Box::new(served.remote.clone()), served)
});

behaviour_suite!(over_unix, {
    let served = Served::over_unix();
    (Box::new(served.remote.clone()), served)
});

/// Reads that the owner saw or was told of.
fn reads(store: &Store, name: &str) -> u64 {
    store.admin().explain(&key(name)).expect("it is there").ledger.reads
}

#[test]
fn a_lent_file_is_read_without_the_server_which_hears_of_it() {
    let served = Served::over_unix();
    served.owner.write_all(&key("a/x"), b"before").expect("room");
    let object = served.remote.open(&key("a/x"), &Open::read()).expect("opens");
    let mut data = [0; 6];
    for _ in 0..1000 {
        object.read_exact(0, &mut data).expect("reads");
    }
    drop(object);
    assert_eq!(&data, b"before");
    // Behind what the object told when it was closed.
    served.remote.stat(&key("a/x")).expect("it is there");
    // All of them, although the server carried out none or few.
    assert_eq!(reads(&served.owner, "a/x"), 1000);
}

#[test]
fn a_reader_of_a_lent_file_follows_its_object() {
    let served = Served::over_unix();
    let (remote, owner) = (&served.remote, &served.owner);
    owner.write_all(&key("a/x"), b"before").expect("room");
    let object = remote.open(&key("a/x"), &Open::read()).expect("opens");
    let read = || {
        let mut data = [0; 6];
        object.read(0, &mut data).map(|count| data[..count].to_vec())
    };
    assert_eq!(read().expect("reads"), b"before");
    for ticket in
        owner.admin().migrate(&key("a/x"), "slow", MoveKind::Move, 0, "test").expect("queued")
    {
        owner.admin().wait(ticket, Duration::from_secs(30)).expect("known").expect("ends");
    }
    owner.write_all(&key("a/x"), b"after!").expect("writes");
    for _ in 0..200 {
        assert_eq!(read().expect("reads"), b"after!", "stale bytes of the tier it left");
    }
    remote.open(&key("a/x"), &Open::write()).expect("opens").set_len(3).expect("cut");
    assert_eq!(read().expect("reads"), b"aft");
    owner.delete(&key("a/x")).expect("deletes");
    owner.write_all(&key("a/x"), b"other!").expect("made anew");
    // What the deleted object held, or that it is not there: never the other's.
    for _ in 0..200 {
        match read() {
            Ok(data) => assert_eq!(data, b"aft"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
    }
}

#[test]
fn files_that_are_lent_to_many_threads_at_once_are_not_mixed_up() {
    let served = Served::over_unix();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let remote = &served.remote;
            scope.spawn(move || {
                // A lease is asked for with the first read of each handle.
                let key = key(&format!("a/{thread}"));
                remote.write_all(&key, &[thread; 100]).expect("room");
                for _ in 0..500 {
                    let object = remote.open(&key, &Open::read()).expect("opens");
                    let mut data = [0xff; 100];
                    object.read_exact(0, &mut data).expect("reads");
                    assert_eq!(data, [thread; 100], "another object's bytes");
                }
            });
        }
    });
}

#[test]
fn the_control_plane_is_reached_through_a_server() {
    let served = Served::over_tcp();
    let remote = &served.remote;
    remote.write_all(&key("a/x"), b"bytes").expect("room");
    assert_eq!(remote.admin().tiers().expect("tells").len(), 2);
    remote.admin().pin(&key("a/x")).expect("pins");
    assert!(remote.admin().explain(&key("a/x")).expect("tells").is_pinned);
    remote.admin().unpin(&key("a/x")).expect("unpins");
    let tickets =
        remote.admin().migrate(&key("a/x"), "slow", MoveKind::Move, 0, "test").expect("queued");
    for ticket in tickets {
        let ended =
            remote.admin().wait(ticket, Duration::from_secs(30)).expect("known").expect("ends");
        assert_eq!(ended.outcome.as_deref(), Some("done"));
    }
    let report = remote.admin().check(true, &mut |_, _| true).expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    remote.kv_put("n", b"k", b"v", Persistency::Storage).expect("puts");
    assert_eq!(remote.kv_get("n", b"k").expect("gets").as_deref(), Some(&b"v"[..]));
    assert_eq!(remote.kv_scan("n", b"", None, 10).expect("scans").len(), 1);
    assert!(remote.kv_remove("n", b"k", Persistency::Process).expect("removes"));
}

#[test]
fn files_can_be_checked_however_many_findings_there_are() {
    let served = Served::over_tcp();
    let places: Vec<_> = (0..100_000).map(|number| format!("files/{number:016x}")).collect();
    let reports =
        served.remote.admin().check_files(&places, &mut |_, _| true).expect("they are checked");
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn what_concerns_files_of_the_server_is_refused() {
    let served = Served::over_tcp();
    let file = served.scene.path("backup");
    let refused =
        served.remote.admin().backup(&file, false, &mut |_, _| true).expect_err("not from here");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(!file.exists());
    let refused = served
        .remote
        .admin()
        .set_policy(&PolicySource::named("/tmp/policy.so"), &[])
        .expect_err("not from here");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    let refused =
        served.remote.admin().add_tier("[[tier]]\nname=\"x\"\n", None).expect_err("not from here");
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

#[test]
fn a_process_of_the_same_machine_may_name_its_files() {
    let served = Served::over_unix();
    for store in [&served.remote, &served.scene.open()] {
        assert!(store.is_attached());
        let file = served.scene.path("backup");
        store.admin().backup(&file, true, &mut |_, _| true).expect("the same files");
        assert!(file.exists());
        let refused = store
            .admin()
            .set_policy(&PolicySource::named("/tmp/none.so"), &[])
            .expect_err("there is none");
        assert_ne!(refused.kind(), ErrorKind::Denied, "{}", refused.chain());
    }
}

#[test]
fn a_session_for_reading_changes_nothing() {
    let served = Served::over_unix();
    let address = format!("terrace+unix://{}", served.scene.path("serve.sock").display());
    let options = terrace_store::OpenOptions {
        access: terrace_store::Access::Read,
        ..terrace_store::OpenOptions::default()
    };
    let reader = Store::open_with(&address, options).expect("reach it");
    served.owner.write_all(&key("a/x"), b"bytes").expect("room");
    assert_eq!(reader.read_all(&key("a/x")).expect("reads"), b"bytes");
    for refused in [
        reader.delete(&key("a/x")).expect_err("for reading"),
        reader.write_all(&key("a/y"), b"").expect_err("for reading"),
        reader.admin().pin(&key("a/x")).expect_err("for reading"),
        reader.kv_put("n", b"k", b"v", Persistency::Process).expect_err("for reading"),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    }
}

#[test]
fn whole_operations_are_whole_over_the_network() {
    let served = Served::over_tcp();
    let whole: Semantics = "posix".parse().expect("known");
    let key = key("a/whole");
    let bytes = 3 << 20;
    let how = Open::create().with_semantics(whole);
    served.remote.open(&key, &how).expect("opens").write(0, &vec![0; bytes]).expect("room");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let object = served.remote.open(&key, &how).expect("opens");
            for round in 1..20 {
                object.write(0, &vec![round; bytes]).expect("writes");
            }
        });
        let object = served.remote.open(&key, &Open::read().with_semantics(whole)).expect("opens");
        let mut data = vec![0; bytes];
        while !writer.is_finished() {
            object.read_exact(0, &mut data).expect("reads");
            assert!(data.iter().all(|byte| *byte == data[0]), "a part of a write was seen");
        }
    });
}

#[test]
fn many_pairs_change_with_one_commit_wherever_they_are() {
    let served = Served::over_tcp();
    let attached = served.scene.open();
    assert!(attached.is_attached());
    for store in [&served.owner, &served.remote, &attached] {
        let changes: [(&[u8], Option<&[u8]>); 3] =
            [(b"one", Some(b"1")), (b"two", Some(b"2")), (b"none", None)];
        assert_eq!(store.kv_apply("many", &changes, Persistency::Process).expect("room"), 0);
        let keys: [&[u8]; 3] = [b"two", b"none", b"one"];
        let values = store.kv_get_many("many", &keys).expect("reads");
        assert_eq!(values, [Some(b"2".to_vec()), None, Some(b"1".to_vec())]);
        // A key that cannot be is refused with everything beside it.
        let wrong: [(&[u8], Option<&[u8]>); 2] = [(b"one", None), (b"", Some(b"3"))];
        let error = store.kv_apply("many", &wrong, Persistency::Process).expect_err("empty");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let removed: [(&[u8], Option<&[u8]>); 2] = [(b"one", None), (b"two", None)];
        assert_eq!(store.kv_apply("many", &removed, Persistency::None).expect("removes"), 2);
    }
}
