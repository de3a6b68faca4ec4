// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows: what is measured, and how.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_console::progress::Progress;
use terrace_core::{Error, Result};
use terrace_measure::blocks::{Step, Turn, Until, interleave};
use terrace_measure::check_stop;
use terrace_measure::compared::{Bar, Comparison, Samples};

use super::ground::{Ground, Side};
use super::million::Million;
use super::moving::Moved;
use super::receipts::Mover;
use super::suites::Suites;
use super::{About, Groups, ROWS, Row, Settings, moving, steps};

/// Files that are made or removed in one block.
const FILES: u64 = 512;

/// How long a mount over the network believes names and attributes by itself.
const NET_CACHE: &str = "1s";

const LARGE: usize = 1 << 20;
const SMALL: usize = 4 << 10;

const DIRECTORY: &str = "the tier's directory";
const MIRROR: &str = "a daemon that passes on";

/// Measures the chosen rows, until `stop` is set.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<Row>> {
    let is_chosen =
        |row: &&str| settings.rows.is_empty() || settings.rows.iter().any(|one| one == row);
    let chosen: Vec<_> = ROWS.into_iter().filter(is_chosen).collect();
    let ground = Ground::new()?;
    let total = (chosen.len() * settings.groups) as u64;
    let progress = Progress::items("measuring", Some(total));
    let mut bench = Bench { settings, stop, ground, progress };
    let measured = chosen.into_iter().map(|row| {
        let row = bench.row(row)?;
        bench.progress.aside(|| eprintln!("{}", row.line()));
        Ok(row)
    });
    measured.collect()
}

struct Bench<'a> {
    settings: &'a Settings,
    stop: &'a AtomicBool,
    ground: Ground,
    progress: Progress,
}

/// How pieces of a large file are used.
#[derive(Clone, Copy)]
struct Pieces {
    bytes: usize,
    is_random: bool,
    is_write: bool,
    /// Past the cache of the kernel.
    is_direct: bool,
}

impl Bench<'_> {
    fn row(&mut self, row: &'static str) -> Result<Row> {
        check_stop(self.stop)?;
        self.progress.say(row.into());
        let pieces = |bytes, is_write| Pieces {
            bytes,
            is_write,
            is_random: bytes == SMALL,
            is_direct: false,
        };
        // Else most reads would hit the page cache of the kernel, and the server of the bytes would not matter.
        let direct = |bytes, is_write| Pieces { is_direct: true, ..pieces(bytes, is_write) };
        match row {
            "seq-read-1m" => self.passed(row, pieces(LARGE, false), 0.95),
            "seq-write-1m" => self.passed(row, pieces(LARGE, true), 0.95),
            "rand-read-4k" => self.passed(row, pieces(SMALL, false), 0.8),
            "rand-write-4k" => self.passed(row, pieces(SMALL, true), 0.8),
            "served-seq-read-1m" => self.served(row, direct(LARGE, false)),
            "served-seq-write-1m" => self.served(row, direct(LARGE, true)),
            "served-rand-read-4k" => self.served(row, direct(SMALL, false)),
            "served-rand-write-4k" => self.served(row, direct(SMALL, true)),
            "create" | "lookup-missing" | "read-1k" | "unlink" => self.names(row),
            "net-create-1k" | "net-stat" | "net-read-1k" | "net-remove" | "net-ls-lr" => {
                self.net(row)
            }
            "migrating-read-p99" => self.migrating(row),
            "pjdfstest-passthrough"
            | "pjdfstest-served"
            | "pjdfstest-network"
            | "pjdfstest-strict" => self.suites().pjdfstest(row),
            "fsx-served" | "fsx-network" => self.suites().fsx(row),
            "million-mount" | "million-ls-first" | "million-ls-memory" | "million-tree" => {
                let (ground, files) = (&self.ground, self.settings.files);
                let (progress, stop) = (&mut self.progress, self.stop);
                Million { ground, files, progress, stop }.run(row)
            }
            _ => unreachable!("the command line has checked the names"),
        }
    }

    fn suites(&self) -> Suites<'_> {
        Suites {
            ground: &self.ground,
            programs: self.settings.suites.as_deref(),
            fsx_operations: self.settings.fsx_operations,
            stop: self.stop,
        }
    }

    fn passed(&mut self, row: &'static str, pieces: Pieces, times: f64) -> Result<Row> {
        let ours = self.ground.local(row, &["--io", "passthrough"])?;
        let raw = self.ground.tier(row);
        let about = About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: DIRECTORY,
                bar: Bar::Ratio(times),
            },
            mode: "passthrough",
        };
        self.pieces(&about, &raw, &ours, pieces, "passthrough")
    }

    fn served(&mut self, row: &'static str, pieces: Pieces) -> Result<Row> {
        let ours = self.ground.local(row, &["--io", "served"])?;
        let raw = self.ground.tier_mirror(row, "1h")?;
        let about = About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: MIRROR,
                bar: Bar::Ratio(0.9),
            },
            mode: "served",
        };
        self.pieces(&about, &raw, &ours, pieces, "served")
    }

    fn pieces(
        &mut self,
        about: &About,
        raw: &Side,
        ours: &Side,
        pieces: Pieces,
        state: &str,
    ) -> Result<Row> {
        let path = steps::large(&ours.place)?;
        // The same bytes: how fast others are depends on where in memory they are.
        let files = [
            steps::open_large(&steps::find_large(&raw.place)?, pieces.is_direct)?,
            steps::open_large(&path, pieces.is_direct)?,
        ];
        check_state(&path, state)?;
        let until = Until::TimeNs(self.settings.block_ms as f64 * 1e6);
        let sides = [step(&files[0], pieces), step(&files[1], pieces)];
        self.measure(about, until, pieces.bytes, [raw, ours], sides, &mut |_| Ok(()))
    }

    /// Names and small files, by the mount of the process that owns the store.
    fn names(&mut self, row: &'static str) -> Result<Row> {
        let ours = self.ground.local(row, &["--io", "auto"])?;
        let raw = self.ground.mirror(&format!("{row}-raw"), "1h")?;
        let about = About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: MIRROR,
                bar: Bar::Ratio(0.8),
            },
            mode: "auto",
        };
        self.directories(&about, row, [&raw, &ours])
    }

    fn net(&mut self, row: &'static str) -> Result<Row> {
        let ours = self.ground.remote(row, &["--cache", NET_CACHE])?;
        let raw = self.ground.mirror(&format!("{row}-raw"), NET_CACHE)?;
        let about = About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: MIRROR,
                bar: Bar::Ratio(0.6),
            },
            mode: "network",
        };
        self.directories(&about, row.trim_start_matches("net-"), [&raw, &ours])
    }

    fn directories(&mut self, about: &About, what: &str, sides: [&Side; 2]) -> Result<Row> {
        let directories = [sides[0].place.join("d"), sides[1].place.join("d")];
        for directory in &directories {
            std::fs::create_dir(directory).map_err(steps::failed)?;
            match what {
                "read-1k" | "stat" => steps::small(directory, steps::SMALL_FILES)?,
                "ls-lr" => steps::tree(directory)?,
                _ => {}
            }
        }
        type Act = fn(&Path, u64) -> Result<()>;
        let act: Act = match what {
            "create" => steps::create,
            "create-1k" => steps::create_small,
            "lookup-missing" => steps::miss,
            "read-1k" => steps::read,
            "stat" => steps::stat,
            "unlink" | "remove" => steps::remove,
            "ls-lr" => |directory, _| steps::list(directory).map(drop),
            _ => unreachable!("the rows are known"),
        };
        let is_net = about.mode == "network";
        let until = match what {
            "create" | "create-1k" | "unlink" | "remove" => Until::Count(FILES),
            // Each file once: the second time only the kernel would be measured.
            "stat" | "read-1k" if is_net => Until::Count(FILES),
            "ls-lr" => Until::Count(1),
            _ => Until::TimeNs(self.settings.block_ms as f64 * 1e6),
        };
        // Numbers go on over all blocks, so that no name is looked for twice.
        let is_fresh = what == "lookup-missing";
        let make = |directory: PathBuf| -> Step<'_> {
            let mut fresh = 0;
            Box::new(move |number, _| {
                fresh += 1;
                act(&directory, if is_fresh { fresh } else { number })
            })
        };
        let steps = [make(directories[0].clone()), make(directories[1].clone())];
        let mut prepare = |turn| {
            let directory = &directories[usize::from(turn == Turn::Ours)];
            match what {
                "create" | "create-1k" => steps::clear(directory, FILES + 16)?,
                "unlink" | "remove" => steps::small(directory, FILES + 16)?,
                _ => {}
            }
            if is_net { steps::forget() } else { Ok(()) }
        };
        self.measure(about, until, 0, sides, steps, &mut prepare)
    }

    fn measure(
        &mut self,
        about: &About,
        until: Until,
        bytes: usize,
        sides: [&Side; 2],
        steps: [Step<'_>; 2],
        prepare: &mut dyn FnMut(Turn) -> Result<()>,
    ) -> Result<Row> {
        let stop = self.stop;
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let [raw, ours] = steps;
        let steps = [counted(raw, &counts[0]), counted(ours, &counts[1])];
        let cpu = Cell::new([0_u64; 2]);
        let last: Cell<Option<(usize, u64)>> = Cell::new(None);
        let settle = || {
            if let Some((side, before)) = last.take() {
                let mut sum = cpu.get();
                sum[side] += sides[side].cpu_ns().saturating_sub(before);
                cpu.set(sum);
            }
        };
        let measured = interleave(
            self.settings.groups,
            until,
            bytes,
            steps,
            &mut self.progress,
            &mut |turn| {
                check_stop(stop)?;
                settle();
                prepare(turn)?;
                let side = usize::from(turn == Turn::Ours);
                last.set(Some((side, sides[side].cpu_ns())));
                Ok(())
            },
        )?;
        settle();
        let per_s = |times: &[f64]| times.iter().map(|ns| 1e9 / ns).collect();
        let per_op = |side: usize| {
            cpu.get()[side] as f64 / 1e3 / counts[side].load(Ordering::Relaxed).max(1) as f64
        };
        let (values, yardsticks) = (per_s(&measured.ours), per_s(&measured.yardstick));
        let samples = Samples { values, yardsticks, ..Samples::default() };
        let groups = Groups { samples, cpu_us: per_op(1), yardstick_cpu_us: per_op(0) };
        Ok(groups.row(about))
    }

    fn migrating(&mut self, row: &'static str) -> Result<Row> {
        let ours = self.ground.local(row, &["--io", "served"])?;
        let path = moving::make(&ours.place)?;
        let about = About {
            comparison: Comparison {
                row,
                unit: "us",
                yardstick_is: "without migration",
                bar: Bar::RatioAtMost(1.5),
            },
            mode: "served",
        };
        let file = steps::open_large(&path, true)?;
        check_state(&path, "served")?;
        let mut mover = Mover::new(&self.ground.store_of(row))?;
        let Moved { samples, moves, reads } =
            moving::run(&path, &file, &mut mover, self.settings, self.stop, &mut self.progress)?;
        let row = Groups { samples, ..Groups::default() }.row(&about);
        Ok(row.with_note(format!("{moves} migrations, {reads} reads compared")))
    }
}

/// Reads or writes pieces of a file.
fn step(file: &File, pieces: Pieces) -> Step<'_> {
    Box::new(move |number, buffer| {
        let place = steps::place(number, pieces.bytes, pieces.is_random);
        let done = match pieces.is_write {
            true => file.write_all_at(buffer, place),
            false => file.read_exact_at(buffer, place),
        };
        done.map_err(steps::failed)
    })
}

/// Counts what a step does.
fn counted<'a>(mut step: Step<'a>, count: &'a AtomicU64) -> Step<'a> {
    Box::new(move |number, buffer| {
        count.fetch_add(1, Ordering::Relaxed);
        step(number, buffer)
    })
}

/// Refuses to call a row what it is not.
fn check_state(path: &Path, expected: &str) -> Result<()> {
    let mut value = [0; 256];
    let read = rustix::fs::getxattr(path, "user.terrace.state", &mut value[..])
        .map_err(|errno| Error::from_io("look how a file is open", errno.into()))?;
    let state = String::from_utf8_lossy(&value[..read]);
    match state.starts_with(expected) {
        true => Ok(()),
        false => Err(Error::invalid("measure a mount", "the file is open in another mode")
            .with("state", state)
            .with("expected", expected)),
    }
}
