// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that commands write: never over those of a store.

use std::fs;
use std::os::unix::fs::symlink;

use crate::scene::{Scene, finish, one_error, piped};

const TIERS: &str = "
[[tier]]
name = \"fast\"
path = \"fast\"
capacity = \"4MB\"
bandwidth = \"100MB/s\"

[[tier]]
name = \"slow\"
path = \"slow\"
bandwidth = \"10MB/s\"
";

/// Commands that write the file `OUT`.
const WRITING: &[&str] = &[
    "get run/a OUT",
    "cp :run/a OUT",
    "cp -r :run OUT",
    "item get items/a OUT",
    "backup --force OUT",
    "man OUT",
    "trace export --format csv --output OUT",
    "trace show --html OUT",
    "trace show load.csv --html OUT",
    "trace convert load.csv --to csv --output OUT",
    "trace cut load.csv --from 1s --output OUT",
    "replay load.csv --store store.toml --policy lru --html OUT",
    "tune load.csv --store store.toml --policy lru --budget 8 --html OUT",
    "bench hsm-study --objects 100 --repetitions 1 --picture OUT",
];

fn with_store() -> Scene {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "run/a"]);
    scene.ok(["collection", "create", "items"]);
    scene.ok_with(b"hello", ["item", "put", "items/a"]);
    scene.file("store.toml", TIERS);
    scene.file("load.csv", "time,id,size,op\n1,1,1000,read\n2,1,1000,read\n");
    symlink("slow", scene.path("link")).expect("made");
    symlink("store/dangling", scene.path("dangling")).expect("made");
    scene
}

/// What the store consists of, but for what each opening writes.
fn content(scene: &Scene) -> Vec<(String, Vec<u8>)> {
    let files = ["store", "fast", "slow"].into_iter().flat_map(|directory| {
        let in_it = scene.files(directory).into_iter();
        in_it.map(move |name| format!("{directory}/{name}"))
    });
    let is_kept = |name: &String| {
        let by_opening = ["store/catalog/", "store/lock", "/.terrace-superblock"];
        !by_opening.iter().any(|part| name.contains(part))
    };
    files.filter(is_kept).map(|name| (name.clone(), scene.read(&name))).collect()
}

#[test]
fn no_command_writes_over_files_of_a_store() {
    let scene = with_store();
    let before = content(&scene);
    for command in WRITING {
        for (place, what) in [
            ("store/terrace.toml", "the store"),
            ("store/new", "the store"),
            ("store/catalog/new", "its catalog"),
            ("fast/new", "tier fast"),
            ("link/new", "tier slow"),
            ("dangling", "the store"),
            ("fast/../store/terrace.toml", "the store"),
        ] {
            if place == "dangling" && (command.starts_with("cp -r") || command.starts_with("man")) {
                // They make a directory there, and no link leads to one that is not there.
                continue;
            }
            let command = command.replace("OUT", place);
            let names_other = command.contains("store.toml ");
            let line = scene.fails(2, command.split_whitespace());
            // One that uses another store finds this one all the same.
            let what = match what {
                "tier fast" | "tier slow" if names_other => "a tier",
                _ if names_other => "a store",
                what => what,
            };
            assert!(line.contains(&format!("it belongs to {what}")), "{command}: {line}");
            assert!(line.contains("place="), "{command}: {line}");
        }
    }
    scene.fails(2, ["cp", ":run/a", "fast"]);
    assert!(content(&scene) == before, "the store is as it was");
    // Also where no store is named, and from within.
    let mut command = scene.command(["trace", "convert", "../load.csv", "--to", "csv"]);
    command.args(["--output", "terrace.toml"]).env_remove("TERRACE_STORE");
    let ran = finish(piped(command.current_dir(scene.path("store"))));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(one_error(&ran).contains("it belongs to a store"), "{ran:?}");
    assert!(content(&scene) == before, "the store is as it was");
}

#[test]
fn an_address_with_a_scheme_protects_the_same_files() {
    let scene = with_store();
    let before = content(&scene);
    let writing = WRITING.iter().filter(|command| !command.contains("store.toml"));
    let copies = ["export OUT", "import --to /new OUT"];
    for command in writing.chain(&copies) {
        for (place, what) in [("fast", "tier fast"), ("store", "the store")] {
            let is_copy = copies.contains(command);
            let place = if is_copy { place.to_string() } else { format!("{place}/new") };
            let command = command.replace("OUT", &place);
            let mut command = scene.command(command.split_whitespace());
            let ran = finish(piped(command.env("TERRACE_STORE", "terrace+dir:store")));
            assert_eq!(ran.status, Some(2), "{ran:?}");
            assert!(one_error(&ran).contains(&format!("it belongs to {what}")), "{ran:?}");
        }
    }
    for command in ["replay load.csv --html OUT", "tune load.csv --budget 8 --html OUT"] {
        let command = command.replace("OUT", "fast/new") + " --policy lru --store";
        let arguments = command.split_whitespace().chain(["terrace+dir:store"]);
        let line = scene.fails(2, arguments);
        assert!(line.contains("it belongs to tier fast"), "{command}: {line}");
    }
    assert!(content(&scene) == before, "the store is as it was");
    // And it is found by all that read its configuration.
    let replay = ["replay", "load.csv", "--policy", "lru", "--store", "terrace+dir:store.toml"];
    scene.ok(replay);
    scene.ok(["--store", "terrace+dir:store", "get", "run/a", "a"]);
    assert_eq!(scene.read("a"), b"hello");
}

#[test]
fn beside_a_store_everything_is_written() {
    let scene = with_store();
    scene.file("sim/terrace.toml", TIERS);
    scene.ok(["get", "run/a", "a"]);
    scene.ok(["cp", "-r", ":run", "out"]);
    scene.ok(["item", "get", "items/a", "b"]);
    scene.ok(["backup", "saved"]);
    // A configuration alone is no store.
    scene.ok(["trace", "convert", "load.csv", "--to", "csv", "--output", "sim/load.csv"]);
    scene.ok(["get", "run/a", "/dev/null"]);
    for name in ["a", "out/a", "b"] {
        assert_eq!(scene.read(name), b"hello", "{name}");
    }
    assert!(fs::metadata(scene.path("sim/load.csv")).expect("made").len() > 0);
}
