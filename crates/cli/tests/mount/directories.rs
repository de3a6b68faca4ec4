// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations of everything below a directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use crate::receipts::ask;
use crate::scene::{Mounted, Scene, Served, wait_until};

const TIER: &str = "user.terrace.tier";

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// More than are fetched at once.
const FILES: usize = 600;

/// The tier of a file.
fn tier(path: &Path) -> Result<String, Errno> {
    let mut value = [0; 100];
    let length = getxattr(path, TIER, &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// A directory `top` with directories and files, and the files.
fn make(mounted: &Mounted) -> (PathBuf, Vec<PathBuf>) {
    let top = mounted.path().join("top");
    let mut files = Vec::new();
    for directory in ["", "many", "deep", "deep/deeper"] {
        let directory = top.join(directory);
        fs::create_dir_all(&directory).expect("made");
        for length in LENGTHS {
            let count = if directory.ends_with("many") { FILES / 2 } else { 1 };
            for number in 0..count {
                files.push(directory.join(format!("file{length}-{number}")));
                fs::write(files.last().expect("just put"), vec![7; length]).expect("written");
            }
        }
    }
    fs::create_dir(top.join("empty")).expect("made");
    symlink("file100-0", top.join("link")).expect("made");
    (top, files)
}

fn check(mounted: &Mounted) {
    let (top, files) = make(mounted);
    let beside = mounted.path().join("beside");
    fs::write(&beside, vec![7; LENGTHS[1]]).expect("written");
    assert_eq!(ask(&top, "elsewhere"), Err(Errno::INVAL), "there is no such tier");
    for to in ["slow", "fast", "slow"] {
        ask(&top, to).expect("a directory may be asked for");
    }
    for file in &files {
        wait_until("it is there", || tier(file).as_deref() == Ok("slow"));
        assert!(LENGTHS.contains(&fs::read(file).expect("readable").len()));
    }
    assert_eq!(tier(&top), Err(Errno::NODATA), "it is no rule");
    let later = top.join("later");
    fs::write(&later, vec![7; LENGTHS[1]]).expect("written");
    for path in [&beside, &later] {
        assert_eq!(tier(path).as_deref(), Ok("fast"), "{path:?}");
    }
}

#[test]
fn files_below_a_directory_migrate() {
    let Some(scene) = Scene::new() else { return };
    let mut mounted = scene.mount("mnt", &[]);
    check(&mounted);
    // What goes on is no reason to wait.
    ask(&mounted.path().join("top"), "fast").expect("a directory may be asked for");
    mounted.unmount();
}

#[test]
fn files_below_a_directory_of_a_server_migrate() {
    let Some(scene) = Scene::new() else { return };
    let served = Served::start(&scene);
    check(&scene.mount_served(&served, "mnt", &[]));
}

#[test]
fn what_is_pinned_below_a_directory_stays() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    let paths = ["pinned", "free"].map(|name| mounted.path().join("top").join(name));
    fs::create_dir(mounted.path().join("top")).expect("made");
    paths.iter().for_each(|path| fs::write(path, vec![7; LENGTHS[1]]).expect("written"));
    setxattr(&paths[0], "user.terrace.pin", b"1", XattrFlags::empty()).expect("it can be pinned");
    ask(&mounted.path().join("top"), "slow").expect("a directory may be asked for");
    wait_until("the log tells", || scene.has_logged("mnt", "cannot move all that is below"));
    assert_eq!(paths.map(|path| tier(&path).expect("it is there")), ["fast", "slow"]);
}

#[test]
fn what_others_remove_meanwhile_is_passed_over() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &["--io", "served"]);
    let (top, files) = make(&mounted);
    let (removed, left) = files.split_at(files.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| removed.iter().for_each(|file| fs::remove_file(file).expect("removed")));
        scene.ok(["migrate", "-r", top.to_str().expect("UTF-8"), "--to", "slow"]);
    });
    for file in left {
        assert_eq!(tier(file).expect("it is there"), "slow", "{}", file.display());
    }
}
