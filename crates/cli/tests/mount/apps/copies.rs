// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rsync and tar: copies of a tree are what it is.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use terrace_core::Random;

use super::{Stage, program, same, silent, succeed, text};
use crate::suites::How;

/// Files of the tree, and most bytes of one.
const FILES: u64 = 150;
const FILE_BYTES_MAX: u64 = 200_000;

#[test]
fn rsync_finds_nothing_to_do_the_second_time_while_files_move() {
    keeps_a_copy(How::Served);
}

#[test]
fn rsync_finds_nothing_to_do_the_second_time_while_files_move_behind_a_server() {
    keeps_a_copy(How::Network);
}

fn keeps_a_copy(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("rsync", how, seed) else { return };
        let native = stage.place.scene.directory("native");
        let mut random = Random::new(seed);
        grow(&native, &mut random);
        stage.run(|run| {
            let copy = stage.path().join(format!("copy{}", run % 3));
            succeed(rsync(&["--delete"], &native, &copy));
            is_like(&native, &copy);
            // What has changed is written into files that are there.
            change(&native, &mut random);
            succeed(rsync(&["--inplace", "--no-whole-file"], &native, &copy));
            is_like(&native, &copy);
        });
        stage.end();
    }
}

#[test]
fn tar_finds_no_difference_while_files_move() {
    keeps_an_archive(How::Served);
}

#[test]
fn tar_finds_no_difference_while_files_move_behind_a_server() {
    keeps_an_archive(How::Network);
}

fn keeps_an_archive(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("tar", how, seed) else { return };
        let native = stage.place.scene.directory("native");
        grow(&native, &mut Random::new(seed));
        let tree = stage.path().join("tree");
        silent(rsync(&[], &native, &tree));
        stage.run(|run| {
            let archive = stage.path().join("tree.tar");
            // It says so and fails where a file changes while it is read, its times included.
            let how = ["--format=posix", "--sparse", "tree"];
            silent(tar("--create", &archive, stage.path(), &how));
            silent(tar("--compare", &archive, stage.path(), &[]));
            let again = stage.path().join(format!("again{run}"));
            fs::create_dir(&again).expect("it is free");
            silent(tar("--extract", &archive, &again, &[]));
            silent(tar("--compare", &archive, &again, &[]));
            is_like(&native, &again.join("tree"));
        });
        stage.end();
    }
}

/// Whether rsync, which reads everything, finds nothing to do, and diff no difference.
fn is_like(native: &Path, copy: &Path) {
    let everything = ["--checksum", "--itemize-changes", "--delete", "--dry-run"];
    silent(rsync(&everything, native, copy));
    same(native, copy);
}

fn rsync(arguments: &[&str], from: &Path, to: &Path) -> Command {
    let mut command = program("rsync");
    command.args(["--archive", "--hard-links", "--sparse"]).args(arguments);
    // Compares times to the nanosecond: files change more than once in a second here.
    command.arg("--modify-window=-1");
    command.arg(from.join("")).arg(to.join(""));
    command
}

fn tar(verb: &str, archive: &Path, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = program("tar");
    command.arg(verb).arg("--file").arg(archive).arg("--directory").arg(directory).args(arguments);
    command
}

/// Fills a directory with files of all sizes, links and holes.
fn grow(directory: &Path, random: &mut Random) {
    for number in 0..FILES {
        let below = directory.join(format!("d{}/d{}", number % 5, number % 3));
        fs::create_dir_all(&below).expect("there is room");
        let path = below.join(format!("file{number}"));
        let length = random.below(FILE_BYTES_MAX) >> (number % 8);
        fs::write(&path, text(random, length as usize)).expect("there is room");
        match number % 20 {
            0 => fs::hard_link(&path, below.join(format!("hard{number}"))).expect("it is free"),
            1 => symlink(format!("file{number}"), below.join(format!("soft{number}")))
                .expect("it is free"),
            2 => {
                let file = File::create(&path).expect("it is there");
                file.write_all_at(b"behind a hole", 1_000_000 + length).expect("there is room");
            }
            _ => {}
        }
    }
}

/// Changes some of the files.
fn change(directory: &Path, random: &mut Random) {
    for number in (0..FILES).filter(|number| number % 20 > 2) {
        if random.below(3) == 0 {
            let below = directory.join(format!("d{}/d{}", number % 5, number % 3));
            let path = below.join(format!("file{number}"));
            let length = fs::metadata(&path).expect("it is there").len();
            let file = File::options().write(true).open(path).expect("it is there");
            let offset = random.below(length + 1);
            let length = random.below(20_000) as usize;
            file.write_all_at(&text(random, length), offset).expect("there is room");
        }
    }
}
