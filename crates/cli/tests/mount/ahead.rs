// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that a mount over the network fetches ahead of programs that look at one after the other.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount_remount};

use crate::clients::Pair;
use crate::scene::wait_until;

/// Files in a directory: more than come with one answer.
const FILES: usize = 1500;

/// Files that are looked at before the others are fetched: more than a 64th of them.
const LOOKED_AT: usize = 40;

fn name(number: usize) -> String {
    format!("file{number}")
}

/// Makes files with their numbers in them, which the other mount has not seen yet.
fn fill(pair: &Pair, files: usize) -> [PathBuf; 2] {
    let [one, other] = [pair.one.path().join("many"), pair.other.path().join("many")];
    fs::create_dir(&one).expect("it is new");
    for number in 0..files {
        fs::write(one.join(name(number)), number.to_string()).expect("there is room");
    }
    [one, other]
}

/// Looks at so many of them.
fn look(directory: &Path, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let found = fs::metadata(directory.join(name(number))).expect("it is there");
        assert_eq!(found.len(), number.to_string().len() as u64, "{number}");
    }
}

#[test]
fn who_looks_at_many_files_does_not_ask_for_each() {
    for (how, is_fetched) in [(&[][..], true), (&["--strict"], false), (&["--cache", "0s"], false)]
    {
        let Some(pair) = Pair::new(how) else { return };
        let [_, other] = fill(&pair, FILES);
        let before = pair.requests();
        look(&other, 0..FILES);
        let asked = pair.requests() - before;
        // What is fetched is asked for again where a busy machine took longer than it is believed.
        let most = if is_fetched { FILES / 2 } else { usize::MAX };
        let least = if is_fetched { 0 } else { FILES };
        assert!((least..most).contains(&asked), "{how:?}: {asked} requests");
    }
}

/// Has the kernel forget all names of a mount, as it does where memory is short: it does so before it
/// asks a file system whether it can be mounted otherwise.
pub(crate) fn forget_names(mount: &Path) {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(mount, flags, c"").expect("nothing changes");
}

#[test]
fn who_looks_again_once_the_kernel_has_forgotten_is_told_what_is_known() {
    let Some(pair) = Pair::new(&["--cache", "10min"]) else { return };
    const OPENED: usize = 150;
    let [one, other] = fill(&pair, FILES);
    look(&other, 0..FILES);
    for turn in 0..3 {
        forget_names(pair.other.path());
        let before = pair.requests();
        look(&other, 0..FILES);
        let asked = pair.requests() - before;
        // Of what was read for the first time since, when that was.
        let changed = if turn == 1 { OPENED } else { 0 };
        assert!(asked < changed + LOOKED_AT, "{turn}: {asked} requests");
        // Opening a file, and closing it, leaves its name known.
        for number in 0..OPENED {
            let text = fs::read_to_string(other.join(name(number))).expect("it is there");
            assert_eq!(text, number.to_string());
        }
    }
    // What this mount heard since, or changed, is known as it is.
    fs::write(one.join(name(1)), "changed").expect("there is room");
    assert_eq!(fs::read_to_string(other.join(name(1))).expect("it is there"), "changed");
    fs::remove_file(one.join(name(2))).expect("it is there");
    fs::read(other.join(name(2))).expect_err("it is gone");
    fs::write(other.join(name(3)), "changed").expect("there is room");
    fs::remove_file(other.join(name(4))).expect("it is there");
    fs::remove_file(other.join(name(5))).expect("it is there");
    fs::write(other.join(name(5)), "made again").expect("there is room");
    for _ in 0..2 {
        forget_names(pair.other.path());
        let length = |number: usize| fs::metadata(other.join(name(number))).map(|it| it.len());
        assert_eq!([1, 3, 5].map(|number| length(number).expect("it is there")), [7, 7, 10]);
        for number in [2, 4] {
            let gone = length(number).expect_err("it is gone");
            assert_eq!(gone.kind(), ErrorKind::NotFound, "{number}");
        }
    }
}

#[test]
fn what_was_fetched_is_as_this_mount_changed_it() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [_, other] = fill(&pair, FILES);
    look(&other, 0..LOOKED_AT);
    let path = |number: usize| other.join(name(number));
    // All of these were fetched by now, and none of them was looked at.
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    for number in (100..FILES - 100).step_by(100) {
        fs::remove_file(path(number)).expect("it is there");
        let gone = fs::metadata(path(number)).expect_err("it was removed");
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        fs::write(path(number), b"made again").expect("there is room");
        assert_eq!(fs::read(path(number)).expect("it is there"), b"made again");

        fs::rename(path(number + 1), path(number + 2)).expect("both are there");
        fs::metadata(path(number + 1)).expect_err("it was moved");
        let text = fs::read_to_string(path(number + 2)).expect("it is there");
        assert_eq!(text, (number + 1).to_string());

        fs::hard_link(path(number + 3), other.join("linked")).expect("the name is new");
        assert_eq!(inode(&path(number + 3)), inode(&other.join("linked")));
        assert_eq!(fs::metadata(path(number + 3)).expect("it is there").nlink(), 2);
        fs::remove_file(other.join("linked")).expect("it is there");
        assert_eq!(fs::metadata(path(number + 3)).expect("it is there").nlink(), 1);

        File::options()
            .write(true)
            .open(path(number + 4))
            .and_then(|file| file.set_len(99))
            .expect("there is room");
        assert_eq!(fs::metadata(path(number + 4)).expect("it is there").len(), 99);
        fs::set_permissions(path(number + 5), Permissions::from_mode(0o600)).expect("it is ours");
        let mode = fs::metadata(path(number + 5)).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn what_another_changed_is_seen_soon_and_by_who_opens_it_at_once() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = fill(&pair, FILES);
    for first in [0, FILES / 2] {
        look(&other, first..first + LOOKED_AT);
        let numbers = first + LOOKED_AT..first + 3 * LOOKED_AT;
        for number in numbers.clone() {
            let [here, there] = [&one, &other].map(|directory| directory.join(name(number)));
            match number % 3 {
                // Bytes of a file: close-to-open.
                0 => {
                    fs::write(&here, b"longer than before").expect("there is room");
                    assert_eq!(fs::read(&there).expect("it is there"), b"longer than before");
                }
                // Another file: the old one is gone, so that opening finds the new one.
                1 => {
                    let new = here.with_extension("new");
                    fs::write(&new, b"replaced").expect("there is room");
                    fs::rename(&new, &here).expect("both are there");
                    assert_eq!(fs::read(&there).expect("it is there"), b"replaced");
                }
                _ => {
                    fs::remove_file(&here).expect("it is there");
                    wait_until("it is seen that it is gone", || {
                        fs::metadata(&there).is_err_and(|gone| gone.kind() == ErrorKind::NotFound)
                    });
                }
            }
        }
    }
}

#[test]
fn a_link_that_another_replaced_can_be_followed() {
    let Some(pair) = Pair::new(&[]) else { return };
    let [one, other] = [pair.one.path().join("links"), pair.other.path().join("links")];
    fs::create_dir(&one).expect("it is new");
    for target in ["before", "after"] {
        fs::write(one.join(target), target).expect("there is room");
    }
    for number in 0..FILES {
        symlink("before", one.join(name(number))).expect("there is room");
    }
    // Also those that were looked at one by one, before the others were fetched.
    for number in 0..LOOKED_AT {
        fs::symlink_metadata(other.join(name(number))).expect("it is there");
    }
    for number in 0..2 * LOOKED_AT {
        symlink("after", one.join("new")).expect("the name is free");
        fs::rename(one.join("new"), one.join(name(number))).expect("both are there");
        let found = fs::read_to_string(other.join(name(number))).expect("one of them is there");
        assert_eq!(found, "after", "{number}");
    }
}
