// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications below a policy that never lets what they have open rest.

use std::collections::HashSet;
use std::fs;

use terrace_core::{Clock, SystemClock};

use super::{RUN_TIME_MAX, Stage, fio, moves_min, sqlite};
use crate::receipts::Receipts;
use crate::scene::Scene;
use crate::suites::{How, Place};

/// Moves everything that is open to the tier where it is not.
const POLICY: &str = r#"
import numpy as np

from terrace.policy import Policy

class Restless(Policy):
    def plan(self, view, actions):
        segments = view.segments
        may_move = segments["is_live"] & ~segments["is_moving"] & (segments["opens"] > 0)
        for slot in np.flatnonzero(may_move).tolist():
            if not actions.move(slot, to=1 - int(segments[slot]["tier"]), reason="it is open"):
                break
"#;

#[test]
fn fio_reads_what_it_wrote_while_a_policy_moves_it() {
    moves_what_is_open("fio", How::Served, fio::verify_all);
}

#[test]
fn fio_reads_what_it_wrote_while_a_policy_moves_it_behind_a_server() {
    moves_what_is_open("fio", How::Network, fio::verify_all);
}

#[test]
fn sqlite_keeps_its_books_while_a_policy_moves_them() {
    moves_what_is_open("sqlite", How::Served, sqlite::keep_books);
}

/// Runs an application below the policy once or more, until that has moved enough of what it has open.
fn moves_what_is_open(what: &'static str, how: How, application: impl Fn(&Stage, u64)) {
    for seed in terrace_testkit::seeds(1) {
        let Some(scene) = Scene::new() else { return };
        fs::write(scene.path("restless.py"), POLICY).expect("there is room");
        scene.ok(["policy", "use", "./restless.py"]);
        let stage = Stage { place: Place::with_scene(scene, how, &[]), what, how, seed };
        let probe = stage.path().join(".probe");
        fs::write(&probe, [0; 8192]).expect("there is room");
        let receipts = Receipts::watch(&stage.place.scene, &probe);
        fs::remove_file(&probe).expect("it is there");
        let clock = SystemClock::default();
        let start_ns = clock.now_ns();
        let (mut moves, mut moved, mut runs) = (0, HashSet::new(), 0);
        let is_late = || clock.now_ns() - start_ns > RUN_TIME_MAX.as_nanos() as u64;
        while runs == 0 || (moves < moves_min() && !is_late()) {
            application(&stage, runs);
            runs += 1;
            for receipt in receipts.ended.try_iter() {
                if receipt.outcome == "done" && receipt.is_by_policy {
                    moves += 1;
                    moved.insert(receipt.key);
                }
            }
        }
        let files = moved.len();
        println!(
            "{what}, {how:?}, policy: seed {seed}, {runs} runs, {moves} moves of {files} files"
        );
        assert!(moves >= moves_min(), "only {moves} migrations of open files");
        drop(receipts);
        stage.end();
    }
}
