// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many connections, most of which nobody needs.

use terrace_core::{Backend, BackendExt, ErrorKind, Key};
use terrace_server::Limits;

use crate::common::peer::{Peer, namespaces};
use crate::common::{connect, eventually, options, serve, store};

#[test]
fn a_thousand_idle_connections_are_all_served_afterwards() {
    let (server, endpoint) = serve(store(), Limits::default());
    let mut peers: Vec<_> = (0..1000).map(|_| Peer::greeted(&endpoint)).collect();
    eventually("all are in", || server.status().connections == 1000);
    connect(&endpoint, options()).expect("one more").namespaces().expect("is served");
    for peer in &mut peers {
        assert_eq!(peer.done(&[namespaces()], b"").len(), 1);
    }
    drop(peers);
    eventually("all are gone", || server.status().connections == 0);
}

#[test]
fn a_flood_of_strangers_keeps_nobody_from_working() {
    let limits = Limits { strangers_max: 16, ..Limits::default() };
    let (server, endpoint) = serve(store(), limits);
    let client = connect(&endpoint, options()).expect("connect");
    let mut strangers = Vec::new();
    for round in 0..500_u32 {
        let stranger = Peer::connect(&endpoint);
        match round % 4 {
            0 => drop(stranger),
            1 => {
                stranger.say_bytes(b"TRCE");
                strangers.push(stranger);
            }
            _ => strangers.push(stranger),
        }
        let key = Key::new("floods", &(round % 8).to_string()).expect("legal");
        client.write_all(&key, &round.to_le_bytes()).expect("write");
        assert_eq!(client.read_all(&key).expect("read"), round.to_le_bytes());
    }
    eventually("older strangers make room", || server.status().strangers <= 16);
    assert_eq!(server.status().sessions, 1, "nobody else has proved anything");
    drop(strangers);
    eventually("all strangers are gone", || server.status().strangers == 0);
    connect(&endpoint, options()).expect("others are let in afterwards");
}

#[test]
fn too_many_connections_are_turned_away_with_the_reason() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let (server, endpoint) = serve(store(), limits);
    let client = connect(&endpoint, options()).expect("connect");
    let others = [Peer::greeted(&endpoint), Peer::greeted(&endpoint)];
    for _ in 0..50 {
        let error = connect(&endpoint, options()).err().expect("one too many");
        assert_eq!(error.kind(), ErrorKind::Busy, "{}", error.chain());
    }
    client.namespaces().expect("who is in is served");
    drop(others);
    eventually("there is room again", || server.status().connections == 1);
    connect(&endpoint, options()).expect("let in").namespaces().expect("served");
}

#[test]
fn connections_that_are_closed_at_once_leave_nothing() {
    let (server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    for _ in 0..300 {
        drop(Peer::connect(&endpoint));
    }
    client.namespaces().expect("served");
    // Whoever connects now comes behind all of those.
    connect(&endpoint, options()).expect("connect").namespaces().expect("served");
    eventually("all are gone", || {
        let status = server.status();
        (status.connections, status.strangers) == (1, 0)
    });
}
