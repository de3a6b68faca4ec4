// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who watches a store is told what happens in it, whichever process owns it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use terrace_store::{
    Access, Backend, BackendExt, ErrorKind, Happening, MigrationNotice, MoveKind, Notice,
    NoticeKind, ObjectExt, Open, OpenOptions, PolicySource, Result, Seen, Store, WatchFilter,
};

use crate::scene::{Scene, key};
use crate::served::Served;

/// Longest wait for anything, so that a bug is no endless wait.
const TIME_MAX: Duration = Duration::from_secs(60);

/// What a watcher of `store` is told until `is_over`; `begun` is called when it watches.
fn see(
    store: &Store,
    filter: &WatchFilter,
    begun: impl Fn(),
    is_over: impl Fn(&Notice) -> bool,
) -> Result<Vec<Notice>> {
    let mut notices = Vec::new();
    let watched = store.admin().watch(filter, &mut |seen| {
        match seen {
            Seen::Begun => begun(),
            Seen::Nothing => {}
            Seen::Notice(notice) => notices.push(*notice),
        }
        !notices.last().is_some_and(&is_over)
    });
    watched.map(|()| notices)
}

/// What a watcher of `store` is told from before `act` until `is_over`.
#[track_caller]
fn watch(
    store: &Store,
    filter: &WatchFilter,
    act: impl FnOnce(),
    is_over: impl Fn(&Notice) -> bool + Send,
) -> Vec<Notice> {
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let begun = move || begun.send(()).expect("the test waits");
        let watching = scope.spawn(move || see(store, filter, begun, is_over));
        has_begun.recv_timeout(TIME_MAX).expect("it begins");
        act();
        watching.join().expect("no panic").unwrap_or_else(|error| panic!("{}", error.chain()))
    })
}

fn of(kinds: &[NoticeKind]) -> WatchFilter {
    WatchFilter { kinds: kinds.into(), ..WatchFilter::default() }
}

fn migration(notice: &Notice) -> &MigrationNotice {
    match &notice.what {
        Happening::Migration(migration) => migration,
        other => panic!("{other:?}"),
    }
}

fn has_ended(notice: &Notice) -> bool {
    matches!(&notice.what, Happening::Migration(one) if one.state == "ended")
}

#[track_caller]
fn migrate(store: &Store, name: &str, to: &str) {
    for ticket in
        store.admin().migrate(&key(name), to, MoveKind::Move, 0, "a test").expect("queued")
    {
        store.admin().wait(ticket, TIME_MAX).expect("known").expect("ends");
    }
}

/// The same for every way to a store.
fn everywhere(test: impl Fn(&Store)) {
    let scene = Scene::new();
    test(&scene.open());
    let scene = Scene::new();
    test(&scene.attached());
    test(&Served::over_tcp().remote);
    test(&Served::over_unix().remote);
}

#[test]
fn a_migration_is_told_from_its_beginning_to_its_end() {
    everywhere(|store| {
        store.write_all(&key("a/x"), &[7; 100_000]).expect("room");
        let notices =
            watch(store, &WatchFilter::default(), || migrate(store, "a/x", "slow"), has_ended);
        let states: Vec<_> = notices.iter().map(|notice| &*migration(notice).state).collect();
        assert_eq!(
            (states[0], states[1], states[states.len() - 1]),
            ("queued", "started", "ended")
        );
        assert!(notices.iter().map(|notice| notice.number).eq(1..=notices.len() as u64));
        assert!(notices.is_sorted_by_key(|notice| notice.wall_ns));
        for one in notices.iter().map(migration) {
            assert_eq!((&*one.key, &*one.from, &*one.to), ("a/x", "fast", "slow"));
            assert_eq!((&*one.by, &*one.reason, &*one.action), ("user", "a test", "move"));
            assert_eq!(one.size_bytes, 100_000);
            assert_eq!(one.outcome.is_some(), one.state == "ended");
        }
        let ended = migration(notices.last().expect("there are some"));
        assert_eq!(ended.outcome.as_deref(), Some("done"));
        assert_eq!(ended.copied_bytes, 100_000);
        assert!(ended.duration_ns.is_some_and(|took_ns| took_ns > 0));
        assert!(ended.modelled_energy_j.is_some());
    });
}

#[test]
fn a_filter_lets_through_what_it_names() {
    everywhere(|store| {
        for name in ["a/x1", "a/y1", "b/x1", "a/x2"] {
            store.write_all(&key(name), b"bytes").expect("room");
        }
        let filter = WatchFilter {
            namespace: Some("a".into()),
            prefix: "x".into(),
            ..of(&[NoticeKind::Migration])
        };
        let act = || {
            store.admin().set_dry_run(true).expect("changes the policy");
            for name in ["a/y1", "a/x1", "b/x1", "a/x2"] {
                migrate(store, name, "slow");
            }
        };
        let is_last = |notice: &Notice| has_ended(notice) && migration(notice).key == "a/x2";
        let notices = watch(store, &filter, act, is_last);
        let mut keys: Vec<_> = notices.iter().map(|notice| &*migration(notice).key).collect();
        keys.dedup();
        assert_eq!(keys, ["a/x1", "a/x2"]);
        assert!(notices.iter().map(|notice| notice.number).eq(1..=notices.len() as u64));
    });
}

#[test]
fn tiers_and_policies_are_told_of() {
    everywhere(|store| {
        store.write_all(&key("a/x"), b"bytes").expect("room");
        let act = || {
            store.admin().set_policy(&PolicySource::named("lru"), &[]).expect("is known");
            store.admin().set_parameter("idle", "5min").expect("is known");
            store.admin().set_dry_run(true).expect("changes");
            store.admin().set_calls(Some(77), None).expect("changes");
            store.admin().drain_tier("slow").expect("the other takes data");
        };
        let is_drained = |notice: &Notice| matches!(&notice.what, Happening::Tier(tier) if tier.state == "drained");
        let notices = watch(store, &of(&[NoticeKind::Tier, NoticeKind::Policy]), act, is_drained);
        let told: Vec<String> = notices
            .iter()
            .map(|notice| match &notice.what {
                Happening::Tier(one) => format!("{} {}", one.tier, one.state),
                Happening::Policy(one) => format!("{} {}: {}", one.name, one.change, one.detail),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            told,
            [
                "lru policy: ",
                "lru parameter: idle=5min",
                "lru dry-run: on",
                "lru calls: after 77 events, every 3600s",
                "slow draining",
                "slow drained",
            ]
        );
    });
}

#[test]
fn a_tier_that_becomes_full_is_told_of_and_when_it_is_roomy_again() {
    let scene = Scene::new();
    let store = scene.open();
    let is = |state: &'static str| move |notice: &Notice| matches!(&notice.what, Happening::Tier(one) if one.state == state);
    let filter = of(&[NoticeKind::Tier]);
    let fill = || {
        // The tier holds 64 MiB.
        for number in 0..16 {
            store.write_all(&key(&format!("a/{number}")), &vec![1; 4 << 20]).expect("room");
        }
    };
    let full = watch(&store, &filter, fill, is("full"));
    assert!(matches!(&full[0].what, Happening::Tier(one) if one.tier == "fast"), "{full:?}");
    let clear = || {
        for number in 0..16 {
            store.delete(&key(&format!("a/{number}"))).expect("it is there");
        }
    };
    let roomy = watch(&store, &filter, clear, is("roomy"));
    assert!(matches!(&roomy[0].what, Happening::Tier(one) if one.tier == "fast"), "{roomy:?}");
}

#[test]
fn events_are_told_to_who_asks_for_them() {
    everywhere(|store| {
        let act = || {
            store.write_all(&key("a/x"), b"bytes").expect("room");
            store.write_all(&key("b/x"), b"bytes").expect("room");
            store.read_all(&key("a/x")).expect("reads");
            store.delete(&key("a/x")).expect("deletes");
            store.admin().run_policy().expect("sees all of it");
        };
        let has_delete = |notice: &Notice| match &notice.what {
            Happening::Events(events) => events.events.iter().any(|one| one.event == "delete"),
            _ => false,
        };
        let filter = WatchFilter { namespace: Some("a".into()), ..of(&[NoticeKind::Events]) };
        let notices = watch(store, &filter, act, has_delete);
        let events: Vec<_> = notices
            .iter()
            .flat_map(|notice| match &notice.what {
                Happening::Events(events) => &events.events[..],
                other => panic!("{other:?}"),
            })
            .collect();
        let words: Vec<_> = events.iter().map(|one| &*one.event).collect();
        for word in ["create", "open", "write", "read", "close", "delete"] {
            assert!(words.contains(&word), "{word} is missing: {words:?}");
        }
        assert!(events.iter().all(|one| one.key == "a/x" && one.tier == "fast"), "{events:?}");
        let written: u64 =
            events.iter().filter(|one| one.event == "write").map(|one| one.length_bytes).sum();
        assert_eq!(written, 5);
    });
}

/// Numbers and losses add up: nothing is missing that was not told to be.
fn assert_complete(notices: &[Notice]) -> u64 {
    let (mut last, mut lost) = (0, 0);
    for notice in notices {
        let step = match notice.what {
            Happening::Lost { count } => {
                lost += count;
                count
            }
            _ => 1,
        };
        assert_eq!(notice.number, last + step, "{:?}", notice.what.kind());
        last = notice.number;
    }
    lost
}

#[test]
fn a_watcher_that_does_not_read_loses_notices_and_holds_up_nobody() {
    let served = Served::over_tcp();
    let store = &served.remote;
    served.owner.write_all(&key("a/x"), b"bytes").expect("room");
    let filter = of(&[NoticeKind::Events, NoticeKind::Policy]);
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let begun = move || {
            begun.send(()).expect("the test waits");
            may_go_on.recv().expect("the test goes on");
        };
        let is_policy = |notice: &Notice| matches!(notice.what, Happening::Policy(_));
        let watching = scope.spawn(move || see(store, &filter, begun, is_policy));
        has_begun.recv_timeout(TIME_MAX).expect("it begins");
        let object = served.owner.open(&key("a/x"), &Open::read()).expect("it is there");
        // Of 256 bytes each in the queue, and about as many on the wire: more than fits both.
        for round in 0..100 {
            for _ in 0..2000 {
                object.read(round % 5, &mut [0; 1]).expect("nobody waits");
            }
            served.owner.admin().run_policy().expect("nobody waits");
        }
        served.owner.admin().set_dry_run(true).expect("nobody waits");
        go_on.send(()).expect("it waits");
        let notices = watching.join().expect("no panic").expect("it goes on");
        assert!(assert_complete(&notices) > 0, "all of {} came through", notices.len());
    });
}

#[test]
fn several_watch_and_see_the_same() {
    let scene = Scene::new();
    let attached = scene.attached();
    attached.write_all(&key("a/x"), b"bytes").expect("room");
    let filter = WatchFilter::default();
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let watching: Vec<_> = [&attached.owner, &*attached, &*attached]
            .into_iter()
            .map(|store| {
                let (begun, filter) = (begun.clone(), &filter);
                let begun = move || begun.send(()).expect("the test waits");
                scope.spawn(move || see(store, filter, begun, has_ended).expect("it is told"))
            })
            .collect();
        for _ in 0..3 {
            has_begun.recv_timeout(TIME_MAX).expect("it begins");
        }
        migrate(&attached, "a/x", "slow");
        let told: Vec<_> = watching.into_iter().map(|one| one.join().expect("no panic")).collect();
        assert!(told[0] == told[1] && told[1] == told[2], "{told:?}");
    });
}

#[test]
fn who_may_only_read_may_watch() {
    let scene = Scene::new();
    let owner = scene.open();
    owner.write_all(&key("a/x"), b"bytes").expect("room");
    let options = OpenOptions { access: Access::Read, ..OpenOptions::default() };
    let reader = Store::open_with(&scene.address(), options).expect("it attaches");
    assert!(reader.is_attached());
    let act = || migrate(&owner, "a/x", "slow");
    assert!(!watch(&reader, &WatchFilter::default(), act, has_ended).is_empty());
}

/// How a watching ends whose store goes away.
fn ends_with(store: &Store, end: impl FnOnce()) -> ErrorKind {
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let begun = move || begun.send(()).expect("the test waits");
        let watching = scope.spawn(move || see(store, &WatchFilter::default(), begun, |_| false));
        has_begun.recv_timeout(TIME_MAX).expect("it begins");
        end();
        watching.join().expect("no panic").expect_err("it has gone").kind()
    })
}

#[test]
fn the_end_of_the_store_ends_the_watching_with_an_error() {
    let unreachable = |kind| assert!(matches!(kind, ErrorKind::Unreachable { .. }), "{kind:?}");
    let scene = Scene::new();
    let store = scene.open();
    unreachable(ends_with(&store, || store.close().expect("it closes")));
    let scene = Scene::new();
    let (owner, attached) = (scene.open(), scene.open());
    unreachable(ends_with(&attached, || owner.close().expect("it closes")));
    let served = Served::over_tcp();
    unreachable(ends_with(&served.remote, || served.end()));
}
