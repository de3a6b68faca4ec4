// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fio, which writes blocks with checksums and reads them again.

use super::{Stage, program, succeed};
use crate::suites::How;

/// The ways to read and write.
const ENGINES: [&[&str]; 3] =
    [&["--ioengine=psync"], &["--ioengine=psync", "--direct=1"], &["--ioengine=mmap"]];

/// Those in which jobs keep to their parts of a file; where they map it, it takes all of it for its own
/// on any file system.
const ENGINES_SHARED: usize = 2;

#[test]
fn fio_reads_what_it_wrote_while_it_moves() {
    verifies_its_own(How::Served);
}

#[test]
fn fio_reads_what_it_wrote_while_it_moves_behind_a_server() {
    verifies_its_own(How::Network);
}

fn verifies_its_own(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("fio", how, seed) else { return };
        stage.run(|run| verify_all(&stage, run));
        stage.end();
    }
}

/// Has jobs write and verify files of their own, in each way.
pub(super) fn verify_all(stage: &Stage, run: u64) {
    for engine in ENGINES {
        // Blocks of all sizes, so that they share pages and segments.
        let own = ["--bsrange=4k-64k", "--size=8m", "--numjobs=2"];
        verify(stage, stage.seed + run, &[&own[..], engine].concat());
    }
}

#[test]
fn processes_that_share_a_file_keep_their_parts_while_it_moves() {
    verifies_parts(How::Served);
}

#[test]
fn processes_that_share_a_file_keep_their_parts_while_it_moves_behind_a_server() {
    verifies_parts(How::Network);
}

fn verifies_parts(how: How) {
    for seed in terrace_testkit::seeds(1) {
        let Some(stage) = Stage::new("fio, shared", how, seed) else { return };
        stage.run(|run| {
            for engine in &ENGINES[..ENGINES_SHARED] {
                let parts = ["--bs=4k", "--size=4m", "--offset_increment=4m", "--numjobs=4"];
                let shared = ["--filename=shared"];
                verify(&stage, seed + run, &[&parts[..], &shared, engine].concat());
            }
        });
        stage.end();
    }
}

fn verify(stage: &Stage, seed: u64, more: &[&str]) {
    let mut command = program("fio");
    command.arg("--name=verified").arg("--directory").arg(stage.path());
    command.args(["--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
    // What is verified is neither trimmed nor laid out before.
    command.args(["--fallocate=none", "--fsync=200", "--minimal"]);
    command.arg(format!("--randseed={}", seed + 1)).args(more);
    // It keeps what it has to know of a run in the directory it works in.
    command.current_dir(stage.place.scene.path(""));
    succeed(command);
}
