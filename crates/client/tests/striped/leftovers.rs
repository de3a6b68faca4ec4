// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collecting what was left behind, by whoever does not know of all servers.

use terrace_client::striped::{Map, Orphans, Striped};
use terrace_core::{Backend, BackendExt, Create, Key};

use super::cluster::{
    EVEN, Server, bytes, how, key, over, put, read_all, servers, striped, try_put,
};

/// Later than any object.
const FAR_NS: u64 = u64::MAX;

/// A cluster, and an object whose head is on the last server of it.
fn scene() -> (Vec<Server>, Key) {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    let names = (0..).map(|number| format!("object-{number}"));
    for name in names {
        put(&store, &name, &bytes(1, 100));
        if servers[2].names().contains(&name) {
            return (servers, key(&name));
        }
    }
    unreachable!("each server is a home")
}

/// What somebody removes who knows of some servers alone.
fn removed(servers: &[Server]) -> (Orphans, usize) {
    let member = |server: &Server| server.member();
    let without_epochs = Map::without_epochs(servers.iter().map(member).collect()).expect("legal");
    let collected = [striped(servers, EVEN), over(without_epochs, EVEN)]
        .map(|store: Striped| store.collect(FAR_NS).expect("collects"));
    let removed = |orphans: &Orphans| orphans.orphans.iter().filter(|one| one.is_removed).count();
    let count = collected.iter().map(removed).sum();
    let [first, _] = collected;
    (first, count)
}

#[test]
fn pieces_stay_whose_home_is_not_asked() {
    let (servers, name) = scene();
    let (orphans, count) = removed(&servers[..2]);
    assert_eq!(count, 0, "{orphans:?}");
    let store = striped(&servers, EVEN);
    assert_eq!(read_all(&store, &name).expect("it is whole"), bytes(1, 100));
    // Nobody knows of a part whose object is gone, either, but who asks its home.
    servers[2].memory.delete(&name).expect("it is lost");
    let (orphans, count) = removed(&servers[..2]);
    assert_eq!(count, 0, "{orphans:?}");
    let mine = |orphans: &Orphans| {
        orphans.orphans.iter().filter(|orphan| orphan.owner.as_ref() == Some(&name)).count()
    };
    assert_eq!(mine(&orphans), 2);
    let (orphans, count) = removed(&servers);
    assert_eq!((mine(&orphans), count), (2, 2), "{orphans:?}");
}

#[test]
fn pieces_of_an_object_that_was_made_again_are_removed() {
    let (servers, name) = scene();
    servers[2].memory.delete(&name).expect("it is lost");
    let store = striped(&servers, EVEN);
    try_put(&store, name.name(), &bytes(2, 100)).map(drop).expect("its name is free");
    assert_eq!(removed(&servers).1, 2);
    assert_eq!(read_all(&store, &name).expect("it is whole"), bytes(2, 100));
}

#[test]
fn pieces_stay_that_do_not_say_where_their_home_is() {
    let (servers, name) = scene();
    // As they were written before they did.
    for server in &servers[..2] {
        let pieces = server.memory.list_all("test", "\u{10ffff}").expect("lists");
        for piece in pieces {
            let open = how(Create::Never);
            let label = server.memory.open(&piece, &open).expect("opens").label().expect("has one");
            let label = [&[b'P', 1], &label[2..19], &label[35..]].concat();
            server.memory.delete(&piece).expect("deletes");
            let made = server.memory.open(&piece, &how(Create::New).with_label(&label));
            drop(made.expect("is made anew"));
        }
    }
    let (orphans, count) = removed(&servers);
    assert_eq!((orphans.orphans.len(), count), (0, 0), "its object is there");
    servers[2].memory.delete(&name).expect("it is lost");
    let (orphans, count) = removed(&servers);
    assert_eq!(count, 0, "{orphans:?}");
    assert_eq!(orphans.orphans.len(), 2);
    assert!(orphans.orphans.iter().all(|orphan| orphan.owner.as_ref() == Some(&name)));
}
