// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many requests what programs do with names is over the network (docs/reference/mount.md).

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::clients::Pair;

/// So often each is done.
const COUNT: usize = 200;

/// Beside what is done a mount tells that it is there, and what was closed.
const MORE: usize = COUNT / 10;

/// So often what depends on the machine is tried.
const TRIES: usize = 9;

/// What is done with a name of a directory, and the most requests for it. Whoever makes a name looks
/// whether it is there before.
type Step = (&'static str, usize, fn(&Path, usize));

const STEPS: [Step; 13] = [
    ("make", 3, |here, n| fs::write(here.join(format!("f{n}")), "made").expect("it is new")),
    ("look", 1, |here, n| {
        fs::metadata(here.join(format!("f{n}"))).expect("it is there");
    }),
    ("read", 2, |here, n| {
        fs::read(here.join(format!("f{n}"))).expect("it is there");
    }),
    ("remove", 2, |here, n| fs::remove_file(here.join(format!("f{n}"))).expect("it is there")),
    ("mkdir", 2, |here, n| fs::create_dir(here.join(format!("d{n}"))).expect("it is new")),
    ("symlink", 2, |here, n| symlink("aim", here.join(format!("s{n}"))).expect("it is new")),
    // As that looks anew at what it has just changed.
    ("link", 3, |here, n| {
        fs::hard_link(here.join("file"), here.join(format!("l{n}"))).expect("it is new");
    }),
    ("rename", 3, |here, n| {
        fs::rename(here.join(format!("l{n}")), here.join(format!("m{n}"))).expect("it is there");
    }),
    ("chmod", 1, |here, n| {
        let mode = Permissions::from_mode(0o700 + n as u32 % 8);
        fs::set_permissions(here.join("file"), mode).expect("it is there");
    }),
    ("unlink", 1, |here, n| fs::remove_file(here.join(format!("m{n}"))).expect("it is there")),
    ("unlink a symlink", 1, |here, n| {
        fs::remove_file(here.join(format!("s{n}"))).expect("it is there");
    }),
    ("rmdir", 1, |here, n| fs::remove_dir(here.join(format!("d{n}"))).expect("it is there")),
    ("look for what is not there", 1, |here, n| {
        fs::metadata(here.join(format!("no{n}"))).expect_err("nobody made it");
    }),
];

/// Has each step done so often, with as many requests as there may be.
#[track_caller]
fn count(pair: &Pair, here: &Path, steps: &[Step]) {
    let mut many = Vec::new();
    for (what, most, step) in steps {
        let before = pair.requests();
        for number in 0..COUNT {
            step(here, number);
        }
        let requests = pair.requests() - before;
        println!("{what}: {requests} requests for {COUNT}");
        if requests > most * COUNT + MORE {
            many.push(what);
        }
    }
    assert!(many.is_empty(), "these take more than they may: {many:?}");
}

#[test]
fn what_is_done_with_a_name_is_one_request() {
    let Some(pair) = Pair::new(&[]) else { return };
    let here = pair.one.path().join("here");
    fs::create_dir(&here).expect("it is new");
    File::create(here.join("file")).expect("there is room");
    // Somebody else changes names here, too: so that none is known to be missing without a question.
    File::create(pair.other.path().join("here/other")).expect("there is room");
    count(&pair, &here, &STEPS);
    // Who has made a directory knows which names there are.
    let own = pair.one.path().join("own");
    fs::create_dir(&own).expect("it is new");
    let (_, _, make) = STEPS[0];
    count(&pair, &own, &[("make in a directory of its own", 1, make)]);
}

#[test]
fn who_walks_a_tree_asks_for_many_directories_at_once() {
    let Some(pair) = Pair::new(&["--cache", "10min", "-o", "noatime"]) else { return };
    let chain = |mount: &Path| {
        let mut at = mount.to_path_buf();
        (0..COUNT).map(move |_| {
            at.push("d");
            at.clone()
        })
    };
    for directory in chain(pair.one.path()) {
        fs::create_dir(&directory).expect("it is new");
        fs::write(directory.join("file"), "made").expect("it is new");
    }
    // The kernel asks for the end in another way where nobody wants more than names.
    let walk = |looks: bool| {
        let before = pair.requests();
        fs::read_dir(pair.other.path()).expect("it is there").for_each(drop);
        for directory in chain(pair.other.path()) {
            // Each is told of with the one above, and opened a moment later.
            for entry in fs::read_dir(directory).expect("it is there") {
                let entry = entry.expect("readable");
                if looks {
                    entry.metadata().expect("it is there");
                }
            }
        }
        let asked = pair.requests() - before;
        println!("{asked} requests for {COUNT} directories, where who walks looks: {looks}");
        // Else each is one by itself.
        asked < COUNT / 2
    };
    // A busy machine may take longer than what was fetched is used.
    for looks in [true, false] {
        assert!((0..TRIES).any(|_| walk(looks)), "where who walks looks: {looks}");
    }
}

#[test]
fn who_walks_and_writes_finds_what_he_has_written() {
    let Some(pair) = Pair::new(&["--cache", "10min", "-o", "noatime"]) else { return };
    let here = pair.one.path().join("here");
    let other = pair.other.path().join("here");
    fs::create_dir(&here).expect("it is new");
    let inner = |number: usize| format!("{number:03}");
    for number in 0..COUNT {
        let at = here.join(inner(number));
        fs::create_dir(&at).expect("it is new");
        fs::write(at.join("small"), "made").expect("it is new");
        fs::write(at.join("large"), vec![b'a'; 8 << 10]).expect("it is new");
    }
    let before = pair.requests();
    let long = vec![b'b'; 20 << 10];
    fs::read_dir(&other).expect("it is there").for_each(drop);
    for number in 0..COUNT {
        let at = other.join(inner(number));
        // Before it is listed, and perhaps behind when that was fetched.
        let written = number % 4 == 3;
        if written {
            fs::write(at.join("small"), "longer than before").expect("there is room");
            fs::write(at.join("large"), &long).expect("there is room");
            fs::write(at.join("new"), "new").expect("there is room");
        }
        let mut names: Vec<_> = fs::read_dir(&at)
            .expect("it is there")
            .map(|entry| {
                let entry = entry.expect("readable");
                let bytes = entry.metadata().expect("it is there").len() as usize;
                let content = fs::read(entry.path()).expect("readable");
                assert_eq!(bytes, content.len(), "{}", entry.path().display());
                (entry.file_name().into_string().expect("ASCII"), bytes)
            })
            .collect();
        names.sort();
        let expected: &[(&str, usize)] = match written {
            true => &[("large", 20 << 10), ("new", 3), ("small", 18)],
            false => &[("large", 8 << 10), ("small", 4)],
        };
        let expected: Vec<_> =
            expected.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        assert_eq!(names, expected, "{number}");
    }
    println!("{} requests for {COUNT} directories", pair.requests() - before);
}
