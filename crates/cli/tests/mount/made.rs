// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems that are made where there are objects, whose names are elsewhere or lost.

use std::fs;
use std::path::Path;
use std::process::Output;

use rustix::mount::UnmountFlags;

use crate::scene::{Mounted, Scene, Served, together};

/// The exit status of what is there already.
const EXISTS: i32 = 6;

/// Longer than what is kept with the metadata.
const LONG: usize = 50_000;

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    table.contains(path.to_str().expect("UTF-8"))
}

/// Runs a command that must be refused for what is there; what it says.
#[track_caller]
pub(crate) fn refused(scene: &Scene, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } =
        scene.command(arguments.iter().copied()).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    let path = scene.path("refused");
    let was_mounted = is_mounted(&path);
    if was_mounted {
        rustix::mount::unmount(&path, UnmountFlags::empty()).expect("nobody uses it");
    }
    assert!(!was_mounted && status.code() == Some(EXISTS), "{arguments:?}: {status}: {text}");
    text
}

/// Mounts at a directory where it must be refused.
#[track_caller]
pub(crate) fn refused_mount(scene: &Scene, store: &str) -> String {
    scene.directory("refused");
    refused(scene, &["mount", store, "refused"])
}

pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8 ^ seed).collect()
}

pub(crate) fn fill(mounted: &Mounted, seeds: std::ops::Range<u8>, length: usize) {
    for seed in seeds {
        let path = mounted.path().join(format!("f{seed}"));
        fs::write(path, pattern(seed, length)).expect("there is room");
    }
}

pub(crate) fn check(mounted: &Mounted, seeds: std::ops::Range<u8>, length: usize) {
    for seed in seeds {
        let found = fs::read(mounted.path().join(format!("f{seed}"))).expect("readable");
        assert!(found == pattern(seed, length), "file {seed} has {} bytes", found.len());
    }
}

/// Takes away what says over which servers a file system lies, and whose parts they have: it is as
/// it was made by versions that noted nothing of that.
pub(crate) fn forget_servers(scene: &Scene, servers: &[&Served]) {
    for server in servers {
        scene.ok(["--store", &server.address(), "kv", "rm", "--force", "files/v", "files/b"]);
    }
}

/// A store that had files, and has lost all that it knew of their names.
fn without_names() -> Option<Scene> {
    let scene = Scene::new()?;
    let mut mounted = scene.mount("mnt", &[]);
    fill(&mounted, 0..6, LONG);
    mounted.unmount();
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    for tier in ["fast", "slow"] {
        let saved = scene.path(tier).join(".terrace-catalog");
        if saved.exists() {
            fs::remove_dir_all(saved).expect("removed");
        }
    }
    scene.ok(["fsck", "--rebuild"]);
    Some(scene)
}

#[test]
fn names_that_are_lost_are_not_made_anew_over_their_objects() {
    let Some(scene) = without_names() else { return };
    let objects = scene.ok(["ls", "-l", "files"]);
    fs::write(scene.directory("new").join("file"), pattern(99, LONG)).expect("written");
    for text in [refused_mount(&scene, "store"), refused(&scene, &["import", "new"])] {
        for word in ["files/000000", "fsck --repair --adopt files", "--name"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    let served = Served::start(&scene);
    assert!(refused_mount(&scene, &served.address()).contains("--adopt files"));
    drop(served);
    assert_eq!(scene.ok(["ls", "-l", "files"]), objects);
    // One of another name is in nobody's way.
    let mut mounted = scene.mount("mnt", &["--name", "other"]);
    fill(&mounted, 0..6, LONG);
    mounted.unmount();
    assert_eq!(scene.ok(["ls", "-l", "files"]), objects);
}

#[test]
fn files_whose_names_are_lost_are_adopted_and_never_written_over() {
    let Some(scene) = without_names() else { return };
    let printed = scene.ok(["fsck", "--repair", "--adopt", "files"]);
    assert!(printed.contains("made a file system of the objects in files"), "{printed}");
    assert!(printed.ends_with("file system files: 2 directories, 6 files: no problems\n"));
    let mut mounted = scene.mount("mnt", &[]);
    fill(&mounted, 10..18, LONG - 1);
    mounted.unmount();
    mounted.mount(&scene);
    check(&mounted, 10..18, LONG - 1);
    let entries = fs::read_dir(mounted.path().join("lost+found")).expect("it is there");
    let paths: Vec<_> = entries.map(|entry| entry.expect("listed").path()).collect();
    let mut seeds: Vec<u8> = Vec::new();
    for path in &paths {
        let bytes = fs::read(path).expect("readable");
        assert!(bytes == pattern(bytes[0], LONG), "{}", path.display());
        seeds.push(bytes[0]);
    }
    seeds.sort_unstable();
    assert_eq!(seeds, [0, 1, 2, 3, 4, 5]);
    for path in paths {
        fs::remove_file(path).expect("it is there");
    }
    check(&mounted, 10..18, LONG - 1);
    mounted.unmount();
    scene.ok(["fsck", "--verify"]);
    refused(&scene, &["fsck", "--repair", "--adopt", "files"]);
}

#[test]
fn objects_that_are_no_files_are_neither_written_over_nor_adopted() {
    let Some(scene) = Scene::new() else { return };
    fs::write(scene.path("object"), pattern(1, LONG)).expect("written");
    for key in ["files/0000000000000002", "data/0000000000000002", "data/table"] {
        scene.ok(["put", key, "object"]);
    }
    refused_mount(&scene, "store");
    let mut command = scene.command(["fsck", "--repair", "--adopt", "data"]);
    let output = command.output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("data/table"), "{text}");
    let mut command = scene.command(["fsck", "--repair", "--adopt", "nothing"]);
    assert!(!command.output().expect("the binary runs").status.success());
    scene.ok(["get", "files/0000000000000002", "read"]);
    assert!(fs::read(scene.path("read")).expect("it is there") == pattern(1, LONG));
    // What is in the way can be taken out of it.
    scene.ok(["rm", "files/0000000000000002"]);
    scene.mount("mnt", &[]).unmount();
}

#[test]
fn servers_with_stripes_of_a_file_system_make_no_other_one() {
    const LONG: usize = 3_000_000;
    let scenes = [Scene::new(), Scene::new(), Scene::new()];
    let [Some(first), Some(second), Some(third)] = &scenes else { return };
    let [names, data, more] = [first, second, third].map(Served::start);
    let mut mounted = first.mount_all(&[&names, &data, &more], "mnt", &[]);
    fill(&mounted, 0..6, LONG);
    mounted.unmount();
    for addresses in [data.address(), together(&[&data, &more])] {
        let text = refused_mount(first, &addresses);
        assert!(text.contains("name all servers that it lies over"), "{text}");
    }
    mounted.mount(first);
    check(&mounted, 0..6, LONG);
    mounted.unmount();
    drop([names, data, more]);
    for scene in [second, third] {
        let mut command = scene.command(["fsck", "--repair", "--adopt", "files"]);
        let output = command.output().expect("the binary runs");
        assert!(!output.status.success(), "it has parts alone: {output:?}");
        let output = scene.ok(["fsck"]);
        assert!(!output.contains("file system"), "nothing was made: {output}");
    }
}

#[test]
fn servers_that_each_keep_files_of_their_own_are_not_mounted_as_one() {
    const LONG: usize = 3_000_000;
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    for (scene, seed) in [(&first, 0), (&second, 100)] {
        let mut mounted = scene.mount("mnt", &[]);
        fill(&mounted, seed..seed + 4, LONG);
        mounted.unmount();
    }
    let [one, other] = [&first, &second].map(Served::start);
    fs::write(first.directory("new").join("file"), pattern(99, LONG)).expect("written");
    for servers in [[&one, &other], [&other, &one]] {
        let address = together(&servers);
        for text in [
            refused_mount(&first, &address),
            refused(&first, &["mount", "-o", "ro", &address, "refused"]),
            refused(&first, &["--store", &address, "import", "new"]),
        ] {
            for word in [one.listens_on(), other.listens_on(), "--name"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }
    for (served, seed) in [(&one, 0), (&other, 100)] {
        let mut mounted = first.mount_served(served, "mnt", &[]);
        check(&mounted, seed..seed + 4, LONG);
        mounted.unmount();
    }
    let mut mounted = first.mount_all(&[&one, &other], "mnt", &["--name", "together"]);
    fill(&mounted, 50..54, LONG);
    mounted.unmount();
    mounted.mount(&first);
    check(&mounted, 50..54, LONG);
    mounted.unmount();
}

/// As versions without records and marks left it: as long as there are only small files, nobody sees
/// on the other servers that there are any.
#[test]
fn a_file_system_that_was_made_over_some_of_the_servers_is_not_taken_for_that_of_all() {
    const SHORT: usize = 100;
    let scenes = [Scene::new(), Scene::new(), Scene::new()];
    let [Some(first), Some(second), Some(third)] = &scenes else { return };
    let [names, data, more] = [first, second, third].map(Served::start);
    let mut all = first.mount_all(&[&names, &data, &more], "mnt", &[]);
    fill(&all, 0..6, SHORT);
    all.unmount();
    forget_servers(first, &[&names, &data, &more]);
    let mut some = first.mount_all(&[&data, &more], "some", &[]);
    fill(&some, 100..106, SHORT);
    some.unmount();
    forget_servers(first, &[&names, &data, &more]);
    for servers in [[&names, &data, &more], [&more, &data, &names]] {
        let text = refused_mount(first, &together(&servers));
        for word in [names.listens_on(), data.listens_on()] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains(more.listens_on()), "{text}");
    }
    some.mount(first);
    check(&some, 100..106, SHORT);
    some.unmount();
    // As docs/how-to/cluster.md says.
    let (address, target) = (together(&[&data, &more]), first.path("exported"));
    let target = target.to_str().expect("UTF-8");
    first.ok(["--store", &address, "export", target]);
    first.ok(["--store", &data.address(), "kv", "rm", "files/s"]);
    all.mount(first);
    check(&all, 0..6, SHORT);
    all.unmount();
    assert!(fs::read(first.path("exported/f103")).expect("read") == pattern(103, SHORT));
}
