// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that were answered, and that a server did not make durable before it ended.

use std::sync::Arc;

use terrace_client::Remote;
use terrace_core::{
    Backend, BackendExt, ErrorKind, Hint, Identity, Key, KvExt, Op, Open, Persistency, Request,
    Role, Semantics, TierBackend,
};
use terrace_server::Server;
use terrace_transport::Endpoint;

use super::lives::{free_endpoint, start};
use crate::common::{Kept, connect, options, store};

/// What a test does that is not done to an open object.
type Change = (&'static str, fn(&Remote));

const CHANGES: [Change; 6] = [
    ("a deletion", |client| client.delete(&key("there")).expect("delete")),
    ("an object", |client| drop(client.open(&key("made"), &Open::create_new()).expect("made"))),
    ("an identity", |client| client.set_identity(&key("there"), &identity()).expect("set")),
    ("a batch", |client| {
        let (key, hint) = (key("made"), Hint::default());
        let mut operations = [Op::new(Request::Create { key: &key, data: b"bytes", hint })];
        client.execute(&mut operations, &Semantics::default());
        operations[0].outcome.take().expect("carried out").expect("create");
    }),
    ("pairs", |client| {
        let changes = [(&b"key"[..], Some(&b"value"[..]))];
        client.kv("pairs").apply(&changes, Persistency::None).expect("put");
    }),
    ("a transaction", |client| {
        client.kv("pairs").put(b"key", b"value").expect("commit");
    }),
];

fn key(name: &str) -> Key {
    Key::new("losses", name).expect("legal")
}

fn identity() -> Identity {
    Identity {
        store_id: 7,
        object_id: 1,
        segment: 0,
        start_bytes: 0,
        generation: 1,
        epoch: 1,
        role: Role::Primary,
        key: key("there"),
        label: None,
    }
}

/// A store with one object, its server, and a client of that.
fn scene() -> (Arc<Kept>, Endpoint, Server, Remote) {
    let (kept, endpoint) = (store(), free_endpoint());
    kept.backend.write_all(&key("there"), b"bytes").expect("write");
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    (kept, endpoint, server, client)
}

#[test]
fn a_sync_of_the_store_fails_once_where_a_change_may_be_lost() {
    for (what, change) in CHANGES {
        for sync in [Remote::sync, Remote::sync_all] {
            let (kept, endpoint, server, client) = scene();
            change(&client);
            drop(server);
            let _server = start(&kept, &endpoint);
            // Nothing was asked for meanwhile that could have noticed it.
            let error = sync(&client).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
            sync(&client).expect("it was told");
        }
    }
}

#[test]
fn what_was_synced_before_a_server_ended_is_not_lost() {
    for (what, change) in CHANGES {
        let (kept, endpoint, server, client) = scene();
        change(&client);
        client.sync().expect("sync");
        drop(server);
        let _server = start(&kept, &endpoint);
        client.sync().expect(what);
        client.sync_all().expect(what);
    }
}

#[test]
fn who_changed_nothing_has_lost_nothing() {
    let (kept, endpoint, server, client) = scene();
    client.open(&key("there"), &Open::write()).expect("open");
    client.stat(&key("there")).expect("stat");
    drop(server);
    let _server = start(&kept, &endpoint);
    client.sync().expect("nothing is lost");
}

#[test]
fn what_was_asked_for_at_level_storage_is_not_lost() {
    let (kept, endpoint, server, client) = scene();
    let semantics = Semantics::at_level(Persistency::Storage);
    let how = Open { semantics, ..Open::create_new() };
    client.open(&key("made"), &how).expect("open");
    drop(server);
    let _server = start(&kept, &endpoint);
    client.sync().expect("it was durable when it was answered");
}
