// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of which a part is with a server that does not answer.

use std::fs::{self, File, FileTimes};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::io::Errno;

use crate::scene::{Scene, Served, together};

/// Bytes of a file over all servers.
const LENGTH: usize = 1_000_000;

/// The first part of a file may be with any server.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Longer than what needs no silent server takes, and much shorter than who asks one waits for it.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// What work gives; `None` where it does not end in time.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // Nobody listens any more where it took too long.
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(WAIT_TIME_MAX).ok()
}

#[test]
fn a_file_that_cannot_be_opened_for_writing_is_left_as_it_was() {
    let Some(scene) = Scene::new() else { return };
    let scenes = [Scene::new(), Scene::new()].map(|scene| scene.expect("there is one"));
    let served = [&scene, &scenes[0], &scenes[1]].map(Served::start);
    let address = together(&served.each_ref()) + "&stripe=64KiB";
    let impatient = address.clone() + "&deadline=1s";
    let mut impatient = scene.mount_address(&impatient, "impatient", &[]);
    let patient = scene.mount_address(&(address + "&deadline=10min"), "patient", &[]);
    for name in NAMES {
        fs::write(impatient.path().join(name), vec![7; LENGTH]).expect("there is room");
    }
    // They are all closed then.
    impatient.unmount();
    impatient.mount(&scene);
    served[1].set_silent(true);
    for name in NAMES {
        for appends in [false, true] {
            let opened =
                File::options().write(true).append(appends).open(impatient.path().join(name));
            let error = opened.expect_err("a part of it cannot be asked for");
            assert_eq!(Errno::from_io_error(&error), Some(Errno::HOSTUNREACH), "{name}");
        }
    }
    // Nobody has one open, so that nobody has to ask how long it is.
    let there = NAMES.map(|name| patient.path().join(name));
    let [touched, removed, ..] = there.clone();
    let ended = in_time(move || {
        let lengths = there.map(|path| path.metadata().expect("it is there").len());
        let at = Timespec { tv_sec: 1000, tv_nsec: 0 };
        let times = Timestamps { last_access: at, last_modification: at };
        utimensat(CWD, &touched, &times, AtFlags::empty()).expect("it can be changed");
        fs::remove_file(&removed).expect("it can be removed");
        lengths
    });
    served[1].set_silent(false);
    assert_eq!(ended, Some([LENGTH as u64; 8]));
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let [touched, _, other, ..] = NAMES.map(|name| patient.path().join(name));
    let file = File::options().write(true).open(&other).expect("all of it is there");
    file.set_times(FileTimes::new().set_modified(modified)).expect("they can be set");
    drop(file);
    for path in [touched, other] {
        assert_eq!(fs::read(&path).expect("it is there"), vec![7; LENGTH]);
        let known = path.metadata().expect("it is there").modified();
        assert_eq!(known.expect("it is kept"), modified);
    }
}
