// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where objects lie, and what is asked of the servers.

use std::io::IoSlice;
use std::sync::Arc;

use terrace_client::striped::{Distribution, Map, Member};
use terrace_core::{
    Backend, BackendExt, Create, Cursor, End, ErrorKind, Hint, ObjectExt, Op, Open, Reply, Request,
    Temperature,
};

use super::cluster::{
    DISTRIBUTIONS, EVEN, Server, VOLATILE, bytes, content, how, key, over, put, read_all, servers,
    striped, try_put,
};
use super::counted::Counted;

/// How many things the servers hold, and how many bytes each.
fn held(servers: &[Server]) -> (usize, Vec<u64>) {
    let names = servers.iter().map(|server| server.names().len()).sum();
    let used = servers.iter().map(|server| server.memory.space().expect("known").used_bytes);
    (names, used.collect())
}

#[test]
fn each_distribution_puts_the_bytes_where_it_says() {
    let laid = |distribution| {
        let servers = servers(3);
        put(&striped(&servers, distribution), "a", &bytes(1, 600));
        let (things, mut used) = held(&servers);
        used.sort();
        (things, used)
    };
    assert_eq!(laid(Distribution::Single), (1, vec![0, 0, 600]));
    assert_eq!(laid(Distribution::RoundRobin { stripe_bytes: 10 }), (3, vec![200; 3]));
    // The weights are 1, 2 and 3.
    assert_eq!(laid(Distribution::Weighted { stripe_bytes: 10 }), (3, vec![100, 200, 300]));
    let head = Distribution::Progressive { head_bytes: 30, stripe_bytes: 10 };
    assert_eq!(laid(head), (4, vec![190, 190, 220]));
}

#[test]
fn an_object_that_is_known_to_be_small_lies_on_one_server() {
    for distribution in DISTRIBUTIONS {
        let servers = servers(3);
        let store = striped(&servers, distribution);
        let small = Open { size_hint_bytes: Some(3), ..how(Create::New) };
        drop(store.open(&key("a"), &small).expect("creates"));
        let request = Request::Create { key: &key("b"), data: b"abc", hint: Hint::default() };
        store.execute(&mut [Op::new(request)], &VOLATILE);
        assert_eq!(held(&servers).0, 2, "{distribution:?}");
    }
}

#[test]
fn names_of_pieces_are_hidden_and_refused() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    put(&store, "a", &bytes(1, 100));
    let piece = servers.iter().flat_map(Server::names).find(|name| name != "a");
    let piece = key(&piece.expect("it has pieces"));
    let invalid = |result: terrace_core::Result<()>| {
        assert_eq!(result.expect_err("reserved").kind(), ErrorKind::Invalid);
    };
    for create in [Create::Never, Create::IfMissing, Create::New] {
        invalid(store.open(&piece, &how(create)).map(drop));
    }
    invalid(store.stat(&piece).map(drop));
    invalid(store.delete(&piece));
    let mut operations =
        [Request::Delete { key: &piece }, Request::Stat { key: &piece }].map(Op::new);
    store.execute(&mut operations, &VOLATILE);
    for operation in operations {
        invalid(operation.outcome.expect("filled").map(drop));
    }
    for prefix in ["", "\u{10ffff}", "\u{10ffff}\u{10ffff}", piece.name()] {
        let expected = if prefix.is_empty() { vec![key("a")] } else { vec![] };
        assert_eq!(store.list_all("test", prefix).expect("lists"), expected);
    }
    assert_eq!(read_all(&store, &key("a")).expect("reads"), bytes(1, 100));
}

#[test]
fn appends_of_several_clients_never_overlap() {
    const CLIENTS: u8 = 4;
    const APPENDS: usize = 30;
    let servers = servers(3);
    put(&striped(&servers, EVEN), "a", b"");
    std::thread::scope(|scope| {
        for client in 1..=CLIENTS {
            let store = striped(&servers, EVEN);
            scope.spawn(move || {
                let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
                for _ in 0..APPENDS {
                    object.append(&[IoSlice::new(&[client; 9])]).expect("appends");
                }
            });
        }
    });
    let data = read_all(&striped(&servers, EVEN), &key("a")).expect("reads");
    assert_eq!(data.len(), 9 * APPENDS * usize::from(CLIENTS));
    assert!(data.chunks(9).all(|part| part.iter().all(|byte| *byte == part[0] && *byte > 0)));
}

#[test]
fn an_append_goes_to_the_end_whoever_moved_it() {
    let servers = servers(3);
    let stores = [striped(&servers, EVEN), striped(&servers, EVEN)];
    put(&stores[0], "a", &bytes(1, 10));
    let [one, other] =
        stores.each_ref().map(|store| store.open(&key("a"), &how(Create::Never)).expect("opens"));
    let append = |object: &dyn terrace_core::Object| object.append(&[IoSlice::new(b"end")]);
    assert_eq!(append(&*one).expect("appends"), 10);
    other.write(50, b"x").expect("writes");
    assert_eq!(append(&*one).expect("appends"), 51);
    other.set_len(5).expect("cuts");
    assert_eq!(append(&*one).expect("appends"), 5);
    assert_eq!(append(&*other).expect("appends"), 8);
    stores[0].delete(&key("a")).expect("deletes");
    assert!(servers.iter().all(|server| {
        server.kv.scan(&terrace_core::KvRange::all(), 10).expect("reads").is_empty()
    }));
}

#[test]
fn an_append_without_pairs_is_refused() {
    let servers = servers(3);
    let bare = |server: &Server| Member { kv: None, ..server.member() };
    let map = Map::new(0, servers.iter().map(bare).collect()).expect("legal");
    let store = over(map.clone(), EVEN);
    put(&store, "a", &bytes(1, 10));
    let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
    let refused = object.append(&[IoSlice::new(b"end")]).expect_err("no pairs");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(content(&*object).expect("reads"), bytes(1, 10));
    // On one server it is that server's.
    let single = over(map, Distribution::Single);
    put(&single, "b", &bytes(1, 10));
    let object = single.open(&key("b"), &how(Create::Never)).expect("opens");
    assert_eq!(object.append(&[IoSlice::new(b"end")]).expect("appends"), 10);
}

/// A cluster whose servers count the batches that they get.
fn counted(servers: &[Server], distribution: Distribution) -> (impl Backend, Vec<Arc<Counted>>) {
    let counters: Vec<_> =
        servers.iter().map(|server| Arc::new(Counted::new(server.member().backend))).collect();
    let member = |(server, counter): (&Server, &Arc<Counted>)| Member {
        backend: counter.clone(),
        ..server.member()
    };
    let members = servers.iter().zip(&counters).map(member).collect();
    (over(Map::new(0, members).expect("legal"), distribution), counters)
}

#[test]
fn the_head_of_a_progressive_object_is_hinted_as_hot() {
    let servers = servers(3);
    let head = Distribution::Progressive { head_bytes: 10, stripe_bytes: 4 };
    let (store, counters) = counted(&servers, head);
    put(&store, "a", &bytes(1, 100));
    let hints: Vec<_> = counters.iter().flat_map(|counter| counter.hints()).collect();
    assert_eq!(hints.len(), 4);
    for (name, hint) in hints {
        let expected = if name == "a" { Temperature::Hot } else { Temperature::Unknown };
        assert_eq!(hint, expected, "{name}");
    }
}

#[test]
fn a_batch_is_one_call_on_each_server() {
    let servers = servers(3);
    let (store, counters) = counted(&servers, Distribution::RoundRobin { stripe_bytes: 100 });
    let keys: Vec<_> = (0..1000).map(|number| key(&format!("object-{number}"))).collect();
    let calls = |counters: &[Arc<Counted>]| -> Vec<(usize, usize)> {
        counters.iter().map(|counter| counter.take()).collect()
    };
    let create = |key| Op::new(Request::Create { key, data: b"content", hint: Hint::default() });
    let mut operations: Vec<_> = keys.iter().map(create).collect();
    store.execute(&mut operations, &VOLATILE);
    assert!(operations.iter().all(|one| matches!(one.outcome, Some(Ok(Reply::Done)))));
    assert_eq!(calls(&counters), [(1, 0); 3], "batches, and calls beside them");
    let mut buffers = vec![[0; 7]; keys.len()];
    let read = |(key, buffer)| Op::new(Request::Read { key, offset_bytes: 0, buffer });
    let mut operations: Vec<_> =
        keys.iter().zip(buffers.iter_mut().map(|b| &mut b[..])).map(read).collect();
    store.execute(&mut operations, &VOLATILE);
    assert!(operations.iter().all(|one| matches!(one.outcome, Some(Ok(Reply::Count(7))))));
    assert_eq!(calls(&counters), [(1, 0); 3]);
    assert!(buffers.iter().all(|buffer| buffer == b"content"));
    let mut operations: Vec<_> = keys.iter().map(|key| Op::new(Request::Stat { key })).collect();
    store.execute(&mut operations, &VOLATILE);
    assert_eq!(calls(&counters), [(1, 0); 3]);
    // Changes come after the question what the object is.
    let write = |key| Op::new(Request::Write { key, offset_bytes: 1, data: b"x" });
    let mut operations: Vec<_> = keys.iter().map(write).collect();
    store.execute(&mut operations, &VOLATILE);
    assert!(operations.iter().all(|one| matches!(one.outcome, Some(Ok(Reply::Done)))));
    assert_eq!(calls(&counters), [(2, 0); 3]);
    let mut operations: Vec<_> = keys.iter().map(|key| Op::new(Request::Delete { key })).collect();
    store.execute(&mut operations, &VOLATILE);
    assert_eq!(calls(&counters), [(2, 0); 3]);
    assert!(servers.iter().all(|server| server.names().is_empty()));
}

#[test]
fn a_batch_sees_distributed_objects_whole() {
    let servers = servers(3);
    let store = striped(&servers, EVEN);
    for name in ["read", "written", "stated", "deleted"] {
        put(&store, name, &bytes(1, 100));
    }
    let [read, written, stated, deleted, plain] =
        ["read", "written", "stated", "deleted", "plain"].map(key);
    let mut buffer = [0; 60];
    let mut operations = [
        Request::Create { key: &plain, data: b"abc", hint: Hint::default() },
        Request::Read { key: &read, offset_bytes: 20, buffer: &mut buffer },
        Request::Write { key: &written, offset_bytes: 30, data: &[9; 50] },
        Request::Stat { key: &stated },
        Request::Delete { key: &deleted },
        Request::Stat { key: &plain },
    ]
    .map(Op::new);
    store.execute(&mut operations, &VOLATILE);
    let [created, got, done, stat, gone, small] =
        operations.map(|one| one.outcome.expect("filled").expect("works"));
    assert_eq!(
        (created, got, done, gone),
        (Reply::Done, Reply::Count(60), Reply::Done, Reply::Done)
    );
    let size = |reply| match reply {
        Reply::Stat(stat) => stat.size_bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!((size(stat), size(small)), (100, 3));
    assert_eq!(buffer, bytes(1, 100)[20..80]);
    let mut expected = bytes(1, 100);
    expected[30..80].fill(9);
    assert_eq!(read_all(&store, &written).expect("reads"), expected);
    assert_eq!(store.stat(&deleted).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(store.collect(0).expect("looks").orphans, []);
}

#[test]
fn a_listing_goes_on_when_a_server_was_added_meanwhile() {
    let servers = servers(3);
    let mut members: Vec<_> = servers.iter().map(Server::member).collect();
    members[2].since = 1;
    let before = over(Map::new(0, members[..2].to_vec()).expect("legal"), EVEN);
    let names: Vec<_> = (0..40).map(|number| format!("object-{number:02}")).collect();
    names.iter().for_each(|name| put(&before, name, b"x"));
    let page = before.list("test", "", &Cursor::start(), 15).expect("lists");
    let mut keys = page.keys;
    let after = over(Map::new(1, members).expect("legal"), EVEN);
    let mut next = page.next;
    while let Some(cursor) = next {
        let page = after.list("test", "", &cursor, 15).expect("lists");
        keys.extend(page.keys);
        next = page.next;
    }
    assert_eq!(keys, names.iter().map(|name| key(name)).collect::<Vec<_>>());
}

#[test]
fn growth_keeps_room_behind_the_ends_of_pieces_and_a_cut_gives_it_back() {
    let servers = servers(4);
    let store = striped(&servers, EVEN);
    let object = try_put(&store, "object", b"").expect("made");
    object.allocate(0..400, End::Stays).expect("there is room");
    let used = || held(&servers).1.iter().sum::<u64>();
    assert_eq!(used(), 400);
    // One server has all of it, the others have pieces of no bytes before and after.
    object.set_len(3).expect("grows");
    assert_eq!(used(), 400);
    object.set_len(3).expect("cuts to the length that it has");
    assert_eq!(used(), 3);
}
