// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources that are used up: programs get the number of the one that is, as on a local file system.

use std::ffi::CStr;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::scene::{Mountpoint, Scene, Served, wait_until};

/// Longer than what stays with the metadata: an open file of that length is a descriptor of the process that
/// has the store open.
const LENGTH: usize = 9000;

/// More than there are descriptors.
const FILES: usize = 200;

/// Limits the descriptors of a process that runs. Its soft limit alone, as if it had been started so.
fn limit_descriptors(process: u32, descriptors: u32) {
    let mut command = Command::new("prlimit");
    command.arg(format!("--pid={process}")).arg(format!("--nofile={descriptors}:"));
    let status = command.stdout(Stdio::null()).status().expect("there is prlimit");
    assert!(status.success(), "{status}");
}

fn descriptors(process: u32) -> u32 {
    let open = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    open.count().try_into().expect("they are few")
}

#[test]
fn a_lack_of_descriptors_is_reported_as_such() {
    let Some(scene) = Scene::new() else { return };
    let mut made = scene.mount("made", &["--io", "served"]);
    for at in 0..FILES {
        fs::write(made.path().join(at.to_string()), vec![7; LENGTH]).expect("there is room");
    }
    // What a store has used lately it keeps open.
    made.unmount();
    let served = Served::start(&scene);
    let over_network = scene.mount_served(&served, "network", &["--cache", "0s"]);
    check_descriptors(&scene, served.process(), over_network.path(), "network");
    drop((over_network, served));
    let local = scene.mount("local", &["--io", "served"]);
    check_descriptors(&scene, local.process(), local.path(), "local");
}

fn check_descriptors(scene: &Scene, process: u32, place: &std::path::Path, log: &str) {
    // The highest number counts, and those that are open stay.
    let limit = descriptors(process) + FILES as u32 / 4;
    limit_descriptors(process, limit);
    let mut open = Vec::new();
    let errors: Vec<_> = (0..FILES)
        .filter_map(|at| {
            let file = File::open(place.join(at.to_string()));
            let read = file.and_then(|file| {
                let mut byte = [0];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, LENGTH as u64 - 1)?;
                open.push(file);
                Ok(byte[0])
            });
            read.err().map(|error| Errno::from_io_error(&error).expect("it is the kernel's"))
        })
        .collect();
    assert!(!errors.is_empty(), "{} are open", open.len());
    assert!(errors.iter().all(|errno| *errno == Errno::MFILE), "{log}: {errors:?}");
    assert!(scene.has_logged(log, &format!("RLIMIT_NOFILE={limit}")), "the log names the limit");
    drop(open);
    wait_until("it goes on", || fs::read(place.join("0")).is_ok_and(|read| read == [7; LENGTH]));
}

/// A tier on a file system of its own.
fn tmpfs(scene: &Scene, name: &str, options: &CStr) -> Mountpoint {
    let path = scene.directory(name);
    rustix::mount::mount("none", &path, "tmpfs", MountFlags::empty(), options).expect("as root");
    Mountpoint(path)
}

#[test]
fn a_lack_of_inodes_spills_and_is_reported_then() {
    let Some(scene) = Scene::new() else { return };
    let tiers = ["few", "more"].map(|name| tmpfs(&scene, name, c"nr_inodes=300,size=100m"));
    scene.ok([
        "init",
        "scarce",
        "--policy",
        "none",
        "--tier",
        "few=few/t",
        "--tier",
        "more=more/t",
    ]);
    let mut mounted = scene.mount_store("scarce", "mnt", &["--io", "served"]);
    let made = (0..1000).map(|at| {
        let written = fs::write(mounted.path().join(at.to_string()), vec![7; LENGTH]);
        written.map_err(|error| Errno::from_io_error(&error).expect("it is the kernel's"))
    });
    let made: Vec<_> = made.collect();
    let count = made.iter().filter(|one| one.is_ok()).count();
    assert!(count > 300, "{count}: they are on both tiers");
    let errors: Vec<_> = made.iter().filter_map(|one| one.err()).collect();
    assert!(!errors.is_empty() && errors.iter().all(|errno| *errno == Errno::NOSPC), "{errors:?}");
    for at in (0..1000).filter(|at| made[*at].is_ok()) {
        let path = mounted.path().join(at.to_string());
        assert!(fs::read(&path).expect("it was written") == [7; LENGTH], "{at}");
        fs::remove_file(&path).expect("it is there");
    }
    fs::write(mounted.path().join("again"), vec![7; LENGTH])
        .or_else(|_| {
            // Objects are deleted a little later.
            wait_until("there is room again", || {
                fs::write(mounted.path().join("again"), vec![7; LENGTH]).is_ok()
            });
            Ok::<_, std::io::Error>(())
        })
        .expect("there is room");
    mounted.unmount();
    for tier in &tiers {
        wait_until("it is not used", || {
            rustix::mount::unmount(&tier.0, UnmountFlags::empty()).is_ok()
        });
    }
}
