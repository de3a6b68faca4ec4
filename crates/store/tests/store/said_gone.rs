// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that a client says are gone, and has taken away a little later.

use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{Kind, Listed, Made, Node, ROOT, RenameHow, Reply, Request};

use crate::clients::{Client, Clients, TRIES_MAX, errno, found, made_by};

/// What is known of names is known for so long.
const LONG: Duration = Duration::from_secs(60);

/// How often what depends on time is tried, and how often at most it may be late.
const ROUNDS: usize = 9;
const LATE_MAX: usize = 2;

const FILE: Made<'static> = Made {
    kind: Kind::File,
    permissions: 0o644,
    umask: 0,
    user: 0,
    group: 0,
    device: 0,
    target: b"",
    is_opened: false,
    object: None,
};

fn node(client: &Client, number: u64) -> Node {
    match client.call(&Request::Node { number }) {
        Ok(Reply::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

fn listed(client: &Client, directory: u64) -> Vec<Vec<u8>> {
    let list = Request::List { directory, after: 0, max: 100, with_nodes: true };
    match client.call(&list) {
        Ok(Reply::Listing(entries)) => {
            let mut names: Vec<_> = entries.into_iter().map(|entry: Listed| entry.name).collect();
            names.sort();
            names
        }
        other => panic!("{other:?}"),
    }
}

/// A directory of the first client with files of these names.
fn directory(clients: &Clients, name: &str, names: &[&[u8]]) -> (u64, Vec<u64>) {
    let directory = clients.directory(name);
    // Names are remembered where some are asked for.
    assert_eq!(clients.one.ahead(directory, b"none", LONG), Ok(None));
    let files = names.iter().map(|name| made_by(&clients.one, directory, name, FILE));
    (directory, files.map(|made| made.expect("it is new")).collect())
}

/// Whether a name was said to be gone, and not taken away at once: then its directory is told to have
/// changed by the least.
fn says_gone(clients: &Clients, directory: u64, name: &[u8]) -> bool {
    let before = clients.one.recent(directory, LONG).map(|(node, _)| node.changed);
    match clients.one.remove_later(directory, name) {
        Ok(Some(Reply::Gone { directory: Some(directory), .. })) => {
            before.map(|before| before.next()) == Some(directory.changed)
        }
        other => panic!("{other:?}"),
    }
}

/// A directory with `a` and `b`, of which the first client has said that `b` is gone.
fn said_gone(clients: &Clients, what: &str) -> (u64, Vec<u64>) {
    for round in 0..TRIES_MAX {
        let names: [&[u8]; 6] = [b"a", b"b", b"1", b"2", b"3", b"4"];
        let (directory, files) = directory(clients, &format!("{what}{round}"), &names);
        for name in &names[2..] {
            assert!(!says_gone(clients, directory, name), "few are waited for");
        }
        if says_gone(clients, directory, b"b") {
            return (directory, files);
        }
    }
    panic!("nothing is ever said to be gone");
}

/// What holds where a machine is not so busy that what was put off comes later than others wait for it: mostly.
fn check_mostly(holds: impl Fn(usize) -> bool) {
    let late = (0..ROUNDS).filter(|round| !holds(*round)).count();
    assert!(late <= LATE_MAX, "{late} of {ROUNDS}");
}

/// Something that the first client does next in a directory that has lost `b`, and asks the server for.
type Next = (&'static str, fn(&Client, u64));

const NEXT: [Next; 7] = [
    ("looks for another", |one, directory| assert!(found(one, directory, b"a").is_some())),
    ("lists", |one, directory| assert_eq!(listed(one, directory), [&b"a"[..], b"first"])),
    ("makes it again", |one, directory| {
        made_by(one, directory, b"b", FILE).expect("it is gone");
        let remove = Request::Remove { directory, name: b"b", is_directory: false };
        one.call(&remove).expect("it is there");
    }),
    ("moves another there", |one, directory| {
        let rename = |from, to| Request::Rename {
            from_directory: directory,
            from,
            to_directory: directory,
            to,
            how: RenameHow { keeps_existing: true, ..RenameHow::default() },
            user: 0,
            group: 0,
        };
        one.call(&rename(b"a", b"b")).expect("nothing has that name");
        one.call(&rename(b"b", b"a")).expect("nothing has that name");
    }),
    ("removes another", |one, directory| {
        let remove = Request::Remove { directory, name: b"first", is_directory: false };
        one.call(&remove).expect("it is there");
        made_by(one, directory, b"first", FILE).expect("it is gone");
    }),
    ("syncs", |one, _| {
        one.call(&Request::Sync).expect("there is a disk");
        assert!(!one.take_loss(None), "nothing is lost");
    }),
    ("ends", |one, _| one.finish().expect("the server answers")),
];

#[test]
fn what_is_said_to_be_gone_is_gone_for_whoever_looks() {
    let clients = Clients::new();
    for (what, next) in NEXT {
        let (directory, files) = said_gone(&clients, what);
        next(&clients.one, directory);
        assert_eq!(found(&clients.other, directory, b"b"), None, "{what}");
        assert_eq!(listed(&clients.other, directory), [&b"a"[..], b"first"], "{what}");
        let gone = clients.other.call(&Request::Node { number: files[1] });
        assert_eq!(errno(gone), Some(Errno::STALE), "{what}");
        assert_eq!(found(&clients.one, directory, b"b"), None, "{what}");
        let there = [&clients.one, &clients.other].map(|client| found(client, directory, b"a"));
        assert_eq!(there, [Some(files[0]); 2], "{what}");
    }
}

#[test]
fn others_wait_until_it_is_gone() {
    let clients = Clients::new();
    check_mostly(|round| {
        let (directory, _) = said_gone(&clients, &format!("found{round}-"));
        assert_eq!(found(&clients.one, directory, b"b"), None, "nobody need be asked");
        found(&clients.other, directory, b"b").is_none()
    });
    check_mostly(|round| {
        let (directory, _) = said_gone(&clients, &format!("listed{round}-"));
        listed(&clients.other, directory) == [&b"a"[..], b"first"]
    });
    check_mostly(|round| {
        let (_, files) = said_gone(&clients, &format!("known{round}-"));
        let gone = clients.other.call(&Request::Node { number: files[1] });
        errno(gone) == Some(Errno::STALE)
    });
}

#[test]
fn a_directory_is_as_its_user_was_told() {
    let clients = Clients::new();
    check_mostly(|round| {
        let (directory, _) = said_gone(&clients, &format!("directory{round}-"));
        let told = clients.one.recent(directory, LONG);
        let there = node(&clients.other, directory);
        assert_eq!(node(&clients.one, directory), node(&clients.other, directory));
        assert_eq!(node(&clients.one, directory).size, 2);
        told.is_some_and(|(told, _)| told == there)
    });
}

#[test]
fn an_emptied_directory_can_be_removed_by_anybody() {
    let clients = Clients::new();
    let remove = |client: &Client, name: &str| {
        let (directory, _) = directory(&clients, name, &[b"a", b"b", b"c", b"d", b"e", b"f"]);
        let files: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"e", b"f", b"first"];
        for file in files {
            if clients.one.remove_later(directory, file) == Ok(None) {
                let remove = Request::Remove { directory, name: file, is_directory: false };
                clients.one.call(&remove).expect("it is there");
            }
        }
        let name = name.as_bytes();
        client.call(&Request::Remove { directory: ROOT, name, is_directory: true }).map(drop)
    };
    assert_eq!(remove(&clients.one, "emptied"), Ok(()));
    check_mostly(|round| match remove(&clients.other, &format!("emptied{round}")) {
        Ok(()) => true,
        Err(failure) if failure.errno() == Errno::NOTEMPTY => false,
        Err(failure) => panic!("{failure}"),
    });
}

#[test]
fn the_next_server_takes_away_what_the_one_before_did_not() {
    let mut clients = Clients::new();
    for round in 0..3 {
        let (directory, files) = said_gone(&clients, &format!("round{round}-"));
        clients.attached.restart(&clients.scene);
        assert_eq!(found(&clients.one, directory, b"a"), Some(files[0]));
        assert_eq!(found(&clients.other, directory, b"b"), None);
        assert!(!clients.one.take_loss(None), "nothing is lost");
    }
}

#[test]
fn what_got_the_name_since_stays() {
    let clients = Clients::new();
    let (directory, files) = directory(&clients, "directory", &[b"a", b"b"]);
    let remove = Request::Remove { directory, name: b"a", is_directory: false };
    clients.other.call(&remove).expect("it is there");
    let new = made_by(&clients.other, directory, b"a", FILE).expect("it is gone");
    // The first client knows another file by that name, and leaves it to who asks whatever has it now.
    assert_eq!(clients.one.remove_later(directory, b"a"), Ok(None));
    assert_eq!(found(&clients.other, directory, b"a"), Some(new));
    assert_eq!(found(&clients.one, directory, b"b"), Some(files[1]));
}

#[test]
fn not_everything_is_said_to_be_gone() {
    let clients = Clients::new();
    let (directory, files) = directory(&clients, "directory", &[b"open", b"linked", b"a", b"b"]);
    let one = &clients.one;
    one.call(&Request::Open { number: files[0], is_for_writing: false }).expect("it is there");
    let link = Request::Link { number: files[1], directory, name: b"link" };
    one.call(&link).expect("it is new");
    let made = Made { kind: Kind::Directory, ..FILE };
    made_by(one, directory, b"inner", made).expect("it is new");
    for name in [&b"open"[..], b"linked", b"inner", b"never"] {
        assert_eq!(one.remove_later(directory, name), Ok(None), "{name:?}");
    }
    // Nor in a directory that others changed, nor one that nobody made here.
    let own = made_by(one, ROOT, b"file", FILE).expect("it is new");
    assert_eq!(one.remove_later(ROOT, b"file"), Ok(None));
    assert_eq!(found(&clients.other, ROOT, b"file"), Some(own));
    made_by(&clients.other, directory, b"another", FILE).expect("it is new");
    assert!(!says_gone(&clients, directory, b"a"));
    assert_eq!(one.remove_later(directory, b"b"), Ok(None), "it is not its own any more");
}
