// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listing a directory while one of the servers that keep bytes does not answer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::scene::{Scene, Served, together};

/// Bytes of a file over all servers.
const LENGTH: usize = 1_000_000;

/// Longer than a listing takes, and much shorter than who asks a silent server waits for it.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// The names in a directory; `None` where they do not come in time.
fn names(directory: PathBuf) -> Option<Vec<String>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let entries = fs::read_dir(directory).expect("it is there");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("it can be read").file_name())
            .map(|name| name.into_string().expect("it is text"))
            .collect();
        names.sort();
        // Nobody listens any more where it took too long.
        let _ = sender.send(names);
    });
    receiver.recv_timeout(WAIT_TIME_MAX).ok()
}

#[test]
fn a_listing_asks_no_server_for_what_is_known_of_files_that_were_cut() {
    let Some(scene) = Scene::new() else { return };
    let scenes = [Scene::new(), Scene::new()].map(|scene| scene.expect("there is one"));
    let served = [&scene, &scenes[0], &scenes[1]].map(Served::start);
    let address = together(&served.each_ref()) + "&stripe=64KiB&deadline=10min";
    let mut mounted = scene.mount_address(&address, "mnt", &[]);
    for name in ["cut", "emptied"] {
        fs::write(mounted.path().join(name), vec![7; LENGTH]).expect("there is room");
    }
    let cut = File::options().write(true).open(mounted.path().join("cut")).expect("it is there");
    cut.set_len(150_000).expect("it can be cut");
    drop(cut);
    drop(File::create(mounted.path().join("emptied")).expect("it can be emptied"));
    // It is all closed then, and the kernel knows nothing.
    mounted.unmount();
    mounted.mount(&scene);
    served[1].set_silent(true);
    let names = names(mounted.path().to_owned());
    served[1].set_silent(false);
    assert_eq!(names, Some(vec!["cut".to_string(), "emptied".to_string()]));
    let lengths = ["cut", "emptied"].map(|name| mounted.path().join(name));
    let lengths = lengths.map(|path| path.metadata().expect("it is there").len());
    assert_eq!(lengths, [150_000, 0]);
}

#[test]
fn a_listing_asks_no_server_how_long_files_are_that_are_written() {
    let Some(scene) = Scene::new() else { return };
    let scenes = [Scene::new(), Scene::new()].map(|scene| scene.expect("there is one"));
    let served = [&scene, &scenes[0], &scenes[1]].map(Served::start);
    let address = together(&served.each_ref()) + "&stripe=64KiB&deadline=10min";
    let mounted = ["writing", "looking"].map(|name| scene.mount_address(&address, name, &[]));
    let [writing, looking] = [0, 1].map(|index| mounted[index].path().to_owned());
    let written = File::create(writing.join("written")).expect("there is room");
    written.write_all_at(&vec![7; LENGTH], 0).expect("there is room");
    fs::write(writing.join("closed"), vec![7; LENGTH]).expect("there is room");
    served[1].set_silent(true);
    let listed = [&looking, &writing].map(|path| names(path.clone()));
    served[1].set_silent(false);
    let expected = Some(vec!["closed".to_string(), "written".to_string()]);
    assert_eq!(listed, [expected.clone(), expected]);
    // Who looks at them is told.
    for path in [&looking, &writing] {
        let lengths = ["closed", "written"].map(|name| path.join(name));
        let lengths = lengths.map(|path| path.metadata().expect("it is there").len());
        assert_eq!(lengths, [LENGTH as u64; 2]);
    }
    drop(written);
}
