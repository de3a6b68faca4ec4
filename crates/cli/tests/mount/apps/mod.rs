// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications, while the files that they hold open move from tier to tier: each has to end well, and
//! what checks its own data has to find it right.

mod compile;
mod copies;
mod fio;
mod full;
mod git;
mod mapping;
pub(crate) mod mover;
mod postgresql;
mod restless;
mod sqlite;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use terrace_core::{Clock, Random, SystemClock};

use self::mover::Mover;
use crate::scene::{Scene, finish};
use crate::suites::{How, Place};

/// Migrations of open files that are done while an application runs; `TERRACE_APPS_MOVES` asks for
/// others.
const MOVES_MIN: u64 = 100;

/// An application that runs again and again for so long without these does not move enough.
const RUN_TIME_MAX: Duration = Duration::from_secs(300);

/// A mount for an application to run on.
struct Stage {
    place: Place,
    what: &'static str,
    how: How,
    seed: u64,
}

impl Stage {
    /// `None` where that cannot be tested here.
    fn new(what: &'static str, how: How, seed: u64) -> Option<Self> {
        Some(Self { place: Place::new(how, &[])?, what, how, seed })
    }

    /// Where the application works.
    fn path(&self) -> &Path {
        self.place.mounted.path()
    }

    /// Runs the application once or more, until enough has moved meanwhile; it is told how often it
    /// has run before.
    fn run(&self, application: impl FnMut(u64)) {
        let what = format!("{}, {:?}", self.what, self.how);
        run_while_files_move(&self.place.scene, self.path(), &what, self.seed, application);
    }

    /// Unmounts, and checks the store.
    fn end(self) {
        let Place { mut mounted, served, scene } = self.place;
        mounted.unmount();
        if let Some(mut served) = served {
            served.stop();
        }
        scene.ok(["fsck", "--verify"]);
    }
}

/// Runs what uses files below a mount once or more, until enough of them have moved while they were
/// open; it is told how often it has run before.
pub(crate) fn run_while_files_move(
    scene: &Scene,
    mount: &Path,
    what: &str,
    seed: u64,
    mut application: impl FnMut(u64),
) {
    let mover = Mover::start(scene, mount, seed);
    let clock = SystemClock::default();
    let (start_ns, mut runs) = (clock.now_ns(), 0);
    let duration = || Duration::from_nanos(clock.now_ns() - start_ns);
    let is_short = || mover.moves_of_open() < moves_min() && duration() < RUN_TIME_MAX;
    while runs == 0 || (is_short() && mover.is_running()) {
        application(runs);
        runs += 1;
    }
    let (moves, of_open) = (mover.moves(), mover.moves_of_open());
    let seconds = duration().as_secs_f64();
    println!(
        "{what}: seed {seed}, {runs} runs in {seconds:.1} s, {moves} migrations, \
         {of_open} of them of files that were open"
    );
    assert!(of_open >= moves_min(), "only {of_open} migrations of open files");
}

fn moves_min() -> u64 {
    let asked = std::env::var("TERRACE_APPS_MOVES");
    asked.map_or(MOVES_MIN, |text| text.parse().expect("TERRACE_APPS_MOVES is a number"))
}

/// A program with the language and the settings that it has everywhere.
fn program(name: impl AsRef<Path>) -> Command {
    let mut command = Command::new(name.as_ref());
    command.env("LC_ALL", "C").env("TZ", "UTC");
    command
}

/// Waits for the end of a program that must succeed; what it printed.
#[track_caller]
fn succeed(command: Command) -> String {
    let what = format!("{command:?}");
    let (has_succeeded, text) = finish(command);
    assert!(has_succeeded, "{what}: {text}");
    text
}

/// The same for one that must not have anything to say, either.
#[track_caller]
fn silent(command: Command) {
    let what = format!("{command:?}");
    let text = succeed(command);
    assert!(text.is_empty(), "{what}: {text}");
}

/// Compares two trees.
#[track_caller]
fn same(one: &Path, other: &Path) {
    let mut command = program("diff");
    command.args(["-r", "--no-dereference", "--exclude=.git"]).arg(one).arg(other);
    silent(command);
}

/// Text that is compressed by half or so.
fn text(random: &mut Random, length: usize) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["tier ", "segment ", "policy ", "object\n", "copy ", "intent ", "switch\n", "drop "];
    let mut text = Vec::with_capacity(length + 32);
    while text.len() < length {
        text.extend_from_slice(WORDS[random.below(WORDS.len() as u64) as usize].as_bytes());
        if random.below(4) == 0 {
            text.extend_from_slice(format!("{:016x}\n", random.next_u64()).as_bytes());
        }
    }
    text.truncate(length);
    text
}
