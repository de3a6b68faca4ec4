// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that are listed ahead of who walks a tree, beside changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{Changes, Kind, Listed, Made, Node, ROOT, RenameHow, Reply, Request};

use crate::clients::{Client, Clients, found, made_by, opened};

/// What is listed is used for as long as it may be.
const LONG: Duration = Duration::from_secs(60);

/// Directories that are walked through, and how often.
const DIRECTORIES: usize = 12;
const ROUNDS: usize = 40;

/// So often names are changed in one of them at most.
const CHANGES_MAX: u64 = 3000;

/// So often what depends on time is tried.
const TRIES: usize = 50;

fn directories(clients: &Clients) -> Vec<u64> {
    (0..DIRECTORIES).map(|number| clients.directory(&number.to_string())).collect()
}

fn list(client: &Client, directory: u64) -> Vec<Listed> {
    let list = Request::List { directory, after: 0, max: 1000, with_nodes: true };
    match client.call(&list) {
        Ok(Reply::Listing(entries)) => entries,
        other => panic!("{other:?}"),
    }
}

/// A directory as who walks gets it, and whether it was fetched before.
fn walked(clients: &Clients, client: &Client, directory: u64) -> (Vec<Listed>, bool) {
    let begun_ns = clients.clock.now_ns();
    match client.list_ahead(directory, 0, 1000, LONG).expect("the server answers") {
        Some((entries, age)) => {
            let took = Duration::from_nanos(clients.clock.now_ns() - begun_ns);
            (entries, age > took)
        }
        None => (list(client, directory), false),
    }
}

fn has(entries: &[Listed], name: &str) -> bool {
    entries.iter().any(|entry| entry.name == name.as_bytes())
}

/// What somebody was told that he has made last in a directory, removed there, and moved away from there: names
/// with these numbers.
#[derive(Default)]
struct Changed {
    made: AtomicU64,
    removed: AtomicU64,
    moved: AtomicU64,
}

/// Says that it is over.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn who_walks_finds_what_others_were_told_they_have_changed() {
    let clients = Clients::new();
    let numbers = directories(&clients);
    // None is anybody's alone, to change names there.
    for number in &numbers {
        made_by(&clients.other, *number, b"other", opened()).expect("it is new");
    }
    let changed: Vec<_> = (0..DIRECTORIES).map(|_| Changed::default()).collect();
    let is_over = AtomicBool::new(false);
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let change = |round: u64, index: usize| {
        let (directory, changed) = (numbers[index], &changed[index]);
        let name = |kind: &str, round: u64| format!("{kind}{round}");
        let make = |name: String| {
            made_by(&clients.one, directory, name.as_bytes(), made.clone()).expect("it is new");
        };
        make(name("made", round));
        changed.made.store(round, Ordering::SeqCst);
        make(name("removed", round));
        let gone = name("removed", round);
        let remove = Request::Remove { directory, name: gone.as_bytes(), is_directory: false };
        assert!(clients.one.call(&remove).is_ok());
        changed.removed.store(round, Ordering::SeqCst);
        make(name("moved", round));
        let (from, to_directory) = (name("moved", round), numbers[(index + 1) % DIRECTORIES]);
        let to = format!("from{index}-{round}");
        let rename = Request::Rename {
            from_directory: directory,
            from: from.as_bytes(),
            to_directory,
            to: to.as_bytes(),
            how: RenameHow::default(),
            user: 0,
            group: 0,
        };
        assert!(clients.one.call(&rename).is_ok());
        changed.moved.store(round, Ordering::SeqCst);
    };
    let fetched = thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) && round < CHANGES_MAX {
                round += 1;
                change(round, round as usize % DIRECTORIES);
            }
        });
        // Also where something is missing.
        let _end = End(&is_over);
        let mut fetched = 0;
        for _ in 0..ROUNDS {
            // One to whom nothing was delegated before.
            let store = clients.scene.open();
            let walker = store.files("files").expect("it is there");
            for entry in list(&walker, ROOT) {
                let index = numbers.iter().position(|number| *number == entry.number);
                let index = index.expect("there are no others");
                let before = &changed[(index + DIRECTORIES - 1) % DIRECTORIES];
                let told = [&changed[index].made, &changed[index].removed, &changed[index].moved]
                    .map(|told| told.load(Ordering::SeqCst));
                let told_before = before.moved.load(Ordering::SeqCst);
                let (entries, was_fetched) = walked(&clients, &walker, entry.number);
                fetched += usize::from(was_fetched);
                let [made, removed, moved] = told;
                assert!(made == 0 || has(&entries, &format!("made{made}")), "{index}: {made}");
                assert!(!has(&entries, &format!("removed{removed}")), "{index}: {removed}");
                assert!(!has(&entries, &format!("moved{moved}")), "{index}: {moved}");
                let source = (index + DIRECTORIES - 1) % DIRECTORIES;
                let came = format!("from{source}-{told_before}");
                assert!(told_before == 0 || has(&entries, &came), "{index}: {came}");
            }
        }
        fetched
    });
    println!("{fetched} of {} directories were fetched before", ROUNDS * DIRECTORIES);
    assert!(fetched > 0, "else this shows nothing");
}

/// What is changed in a directory that was listed ahead, or of a file there; what of that a listing shows.
struct Own {
    what: &'static str,
    changes_names: bool,
    change: fn(&Clients, u64, u64),
    shows: fn(&[Listed]) -> bool,
}

const OWN: [Own; 6] = [
    Own {
        what: "make",
        changes_names: true,
        change: |clients, directory, _| {
            let made = Made { kind: Kind::File, ..Made::default() };
            made_by(&clients.one, directory, b"new", made).expect("it is new");
        },
        shows: |entries| has(entries, "new"),
    },
    Own {
        what: "make a little later",
        changes_names: true,
        change: |clients, directory, _| {
            if clients.later(directory, b"new").is_none() {
                made_by(&clients.one, directory, b"new", opened()).expect("it is new");
            }
        },
        shows: |entries| has(entries, "new"),
    },
    Own {
        what: "remove",
        changes_names: true,
        change: |clients, directory, _| remove_first(clients, directory),
        shows: |entries| !has(entries, "first"),
    },
    Own {
        what: "remove a little later",
        changes_names: true,
        change: |clients, directory, _| match clients.one.remove_later(directory, b"first") {
            Ok(Some(_)) => {}
            _ => remove_first(clients, directory),
        },
        shows: |entries| !has(entries, "first"),
    },
    Own {
        what: "write",
        changes_names: false,
        change: |clients, _, number| {
            let data = b"bytes";
            let request =
                Request::Write { number, offset: 0, data, at_end: false, clears_set_id: false };
            assert!(clients.one.call(&request).is_ok());
        },
        // What is so now, or nothing.
        shows: |entries| matches!(first_of(entries).map(|node| node.size), None | Some(5)),
    },
    Own {
        what: "change",
        changes_names: false,
        change: |clients, _, number| {
            let changes = Changes { permissions: Some(0o640), ..Changes::default() };
            assert!(clients.one.call(&Request::Change { number, changes }).is_ok());
        },
        shows: |entries| first_of(entries).is_none_or(|node| node.permissions == 0o640),
    },
];

fn remove_first(clients: &Clients, directory: u64) {
    let remove = Request::Remove { directory, name: b"first", is_directory: false };
    assert!(clients.one.call(&remove).is_ok());
}

fn first_of(entries: &[Listed]) -> Option<&Node> {
    entries.iter().find(|entry| entry.name == b"first")?.node.as_ref()
}

#[test]
fn who_walks_finds_what_was_changed_here() {
    let clients = Clients::new();
    for Own { what, changes_names, change, shows } in OWN {
        let was_kept = (0..TRIES).any(|number| {
            let above = clients.directory(&format!("{what} {number}"));
            let inner = inner_ones(&clients, above);
            // The last two come with one before.
            let (changed, last) = (inner[3], inner[4]);
            let first = found(&clients.one, changed, b"first").expect("it is there");
            inner[..3].iter().for_each(|directory| _ = walked(&clients, &clients.one, *directory));
            change(&clients, changed, first);
            let (entries, was_fetched) = walked(&clients, &clients.one, changed);
            assert!(shows(&entries), "{what}: {entries:?}");
            assert!(!was_fetched || !changes_names, "{what}: that was fetched before");
            // And once nothing is on its way.
            assert!(shows(&walked(&clients, &clients.one, changed).0), "{what}");
            walked(&clients, &clients.one, last).1
        });
        assert!(was_kept, "{what}: nothing was ever fetched before");
    }
}

#[test]
fn what_was_told_later_is_not_taken_back() {
    let clients = Clients::new();
    let was_kept = (0..TRIES).any(|number| {
        let above = clients.directory(&format!("later {number}"));
        let inner = inner_ones(&clients, above);
        let changed = inner[3];
        let first = found(&clients.one, changed, b"first").expect("it is there");
        inner[..3].iter().for_each(|directory| _ = walked(&clients, &clients.one, *directory));
        // Another client writes to a file there, and one that opens it here is told so.
        let (number, data) = (first, b"bytes");
        let write = Request::Write { number, offset: 0, data, at_end: false, clears_set_id: false };
        assert!(clients.other.call(&write).is_ok());
        let open = Request::Open { number, is_for_writing: false };
        let Ok(Reply::Opened { node, .. }) = clients.one.call(&open) else { panic!("it is there") };
        assert_eq!(node.size, 5);
        let (entries, was_kept) = walked(&clients, &clients.one, changed);
        assert_eq!(first_of(&entries).map(|node| node.size), Some(5));
        was_kept
    });
    assert!(was_kept, "nothing was ever fetched before");
}

#[test]
fn a_directory_is_given_in_parts() {
    let clients = Clients::new();
    let part = |directory, after| {
        clients.one.list_ahead(directory, after, 2, LONG).expect("the server answers")
    };
    let was_kept = (0..TRIES).any(|number| {
        let above = clients.directory(&format!("parts {number}"));
        let inner = inner_ones(&clients, above);
        for name in [b"1", b"2", b"3"] {
            made_by(&clients.one, inner[3], name, opened()).expect("it is new");
        }
        let expected = list(&clients.one, inner[3]);
        inner[..3].iter().for_each(|directory| _ = walked(&clients, &clients.one, *directory));
        let Some((mut entries, _)) = part(inner[3], 0) else { return false };
        // Where there was room for one of them alone.
        let Some((again, _)) = part(inner[3], entries[0].position) else { return false };
        assert_eq!((again.len(), again[0].position), (2, entries[1].position));
        let Some((more, _)) = part(inner[3], entries[1].position) else { return false };
        assert_eq!((entries.len(), more.len()), (2, 2));
        entries.extend(more);
        let of = |entries: &[Listed]| entries.iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(of(&entries), of(&expected));
        let Some((more, _)) = part(inner[3], entries[3].position) else { return false };
        assert_eq!(more, [], "there are no more");
        // Who goes back asks.
        let begun = part(inner[4], 0);
        assert_eq!(part(inner[4], 0), None);
        begun.is_some()
    });
    assert!(was_kept, "nothing was ever fetched before");
}

/// Directories with a file each, in the order of the listing of that above.
fn inner_ones(clients: &Clients, above: u64) -> [u64; 5] {
    let made = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
    for name in [b"a", b"b", b"c", b"d", b"e"] {
        let inner = made_by(&clients.one, above, name, made.clone()).expect("it is new");
        let file = Made { kind: Kind::File, ..Made::default() };
        made_by(&clients.one, inner, b"first", file).expect("it is new");
    }
    let entries = list(&clients.one, above);
    let inner: Vec<u64> =
        entries.iter().filter(|it| it.kind.is_directory()).map(|it| it.number).collect();
    inner.try_into().expect("there are five")
}
