// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that read a directory slowly, while its files change.

use std::fs::{self, File, OpenOptions, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{RawDir, SeekFrom};

use crate::clients::Pair;
use crate::scene::Scene;

/// More than come with one request of the kernel, and fewer than are fetched at once.
const FILES: usize = 300;

/// A program reads entries in buffers of this length.
const BUFFER_BYTES: usize = 4096;

/// Written to a file meanwhile.
const LENGTH: usize = 3000;

/// The names that come with one request of the kernel, or none.
fn read_some(entries: &mut RawDir<'_, &File>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.expect("the directory is there");
        names.push(entry.file_name().to_str().expect("all names are").to_owned());
        if entries.is_buffer_empty() {
            break;
        }
    }
    names
}

/// All names of a directory, in its order; `each` is told of those that come together.
fn read_all(directory: &Path, mut each: impl FnMut(&[String])) -> Vec<String> {
    let open = File::open(directory).expect("it is there");
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(&open, &mut buffer);
    let mut all = Vec::new();
    loop {
        let names = read_some(&mut entries);
        if names.is_empty() {
            return all;
        }
        all.extend_from_slice(&names);
        each(&names);
    }
}

/// What is changed in the middle of a walk is as it was changed, whatever the walk tells of it.
fn check(root: &Path) {
    let directory = root.join("walked");
    fs::create_dir(&directory).expect("it is new");
    for number in 0..FILES {
        fs::write(directory.join(format!("file{number}")), "x").expect("there is room");
    }
    let order = read_all(&directory, |_| {});
    assert_eq!(order.len(), FILES + 2);
    let (mut told, mut changed) = (0, 0);
    let mut open = Vec::new();
    let again = read_all(&directory, |names| {
        for (name, file) in open.drain(..) {
            let mut bytes = vec![0; 2 * LENGTH];
            let file: File = file;
            assert_eq!(file.read_at(&mut bytes, 0).expect("readable"), LENGTH, "{name}");
            let found = file.metadata().expect("it is open");
            assert_eq!((found.len(), found.mode() & 0o777), (LENGTH as u64, 0o600), "{name}");
        }
        // The kernel asks for attributes with names as long as programs look at what came.
        for name in names {
            fs::symlink_metadata(directory.join(name)).expect("it is there");
        }
        told += names.len();
        for name in order.iter().skip(told).filter(|name| name.starts_with("file")).take(5) {
            let path = directory.join(name);
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("it is there");
            file.write_all_at(&[7; LENGTH], 0).expect("there is room");
            fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
            open.push((name, file));
            changed += 1;
        }
    });
    assert_eq!(again, order);
    assert!(changed >= 10, "there were {changed}");
}

#[test]
fn what_changes_while_its_directory_is_read_stays_changed() {
    for how in [&["--io", "served"][..], &["--io", "auto"]] {
        let Some(scene) = Scene::new() else { return };
        check(scene.mount("mnt", how).path());
    }
}

#[test]
fn what_changes_while_its_directory_is_read_over_the_network_stays_changed() {
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        check(pair.one.path());
    }
}

/// Who goes back to the beginning of a directory finds what is there by then, also where it was empty.
#[test]
fn who_reads_a_directory_anew_finds_what_is_there() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [path, other] = [&pair.one, &pair.other].map(|mounted| mounted.path().join("empty"));
    fs::create_dir(&path).expect("it is new");
    let directory = File::open(&path).expect("it is there");
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut next = || read_some(&mut RawDir::new(&directory, &mut buffer));
    assert_eq!(next(), [".", ".."]);
    fs::write(other.join("new"), "x").expect("there is room");
    // Whoever looks at a name of a directory has the kernel ask for attributes with the next ones.
    fs::symlink_metadata(path.join("new")).expect("it is there");
    while !next().is_empty() {}
    rustix::fs::seek(&directory, SeekFrom::Start(0)).expect("it is a directory");
    assert_eq!(next(), [".", "..", "new"]);
}
