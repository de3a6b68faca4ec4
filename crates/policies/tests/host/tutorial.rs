// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code on the tutorial's page does what the page says. `tools/run-tutorial.py` runs the page
//! itself.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::build;
use crate::world::World;

/// The last block of the page with this info string.
fn block(info: &str) -> String {
    let page = std::fs::read_to_string(build::root().join("docs/tutorials/policy.md"));
    let page = page.expect("reads");
    let (_, rest) = page.rsplit_once(&format!("```{info}\n")).expect("the page has the block");
    rest.split_once("```\n").expect("the block ends").0.to_owned()
}

fn c_policy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, library) = (dir.path().join("mine.c"), dir.path().join("mine.so"));
    std::fs::write(&source, block("c file=mine.c")).expect("writes");
    build::library(&source, &library);
    (dir, library)
}

fn rust_policy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("src")).expect("makes");
    let dependency = build::root().join("bindings/policy");
    let manifest = block("toml file=mine-rust/Cargo.toml");
    let manifest = format!("{manifest}[dependencies]\nterrace-policy.path = {dependency:?}\n");
    std::fs::write(dir.path().join("Cargo.toml"), manifest).expect("writes");
    let source = block("rust file=mine-rust/src/lib.rs");
    std::fs::write(dir.path().join("src/lib.rs"), source).expect("writes");
    let library = build::crate_library(dir.path(), &[], "libmine_rust.so");
    (dir, library)
}

#[test]
fn the_policies_of_the_tutorial_place_and_demote() {
    for (_dir, library) in [c_policy(), rust_policy()] {
        let mut world = World::new(&library, &[("high", "0.5")]);
        let log = world.create("demo/diary.log", 5);
        assert_eq!(world.tier_of(log), 1, "{library:?}");
        for (name, bytes) in [("small", 5), ("large", 40), ("middle", 20), ("twin", 20)] {
            world.create(&format!("demo/{name}"), bytes);
        }
        assert_eq!(world.round(), ["large move 1: the largest goes first"], "{library:?}");
        world.policy.set_parameter("high", "0.1").expect("legal");
        let both = ["middle move 1: the largest goes first", "twin move 1: the largest goes first"];
        assert_eq!(world.round(), both, "{library:?}");
        world.policy.set_parameter("high", "2").expect_err("refused");
        assert_eq!(world.policy.parameters()[0].value, "0.1");
    }
}
