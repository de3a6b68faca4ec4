// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers as one store, by their addresses and by the file that all share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use terrace_fs::TreeOptions;
use terrace_server::{Limits, Server};
use terrace_store::{
    Backend, BackendExt, ErrorKind, FilesUse, MoveKind, ObjectExt, Open, Persistency, Store,
    SystemClock,
};
use terrace_testkit::versions;

use crate::scene::{Scene, key};

/// A server of a store of its own.
struct One {
    address: String,
    owner: Store,
    _scene: Scene,
    _server: Server,
}

fn one() -> One {
    let scene = Scene::new();
    let owner = scene.open();
    let clock = Arc::new(SystemClock::default());
    let service = owner.service().expect("it is owned");
    let server = Server::new(service, None, Limits::default(), clock);
    let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    One { address: endpoint.to_string(), owner, _scene: scene, _server: server }
}

fn open(servers: &[One], settings: &str) -> Store {
    let addresses: Vec<_> = servers.iter().map(|one| one.address.as_str()).collect();
    let address = format!("terrace://{}/?secret=none{settings}", addresses.join(","));
    Store::open(&address).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Three MiB of bytes that say where they are.
fn content(seed: u32) -> Vec<u8> {
    (0..(3 << 20) / 4).flat_map(|word: u32| (word ^ seed).to_le_bytes()).collect()
}

#[test]
fn objects_lie_over_all_servers_and_stay_readable_when_some_are_added() {
    let mut servers = vec![one(), one()];
    let before: Vec<_> = (0..20).map(|index| key(&format!("a/{index}"))).collect();
    let store = open(&servers, "&stripe=64KiB");
    for (index, key) in before.iter().enumerate() {
        store.write_all(key, &content(index as u32)).expect("room");
    }
    for server in &servers {
        assert!(server.owner.space().expect("tells").used_bytes > 20 << 20, "it lies on one");
    }
    drop(store);
    servers.push(one());
    // In another order, and cut in another way from now on.
    servers.reverse();
    let store = open(&servers, "&distribution=progressive&head=4KiB");
    assert_eq!(store.list_all("a", "").expect("lists").len(), before.len());
    for (index, key) in before.iter().enumerate() {
        assert_eq!(store.read_all(key).expect("reads"), content(index as u32), "{key}");
        let exists = store.open(key, &Open::create_new()).map(drop).expect_err("it is there");
        assert_eq!(exists.kind(), ErrorKind::Exists);
        store.delete(key).expect("deletes");
        store.write_all(key, b"anew").expect("room");
        assert_eq!(store.read_all(key).expect("reads"), b"anew");
    }
}

#[test]
fn a_part_of_an_object_is_not_taken_for_the_object() {
    let servers = [one(), one()];
    let name = key("a/o");
    open(&servers, "&stripe=64KiB").write_all(&name, &content(1)).expect("room");
    let mut refused = 0;
    for server in &servers {
        let url = format!("terrace://{}/?secret=none", server.address);
        for alone in [Store::open(&url).expect("served"), server.owner.clone()] {
            for how in [Open::read(), Open::create()] {
                match alone.open(&name, &how).map(drop) {
                    Err(error) if error.kind() == ErrorKind::Unsupported => refused += 1,
                    // Its home is the other one; created here it would hide nothing of it.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                    Ok(()) => alone.delete(&name).expect("it was just created"),
                }
            }
        }
    }
    assert_eq!(refused, 4, "the home of it refuses each way to open a part");
    assert_eq!(open(&servers, "").read_all(&name).expect("whole"), content(1));
}

#[test]
fn pairs_of_a_namespace_stay_together_and_are_found_when_servers_are_added() {
    let mut servers = vec![one(), one()];
    let names: Vec<_> = (0..10).map(|index| format!("space{index}")).collect();
    let store = open(&servers, "");
    for name in &names {
        store.kv_put(name, b"key", name.as_bytes(), Persistency::Process).expect("puts");
    }
    drop(store);
    servers.extend([one(), one()]);
    let store = open(&servers, "");
    for name in &names {
        let value = store.kv_get(name, b"key").expect("gets");
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
        store.kv_put(name, b"other", b"", Persistency::Process).expect("puts");
        assert_eq!(store.kv_scan(name, b"", None, 10).expect("scans").len(), 2);
    }
}

#[test]
fn calls_reach_the_servers_that_they_concern() {
    let servers = vec![one(), one()];
    let store = open(&servers, "&distribution=single");
    store.write_all(&key("a/x"), b"bytes").expect("room");
    assert_eq!(store.admin().tiers().expect("tells").len(), 4);
    let tier = store.admin().explain(&key("a/x")).expect("tells").segments[0].tier.clone();
    let home = tier.strip_suffix("/fast").expect("where new objects are").to_owned();
    let tickets =
        store.admin().migrate(&key("a/x"), "slow", MoveKind::Move, 0, "test").expect("queued");
    for ticket in tickets {
        let ended =
            store.admin().wait(ticket, Duration::from_secs(30)).expect("known").expect("ends");
        assert_eq!(ended.outcome.as_deref(), Some("done"));
        assert_eq!(ended.to, format!("{home}/slow"));
    }
    assert_eq!(
        store.admin().explain(&key("a/x")).expect("tells").segments[0].tier,
        format!("{home}/slow")
    );
    let by_name = format!("{home}/fast");
    store.admin().migrate(&key("a/x"), &by_name, MoveKind::Move, 0, "test").expect("queued");
    assert!(store.admin().wait_idle(Duration::from_secs(30)).expect("tells"));
    store.admin().set_parameter("no-such", "1").expect_err("unknown");
    let missing = store.admin().pin(&key("a/missing")).expect_err("it is nowhere");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(store.admin().check(true, &mut |_, _| true).expect("checks").objects, 1);
    assert_eq!(store.server().expect_err("which one?").kind(), ErrorKind::Unsupported);
}

#[test]
fn an_object_moves_and_is_pinned_with_all_its_parts() {
    let servers = [one(), one()];
    let store = open(&servers, "&stripe=64KiB");
    let name = key("a/o");
    store.write_all(&name, &content(1)).expect("room");
    let on_slow = || {
        let of = |server: &One| {
            let tiers = server.owner.admin().tiers().expect("tells");
            tiers.iter().find(|tier| tier.name == "slow").expect("there is one").used_bytes
        };
        servers.iter().map(of).collect::<Vec<_>>()
    };
    let placed = || {
        let explanation = store.admin().explain(&name).expect("tells");
        let numbers: Vec<_> = explanation.segments.iter().map(|one| one.segment).collect();
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
        let mut tiers: Vec<_> = explanation.segments.into_iter().map(|one| one.tier).collect();
        tiers.sort();
        (explanation.size_bytes, explanation.ledger.written_bytes, explanation.is_pinned, tiers)
    };
    let on = |tier: &str| {
        let mut tiers: Vec<_> =
            servers.iter().map(|one| format!("{}/{tier}", one.address)).collect();
        tiers.sort();
        tiers
    };
    assert_eq!(placed(), (3 << 20, 3 << 20, false, on("fast")));
    store.admin().pin(&name).expect("pinned");
    assert!(placed().2);
    let pinned =
        store.admin().migrate(&name, "slow", MoveKind::Move, 0, "test").expect_err("it stays");
    assert_eq!(pinned.kind(), ErrorKind::Denied);
    // Of every part, also where another one is asked first.
    for server in &servers {
        for part in server.owner.list_all("a", "").expect("lists") {
            let moved = server.owner.admin().migrate(&part, "slow", MoveKind::Move, 0, "test");
            assert_eq!(moved.expect_err("it stays").kind(), ErrorKind::Denied, "{part}");
        }
    }
    store.admin().unpin(&name).expect("unpinned");
    let tickets = store.admin().migrate(&name, "slow", MoveKind::Move, 0, "test").expect("queued");
    assert_eq!(tickets.len(), 2);
    assert!(store.admin().wait_idle(Duration::from_secs(30)).expect("tells"));
    let on_slow = on_slow();
    assert!(on_slow.iter().all(|bytes| *bytes > 1 << 20), "{on_slow:?}");
    assert_eq!(placed().3, on("slow"));
    assert_eq!(store.read_all(&name).expect("whole"), content(1));
    assert!(
        store.admin().migrate(&name, "slow", MoveKind::Move, 0, "test").expect("there").is_empty()
    );
}

#[test]
fn a_map_names_the_servers_for_everybody() {
    let servers = [one(), one(), one()];
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("servers.toml");
    let section = |name: &str, one: &One, since: u64| {
        format!("[[server]]\nname = \"{name}\"\naddress = \"{}\"\nsince = {since}\n", one.address)
    };
    let address =
        |file: &Path| format!("terrace+map://{}?secret=none&stripe=64KiB", file.display());
    let two = [section("a", &servers[0], 0), section("b", &servers[1], 0)].concat();
    std::fs::write(&file, format!("epoch = 0\n{two}")).expect("writable");
    let store = Store::open(&address(&file)).expect("opens");
    for index in 0..10 {
        store.write_all(&key(&format!("a/{index}")), &content(index)).expect("room");
    }
    drop(store);
    let three = format!("epoch = 1\n{two}{}", section("c", &servers[2], 1));
    std::fs::write(&file, three).expect("writable");
    let store = Store::open(&address(&file)).expect("opens");
    for index in 0..10 {
        assert_eq!(store.read_all(&key(&format!("a/{index}"))).expect("reads"), content(index));
    }
    let object = store.open(&key("a/0"), &Open::write()).expect("opens");
    object.write(100_000, b"changed").expect("writes");
    assert_eq!(object.append(&[std::io::IoSlice::new(b"end")]).expect("appends"), 3 << 20);
    std::fs::write(&file, "epoch = 1\n").expect("writable");
    assert_eq!(Store::open(&address(&file)).err().expect("no server").kind(), ErrorKind::Invalid);
}

#[test]
fn the_mark_of_a_file_system_is_not_taken_for_its_pairs() {
    let servers = [one(), one(), one()];
    for number in 0..10 {
        let name = format!("files{number}");
        open(&servers, "").create_files(&name, &TreeOptions::default()).expect("there is none");
        let store = open(&servers, "");
        assert!(store.kv_get(&name, b"s").expect("gets").is_some(), "{name}");
        for other in &servers[1..] {
            let error = other.owner.create_files(&name, &TreeOptions::default());
            let error = error.expect_err("it belongs to the one of all servers");
            assert_eq!(error.kind(), ErrorKind::Exists);
            assert!(error.chain().contains(&servers[0].address), "{}", error.chain());
        }
    }
}

#[test]
fn of_two_that_are_made_at_the_same_time_at_most_one_is() {
    let servers = [one(), one(), one()];
    let [first, second, third] = &servers;
    for number in 0..30 {
        let name = format!("files{number}");
        let orders = match number % 3 {
            0 => [vec![first, second, third], vec![second, third]],
            1 => [vec![first, third, second], vec![second, third]],
            _ => [vec![first, second, third], vec![third, second, first]],
        };
        let stores = orders.map(|order| {
            let addresses: Vec<_> = order.iter().map(|one| one.address.as_str()).collect();
            let address = format!("terrace://{}/?secret=none", addresses.join(","));
            Store::open(&address).unwrap_or_else(|error| panic!("{}", error.chain()))
        });
        let make = &|store: &Store| store.create_files(&name, &TreeOptions::default());
        let made = std::thread::scope(|scope| {
            let makers = stores.each_ref().map(|store| scope.spawn(move || make(store)));
            makers.map(|maker| maker.join().expect("it ends"))
        });
        let count = made.iter().filter(|made| made.is_ok()).count();
        for error in made.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
        }
        let all = open(&servers, "");
        assert_eq!(all.has_files(&name).expect("at most one keeps it"), count == 1, "{name}");
        if count == 0 {
            all.create_files(&name, &TreeOptions::default()).expect("nothing is in the way");
        }
        all.join_files(&name, FilesUse::Change).expect("nothing is in the way");
    }
}

#[test]
fn a_server_that_is_missing_is_named() {
    let servers = [one(), one()];
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = gone.local_addr().expect("bound").to_string();
    drop(gone);
    let list = format!("terrace://{},{address}/?secret=none&deadline=5s", servers[0].address);
    let error = Store::open(&list).err().expect("one is missing");
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error}");
    assert!(error.chain().contains(&address), "{error}");
}

#[test]
fn only_one_of_the_servers_may_keep_a_file_system_of_a_name() {
    let options = TreeOptions::default();
    let mut servers = vec![one(), one()];
    let store = open(&servers, "&deadline=300ms");
    store.create_files("one", &options).expect("there is none");
    for server in &servers {
        server.owner.create_files("both", &options).expect("there is none");
    }
    assert!(store.has_files("one").expect("they tell"));
    let told = |error: terrace_store::Error| {
        let text = error.chain();
        assert_eq!(error.kind(), ErrorKind::Exists, "{text}");
        for server in &servers {
            assert!(text.contains(&server.address), "{text}");
        }
    };
    told(store.has_files("both").expect_err("which one is meant nobody knows"));
    told(store.files("both").map(drop).expect_err("which one is meant nobody knows"));
    told(store.create_files("both", &options).expect_err("it is there"));
    // One that does not answer is not in the way of what is with another one.
    drop(servers.pop());
    assert!(store.has_files("one").expect("the first tells"));
    store.files("one").expect("the first tells");
    store.has_files("other").expect_err("the second may have it");
    store.create_files("other", &options).expect_err("the second may have it");
}

#[test]
fn readers_over_several_servers_see_the_old_value_or_the_new() {
    let servers = [one(), one()];
    let stores = [(); 4].map(|()| open(&servers, "&stripe=1KiB"));
    let [first, second, third, fourth] = &stores;
    let name = key("a/replaced");
    for writers in [&[first as &dyn Backend][..], &[first, second]] {
        first.put(&name, &versions::content(0), &Open::create()).expect("puts");
        versions::overwrite_beside_readers(
            writers,
            &[third, fourth],
            &name,
            &Open::create(),
            versions::overwrites(100),
            &|_| {},
        );
    }
    first.delete(&name).expect("deletes");
    for one in &servers {
        // Pieces among them.
        let left = one.owner.list_all(name.namespace(), "").expect("lists");
        assert_eq!(left, [], "{}", one.address);
    }
}
