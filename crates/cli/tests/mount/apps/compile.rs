// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A compiler and make: what they build is what they build elsewhere.

use std::fs;
use std::path::Path;

use super::{Stage, program, same, silent, succeed};
use crate::suites::{How, source};

#[test]
fn a_package_is_built_as_elsewhere_while_its_files_move() {
    builds(How::Served);
}

#[test]
fn a_package_is_built_as_elsewhere_while_its_files_move_behind_a_server() {
    builds(How::Network);
}

fn builds(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("compile", how, seed) else { return };
        let native = stage.place.scene.directory("native");
        build(&native);
        stage.run(|run| {
            let built = stage.path().join(format!("built{run}"));
            fs::create_dir(&built).expect("it is free");
            build(&built);
            same(&native, &built);
        });
        stage.end();
    }
}

/// Unpacks and builds bzip2, which ends with a test of what was built.
fn build(directory: &Path) {
    let mut unpack = program("tar");
    unpack.args(["--extract", "--strip-components=1", "--file"]).arg(source("bzip2"));
    unpack.arg("--directory").arg(directory);
    silent(unpack);
    let mut make = program("make");
    // Without -g, which writes the directory into what is built.
    make.args(["--jobs=2", "CFLAGS=-O2 -D_FILE_OFFSET_BITS=64", "--directory"]).arg(directory);
    succeed(make);
}
