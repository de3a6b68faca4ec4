// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of which nobody says whether they were made: a request that got no answer is carried out when
//! its client has asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace_client::striped::{Map, Member, Striped};
use terrace_core::{
    Applied, Backend, Create, Error, ErrorKind, Key, Object, ObjectExt, Open, Result,
};

use super::cluster::{EVEN, Server, VOLATILE, bytes, content, how, key, over, read_all, servers};
use super::counted::Counted;

const UNKNOWN: ErrorKind = ErrorKind::Unreachable { applied: Applied::Unknown };

fn failed(kind: ErrorKind) -> Result<Box<dyn Object>> {
    Err(Error::new(kind, "open an object"))
}

/// A cluster whose homes carry out the first request for a new object when they get the second one,
/// to which they say `second`; `third` is what they say to whoever looks then, if anything else than
/// what is so. `late` makes what the first request was for, or what somebody else did.
fn late(
    servers: &[Server],
    second: ErrorKind,
    third: Option<ErrorKind>,
    late: fn(&dyn Backend, &Key, &Open),
) -> Striped {
    let member = |server: &Server| {
        let member = server.member();
        let counted = Counted::new(member.backend);
        let asked = AtomicU32::new(0);
        counted.open_by(Box::new(move |backend, object, how| {
            if *object != key("a") {
                return None;
            }
            let missing = how.create == Create::Never;
            match (asked.fetch_add(1, Ordering::SeqCst), missing) {
                (0, false) => Some(failed(UNKNOWN)),
                (1, true) => Some(failed(ErrorKind::NotFound)),
                (2, false) => {
                    late(backend, object, how);
                    Some(failed(second))
                }
                (3, true) => third.map(failed),
                (_, true) => None,
                other => panic!("{other:?} was not expected"),
            }
        }));
        Member { backend: Arc::new(counted), ..member }
    };
    over(Map::new(0, servers.iter().map(member).collect()).expect("legal"), EVEN)
}

fn made(backend: &dyn Backend, key: &Key, how: &Open) {
    backend.open(key, how).map(drop).expect("it is made late");
}

#[test]
fn an_object_that_is_made_late_is_the_one_that_was_asked_for() {
    for second in [ErrorKind::Exists, ErrorKind::NoSpace] {
        let servers = servers(3);
        let store = late(&servers, second, None, made);
        let object = store.open(&key("a"), &how(Create::New)).expect("its label says whose it is");
        object.write(0, &bytes(1, 50)).expect("it has all its pieces");
        assert_eq!(content(&*object).expect("reads"), bytes(1, 50));
        assert_eq!(store.collect(0).expect("looks").orphans, []);
    }
}

#[test]
fn an_object_that_may_be_made_late_keeps_its_pieces() {
    let second = [ErrorKind::Exists, ErrorKind::NoSpace, UNKNOWN];
    for (second, third) in second
        .into_iter()
        .flat_map(|second| [Some(UNKNOWN), Some(ErrorKind::NotFound)].map(|third| (second, third)))
    {
        let servers = servers(3);
        let store = late(&servers, second, third, made);
        let error = store.open(&key("a"), &how(Create::New)).err().expect("nobody knows");
        assert_eq!(error.kind(), UNKNOWN, "{second:?}, {third:?}: {}", error.chain());
        let object = store.open(&key("a"), &how(Create::Never)).expect("it is there");
        object.write(0, &bytes(1, 50)).expect("it has all its pieces");
        assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(1, 50));
    }
}

#[test]
fn an_object_that_somebody_else_made_meanwhile_is_not_the_one_that_was_asked_for() {
    let servers = servers(3);
    let store = late(&servers, ErrorKind::Exists, None, |backend, key, _| {
        backend.open(key, &Open::create_new().with_semantics(VOLATILE)).map(drop).expect("made");
    });
    let error = store.open(&key("a"), &how(Create::New)).err().expect("it is another's");
    assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
    assert_eq!(store.collect(0).expect("looks").orphans, [], "its pieces are gone");
}
