// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are replaced while a program is on its way to them.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, SystemClock};
use terrace_fs::{Files, Kind, Made, ROOT, RenameHow, Session};

use crate::common::files;

const NAME: &[u8] = b"file";
const NEW: &[u8] = b"new";

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// The files of a file system that nobody else uses, and the objects with their bytes.
fn alone() -> (Arc<Files>, Arc<Memory>) {
    let tree = crate::common::tree(Arc::new(SystemClock::default()));
    let data = Arc::new(Memory::new(1 << 20));
    let objects: Arc<dyn Backend> = data.clone();
    (files(Arc::new(Session::new(&tree)), &objects, true), data)
}

/// Makes a file of one byte again and again; its number.
fn make(files: &Arc<Files>, name: &[u8], byte: u8, length: usize) -> u64 {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = files.create(ROOT, name, made, false).expect("it is new");
    file.write(0, &vec![byte; length], false).expect("there is room");
    file.close().expect("it is open");
    node.number
}

fn replace(files: &Files) -> terrace_fs::Result<()> {
    files.rename_keeping((ROOT, NEW), (ROOT, NAME), RenameHow::default(), (0, 0))
}

fn used_bytes(data: &Memory) -> u64 {
    data.space().expect("it knows").used_bytes
}

fn read(files: &Arc<Files>, number: u64) -> terrace_fs::Result<Vec<u8>> {
    let (node, file) = files.open(number, Access::Read)?;
    let mut bytes = vec![0; node.size as usize];
    file.read(0, &mut bytes)?;
    file.close()?;
    Ok(bytes)
}

#[test]
fn who_is_on_the_way_to_a_file_that_is_replaced_reads_what_was_there() {
    for length in LENGTHS {
        let (files, data) = alone();
        let old = make(&files, NAME, 1, length);
        let new = make(&files, NEW, 2, length);
        replace(&files).expect("both are there");
        assert_eq!(files.lookup(ROOT, NAME).expect("it is there").number, new);
        for _ in 0..2 {
            assert_eq!(read(&files, old).expect("nobody forgot it"), vec![1; length]);
        }
        files.forget(old).expect("it is kept");
        assert_eq!(read(&files, old).expect_err("it is gone").errno(), Errno::STALE);
        assert_eq!(read(&files, new).expect("it is there"), vec![2; length]);
        files.sweep().expect("it can be deleted");
        assert_eq!(used_bytes(&data), if length > 4096 { length as u64 } else { 0 });
        // The kernel may forget what it has not been told of.
        files.forget(old).expect("nothing is to be done");
        files.forget(new).expect("nothing is to be done");
        assert_eq!(read(&files, new).expect("it is there"), vec![2; length]);
    }
}

#[test]
fn who_is_on_the_way_through_a_link_that_is_replaced_goes_where_it_led() {
    let (files, _) = alone();
    let link = |name, target| {
        let made = Made { kind: Kind::Symlink, permissions: 0o777, target, ..Made::default() };
        files.make(ROOT, name, made).expect("it is new").number
    };
    let (old, new) = (link(NAME, b"one"), link(NEW, b"other"));
    replace(&files).expect("both are there");
    assert_eq!(files.lookup(ROOT, NAME).expect("it is there").number, new);
    assert_eq!(files.target(old).expect("nobody forgot it"), b"one");
    assert_eq!(files.target(new).expect("it is there"), b"other");
    for number in [old, new] {
        files.forget(number).expect("nothing else is to be done");
    }
    assert_eq!(files.target(old).expect_err("it is gone").errno(), Errno::STALE);
    assert_eq!(files.target(new).expect("it is there"), b"other");
    // Nothing is kept where nothing is replaced.
    replace(&files).expect_err("nothing is moved");
    files.remove(ROOT, NAME, false).expect("it is there");
    assert_eq!(files.target(new).expect_err("it is gone").errno(), Errno::STALE);
}

#[test]
fn what_is_open_when_it_is_forgotten_stays_until_it_is_closed() {
    let (files, data) = alone();
    let old = make(&files, NAME, 1, 10_000);
    make(&files, NEW, 2, 10_000);
    replace(&files).expect("both are there");
    let (_, file) = files.open(old, Access::Read).expect("nobody forgot it");
    files.forget(old).expect("it is kept");
    let mut byte = [0];
    file.read(9999, &mut byte).expect("it is open");
    assert_eq!(byte, [1]);
    file.close().expect("it is open");
    files.sweep().expect("it can be deleted");
    assert_eq!(used_bytes(&data), 10_000);
}

#[test]
fn nothing_is_kept_of_a_rename_that_replaces_nothing_or_fails() {
    let (files, data) = alone();
    let old = make(&files, NAME, 1, 10_000);
    assert_eq!(replace(&files).expect_err("nothing is moved").errno(), Errno::NOENT);
    files.link(old, ROOT, NEW).expect("it is free");
    replace(&files).expect("two names of one file stay");
    files.remove(ROOT, NEW, false).expect("it is there");
    let directory = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
    files.make(ROOT, NEW, directory).expect("it is free");
    assert_eq!(replace(&files).expect_err("a file is no directory").errno(), Errno::NOTDIR);
    files.remove(ROOT, NAME, false).expect("it is there");
    replace(&files).expect("the name is free");
    files.sweep().expect("it can be deleted");
    assert_eq!(read(&files, old).expect_err("it is gone").errno(), Errno::STALE);
    assert_eq!(used_bytes(&data), 0);
}

#[test]
fn what_was_replaced_goes_when_the_files_are_closed() {
    let (files, data) = alone();
    make(&files, NAME, 1, 10_000);
    make(&files, NEW, 2, 10_000);
    replace(&files).expect("both are there");
    assert_eq!(used_bytes(&data), 20_000);
    files.close().expect("closes");
    assert_eq!(used_bytes(&data), 10_000);
}
