// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a program has removed before their server has: whatever comes next, they are gone, here and
//! elsewhere.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

use crate::clients::Pair;
use crate::scene::{Mounted, wait_until};

/// Files that are removed in one go.
const FILES: usize = 60;

/// Of twelve times, so often at most somebody finds what was said to be gone: a machine that is busy with
/// other things may be too slow for what is promised.
const LATE_MAX: u32 = 2;

/// How often a mount is stopped until it had still something to take away.
const STOPS_MAX: usize = 100;

fn name(index: usize) -> String {
    format!("file{index}")
}

/// A new directory with files, of which the second mount has seen nothing.
fn fill(directory: &Path) {
    fs::create_dir(directory).expect("it is new");
    for index in 0..FILES {
        fs::write(directory.join(name(index)), "bytes").expect("there is room");
    }
}

/// Names in a directory, and when it changed.
fn seen(directory: &Path) -> (Vec<String>, (i64, i64)) {
    let entries = fs::read_dir(directory).expect("it is there");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("it is text");
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("it is read"))).collect();
    names.sort();
    let found = fs::metadata(directory).expect("it is there");
    (names, (found.mtime(), found.mtime_nsec()))
}

/// How somebody finds out whether a file is there.
type Look = (&'static str, fn(&Path, &str) -> bool);

const LOOKS: [Look; 5] = [
    ("listed", |directory, name| seen(directory).0.contains(&name.to_string())),
    ("looked at", |directory, name| directory.join(name).exists()),
    ("opened", |directory, name| File::open(directory.join(name)).is_ok()),
    ("made", |directory, name| File::create_new(directory.join(name)).is_err()),
    ("replaced", |directory, name| {
        fs::write(directory.join("new"), "new").expect("there is room");
        fs::rename(directory.join("new"), directory.join(name)).expect("it can be replaced");
        fs::read_to_string(directory.join(name)).expect("it is there") != "new"
    }),
];

#[test]
fn a_removed_file_is_gone_at_once_for_whoever_looks() {
    let Some(pair) = Pair::new(&[]) else { return };
    for (what, look) in LOOKS {
        let mut late = 0;
        // Who has looked once has each of the next ones waited for: they look in new directories.
        for last in 6..18 {
            let directory = format!("{what}{last}");
            let [one, other] = [&pair.one, &pair.other].map(|mount| mount.path().join(&directory));
            fill(&one);
            for index in 0..=last {
                fs::remove_file(one.join(name(index))).expect("it is there");
            }
            late += u32::from(look(&other, &name(last)));
            assert!(look(&other, &name(last + 1)) == (what != "replaced"), "{directory}");
        }
        assert!(late <= LATE_MAX, "{what}: {late}");
    }
}

#[test]
fn many_go_with_one_request() {
    let Some(pair) = Pair::new(&[]) else { return };
    let mut rounds = 0;
    // Each name goes by itself while the machine is so busy that too long passes from one to the next.
    wait_until("many names go with one request", || {
        let directory = pair.one.path().join(format!("directory{rounds}"));
        rounds += 1;
        fill(&directory);
        let before = pair.requests();
        (0..FILES).for_each(|index| {
            fs::remove_file(directory.join(name(index))).expect("it is there");
        });
        let requests = pair.requests() - before;
        println!("round {rounds}: {requests} requests for {FILES} names");
        requests < FILES / 2
    });
}

#[test]
fn an_emptied_directory_can_be_removed_by_anybody() {
    let Some(pair) = Pair::new(&[]) else { return };
    let remove = |mount: &Mounted, path: &str| {
        let directory = pair.one.path().join(path);
        fill(&directory);
        for index in 0..FILES {
            let file = directory.join(name(index));
            fs::remove_file(&file).expect("it is there");
            let here = fs::metadata(&file).map_err(|error| error.kind());
            assert_eq!(here.err(), Some(ErrorKind::NotFound), "{index}");
        }
        fs::remove_dir(mount.path().join(path)).map_err(|error| error.kind())
    };
    assert_eq!(remove(&pair.one, "directory"), Ok(()));
    let mut late = 0;
    for round in 0..12 {
        match remove(&pair.other, &format!("directory{round}")) {
            Ok(()) => {}
            Err(ErrorKind::DirectoryNotEmpty) => late += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(late <= LATE_MAX, "{late}");
}

#[test]
fn a_directory_changes_once_with_each_file_that_is_removed() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = [&pair.one, &pair.other].map(|mount| mount.path().join("directory"));
    fill(&one);
    let changed = || {
        let found = fs::metadata(&one).expect("it is there");
        let modified = (found.mtime(), found.mtime_nsec());
        assert_eq!((found.ctime(), found.ctime_nsec()), modified, "each change has one time");
        modified
    };
    let mut last = changed();
    for index in 0..FILES / 2 {
        fs::remove_file(one.join(name(index))).expect("it is there");
        let next = changed();
        assert!(last < next, "{index}");
        last = next;
    }
    // What was told once holds, here and elsewhere.
    let (names, at) = seen(&one);
    assert_eq!(last, at);
    assert_eq!(names.len(), FILES / 2);
    assert_eq!(seen(&other), (names, at));
}

#[test]
fn what_is_open_can_be_read_to_its_end_and_what_has_another_name_stays() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = [&pair.one, &pair.other].map(|mount| mount.path().join("directory"));
    fill(&one);
    fs::hard_link(one.join(name(7)), one.join("link")).expect("it is new");
    let opened = [5, 25, 45].map(|index| {
        let mount = if index == 25 { &one } else { &other };
        File::open(mount.join(name(index))).expect("it is there")
    });
    (0..FILES).for_each(|index| fs::remove_file(one.join(name(index))).expect("it is there"));
    assert_eq!(opened[1].metadata().expect("it is open").nlink(), 0);
    for mut file in opened {
        let mut text = String::new();
        file.read_to_string(&mut text).expect("it is open");
        assert_eq!(text, "bytes");
    }
    assert_eq!([&one, &other].map(|mount| seen(mount).0), [["link"]; 2]);
    assert_eq!(fs::read_to_string(other.join("link")).expect("it is there"), "bytes");
    fs::write(one.join(name(1)), "new").expect("the name is free");
    assert_eq!(fs::read_to_string(other.join(name(1))).expect("it is there"), "new");
}

#[test]
fn who_unmounts_or_has_a_server_killed_behind_it_finds_nothing_again() {
    let Some(mut pair) = Pair::new(&[]) else { return };
    let [one, other] = [&pair.one, &pair.other].map(|mount| mount.path().to_path_buf());
    for directory in ["killed", "unmounted"] {
        fill(&one.join(directory));
    }
    let remove = |directory: &str| {
        for index in 0..FILES {
            fs::remove_file(one.join(directory).join(name(index))).expect("it is there");
        }
    };
    remove("killed");
    pair.served.kill_and_restart(&pair.scene);
    // Until the client has reached it the new one does not know that files are said to be gone.
    assert_eq!(seen(&one.join("killed")).0.len(), 0);
    assert_eq!(seen(&other.join("killed")).0.len(), 0);
    remove("unmounted");
    pair.one.unmount();
    assert_eq!(seen(&other.join("unmounted")).0.len(), 0);
}

#[test]
fn what_others_wrote_because_it_came_too_late_stays_and_is_told() {
    let Some(pair) = Pair::new(&[]) else { return };
    let last = name(FILES - 1);
    let is_late = |round| {
        let directory = format!("directory{round}");
        let [one, other] = [&pair.one, &pair.other].map(|mount| mount.path().join(&directory));
        fill(&one);
        (0..FILES).for_each(|index| fs::remove_file(one.join(name(index))).expect("it is there"));
        pair.one.set_silent(true);
        let opened = File::options().write(true).open(other.join(&last));
        let written = opened.and_then(|mut file| file.write_all(b"other"));
        pair.one.set_silent(false);
        match written {
            Ok(()) => {}
            // It was gone already.
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(error) => panic!("{error}"),
        }
        let directory = File::open(&one).expect("it is there");
        let told = directory.sync_all().map_err(|error| error.raw_os_error());
        assert_eq!(told, Err(Some(Errno::IO.raw_os_error())));
        directory.sync_all().expect("it was told");
        for mount in [&one, &other] {
            assert_eq!(seen(mount).0, [&*last]);
            assert_eq!(fs::read_to_string(mount.join(&last)).expect("it is there"), "other");
        }
        true
    };
    assert!((0..STOPS_MAX).any(is_late), "it is never too late");
    assert!(pair.scene.has_logged("one", "files that are said to be gone stay"));
}
