// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clusters that grow, and server maps that are written anew.

use terrace_client::striped::{Map, Member, Striped};
use terrace_core::{Backend, BackendExt, Create, ErrorKind};

use super::cluster::{
    DISTRIBUTIONS, EVEN, Server, bytes, content, how, key, over, put, read_all, servers, striped,
    try_put,
};

/// Objects that are made before each addition.
const STEP: usize = 20;

/// The map after the first `count` servers had come, one in each epoch.
fn with_epochs(servers: &[Server], count: usize) -> Map {
    let member = |(epoch, server): (usize, &Server)| {
        let since = epoch as u64;
        Member { since, ..server.member() }
    };
    let members = servers[..count].iter().enumerate().map(member).collect();
    Map::new(count as u64, members).expect("legal")
}

fn without_epochs(servers: &[Server], count: usize) -> Map {
    // Nobody keeps such a list in order.
    Map::without_epochs(servers[..count].iter().rev().map(Server::member).collect()).expect("legal")
}

fn data(number: usize) -> Vec<u8> {
    bytes(number as u8, 40 + number)
}

#[track_caller]
fn assert_holds(store: &Striped, count: usize) {
    for number in 0..count {
        let name = key(&format!("object-{number:03}"));
        assert_eq!(read_all(store, &name).expect("readable"), data(number), "{name}");
        assert_eq!(store.stat(&name).expect("there").size_bytes, data(number).len() as u64);
    }
    let expected: Vec<_> = (0..count).map(|number| key(&format!("object-{number:03}"))).collect();
    assert_eq!(store.list_all("test", "").expect("lists"), expected, "each once");
}

#[test]
fn objects_stay_when_servers_are_added() {
    for distribution in DISTRIBUTIONS {
        for map in [with_epochs, without_epochs] {
            let servers = servers(4);
            for count in 1..=4 {
                let store = over(map(&servers, count), distribution);
                assert_holds(&store, (count - 1) * STEP);
                for number in (count - 1) * STEP..count * STEP {
                    put(&store, &format!("object-{number:03}"), &data(number));
                }
                assert_holds(&store, count * STEP);
                assert!(!servers[count - 1].names().is_empty(), "the new one has its share");
            }
            let store = over(map(&servers, 4), distribution);
            // What is there keeps its name, wherever it is.
            for number in 0..4 * STEP {
                let name = format!("object-{number:03}");
                let again = try_put(&store, &name, b"x").map(drop).expect_err("it is there");
                assert_eq!(again.kind(), ErrorKind::Exists);
                let object = store.open(&key(&name), &how(Create::IfMissing)).expect("opens");
                assert_eq!(content(&*object).expect("reads"), data(number));
                object.append(&[std::io::IoSlice::new(b"more")]).expect("appends");
                object.set_len(data(number).len() as u64).expect("cuts");
            }
            assert_holds(&store, 4 * STEP);
            // A name is free when its object is gone, and is used on its present home.
            for number in 0..4 * STEP {
                let name = format!("object-{number:03}");
                store.delete(&key(&name)).expect("deletes");
                let gone = store.stat(&key(&name)).expect_err("gone");
                assert_eq!(gone.kind(), ErrorKind::NotFound);
                put(&store, &name, &data(number));
            }
            assert_holds(&store, 4 * STEP);
            let found = store.collect(0).expect("looks");
            assert_eq!(found.orphans, [], "nothing was left behind");
        }
    }
}

#[test]
fn the_order_of_the_servers_means_nothing() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    (0..STEP).for_each(|number| put(&store, &format!("object-{number:03}"), &data(number)));
    for turn in 0..3 {
        let mut members: Vec<_> = servers.iter().map(Server::member).collect();
        members.rotate_left(turn);
        members.iter_mut().for_each(|member| {
            member.name = format!("renamed-{turn}-{}", member.id);
            member.weight = 1 + turn as u32;
        });
        assert_holds(&over(Map::new(0, members).expect("legal"), EVEN), STEP);
    }
}

#[test]
fn an_object_on_a_server_that_is_not_in_the_map_says_so() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    (0..STEP).for_each(|number| put(&store, &format!("object-{number:03}"), &data(number)));
    let members = servers[..2].iter().map(Server::member).collect();
    let fewer = over(Map::new(0, members).expect("legal"), EVEN);
    let mut refused = 0;
    for number in 0..STEP {
        let name = key(&format!("object-{number:03}"));
        for error in [
            fewer.open(&name, &how(Create::Never)).map(drop).expect_err("a part is missing"),
            fewer.stat(&name).map(drop).expect_err("a part is missing"),
            fewer.delete(&name).expect_err("a part is missing"),
        ] {
            // Its home may be the one that is missing, and then nothing of it is found.
            if error.kind() != ErrorKind::NotFound {
                assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
                assert!(error.to_string().contains(&format!("store_id={:032x}", 3)), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > STEP, "{refused}");
    assert_holds(&store, STEP);
}
