// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test suites of others on a mount, and on a directory of the file system that its tiers are on.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, FallocateFlags};
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};
use terrace_measure::compared::{Bar, Comparison, Samples};
use terrace_measure::{Verdict, check_stop};

use super::ROWS;
use super::foreign::{FSX, PJDFSTEST, Verdicts};
use super::ground::{Ground, Side};
use super::receipts::Mover;
use super::{About, Groups, Row};
use crate::slow_place;

/// The arguments of `cargo install`, as in `tools/setup.sh --suites`.
const PJDFSTEST_CRATE: &str = "pjdfstest@0.2.2";
const FSX_CRATE: &str = "fsx@0.3.2";

/// Operations of fsx, and migrations meanwhile, that a verdict takes.
pub const FSX_OPERATIONS: u64 = 200_000;
const MOVES_MIN: u64 = 100;

/// The same on both sides.
const FSX_SEED: u64 = 1;

/// What fsx finds there: large enough to be an object from the start, and room behind its end.
const FSX_BYTES: usize = 8192;
const FSX_ROOM_BYTES: u64 = 1 << 20;

/// A suite that takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Between two looks whether a suite has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a note has of the end of what a suite printed, and how many tests it names.
const SAID_CHARS: usize = 600;
const NAMED_MAX: usize = 10;

/// What the rows share.
pub(super) struct Suites<'a> {
    pub(super) ground: &'a Ground,
    /// Where the programs are; where none is named, as a shell finds them.
    pub(super) programs: Option<&'a Path>,
    pub(super) fsx_operations: u64,
    pub(super) stop: &'a AtomicBool,
}

impl Suites<'_> {
    /// Runs pjdfstest on a directory, on a mount, and on the directory again.
    pub(super) fn pjdfstest(&self, row: &'static str) -> Result<Row> {
        let how = row.trim_start_matches("pjdfstest-");
        let about = about(row, how, "failures", "the tier's directory", Bar::AtMost(0.0));
        let Some(program) = self.program("pjdfstest") else {
            return Ok(not_found(&about, "pjdfstest", PJDFSTEST_CRATE));
        };
        let name = short(row);
        let native = self.ground.plain(&format!("{name}n"))?;
        let mounted = self.side(&name, how, &["-o", "suid,dev"])?;
        let before = self.verdicts(&program, row, &native)?;
        let found = self.verdicts(&program, row, &mounted)?;
        let native = before.and(self.verdicts(&program, row, &native)?);
        let failed = found.failed_beside(&native);
        let samples = Samples { values: vec![failed.len() as f64], ..Samples::fixed() };
        let mut note = format!("{}; native: {}", found.summary(), native.summary());
        if !failed.is_empty() {
            note += &format!("; {}", failed[..failed.len().min(NAMED_MAX)].join("; "));
        }
        Ok(Groups { samples, ..Groups::default() }.row(&about).with_note(note))
    }

    fn verdicts(&self, program: &Path, row: &str, side: &Side) -> Result<Verdicts> {
        let configuration = self.ground.path().join(format!("{row}.toml"));
        std::fs::write(&configuration, PJDFSTEST).map_err(failed)?;
        let mut command = Command::new(program);
        command.env("NO_COLOR", "1").arg("-c").arg(configuration).arg("-p").arg(&side.place);
        // Another file system, for what cannot go from one to the other.
        command.arg("-s").arg(slow_place());
        let (_, text) = self.finish(command, row)?;
        Verdicts::read(&text).ok_or_else(|| {
            Error::new(ErrorKind::Io, "run pjdfstest")
                .because("its tests are not in what it says")
                .with("said", last(&text))
        })
    }

    /// Runs fsx on a file of a directory, and then on one of a mount while that moves to and fro.
    pub(super) fn fsx(&self, row: &'static str) -> Result<Row> {
        let how = row.trim_start_matches("fsx-");
        let about = about(row, how, "migrations", "-", Bar::AtLeast(MOVES_MIN as f64));
        let Some(program) = self.program("fsx") else {
            return Ok(not_found(&about, "fsx", FSX_CRATE));
        };
        let name = short(row);
        let native = self.ground.plain(&format!("{name}n"))?;
        let clock = SystemClock::default();
        let (is_right_natively, said) = self.run_fsx(&program, row, &prepare(&native)?)?;
        let native_s = clock.now_ns() as f64 / 1e9;
        if !is_right_natively {
            let samples = Samples { values: vec![0.0], ..Samples::fixed() };
            let mut row = Groups { samples, ..Groups::default() }.row(&about);
            row.compared.verdict = Verdict::NotResolved;
            return Ok(row.with_note(format!("void: fsx fails natively: {}", last(&said))));
        }
        let mounted = self.side(&name, how, &[])?;
        let mut mover = Mover::new(&self.ground.store_of(&name))?;
        let is_over = AtomicBool::new(false);
        let file = prepare(&mounted)?;
        let clock = SystemClock::default();
        let (exercised, moves) = thread::scope(|scope| {
            let moves = scope.spawn(|| mover.move_about(&file, &is_over));
            let exercised = self.run_fsx(&program, row, &file);
            is_over.store(true, Ordering::Release);
            (exercised, moves.join().expect("the mover does not panic"))
        });
        let mounted_s = clock.now_ns() as f64 / 1e9;
        let ((is_right, said), moves) = (exercised?, moves?.meanwhile);
        let samples = Samples { values: vec![moves as f64], ..Samples::fixed() };
        let mut row = Groups { samples, ..Groups::default() }.row(&about);
        let operations = self.fsx_operations;
        let mut note =
            format!("{operations} operations in {mounted_s:.1} s, natively in {native_s:.1} s");
        if !is_right {
            row.compared.verdict = Verdict::Missed;
            note = format!("void: it finds other bytes or fails: {}", last(&said));
        } else if operations < FSX_OPERATIONS {
            row.compared.verdict = Verdict::NotResolved;
            note += &format!("; a verdict takes {FSX_OPERATIONS}");
        }
        Ok(row.with_note(note))
    }

    fn run_fsx(&self, program: &Path, row: &str, file: &Path) -> Result<(bool, String)> {
        let configuration = self.ground.path().join(format!("{row}.toml"));
        std::fs::write(&configuration, FSX).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("-f").arg(configuration).arg("-P").arg(self.ground.path());
        command.arg("-N").arg(self.fsx_operations.to_string());
        command.arg("-S").arg(FSX_SEED.to_string()).arg(file);
        self.finish(command, row)
    }

    /// A mount of a store of its own.
    fn side(&self, name: &str, how: &str, more: &[&str]) -> Result<Side> {
        match how {
            "network" => self.ground.remote(name, more),
            "strict" => self.ground.remote(name, &[&["--strict"], more].concat()),
            io => self.ground.local(name, &[&["--io", io], more].concat()),
        }
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> = match self.programs {
            Some(programs) => vec![programs.into()],
            None => std::env::split_paths(&path).collect(),
        };
        let is_program =
            |file: &PathBuf| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok();
        places.into_iter().map(|place| place.join(name)).find(is_program)
    }

    /// Waits for the end of a suite; whether it succeeded, and what it printed.
    fn finish(&self, mut command: Command, row: &str) -> Result<(bool, String)> {
        let output = self.ground.path().join(format!("{row}.said"));
        let file = File::create(&output).map_err(failed)?;
        let both = file.try_clone().map_err(failed)?;
        // Ctrl-C is for this command, which ends the suite.
        command.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
        let program = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(|error| failed(error).with("program", program))?;
        let clock = SystemClock::default();
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(failed(error)),
            }
            if let Err(stopped) = check_stop(self.stop) {
                break Err(stopped);
            }
            if Duration::from_nanos(clock.now_ns()) > TIME_MAX {
                break Err(Error::new(ErrorKind::Io, "run a suite")
                    .because("it does not end")
                    .with("waited_s", TIME_MAX.as_secs()));
            }
            clock.sleep(LOOK);
        };
        if ended.is_err() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        let text = std::fs::read(&output).map_err(failed)?;
        Ok((ended?.success(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// A name for the directories of a row: the path of a socket, which pjdfstest makes there, has 107 bytes
/// at most.
fn short(row: &str) -> String {
    let index = ROWS.iter().position(|one| *one == row);
    format!("r{}", index.expect("it is one of the rows"))
}

/// The file that fsx is given.
fn prepare(side: &Side) -> Result<PathBuf> {
    let path = side.place.join("fsx");
    std::fs::write(&path, [0; FSX_BYTES]).map_err(failed)?;
    // What it writes goes into room behind the end, until it first cuts the file.
    let file = File::options().write(true).open(&path).map_err(failed)?;
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, FSX_ROOM_BYTES)
        .map_err(|errno| failed(errno.into()))?;
    Ok(path)
}

fn about(
    row: &'static str,
    how: &str,
    unit: &'static str,
    yardstick_is: &'static str,
    bar: Bar,
) -> About {
    let mode = match how {
        "passthrough" => "passthrough",
        "served" => "served",
        _ => "network",
    };
    About { comparison: Comparison { row, unit, yardstick_is, bar }, mode }
}

fn not_found(about: &About, name: &str, package: &str) -> Row {
    let why =
        format!("not run: {name} was not found; cargo install {package}, or name its --suites");
    Row::not_run(about, why)
}

/// The end of a suite's output, in one line.
fn last(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = line.chars().count().saturating_sub(SAID_CHARS);
    line.chars().skip(from).collect()
}

fn failed(error: std::io::Error) -> Error {
    Error::from_io("run a suite", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_not_there_is_not_run() {
        let about = about("fsx-served", "served", "migrations", "-", Bar::AtLeast(100.0));
        let row = not_found(&about, "fsx", FSX_CRATE);
        assert_eq!(crate::mount::verdict(std::slice::from_ref(&row)), Verdict::NotRun);
        assert!(row.line().contains("not run: fsx was not found; cargo install fsx@"), "{row:?}");
        assert_eq!(serde_json::json!(row)["value"], serde_json::Value::Null);
    }
}
