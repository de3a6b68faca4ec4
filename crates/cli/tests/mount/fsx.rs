// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fsx, which reads and writes a file at random and compares all it reads; while the file moves, where
//! it can.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;

use crate::foreign::FSX;
use crate::receipts::{Receipts, ask_served};
use crate::scene::{Scene, finish};
use crate::suites::{How, Place, program, uring_is_offered};

/// Operations in one run; `TERRACE_FSX_OPERATIONS` asks for others.
const OPERATIONS: u64 = 5_000;

/// So often the file has to move during one run.
const MOVES_MIN: u64 = 100;

/// So many runs for that at most, each twice as long as the one before.
const ROUNDS_MAX: u32 = 4;

/// No migration of a file so small takes nearly as long.
const MOVE_TIME_MAX: Duration = Duration::from_secs(1);

#[test]
fn a_file_is_right_while_it_moves() {
    exercises(How::Served);
}

#[test]
fn a_file_is_right_where_the_kernel_passes_it_through() {
    exercises(How::Passed);
}

#[test]
fn a_file_is_right_while_it_moves_behind_a_server() {
    exercises(How::Network);
}

#[test]
fn a_file_is_right_while_it_moves_behind_a_server_and_nothing_is_cached() {
    exercises(How::Strict);
}

#[test]
fn a_file_is_right_while_it_moves_and_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        exercises_with(How::Served, &["--uring", "on"]);
    }
}

#[test]
fn a_file_is_right_while_it_moves_behind_a_server_and_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        exercises_with(How::Network, &["--uring", "on"]);
    }
}

fn exercises(how: How) {
    exercises_with(how, &[]);
}

fn exercises_with(how: How, more: &[&str]) {
    let Some(mut place) = Place::new(how, more) else { return };
    for seed in terrace_testkit::seeds(1) {
        let file = place.mounted.path().join(format!("fsx{seed}"));
        prepare(&file);
        let (mut operations, mut is_enough) = (operations(), false);
        let native = place.scene.directory("native").join(format!("fsx{seed}"));
        prepare(&native);
        assert!(run(&place.scene, &native, seed, operations), "seed {seed} fails natively");
        // Other work on the machine may leave few moves to a run: then there is a longer one.
        for _ in 0..ROUNDS_MAX {
            let moves = match how {
                How::Passed => run(&place.scene, &file, seed, operations).then_some(None),
                _ => run_moving(&place.scene, &file, seed, operations).map(Some),
            };
            let moves = moves.unwrap_or_else(|| panic!("seed {seed} fails"));
            println!("fsx, {how:?}: seed {seed}, {operations} operations, moves of it: {moves:?}");
            is_enough = moves.is_none_or(|moves| moves >= MOVES_MIN);
            if is_enough {
                break;
            }
            operations *= 2;
        }
        assert!(is_enough, "the file moved less than {MOVES_MIN} times in each run");
        if how == How::Passed {
            let open = std::fs::File::open(&file).expect("it is there");
            let mut state = [0; 64];
            let bytes = rustix::fs::getxattr(&file, "user.terrace.state", &mut state);
            assert_eq!(&state[..bytes.expect("mounts tell")], b"passthrough");
            drop(open);
        }
    }
    place.mounted.unmount();
}

fn prepare(file: &Path) {
    // Large enough to be an object from the start.
    std::fs::write(file, vec![0; 8192]).expect("there is room");
    // What it writes goes into room behind the end, until it first cuts the file.
    let opened = File::options().write(true).open(file).expect("it is there");
    let promised = rustix::fs::fallocate(&opened, FallocateFlags::KEEP_SIZE, 0, 1 << 20);
    promised.expect("there is room");
}

fn operations() -> u64 {
    let asked = std::env::var("TERRACE_FSX_OPERATIONS");
    asked.map_or(OPERATIONS, |text| text.parse().expect("TERRACE_FSX_OPERATIONS is a number"))
}

/// Runs the suite; whether the file was right.
fn run(scene: &Scene, file: &Path, seed: u64, operations: u64) -> bool {
    let configuration = scene.path("fsx.toml");
    std::fs::write(&configuration, FSX).expect("there is room");
    let mut command = Command::new(program("fsx"));
    command.arg("-f").arg(configuration).arg("-P").arg(scene.path(""));
    command.arg("-N").arg(operations.to_string()).arg("-S").arg(seed.to_string()).arg(file);
    let (is_right, text) = finish(command);
    if !is_right {
        println!("{text}");
    }
    is_right
}

/// The same while the file moves from tier to tier; how often it did.
fn run_moving(scene: &Scene, file: &Path, seed: u64, operations: u64) -> Option<u64> {
    let receipts = Receipts::watch(scene, file);
    let is_done = &AtomicBool::new(false);
    let (is_right, moves) = thread::scope(|scope| {
        let mover = scope.spawn(move || {
            let mut moves = 0;
            let mut tiers = receipts.tiers.into_iter().cycle();
            let mut tier = tiers.next();
            while let (Some(to), false) = (tier, is_done.load(Ordering::SeqCst)) {
                let was_asked = ask_served(file, to);
                let ended = receipts.ended.recv_timeout(MOVE_TIME_MAX);
                match ended.as_ref().map(|receipt| receipt.outcome.as_str()) {
                    Ok("done") => {
                        moves += 1;
                        tier = tiers.next();
                    }
                    // Too much was written meanwhile: it is tried again.
                    Ok(_) => {}
                    // It is there already.
                    Err(_) if was_asked => tier = tiers.next(),
                    Err(_) => {}
                }
            }
            moves
        });
        let is_right = run(scene, file, seed, operations);
        is_done.store(true, Ordering::SeqCst);
        (is_right, mover.join().expect("a served file may move"))
    });
    is_right.then_some(moves)
}
