// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that two clients make in one directory: each sees at once what the other has made, also
//! where it knows the names of that directory without asking.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_fs::{Kind, Made, Metadata, Node, ROOT, Reply, Request, Result, TreeOptions};
use terrace_store::{ErrorKind, Store};

use crate::scene::Scene;

const NAME: &str = "files";

/// How often, each time in another directory.
const ROUNDS: usize = 40;

type Client = Arc<dyn Metadata>;

fn make(client: &Client, directory: u64, name: &[u8], kind: Kind) -> Node {
    let made = Made { kind, permissions: 0o755, ..Made::default() };
    match client.call(&Request::Make { directory, name, made }) {
        Ok(Reply::Made { node, .. }) => node,
        other => panic!("{other:?}"),
    }
}

fn is_there(client: &Client, directory: u64, name: &[u8]) -> bool {
    match client.call(&Request::Lookup { directory, name }) {
        Ok(Reply::Node(_)) => true,
        Ok(Reply::Nowhere) => false,
        Err(failure) if failure.errno() == Errno::NOENT => false,
        other => panic!("{other:?}"),
    }
}

/// How one client makes a name in a directory in which there is the file `base`.
type Way = fn(&Client, u64, &[u8]) -> Result<Reply>;

const WAYS: [Way; 3] = [
    |client, directory, name| {
        let made = Made { kind: Kind::File, ..Made::default() };
        client.call(&Request::Make { directory, name, made })
    },
    |client, directory, name| {
        let Reply::Node(Node { number, .. }) =
            client.call(&Request::Lookup { directory, name: b"base" })?
        else {
            panic!("it is there");
        };
        client.call(&Request::Link { number, directory, name })
    },
    |client, directory, name| {
        let (from, how) = (b"base", terrace_fs::RenameHow::default());
        client.call(&Request::Rename {
            from_directory: directory,
            from,
            to_directory: directory,
            to: name,
            how,
            user: 0,
            group: 0,
        })
    },
];

#[test]
fn what_one_made_the_other_finds_at_once() {
    let scene = Scene::new();
    let attached = scene.attached();
    attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
    let stores = [scene.open(), scene.open()];
    let [one, other] = stores.each_ref().map(|store| store.files(NAME).expect("it is there"));
    for round in 0..ROUNDS {
        for (way, act) in WAYS.iter().enumerate() {
            let name = format!("{round}-{way}");
            let directory = make(&one, ROOT, name.as_bytes(), Kind::Directory).number;
            make(&one, directory, b"base", Kind::File);
            assert!(!is_there(&one, directory, b"new"));
            act(&other, directory, b"new").expect("nobody has made it");
            assert!(is_there(&one, directory, b"new"), "{name}");
            // From now on nobody knows the names by himself.
            make(&one, directory, b"own", Kind::File);
            make(&other, directory, b"newer", Kind::File);
            assert!(is_there(&one, directory, b"newer"), "{name}");
            assert!(is_there(&other, directory, b"own"), "{name}");
        }
    }
}

#[test]
fn what_one_removed_and_made_again_is_there() {
    let scene = Scene::new();
    let attached = scene.attached();
    attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
    let client = attached.files(NAME).expect("it is there");
    let directory = make(&client, ROOT, b"directory", Kind::Directory).number;
    for name in [&b"a"[..], b"b"] {
        let remove = Request::Remove { directory, name, is_directory: false };
        for _ in 0..3 {
            assert!(!is_there(&client, directory, name));
            make(&client, directory, name, Kind::File);
            assert!(is_there(&client, directory, name));
            client.call(&remove).expect("it is there");
        }
        assert!(!is_there(&client, directory, name));
    }
}

#[test]
fn a_session_has_a_file_system_once() {
    let scene = Scene::new();
    let attached = scene.attached();
    attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
    let files = |store: &Store| store.files(NAME).map(drop).map_err(|error| error.kind());
    let used = attached.files(NAME).expect("it is there");
    assert_eq!(files(&attached), Err(ErrorKind::Busy));
    assert_eq!(files(&scene.open()), Ok(()), "another session");
    drop(used);
    assert_eq!(files(&attached), Ok(()));
}
