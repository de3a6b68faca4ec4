// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects over several servers that are replaced as a whole.

use std::sync::Arc;

use terrace_backends::object::{Effect, FaultPoint, When};
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_core::{
    Applied, Backend, BackendExt, Create, Error, ErrorKind, ObjectExt, Open, with_object,
};
use terrace_testkit::versions::{content, overwrite_beside_readers, overwrites, version_of};

use super::cluster::{EVEN, Server, bytes, how, key, over, put, read_all, servers, striped};
use super::counted::{Counted, Published};
use super::faults::{assert_nothing_is_left, together};

/// More than a put takes.
const STEPS_MAX: u64 = 40;

const UNKNOWN: ErrorKind = ErrorKind::Unreachable { applied: Applied::Unknown };

/// Stripes of which values have many, and reads of 1 MiB not too many.
const COARSE: Distribution = Distribution::RoundRobin { stripe_bytes: 1000 };

fn replace(store: &Striped, data: &[u8]) -> terrace_core::Result<()> {
    let draft = store.draft(&key("a"), &how(Create::IfMissing))?;
    draft.object().write(0, data)?;
    draft.publish().map(drop)
}

/// Nothing but the object, and no room but for that.
fn assert_no_garbage(store: &Striped, servers: &[Server]) {
    assert_eq!(store.collect(0).expect("looks").orphans, []);
    let sizes = store.list_all("test", "").expect("lists");
    let size = |key| store.stat(key).expect("is there").size_bytes;
    let expected: u64 = sizes.iter().map(size).sum();
    assert_eq!(servers.iter().map(Server::used_bytes).sum::<u64>(), expected);
}

#[test]
fn a_put_that_stops_at_any_step_leaves_the_old_value_or_the_new() {
    let (old, new) = (bytes(2, 50), bytes(3, 80));
    let (mut stopped, mut left) = (0, 0);
    for step in 0..STEPS_MAX {
        let (servers, faults) = together();
        let store = striped(&servers, EVEN);
        put(&store, "before", &bytes(1, 50));
        put(&store, "a", &old);
        faults.crash_after(step);
        let replaced = replace(&store, &new);
        stopped += u64::from(faults.has_crashed());
        faults.restart();
        // Another process finds one of them whole.
        let store = striped(&servers, EVEN);
        let found = read_all(&store, &key("a")).expect("it is there");
        assert!(found == new || found == old && replaced.is_err(), "step {step}");
        left += u64::from(!store.collect(0).expect("looks").orphans.is_empty());
        assert_nothing_is_left(&store, &servers);
    }
    assert!(stopped > 10 && stopped < STEPS_MAX, "{stopped} steps");
    // Between the publications of the pieces and that of the head, and until the old pieces are deleted.
    assert!((1..=6).contains(&left), "{left} of {stopped} left pieces");
}

#[test]
fn a_put_that_a_server_refuses_leaves_the_old_value_and_no_garbage() {
    for distribution in [EVEN, Distribution::Progressive { head_bytes: 10, stripe_bytes: 3 }] {
        for point in [FaultPoint::Create, FaultPoint::Write, FaultPoint::Publish] {
            for refusing in 0..3 {
                let servers = servers(3);
                let store = striped(&servers, distribution);
                put(&store, "a", &bytes(1, 50));
                let fault = Effect::Fail(ErrorKind::NoSpace);
                servers[refusing].faults.add(&[point], When::Nth(1), fault);
                let error = replace(&store, &bytes(2, 80)).expect_err("it refuses");
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
                assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(1, 50));
                assert_no_garbage(&store, &servers);
                replace(&store, &bytes(3, 60)).expect("nothing is in its way");
                assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(3, 60));
                assert_no_garbage(&store, &servers);
            }
        }
    }
}

#[test]
fn values_on_one_server_and_on_several_replace_each_other() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    // One of a known size that fits a stripe lies on its home alone.
    for length in [50, 3, 80, 0, 4, 5, 1] {
        store.put(&key("a"), &bytes(length, length.into()), &how(Create::IfMissing)).expect("puts");
        let found = read_all(&store, &key("a")).expect("reads");
        assert_eq!(found, bytes(length, length.into()));
        assert_no_garbage(&store, &servers);
    }
}

#[test]
fn a_key_is_switched_where_its_object_is() {
    let servers = servers(3);
    put(&striped(&servers[..2], EVEN), "a", &bytes(1, 50));
    let member = |(since, server): (usize, &Server)| Member {
        since: since.saturating_sub(1) as u64,
        ..server.member()
    };
    let members = servers.iter().enumerate().map(member).collect();
    let store = over(Map::new(1, members).expect("legal"), EVEN);
    for length in [80, 3] {
        store.put(&key("a"), &bytes(2, length), &how(Create::Never)).expect("replaces");
        assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(2, length));
        assert_eq!(store.list_all("test", "").expect("lists"), [key("a")]);
        assert_no_garbage(&store, &servers);
    }
}

#[test]
fn readers_and_writers_of_several_processes_see_whole_values() {
    let servers = servers(3);
    let stores = [(); 4].map(|()| striped(&servers, COARSE));
    let [first, second, third, fourth] = &stores;
    for writers in [&[first as &dyn Backend][..], &[first, second]] {
        first.put(&key("a"), &content(0), &how(Create::IfMissing)).expect("puts");
        overwrite_beside_readers(
            writers,
            &[third, fourth],
            &key("a"),
            &how(Create::IfMissing),
            overwrites(1000),
            &|_| {},
        );
        assert_no_garbage(first, &servers);
    }
}

#[test]
fn a_handle_with_all_pieces_open_goes_on_or_fails() {
    let servers = servers(3);
    let store = striped(&servers, COARSE);
    store.put(&key("a"), &content(1), &how(Create::IfMissing)).expect("puts");
    let old = store.open(&key("a"), &Open::read()).expect("opens");
    store.put(&key("a"), &content(2), &how(Create::IfMissing)).expect("replaces");
    let error = old.read_to_end().expect_err("main memory forgets what is deleted");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
    let read = with_object(
        || store.open(&key("a"), &Open::read()),
        |object| {
            // Replaced between the open and the read, but not for ever.
            if version_of(&store.read_all(&key("a"))?) < 5 {
                let next = version_of(&store.read_all(&key("a"))?) + 1;
                store.put(&key("a"), &content(next), &how(Create::IfMissing))?;
            }
            object.read_to_end()
        },
    );
    assert_eq!(version_of(&read.expect("reads")), 5);
    assert_eq!(store.stat(&key("a")).expect("stats").size_bytes, content(5).len() as u64);
}

/// A cluster whose servers give `answer` to publications of the object itself, or of its pieces.
fn answering(
    servers: &[Server],
    of_pieces: bool,
    answer: fn(&dyn terrace_core::Draft) -> Published,
) -> Striped {
    let member = |server: &Server| {
        let member = server.member();
        let counted = Counted::new(member.backend);
        counted.publish_by(Arc::new(move |draft, object| {
            ((*object != key("a")) == of_pieces).then(|| answer(draft))
        }));
        Member { backend: Arc::new(counted), ..member }
    };
    over(Map::new(0, servers.iter().map(member).collect()).expect("legal"), EVEN)
}

fn unknown() -> Published {
    Err(Error::new(UNKNOWN, "publish a draft"))
}

#[test]
fn a_publication_without_an_answer_is_found_by_its_label() {
    let servers = servers(3);
    put(&striped(&servers, EVEN), "a", &bytes(1, 50));
    let store = answering(&servers, false, |draft| {
        draft.publish()?;
        unknown()
    });
    replace(&store, &bytes(2, 80)).expect("its label says whose it is");
    assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(2, 80));
}

#[test]
fn a_publication_of_which_nothing_is_known_leaves_both_values_whole() {
    let servers = servers(3);
    put(&striped(&servers, EVEN), "a", &bytes(1, 50));
    let store = answering(&servers, false, |_| unknown());
    let draft = store.draft(&key("a"), &how(Create::IfMissing)).expect("begins");
    draft.object().write(0, &bytes(2, 80)).expect("writes");
    let error = draft.publish().expect_err("nothing is known");
    assert_eq!(error.kind(), UNKNOWN, "{}", error.chain());
    assert_eq!(draft.publish().expect_err("not again").kind(), ErrorKind::Invalid);
    drop(draft);
    assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(1, 50));
    assert_eq!(store.collect(0).expect("looks").orphans.len(), 2, "they may belong to the object");
}

#[test]
fn pieces_of_which_nothing_is_known_change_nothing() {
    let servers = servers(3);
    put(&striped(&servers, EVEN), "a", &bytes(1, 50));
    let store = answering(&servers, true, |draft| {
        draft.publish()?;
        unknown()
    });
    let error = replace(&store, &bytes(2, 80)).expect_err("nothing is known");
    assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::No }, "{}", error.chain());
    assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(1, 50));
    assert_no_garbage(&store, &servers);
}
