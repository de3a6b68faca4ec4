// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel does not do by itself with files that it passes through.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::OFlags;
use rustix::process::Uid;

use crate::scene::wait_until;
use crate::suites::{How, Place};

/// Longer than what is kept with the names.
const LONG: usize = 10_000;

const STATE: &str = "user.terrace.state";

/// A mount that passes files through, and a long file on it.
fn place() -> Option<(Place, PathBuf)> {
    let place = Place::new(How::Passed, &[])?;
    let path = place.mounted.path().join("file");
    fs::write(&path, [7; LONG]).expect("there is room");
    await_close(&path);
    Some((place, path))
}

fn append(path: &Path) -> File {
    OpenOptions::new().read(true).append(true).open(path).expect("it is there")
}

/// Opens a file that nobody has open, to append, as often as it takes to be served: the kernel closes
/// the tier's file a moment after the program does, and until then somebody may have it mapped.
fn append_served(path: &Path) -> File {
    let mut file = None;
    wait_until("it is served", || {
        file = None;
        await_close(path);
        file = Some(append(path));
        !is_passed(path)
    });
    file.expect("it is open")
}

fn is_in_state(path: &Path, state: &[u8]) -> bool {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, STATE, &mut value).expect("it is a mounted file");
    value[..length].starts_with(state)
}

fn is_passed(path: &Path) -> bool {
    is_in_state(path, b"passthrough")
}

/// Waits until nobody has a file open: a program that another test starts has it until it runs.
fn await_close(path: &Path) {
    wait_until("nobody has it open", || is_in_state(path, b"closed"));
}

#[test]
fn who_takes_appending_back_writes_where_it_says() {
    let Some((_place, path)) = place() else { return };
    // Alone, and beside who has it passed through.
    for is_beside in [false, true] {
        let beside = is_beside.then(|| File::options().write(true).open(&path).expect("there"));
        let file = if is_beside { append(&path) } else { append_served(&path) };
        assert_eq!(is_passed(&path), is_beside);
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).expect("it may be taken back");
        file.write_all_at(b"HEAD", 0).expect("there is room");
        drop((file, beside));
        let bytes = fs::read(&path).expect("it is there");
        assert_eq!((bytes.len(), &bytes[..4]), (LONG, &b"HEAD"[..]));
        fs::write(&path, [7; LONG]).expect("there is room");
    }
}

#[test]
fn appends_and_what_the_kernel_writes_meet_in_one_file() {
    let Some((_place, path)) = place() else { return };
    let passed = File::options().read(true).write(true).open(&path).expect("it is there");
    let mut appending = append(&path);
    assert!(is_passed(&path));
    let mut expected = vec![7; LONG];
    for number in 0..100_u8 {
        appending.write_all(&[number; 100]).expect("there is room");
        expected.extend([number; 100]);
        let end = expected.len() as u64;
        passed.write_all_at(&[number; 50], end).expect("there is room");
        expected.extend([number; 50]);
        let mut found = vec![0; expected.len()];
        [&passed, &appending][usize::from(number % 2)].read_exact_at(&mut found, 0).expect("it");
        assert_eq!(found, expected);
    }
    drop((passed, appending));
    assert_eq!(fs::read(&path).expect("it is there"), expected);
}

#[test]
fn what_was_sent_from_a_file_is_not_kept_where_others_wrote_past_it() {
    let Some((place, path)) = place() else { return };
    let passed = File::options().read(true).write(true).open(&path).expect("it is there");
    let appending = append(&path);
    assert!(is_passed(&path));
    // Which reads through the cache of the kernel, as it does for nothing else here.
    let aim = File::create(place.scene.path("sent")).expect("there is room");
    let sent = rustix::fs::sendfile(&aim, &appending, None, LONG).expect("it is readable");
    assert_eq!(sent, LONG);
    passed.write_all_at(&[8; LONG], 0).expect("there is room");
    drop((passed, appending));
    let appending = append_served(&path);
    let mut found = vec![0; LONG];
    appending.read_exact_at(&mut found, 0).expect("it is that long");
    assert!(found == [8; LONG], "what was there before");
}

#[test]
fn set_id_bits_go_when_somebody_else_writes() {
    let Some((_place, path)) = place() else { return };
    for mode in [0o4777, 0o2777, 0o6777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        let write = |path: &Path| {
            let path = path.to_path_buf();
            let written = thread::spawn(move || {
                let file = File::options().write(true).custom_flags(0).open(path).expect("ours");
                // Of this thread alone.
                rustix::thread::set_thread_uid(Uid::from_raw(1001)).expect("root may");
                file.write_all_at(b"x", 5).expect("there is room");
            });
            written.join().expect("no panic");
        };
        write(&path);
        let found = fs::metadata(&path).expect("it is there").mode() & 0o7777;
        assert_eq!(found, 0o777, "{mode:o}");
    }
}
