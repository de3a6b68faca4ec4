// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a source, for a directory and for a bucket.

use std::path::Path;

use rustix::io::Errno;
use terrace_source::{Meta, Source};

use crate::origin::{Local, Origin, Remote, listed, names};

macro_rules! behaviour {
    ($($case:ident),+) => {
        mod directory {
            $(#[test] fn $case() { super::$case(&super::Local::new()); })+
        }
        mod bucket {
            $(#[test] fn $case() { super::$case(&super::Remote::new()); })+
        }
    };
}

behaviour!(
    attributes_are_those_of_files_and_directories,
    listings_have_every_name_once_with_its_inode,
    reads_return_the_range_and_end_with_the_file,
    reads_never_mix_two_states,
    a_file_that_vanished_cannot_be_opened_and_read,
    inodes_and_identity_outlive_a_restart,
    names_that_lead_nowhere_are_not_found
);

fn look(source: &dyn Source, path: &str) -> Result<Meta, Errno> {
    source.look(Path::new(path))
}

/// The bytes of a range that is read as the mount reads it; `None` where they were refused.
fn read(
    source: &dyn Source,
    path: &str,
    seen: &Meta,
    offset: u64,
    bytes: usize,
) -> Option<Vec<u8>> {
    let file = source.open(Path::new(path), seen).ok()?;
    let before = file.look().expect("it is open");
    let mut buffer = vec![0; bytes];
    let count = file.read_at(offset, &mut buffer).ok()?;
    buffer.truncate(count);
    let after = file.look().expect("it is open");
    (before.is_same_state(seen) && after.is_same_state(seen)).then_some(buffer)
}

fn attributes_are_those_of_files_and_directories(origin: &dyn Origin) {
    origin.put("a/b/file", b"seven b");
    origin.put("empty", b"");
    let source = origin.open();
    let file = look(&*source, "a/b/file").expect("it is there");
    assert!(file.is_file());
    assert_eq!(file.size_bytes, 7);
    assert!(file.modified.0 > 0);
    assert_eq!(look(&*source, "empty").expect("it is there").size_bytes, 0);
    for directory in ["", "a", "a/b"] {
        let found = look(&*source, directory).expect("it is there");
        assert!(!found.is_file(), "{directory}");
        assert_eq!(found.mode & 0o170_000, 0o040_000, "{directory}");
    }
}

fn listings_have_every_name_once_with_its_inode(origin: &dyn Origin) {
    let files = ["a/one", "a/two", "a/deep/er/file", "a-b", "a.c", "z/file"];
    for name in files {
        origin.put(name, name.as_bytes());
    }
    let source = origin.open();
    assert_eq!(listed(&*source, ""), ["a", "a-b", "a.c", "z"]);
    assert_eq!(listed(&*source, "a"), ["deep", "one", "two"]);
    assert_eq!(listed(&*source, "a/deep"), ["er"]);
    let all = names(source.list(Path::new("a"), None).expect("a directory"));
    let of_name = |wanted: &[u8]| all.iter().filter(|name| *name.name == *wanted).count();
    assert_eq!((of_name(b"."), of_name(b"..")), (1, 1));
    for name in &all {
        let text = std::str::from_utf8(&name.name).expect("UTF-8");
        let path = match text {
            "." => "a".to_string(),
            ".." => String::new(),
            _ => format!("a/{text}"),
        };
        let found = look(&*source, &path).expect("it is listed");
        assert_eq!(name.inode, found.inode, "{path}");
        assert!(name.mode == 0 || name.mode == found.mode & 0o170_000, "{path}");
        if let Some(meta) = &name.meta {
            assert_eq!(**meta, found, "{path}");
        }
    }
}

fn reads_return_the_range_and_end_with_the_file(origin: &dyn Origin) {
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
    origin.put("file", &bytes);
    origin.put("empty", b"");
    let source = origin.open();
    let seen = look(&*source, "file").expect("it is there");
    for (offset, count) in [(0, 100_000), (0, 1), (50_000, 1000), (99_999, 1)] {
        let part = read(&*source, "file", &seen, offset as u64, count).expect("readable");
        assert!(part == bytes[offset..offset + count], "{offset}");
    }
    let part = read(&*source, "file", &seen, 99_990, 1000).expect("readable");
    assert_eq!(part, bytes[99_990..]);
    assert_eq!(read(&*source, "file", &seen, 100_000, 10).expect("readable"), b"");
    let empty = look(&*source, "empty").expect("it is there");
    assert_eq!(read(&*source, "empty", &empty, 0, 10).expect("readable"), b"");
    assert!(source.piece_bytes() > 0);
}

fn reads_never_mix_two_states(origin: &dyn Origin) {
    origin.put("file", &[b'a'; 1000]);
    let source = origin.open();
    let path = Path::new("file");
    let old = look(&*source, "file").expect("it is there");
    let file = source.open(path, &old).expect("it is there");
    // At the same time, as far as both tell; the clock of a directory may be too coarse for another change.
    origin.put("file", &[b'b'; 1001]);
    let mut buffer = [0; 1000];
    let read_old = file.read_at(0, &mut buffer);
    let is_old = file.look().is_ok_and(|meta| meta.is_same_state(&old));
    match read_old {
        Ok(_) => assert!(!is_old, "other bytes, and nothing tells"),
        Err(errno) => assert_eq!(errno, Errno::STALE),
    }
    assert_eq!(read(&*source, "file", &old, 0, 1000), None);
    let new = look(&*source, "file").expect("it is there");
    assert!(!new.is_same_state(&old));
    assert_eq!(new.inode, old.inode);
    assert_eq!(read(&*source, "file", &new, 0, 2000).expect("readable"), [b'b'; 1001]);
}

fn a_file_that_vanished_cannot_be_opened_and_read(origin: &dyn Origin) {
    origin.put("in/file", b"bytes");
    origin.put("stays", b"bytes");
    let source = origin.open();
    let seen = look(&*source, "in/file").expect("it is there");
    origin.remove("in/file");
    assert_eq!(look(&*source, "in/file").err(), Some(Errno::NOENT));
    assert_eq!(read(&*source, "in/file", &seen, 0, 5), None);
    assert_eq!(look(&*source, "in").err(), Some(Errno::NOENT));
    assert_eq!(source.list(Path::new("in"), None).err(), Some(Errno::NOENT));
    assert_eq!(listed(&*source, ""), ["stays"]);
}

fn inodes_and_identity_outlive_a_restart(origin: &dyn Origin) {
    for name in ["a/one", "a/two", "b/one"] {
        origin.put(name, b"same");
    }
    let source = origin.open();
    let numbers = |source: &dyn Source| {
        let paths = ["", "a", "a/one", "a/two", "b", "b/one"];
        paths.map(|path| look(source, path).expect("it is there").inode)
    };
    let before = numbers(&*source);
    let mut different = before.to_vec();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), before.len(), "two files have one number");
    let again = origin.open();
    assert_eq!(numbers(&*again), before);
    assert_eq!((again.identity(), again.target()), (source.identity(), source.target()));
    assert!(source.identity().contains(source.target()));
}

fn names_that_lead_nowhere_are_not_found(origin: &dyn Origin) {
    origin.put("a/file", b"bytes");
    let source = origin.open();
    let long = "n".repeat(255);
    for path in ["missing", "a/missing", "fil", "a/fil", "missing/below", long.as_str()] {
        assert_eq!(look(&*source, path).err(), Some(Errno::NOENT), "{path}");
    }
    assert_eq!(source.list(Path::new("missing"), None).err(), Some(Errno::NOENT));
}
