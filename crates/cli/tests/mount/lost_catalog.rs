// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mount that is killed, and a catalog that is lost with it: names and small files come back from a
//! tier.

use std::fs;
use std::path::Path;

use crate::full_catalog::Small;
use crate::scene::{Scene, wait_until};

/// Longer than what is kept with the metadata.
const LONG: usize = 100_000;

/// Waits until the log on a tier says something.
fn wait_for_log(scene: &Scene, words: &[u8]) {
    let directory = scene.path("slow/.terrace-catalog");
    let says = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(words.len()).any(|part| part == words)
    };
    wait_until("it is in the log", || {
        let entries = directory.read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(".log-"))
                && says(&path)
        })
    });
}

fn rebuild(scene: &Scene) -> String {
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    scene.ok(["fsck", "--rebuild"])
}

#[test]
fn what_a_killed_mount_had_logged_is_there_without_its_catalog() {
    let Some(scene) = Scene::new() else { return };
    let mut mounted = scene.mount("one", &[]);
    let root = mounted.path().to_path_buf();
    fs::create_dir_all(root.join("a/b")).expect("made");
    fs::write(root.join("a/small"), b"small").expect("written");
    fs::write(root.join("a/long"), [7; LONG]).expect("written");
    // From here on it is the log that tells.
    wait_for_log(&scene, b"TERRLOG1");
    fs::write(root.join("a/b/old-name"), b"contents").expect("written");
    fs::rename(root.join("a/b/old-name"), root.join("a/new-name")).expect("renamed");
    fs::write(root.join("gone"), b"gone").expect("written");
    fs::remove_file(root.join("gone")).expect("removed");
    fs::write(root.join("gone-too"), [1; LONG]).expect("written");
    fs::remove_file(root.join("gone-too")).expect("removed");
    fs::write(root.join("a/longer"), [9; 2 * LONG]).expect("written");
    fs::rename(root.join("a/long"), root.join("long")).expect("renamed");
    fs::write(root.join("a/small"), b"SMALL").expect("written");
    std::os::unix::fs::symlink("a/small", root.join("link")).expect("made");
    fs::write(root.join("last-name"), b"the last words").expect("written");
    // What comes before it in the log is there, too.
    fs::create_dir(root.join("marker")).expect("made");
    wait_for_log(&scene, b"marker");
    mounted.kill();
    drop(mounted);
    let printed = rebuild(&scene);
    assert!(printed.contains("took names and pairs from the checkpoint "), "{printed}");
    let mounted = scene.mount("two", &[]);
    let root = mounted.path();
    let names = |directory: &str| {
        let entries = fs::read_dir(root.join(directory)).expect("listed");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
        names.sort();
        names
    };
    // What was removed a moment before has no name, but its contents may not have been deleted yet.
    let mut found = names("");
    if let Some(at) = found.iter().position(|name| name == "lost+found") {
        found.remove(at);
        for name in names("lost+found") {
            let bytes = fs::read(root.join("lost+found").join(&name)).expect("read");
            let is_gone = bytes == b"gone" || bytes.iter().all(|byte| *byte == 1);
            assert!(is_gone, "{name}: {:?}", bytes.get(..20));
        }
    }
    assert_eq!(found, ["a", "last-name", "link", "long", "marker"]);
    assert_eq!(names("a"), ["b", "longer", "new-name", "small"]);
    assert_eq!(names("a/b"), [""; 0]);
    assert_eq!(fs::read(root.join("link")).expect("read"), b"SMALL");
    assert_eq!(fs::read(root.join("a/new-name")).expect("read"), b"contents");
    assert_eq!(fs::read(root.join("long")).expect("read"), [7; LONG]);
    assert_eq!(fs::read(root.join("a/longer")).expect("read"), [9; 2 * LONG]);
    assert_eq!(fs::read(root.join("last-name")).expect("read"), b"the last words");
}

#[test]
fn a_disk_without_room_costs_the_log_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let small = Small::mount(scene.directory("small"));
    // The path of a file, so that no other tier takes it.
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("read");
    let place = "[catalog]\ncheckpoint = \"../small/saved\"\n";
    fs::write(&settings, text.replacen("[catalog]\n", place, 1)).expect("written");
    let mut mounted = scene.mount("one", &[]);
    let root = mounted.path().to_path_buf();
    fs::write(root.join("before"), b"before").expect("written");
    let directory = scene.path("small");
    wait_until("there is a checkpoint", || directory.join("saved").exists());
    small.fill();
    for number in 0..50 {
        fs::write(root.join(format!("file{number}")), [7; 2000]).expect("written");
    }
    let what = "names and small files are not kept twice at the moment";
    wait_until("it says so", || scene.has_logged("one", what));
    for number in 50..100 {
        fs::write(root.join(format!("file{number}")), [7; 2000]).expect("written");
    }
    let log = fs::read_to_string(scene.path("one.log")).expect("it logs");
    assert_eq!(log.matches(what).count(), 1, "once: {log}");
    mounted.kill();
    drop(mounted);
    fs::remove_file(small.0.join("fill")).expect("it is there");
    // What is there is sound.
    rebuild(&scene);
    let mounted = scene.mount("two", &[]);
    assert_eq!(fs::read(mounted.path().join("before")).expect("read"), b"before");
}
