// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long transfers, and peers that stop in the middle of them.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use terrace_backends::{kv, object};
use terrace_core::{Access, Backend, BackendExt, Key, ObjectExt, Open, Persistency, Semantics};
use terrace_server::Limits;
use terrace_testkit::anonymous_mib;
use terrace_wire::{OnHandle, Operation, Outcome};

use crate::common::peer::{Peer, namespaces, opening};
use crate::common::{Plain, connect, eventually, options, serve, store};

fn key(name: &str) -> Key {
    Key::new("transfers", name).expect("legal")
}

#[test]
fn sixty_four_mebibytes_come_and_go() {
    let (server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("long"), &Open::create_new()).expect("open");
    let bytes: Vec<u8> = (0..64_u32 << 20).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    // Odd parts, so that their ends and those of the frames are never the same.
    let parts: Vec<_> = bytes.chunks(7_777_777).map(IoSlice::new).collect();
    object.write_at(3, &parts).expect("write");
    let mut found = vec![0; bytes.len() + 10];
    let (first, second) = found.split_at_mut(1_234_567);
    let mut buffers = [IoSliceMut::new(first), IoSliceMut::new(second)];
    assert_eq!(object.read_at(0, &mut buffers).expect("read"), bytes.len() + 3);
    assert!(found[3..bytes.len() + 3] == bytes[..], "other bytes came back");
    assert!(server.status().received_bytes >= 64 << 20);
}

#[test]
fn a_gibibyte_takes_no_memory_to_speak_of() {
    // Keeps nothing: what takes memory is the way there.
    let backend = Arc::new(object::Null::new(1 << 40));
    let kv = Arc::new(kv::Memory::default());
    let (server, endpoint) = serve(Arc::new(Plain { backend, kv }), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
    let how = Open::create_new().with_semantics(semantics);
    let object = client.open(&key("huge"), &how).expect("open");
    let part = vec![7; 4 << 20];
    let parts = vec![IoSlice::new(&part); 256];
    let before_mib = anonymous_mib();
    object.write_at(0, &parts).expect("write");
    let grown_mib = anonymous_mib() - before_mib;
    assert!(server.status().received_bytes >= 1 << 30);
    assert_eq!(object.stat().expect("stat").size_bytes, 1 << 30);
    // Other tests of this process take some hundred.
    assert!(grown_mib < 600.0, "{grown_mib} MiB");
}

#[test]
fn a_client_that_stops_reading_is_put_out_and_keeps_nobody_waiting() {
    let limits = Limits { stall_max: Duration::from_millis(300), ..Limits::default() };
    let (server, endpoint) = serve(store(), limits);
    let client = connect(&endpoint, options()).expect("connect");
    client.write_all(&key("read"), &vec![5; 8 << 20]).expect("write");
    let mut stopped = Vec::new();
    for _ in 0..8 {
        let mut peer = Peer::greeted(&endpoint);
        let outcomes = peer.done(&[opening(key("read"), Access::Read)], b"");
        let [Outcome::Opened(opened)] = &outcomes[..] else { panic!("{outcomes:?}") };
        let what = OnHandle::Read { offset_bytes: 0, length_bytes: 8 << 20 };
        let read = Operation::On { handle: opened.handle, what };
        // More than any buffer between here and there takes.
        for _ in 0..4 {
            peer.ask(std::slice::from_ref(&read), b"");
        }
        stopped.push(peer);
    }
    eventually("they are put out", || {
        let object = client.open(&key("read"), &Open::read()).expect("others are served");
        let mut byte = [0];
        object.read_exact(4 << 20, &mut byte).expect("others read");
        assert_eq!(byte, [5]);
        server.status().connections <= 2
    });
    for peer in &mut stopped {
        // What was on its way comes, but not all that was asked for.
        let mut heard_bytes = 0;
        while let Some(said) = peer.hear() {
            heard_bytes += said.payload.len();
        }
        assert!(heard_bytes < 32 << 20);
    }
}

#[test]
fn a_client_that_stops_writing_is_put_out_and_keeps_nobody_waiting() {
    let limits = Limits { stall_max: Duration::from_millis(100), ..Limits::default() };
    let (server, endpoint) = serve(store(), limits);
    let client = connect(&endpoint, options()).expect("connect");
    let mut stopped: Vec<_> = (0..8).map(|_| Peer::greeted(&endpoint)).collect();
    for peer in &stopped {
        // The beginning of a header.
        peer.say_bytes(b"TRCE\x08\0\0\0");
    }
    // Silence between messages is no stall.
    let mut silent = Peer::greeted(&endpoint);
    for peer in &mut stopped {
        peer.reason_of_end();
    }
    eventually("they are gone", || server.status().connections == 2);
    client.write_all(&key("written"), b"bytes").expect("others are served");
    assert_eq!(silent.done(&[namespaces()], b"").len(), 1);
}

#[test]
fn threads_that_share_a_connection_each_get_their_own_answers() {
    const THREADS: usize = 16;
    let (server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    for length in 0..THREADS {
        let name = key(&format!("of-{length}"));
        client.write_all(&name, &vec![1; length]).expect("write");
    }
    // Each of them asks again as soon as it is answered, and none waits for one that does not.
    std::thread::scope(|scope| {
        for length in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                let name = key(&format!("of-{length}"));
                for _ in 0..200 * (length + 1) {
                    assert_eq!(client.stat(&name).expect("told").size_bytes, length as u64);
                }
            });
        }
    });
    assert_eq!(server.status().connections, 1, "they share it");
}
