// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems over several servers, mounted with others than those over which they were made.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::mount::UnmountFlags;

use crate::made::{check, fill, forget_servers, pattern, refused, refused_mount};
use crate::scene::{Mounted, Scene, Served, finish, together, wait_until};

/// Kept with the metadata.
const SHORT: usize = 100;

/// Several stripes.
const LONG: usize = 3_000_000;

/// Not kept with the metadata.
const WHOLE: usize = 50_000;

/// Three stores, each with its server.
struct Three {
    scenes: [Scene; 3],
    served: [Served; 3],
}

impl Three {
    fn new() -> Option<Self> {
        let scenes = [Scene::new()?, Scene::new()?, Scene::new()?];
        let served = [0, 1, 2].map(|index| Served::start(&scenes[index]));
        Some(Self { scenes, served })
    }

    fn scene(&self) -> &Scene {
        &self.scenes[0]
    }

    /// Those of these numbers, in this order.
    fn of<const N: usize>(&self, indexes: [usize; N]) -> [&Served; N] {
        indexes.map(|index| &self.served[index])
    }

    fn address<const N: usize>(&self, indexes: [usize; N]) -> String {
        together(&self.of(indexes))
    }

    fn mount<const N: usize>(&self, indexes: [usize; N], how: &[&str]) -> Mounted {
        self.scene().mount_all(&self.of(indexes), "mnt", how)
    }
}

/// Files of all lengths: 0 to 5 short, the others over all servers.
fn fill_all(mounted: &Mounted) {
    fill(mounted, 0..6, SHORT);
    fill(mounted, 10..34, WHOLE);
    fill(mounted, 40..44, LONG);
}

fn check_all(mounted: &Mounted) {
    check(mounted, 0..6, SHORT);
    check(mounted, 10..34, WHOLE);
    check(mounted, 40..44, LONG);
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_server_that_is_missing_is_named_and_nothing_is_changed() {
    let Some(mut three) = Three::new() else { return };
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill_all(&mounted);
    mounted.unmount();
    let scene = three.scene();
    fs::write(scene.directory("new").join("f0"), b"new").expect("written");
    let missing = three.served[2].listens_on().to_string();
    let missing = missing.as_str();
    for address in [three.address([0, 1]), three.address([1, 0]), three.served[0].address()] {
        for text in [
            refused_mount(scene, &address),
            refused(scene, &["mount", "-o", "ro", &address, "refused"]),
            refused(scene, &["--store", &address, "import", "new"]),
            refused(scene, &["--store", &address, "export", "exported"]),
        ] {
            says(&text, &[missing, "ro,degraded", "fsck --repair --servers files"]);
        }
    }
    // The names are with another one.
    let text = refused_mount(scene, &three.address([1, 2]));
    says(&text, &[three.served[0].listens_on(), "name all servers"]);
    let text = refused(scene, &["mount", "-o", "ro", &three.served[1].address(), "refused"]);
    says(&text, &[three.served[0].listens_on(), "name all servers"]);
    // The order means nothing.
    let mut mounted = three.mount([2, 0, 1], &[]);
    check_all(&mounted);
    mounted.unmount();
    // Neither beside the server nor in its place.
    says(&refused_mount(scene, "store"), &[missing]);
    three.served[0].stop();
    says(&refused_mount(three.scene(), "store"), &[missing]);
    let output = three.scene().ok(["fsck"]);
    says(&output, &["file system files", "no problems", "it lies over", missing]);
}

/// Has a store lose its catalog, with or without the checkpoint.
fn rebuild(three: &mut Three, index: usize, has_checkpoint: bool) {
    let scene = &three.scenes[index];
    three.served[index].stop();
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    if !has_checkpoint {
        for tier in ["fast", "slow"] {
            let saved = scene.path(tier).join(".terrace-catalog");
            if saved.exists() {
                fs::remove_dir_all(saved).expect("removed");
            }
        }
    }
    scene.ok(["fsck", "--rebuild"]);
    three.served[index].start_again(scene);
}

#[test]
fn what_says_over_which_servers_it_lies_survives_a_lost_catalog() {
    let Some(mut three) = Three::new() else { return };
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill_all(&mounted);
    mounted.unmount();
    let names = three.served[0].listens_on().to_string();
    let missing = three.served[2].listens_on().to_string();
    for index in [0, 1] {
        rebuild(&mut three, index, true);
    }
    says(&refused_mount(three.scene(), &three.address([0, 1])), &[&missing]);
    says(&refused_mount(three.scene(), &three.served[1].address()), &[&names, "kv rm files/b"]);
    // Restored from a backup.
    three.scenes[0].ok(["backup", "saved"]);
    three.served[0].stop();
    three.scenes[0].ok(["restore", "saved"]);
    three.served[0].start_again(&three.scenes[0]);
    says(&refused_mount(three.scene(), &three.address([0, 1])), &[&missing]);
    // The mark is made anew.
    rebuild(&mut three, 1, false);
    mounted.mount(three.scene());
    check_all(&mounted);
    mounted.unmount();
    says(&refused_mount(three.scene(), &three.served[1].address()), &[&names, "kv rm files/b"]);
}

#[test]
fn a_record_that_cannot_be_read_is_told_and_made_anew_when_asked_for() {
    let Some(mut three) = Three::new() else { return };
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill_all(&mounted);
    mounted.unmount();
    three.served[0].stop();
    let scene = &three.scenes[0];
    scene.ok(["kv", "put", "files/v", "nonsense"]);
    let (is_sound, text) = finish(scene.command(["fsck", "--repair"]));
    assert!(!is_sound, "{text}");
    says(&text, &["damaged-servers"]);
    three.served[0].start_again(scene);
    let scene = three.scene();
    let mut command = scene.command(["mount", &three.address([0, 1, 2])]);
    command.arg(scene.directory("refused"));
    let (is_mounted, text) = finish(command);
    assert!(!is_mounted, "{text}");
    says(&text, &["fsck --repair --servers files"]);
    let all = three.address([0, 1, 2]);
    scene.ok(["--store", &all, "fsck", "--repair", "--servers", "files"]);
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
}

#[test]
fn what_is_there_is_read_where_a_server_is_missing() {
    let Some(three) = Three::new() else { return };
    let scene = three.scene();
    // Each whole on one of them.
    let address = three.address([0, 1, 2]) + "&distribution=single";
    let mut mounted = scene.mount_address(&address, "mnt", &[]);
    fill(&mounted, 0..6, SHORT);
    fill(&mounted, 10..34, WHOLE);
    mounted.unmount();
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill(&mounted, 40..44, LONG);
    mounted.unmount();
    let mut some = three.mount([0, 1], &["-o", "ro,degraded"]);
    check(&some, 0..6, SHORT);
    let read = |seed: u8| fs::read(some.path().join(format!("f{seed}"))).ok();
    let whole: Vec<u8> = (10..34).filter(|seed| read(*seed).is_some()).collect();
    assert!(!whole.is_empty() && whole.len() < 24, "{whole:?}");
    for seed in &whole {
        assert!(read(*seed).is_some_and(|bytes| bytes == pattern(*seed, WHOLE)), "{seed}");
    }
    assert!((40..44).all(|seed| read(seed).is_none()), "a part of each is missing");
    fs::remove_file(some.path().join("f0")).expect_err("only read");
    fs::write(some.path().join("f99"), b"new").expect_err("only read");
    some.unmount();
    let address = three.address([0, 1]);
    let command = scene.command(["--store", &address, "export", "--degraded", "exported"]);
    let (is_whole, text) = finish(command);
    assert!(!is_whole && text.contains("f40"), "what is not there is said: {text}");
    assert!(fs::read(scene.path("exported/f5")).expect("copied") == pattern(5, SHORT));
    let mut command = scene.command(["mount", "-o", "degraded", &address]);
    command.arg(scene.directory("refused"));
    assert_eq!(command.output().expect("the binary runs").status.code(), Some(2));
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
}

#[test]
fn a_server_with_another_store_is_not_taken_for_the_one_that_was() {
    let (Some(mut three), Some(fourth)) = (Three::new(), Scene::new()) else { return };
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill_all(&mounted);
    mounted.unmount();
    three.served[2].kill();
    three.served[2].start_again(&fourth);
    let scene = three.scene();
    let all = three.address([0, 1, 2]);
    says(&refused_mount(scene, &all), &["has_another_store_now", three.served[2].listens_on()]);
    let output = scene.ok(["--store", &all, "fsck", "--repair", "--servers", "files"]);
    says(&output, &["left out", three.served[2].listens_on()]);
    mounted.mount(scene);
    check(&mounted, 0..6, SHORT);
    fs::read(mounted.path().join("f40")).expect_err("a part of it is lost");
    fill(&mounted, 60..64, LONG);
    mounted.unmount();
    says(&refused_mount(scene, &three.address([0, 1])), &[three.served[2].listens_on()]);
    mounted.mount(scene);
    check(&mounted, 60..64, LONG);
    mounted.unmount();
    // One server less, and at last one alone.
    scene.ok(["--store", &three.address([1, 0]), "fsck", "--repair", "--servers", "files"]);
    let mut some = three.mount([0, 1], &[]);
    check(&some, 0..6, SHORT);
    some.unmount();
    let output = scene.ok(["fsck", "--repair", "--servers", "files"]);
    says(&output, &["left out", three.served[1].listens_on()]);
    let mut alone = scene.mount_served(&three.served[0], "mnt", &[]);
    check(&alone, 0..6, SHORT);
    alone.unmount();
    let address = three.served[1].address();
    let command = scene.command(["--store", &address, "fsck", "--repair", "--servers", "files"]);
    assert!(!finish(command).0, "it has no names");
}

#[test]
fn a_server_that_was_added_belongs_to_it_from_then_on() {
    let Some(three) = Three::new() else { return };
    let scene = three.scene();
    let map = |name: &str, servers: &[(usize, u64)]| {
        let epoch = servers.iter().map(|(_, since)| since).max().expect("there are some");
        let mut text = format!("epoch = {epoch}\n");
        for (index, since) in servers {
            let address = three.served[*index].listens_on();
            text += &format!(
                "[[server]]\nname = \"s{index}\"\naddress = \"{address}\"\nsince = {since}\n"
            );
        }
        fs::write(scene.path(name), text).expect("written");
        format!("terrace+map://{}?secret=none", scene.path(name).display())
    };
    let old = map("old.toml", &[(0, 0), (1, 0)]);
    let new = map("new.toml", &[(0, 0), (1, 0), (2, 1)]);
    let mut mounted = scene.mount_address(&old, "old", &[]);
    fill_all(&mounted);
    mounted.unmount();
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
    // Who only reads adds nothing.
    let mut read = scene.mount_address(&new, "new", &["-o", "ro"]);
    check_all(&read);
    read.unmount();
    mounted.mount(scene);
    mounted.unmount();
    let mut added = scene.mount_address(&new, "new", &[]);
    check_all(&added);
    fill(&added, 60..90, WHOLE);
    added.unmount();
    says(&refused_mount(scene, &old), &["s2 (store "]);
    says(&refused_mount(scene, &three.served[2].address()), &["name all servers"]);
    added.mount(scene);
    check_all(&added);
    check(&added, 60..90, WHOLE);
    added.unmount();
}

#[test]
fn one_that_was_made_by_a_store_alone_is_taken_over_several_servers() {
    let Some(mut three) = Three::new() else { return };
    let mut alone = three.scene().mount("alone", &[]);
    fill_all(&alone);
    alone.unmount();
    // Who only reads changes nothing.
    let mut mounted = three.mount([1, 0], &["-o", "ro"]);
    check_all(&mounted);
    mounted.unmount();
    alone.mount(three.scene());
    check_all(&alone);
    alone.unmount();
    let mut mounted = three.mount([1, 0], &[]);
    check_all(&mounted);
    fill(&mounted, 60..64, LONG);
    mounted.unmount();
    let other = three.served[1].listens_on().to_string();
    says(&refused_mount(three.scene(), "store"), &[&other]);
    three.served[0].stop();
    says(&refused_mount(three.scene(), "store"), &[&other, "fsck --repair --servers files"]);
    let output = three.scene().ok(["fsck", "--repair", "--servers", "files"]);
    says(&output, &["left out", &other]);
    alone.mount(three.scene());
    check_all(&alone);
    fs::read(alone.path().join("f60")).expect_err("a part of it is elsewhere");
    alone.unmount();
}

#[test]
fn a_server_with_objects_of_somebody_else_is_not_taken_in() {
    let Some(three) = Three::new() else { return };
    let scene = three.scene();
    let mut mounted = three.mount([0, 1], &[]);
    fill_all(&mounted);
    mounted.unmount();
    fs::write(scene.path("object"), b"somebody's").expect("written");
    let other = three.served[2].address();
    scene.ok(["--store", &other, "put", "files/0000000000000002", "object"]);
    let text = refused_mount(scene, &three.address([0, 1, 2]));
    says(&text, &[three.served[2].listens_on(), "files/0000000000000002"]);
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
}

#[test]
fn small_files_alone_hold_the_place_of_their_file_system() {
    let Some(mut three) = Three::new() else { return };
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill(&mounted, 0..6, SHORT);
    mounted.unmount();
    let scene = three.scene();
    fs::write(scene.directory("new").join("f0"), b"new").expect("written");
    let others = [
        three.address([1, 2]),
        three.address([2, 1]),
        three.served[1].address(),
        three.served[2].address(),
    ];
    for address in &others {
        for text in
            [refused_mount(scene, address), refused(scene, &["--store", address, "import", "new"])]
        {
            says(&text, &[three.served[0].listens_on(), "kv rm files/b", "--name"]);
        }
    }
    // One of another name is in nobody's way.
    let mut other = three.mount([1, 2], &["--name", "other"]);
    fill(&other, 0..3, LONG);
    other.unmount();
    three.served[1].stop();
    says(&refused_mount(&three.scenes[1], "store"), &[three.served[0].listens_on()]);
    let mut command = three.scenes[1].command(["fsck", "--repair", "--adopt", "files"]);
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    three.served[1].start_again(&three.scenes[1]);
    let scene = three.scene();
    mounted.mount(scene);
    check(&mounted, 0..6, SHORT);
    mounted.unmount();
    // Where the server with the names is lost for good.
    for index in [1, 2] {
        scene.ok(["--store", &three.served[index].address(), "kv", "rm", "files/b"]);
    }
    three.mount([1, 2], &[]).unmount();
}

#[test]
fn a_file_system_without_a_record_gets_one_over_all_of_its_servers() {
    let Some(three) = Three::new() else { return };
    let scene = three.scene();
    let mut mounted = three.mount([0, 1, 2], &[]);
    fill_all(&mounted);
    mounted.unmount();
    forget_servers(scene, &three.of([0, 1, 2]));
    for address in [three.address([0, 1]), three.served[0].address()] {
        for text in [
            refused_mount(scene, &address),
            refused(scene, &["mount", "-o", "ro", &address, "refused"]),
        ] {
            says(&text, &["not all of a file", "ro,degraded", "fsck --repair --servers files"]);
        }
    }
    // Who only reads writes nothing.
    let mut read = three.mount([0, 1, 2], &["-o", "ro"]);
    check_all(&read);
    read.unmount();
    let names = three.served[0].address();
    let mut command = scene.command(["--store", &names, "kv", "get", "files/v"]);
    assert_eq!(command.output().expect("the binary runs").status.code(), Some(3));
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
    says(&refused_mount(scene, &three.address([0, 1])), &[three.served[2].listens_on()]);
    // As of one that is still used with a version that does not know them.
    forget_servers(scene, &three.of([1, 2]));
    mounted.mount(scene);
    check_all(&mounted);
    mounted.unmount();
    says(&refused_mount(scene, &three.address([1, 2])), &[three.served[0].listens_on()]);
}

#[test]
fn marks_of_a_file_system_that_was_never_made_are_in_nobodys_way() {
    let Some(three) = Three::new() else { return };
    let scene = three.scene();
    // Those of another one, under the name of one that is not there.
    three.mount([0, 1, 2], &["--name", "other"]).unmount();
    for index in [1, 2] {
        let address = three.served[index].address();
        let mut command = scene.command(["--store", &address, "kv", "get", "other/b"]);
        let mark = command.output().expect("the binary runs").stdout;
        let mut command = scene.command(["--store", &address, "kv", "put", "files/b", "-"]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
        child.stdin.take().expect("it is a pipe").write_all(&mark).expect("it reads");
        assert!(child.wait().expect("it ends").success());
    }
    says(&refused_mount(scene, &three.address([1, 2])), &[three.served[0].listens_on()]);
    // The names may be with any of those that are named.
    let mut mounted = three.mount([1, 0, 2], &[]);
    fill(&mounted, 0..6, SHORT);
    mounted.unmount();
    says(&refused_mount(scene, &three.address([0, 2])), &[three.served[1].listens_on()]);
    mounted.mount(scene);
    check(&mounted, 0..6, SHORT);
    mounted.unmount();
}

/// Whether a server has the mark of a file system.
fn is_marked(scene: &Scene, served: &Served, name: &str) -> bool {
    let (address, key) = (served.address(), format!("{name}/b"));
    let mut command = scene.command(["--store", &address, "kv", "get", &key]);
    command.output().expect("the binary runs").status.success()
}

/// A mount that is killed on its way, and taken away where it had come so far.
struct Making {
    child: Child,
    path: PathBuf,
}

impl Making {
    fn start(scene: &Scene, name: &str, address: &str) -> Self {
        let path = scene.directory("killed");
        let mut command = scene.command(["mount", "--foreground", "--name", name, address]);
        command.arg(&path).stdout(Stdio::null()).stderr(scene.log("killed"));
        Self { child: command.spawn().expect("the binary runs"), path }
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.kill();
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
    }
}

#[test]
fn a_file_system_whose_making_was_killed_is_made_by_the_next_mount() {
    let Some(mut three) = Three::new() else { return };
    for round in 0..6 {
        let name = format!("round{round}");
        let how = ["--name", &name];
        let address = three.address([0, 1, 2]);
        let mut making = Making::start(three.scene(), &name, &address);
        wait_until("the first mark is there", || is_marked(three.scene(), &three.served[1], &name));
        if round % 2 == 1 {
            three.served[0].kill();
            making.kill();
            three.served[0].start_again(&three.scenes[0]);
        }
        drop(making);
        let mut mounted = three.mount([0, 1, 2], &how);
        fill(&mounted, 0..3, LONG);
        mounted.unmount();
        mounted.mount(three.scene());
        check(&mounted, 0..3, LONG);
        mounted.unmount();
        let scene = three.scene();
        scene.directory("refused");
        let others = three.address([1, 2]);
        let text = refused(scene, &["mount", "--name", &name, &others, "refused"]);
        says(&text, &[three.served[0].listens_on()]);
    }
}
