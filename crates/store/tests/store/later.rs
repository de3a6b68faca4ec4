// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a client says it has made, and makes a little later.

use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Closed, Left, LockKind, LockRange, Locked, Made, ROOT, Reply, Request, Result};

use crate::clients::{Client, Clients, TRIES_MAX, errno, found, made_by, opened};

/// What is made in the background is there long before that.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

fn write(client: &Client, number: u64, offset: u64, data: &[u8]) -> Result<u64> {
    let (at_end, clears_set_id) = (false, false);
    match client.call(&Request::Write { number, offset, data, at_end, clears_set_id })? {
        Reply::Node(node) => Ok(node.size),
        Reply::NotHere => Ok(u64::MAX),
        other => panic!("{other:?}"),
    }
}

fn content(client: &Client, number: u64) -> Vec<u8> {
    match client.call(&Request::Content { number }) {
        Ok(Reply::Opened { content, .. }) => content,
        other => panic!("{other:?}"),
    }
}

fn close(client: &Client, numbers: &[u64], id: u64) -> Result<Reply> {
    let close =
        |number: &u64| Closed { number: *number, is_for_writing: true, left: Left::Unknown };
    let closed = numbers.iter().map(close).collect();
    client.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id })
}

/// Something that one client does next; then the other one finds the file, by its name or as it is.
type Next = (&'static str, fn(&Clients, u64, u64));

const NEXT: [Next; 8] = [
    ("writes", |clients, _, number| {
        assert_eq!(write(&clients.one, number, 0, b"bytes"), Ok(5));
        assert_eq!(content(&clients.other, number), b"bytes");
    }),
    ("writes somewhere in it", |clients, _, number| {
        assert_eq!(write(&clients.one, number, 2, b"bytes"), Ok(7));
        assert_eq!(content(&clients.other, number), b"\0\0bytes");
    }),
    ("writes more than fits", |clients, _, number| {
        assert_eq!(write(&clients.one, number, 0, &[7; 5000]), Ok(u64::MAX));
    }),
    ("looks at it", |clients, _, number| {
        assert!(clients.one.call(&Request::Node { number }).is_ok());
    }),
    ("looks for it", |clients, directory, number| {
        assert_eq!(found(&clients.one, directory, b"name"), Some(number));
    }),
    ("looks at something else", |clients, _, _| {
        assert!(clients.one.call(&Request::Node { number: ROOT }).is_ok());
    }),
    ("locks it", |clients, _, number| {
        let range = LockRange { start: 0, end: 9, kind: LockKind::Write };
        let locked = Locked { range, process: 7 };
        let lock = Request::Lock { number, owner: 1, is_flock: false, locked };
        assert!(clients.one.call(&lock).is_ok());
    }),
    ("closes it", |clients, _, number| {
        clients.one.check_to_close(number).expect("it is made");
    }),
];

#[test]
fn what_is_made_later_is_there_for_everybody_once_its_maker_asks_for_anything() {
    let clients = Clients::new();
    for (round, (what, next)) in NEXT.iter().enumerate() {
        let (directory, number) = clients.made_later(b"name");
        next(&clients, directory, number);
        assert_eq!(found(&clients.other, directory, b"name"), Some(number), "{what}");
        // It is open, so that it stays when its name is taken away.
        let remove = Request::Remove { directory, name: b"name", is_directory: false };
        clients.other.call(&remove).expect("it is there");
        assert!(clients.one.call(&Request::Node { number }).is_ok(), "{what}");
        close(&clients.one, &[number], round as u64 + 1).expect("it is open");
        let gone = clients.other.call(&Request::Node { number });
        assert_eq!(errno(gone), Some(Errno::STALE), "{what}: it was open once");
    }
}

#[test]
fn what_nobody_asks_for_is_there_soon() {
    let clients = Clients::new();
    for _ in 0..3 {
        let (directory, number) = clients.made_later(b"name");
        let until_ns = clients.clock.now_ns() + WAIT_TIME_MAX.as_nanos() as u64;
        while found(&clients.other, directory, b"name") != Some(number) {
            assert!(clients.clock.now_ns() < until_ns, "nobody makes it");
        }
    }
}

#[test]
fn several_are_made_in_any_order_and_each_with_its_bytes() {
    let clients = Clients::new();
    let mut most = 0;
    for round in 0..20 {
        let directories = [0, 1, 2].map(|index| clients.directory(&format!("{round}-{index}")));
        // What was told of a directory is believed for a moment only.
        let later = |directory: u64| Some((directory, clients.later(directory, b"name")?));
        let made: Vec<_> = directories.into_iter().filter_map(later).collect();
        most = most.max(made.len());
        for (_, number) in made.iter().rev() {
            let data = number.to_string();
            assert_eq!(write(&clients.one, *number, 0, data.as_bytes()), Ok(data.len() as u64));
        }
        for (directory, number) in made {
            assert_eq!(found(&clients.other, directory, b"name"), Some(number));
            assert_eq!(content(&clients.other, number), number.to_string().as_bytes());
        }
    }
    assert!(most > 1, "never two at once");
}

#[test]
fn the_next_server_makes_what_the_one_before_did_not() {
    let mut clients = Clients::new();
    for round in 0..3 {
        let (_, number) = clients.made_later(b"name");
        clients.attached.restart(&clients.scene);
        assert_eq!(write(&clients.one, number, 0, b"bytes"), Ok(5));
        assert_eq!(content(&clients.other, number), b"bytes");
        close(&clients.one, &[number], round + 1).expect("it is open");
    }
}

#[test]
fn nothing_is_made_later_where_others_make_names_too() {
    let clients = Clients::new();
    let directory = clients.directory("directory");
    assert!(clients.later(directory, b"first").is_none(), "it is there");
    assert!(clients.later(ROOT, b"name").is_none(), "it is not its own");
    for lends_rights in [0o4755, 0o2755] {
        let made = Made { permissions: lends_rights, ..opened() };
        let request = Request::Make { directory, name: b"name", made };
        assert!(clients.one.make_later(&request).is_none(), "who writes takes them away");
    }
    for _ in 0..TRIES_MAX {
        let (directory, number) = clients.made_later(b"name");
        // The other one waits until nobody relies on that, and finds it made, unless it takes too long.
        match made_by(&clients.other, directory, b"name", opened()) {
            Ok(_) => assert_eq!(errno(clients.one.check_to_close(number)), Some(Errno::EXIST)),
            Err(failure) => {
                assert_eq!(failure.errno(), Errno::EXIST);
                assert_eq!(found(&clients.other, directory, b"name"), Some(number));
                assert!(clients.later(directory, b"other").is_none(), "it has come to an end");
                return;
            }
        }
    }
    panic!("it always takes too long");
}

#[test]
fn a_directory_in_which_a_file_is_made_later_is_not_empty() {
    let clients = Clients::new();
    for round in 0..TRIES_MAX {
        let name = round.to_string();
        let directory = clients.directory(&name);
        let first = Request::Remove { directory, name: b"first", is_directory: false };
        clients.one.call(&first).expect("it is there");
        let Some(number) = clients.later(directory, b"name") else { continue };
        let name = name.as_bytes();
        let remove = Request::Remove { directory: ROOT, name, is_directory: true };
        // Unless it takes too long to make it.
        if errno(clients.other.call(&remove)) == Some(Errno::NOTEMPTY) {
            clients.one.check_to_close(number).expect("it is made");
            return;
        }
        clients.one.check_to_close(number).expect_err("its directory is gone");
    }
    panic!("it always takes too long");
}

#[test]
fn who_uses_a_file_that_cannot_be_made_is_told_until_it_is_closed() {
    let clients = Clients::new();
    let uses: [&dyn Fn(u64) -> Result<()>; 2] =
        [&|number| write(&clients.one, number, 0, b"bytes").map(drop), &|number| {
            clients.one.check_to_close(number)
        }];
    for (round, next) in uses.into_iter().enumerate() {
        // Nobody asks for such a name who looks at it first.
        let (directory, number) = clients.made_later(b"no/name");
        assert_eq!(errno(next(number)), Some(Errno::INVAL));
        assert_eq!(errno(clients.one.check(number)), Some(Errno::INVAL));
        assert_eq!(errno(clients.one.check_to_close(number)), Some(Errno::INVAL));
        clients.one.check(number + 1).expect("that is another one");
        assert_eq!(found(&clients.other, directory, b"name"), None);
        close(&clients.one, &[number], round as u64 + 1).expect("there is nothing to be closed");
        clients.one.check(number).expect("it was closed");
    }
    // Others go on.
    let (directory, number) = clients.made_later(b"name");
    clients.one.check_to_close(number).expect("it is made");
    assert_eq!(found(&clients.other, directory, b"name"), Some(number));
}
