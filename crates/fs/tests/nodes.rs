// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What nodes say of themselves.

use std::sync::Arc;

use terrace_backends::kv::Memory;
use terrace_core::SystemClock;
use terrace_fs::{
    FileClock, Kind, Made, Metadata, Node, ROOT, Reply, Request, Session, Tree, TreeOptions,
};

fn session() -> Session {
    let kv = Arc::new(Memory::default());
    let clock = SystemClock::default();
    Tree::create(&*kv, &TreeOptions::default(), &clock, &[7; 32]).expect("it is empty");
    Session::new(&Tree::open(kv, FileClock::following(Arc::new(clock))).expect("it was just made"))
}

fn make(session: &Session, name: &[u8], made: Made<'static>) -> Node {
    match session.call(&Request::Make { directory: ROOT, name, made }) {
        Ok(Reply::Made { node, .. }) => node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn symbolic_links_have_all_permissions() {
    let session = session();
    for (name, permissions) in [(b"a", 0o600), (b"b", 0o7777), (b"c", 0)] {
        let made =
            Made { kind: Kind::Symlink, permissions, umask: 0o77, target: b"x", ..Made::default() };
        assert_eq!(make(&session, name, made).permissions, 0o777, "{permissions:o}");
    }
}
