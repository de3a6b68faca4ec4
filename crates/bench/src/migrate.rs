// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast a migration is beside `cp`, and what readers and writers notice of it.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use terrace_console::progress::Progress;
use terrace_core::{
    Backend, Clock, Error, ErrorKind, Key, ObjectExt, Open, Random, Result, SystemClock, TierIndex,
};
use terrace_measure::blocks::GROUPS_MIN;
use terrace_measure::{Bound, Verdict, check_stop, quantile};
use terrace_stack::{MoveKind, Stack};

use super::place::{Scratch, fast_place, stack};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) size_bytes: u64,
    /// Where the two tiers are.
    pub(crate) fast: PathBuf,
    pub(crate) slow: PathBuf,
    pub(crate) rows: Vec<Row>,
}

/// One comparison with its bar.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    /// What the number is, with its unit.
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) control: f64,
    pub(crate) low95: f64,
    pub(crate) high95: f64,
    pub(crate) bar: String,
    pub(crate) verdict: Verdict,
}

/// Longest wait for one migration.
const MOVE_TIME_MAX: Duration = Duration::from_secs(600);

/// Fewer migrations than this support no verdict on the longest wait of a writer.
const STALL_MOVES_MIN: usize = 100;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Length of the object.
    pub size_bytes: u64,
    /// A directory on the slow file system.
    pub slow: PathBuf,
    /// Migrations each way, beside as many copies: every other one with readers.
    pub rounds: usize,
    /// Migrations during which the longest wait of a writer is looked for.
    pub stall_moves: usize,
}

/// Runs the comparison, until `stop` is set.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Report> {
    let size_bytes = settings.size_bytes;
    let fast = Scratch::new(&fast_place())?;
    let slow = Scratch::new(&settings.slow)?;
    for scratch in [&fast, &slow] {
        let room = scratch.free_bytes()?;
        if room < size_bytes * 4 {
            return Err(Error::new(ErrorKind::NoSpace, "run the benchmark")
                .because("four times the size is needed; choose a smaller --size")
                .with("directory", scratch.path().display())
                .with("free_bytes", room));
        }
    }
    let paths = [fast.inside("tier")?, slow.inside("tier")?];
    let stack = stack(&fast, &[&paths[0], &paths[1]], Some("pinned"))?;
    let key = Key::new("bench", "large")?;
    fill(&stack, &key, size_bytes)?;
    let yardstick = [fast.path().join("cp-source"), slow.path().join("cp-target")];
    copy_out(&stack, &key, &yardstick[0])?;
    let spares = Spares::new([fast.path(), slow.path()].map(|at| at.join("spare")), size_bytes)?;
    let mut rows = Vec::new();
    let (mut down, mut up) = (Vec::new(), Vec::new());
    let mut readers = Readers::default();
    let steps = 2 * settings.rounds + settings.stall_moves;
    let mut progress = Progress::items("bench migrate", Some(steps as u64));
    for round in 0..settings.rounds {
        // Without readers for the rate, with readers for their latencies.
        let with_readers = round % 2 == 1;
        // What comes first changes, so that neither always finds what the other has left.
        let is_cp_first = round % 4 < 2;
        for (to, from_file, to_file, ratios) in [
            (TierIndex(1), &yardstick[0], &yardstick[1], &mut down),
            (TierIndex(0), &yardstick[1], &yardstick[0], &mut up),
        ] {
            check_stop(stop)?;
            let side = with_readers.then_some(&mut readers);
            let mut pair = Pair { stack: &stack, key: &key, readers: side, spares: &spares };
            let (cp_s, move_s) = if is_cp_first {
                let cp_s = pair.cp(from_file, to_file)?;
                (cp_s, pair.migrate(to)?)
            } else {
                let move_s = pair.migrate(to)?;
                (pair.cp(from_file, to_file)?, move_s)
            };
            if !with_readers {
                ratios.push(cp_s / move_s);
            }
            progress.advance(1);
        }
    }
    let mb = size_bytes as f64 / 1e6;
    for (case, ratios) in [("tmpfs to disk", &down), ("disk to tmpfs", &up)] {
        let bound = Bound::of(ratios);
        rows.push(Row {
            case: case.into(),
            what: format!("rate of the migration of {mb:.0} MB divided by that of cp and fsync"),
            value: bound.median,
            control: 1.0,
            low95: bound.low95,
            high95: bound.high95,
            bar: "at least 0.8".into(),
            verdict: resolved(settings.rounds, Verdict::at_least(&bound, 0.8)),
        });
    }
    rows.extend(readers.rows(settings.rounds));
    rows.push(stalls(&stack, &yardstick[0], settings.stall_moves, &mut progress, stop)?);
    stack.close()?;
    Ok(Report { size_bytes, fast: fast.path().into(), slow: slow.path().into(), rows })
}

/// A verdict from too few rounds is none: every other one has readers.
fn resolved(rounds: usize, verdict: Verdict) -> Verdict {
    if rounds < 2 * GROUPS_MIN { Verdict::NotResolved } else { verdict }
}

fn fill(stack: &Stack, key: &Key, size_bytes: u64) -> Result<()> {
    const STEP_BYTES: u64 = 1 << 20;
    let object = stack.open(key, &Open::create_new())?;
    let mut data = vec![0; STEP_BYTES as usize];
    // Not compressible, and no block like another.
    let mut random = Random::new(1);
    random.fill(&mut data);
    let mut at = 0;
    while at < size_bytes {
        let count = STEP_BYTES.min(size_bytes - at) as usize;
        data[..8].copy_from_slice(&at.to_le_bytes());
        object.write(at, &data[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// Writes an object into a plain file: the source of the first `cp`.
fn copy_out(stack: &Stack, key: &Key, path: &Path) -> Result<()> {
    let object = stack.open(key, &Open::read())?;
    let wrong = |error| Error::from_io("write the yardstick's file", error);
    let mut file = File::create(path).map_err(wrong)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let count = object.read(at, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        std::io::Write::write_all(&mut file, &buffer[..count]).map_err(wrong)?;
        at += count as u64;
    }
}

/// Seconds of `cp` and fsync.
fn cp(from: &Path, to: &Path) -> Result<f64> {
    let wrong = |error| Error::from_io("run cp", error);
    let _ = std::fs::remove_file(to);
    let clock = SystemClock::default();
    // A copy in blocks, as the migration does it, not a shared extent.
    let status =
        Command::new("cp").arg("--reflink=never").arg(from).arg(to).status().map_err(wrong)?;
    if !status.success() {
        return Err(Error::new(ErrorKind::Io, "run cp").because("it failed"));
    }
    File::open(to).and_then(|file| file.sync_all()).map_err(wrong)?;
    Ok(clock.now_ns() as f64 / 1e9)
}

/// Seconds of one migration of the object's only segment.
fn migrate(stack: &Stack, key: &Key, to: TierIndex) -> Result<f64> {
    let clock = SystemClock::default();
    for ticket in stack.migrate(key, to, MoveKind::Move, 0, "benchmark")? {
        let ended = stack.wait(ticket, MOVE_TIME_MAX)?;
        let outcome = ended.and_then(|report| report.outcome.map(|word| (word, report.detail)));
        match outcome {
            Some((word, _)) if word == "done" => {}
            Some((word, detail)) => {
                return Err(Error::new(ErrorKind::Io, "migrate")
                    .because(format!("the migration ended as {word}: {detail}")));
            }
            None => return Err(Error::new(ErrorKind::Busy, "migrate").because("it does not end")),
        }
    }
    Ok(clock.now_ns() as f64 / 1e9)
}

/// Waits until what migrations have left is deleted: that is not part of what comes next.
fn wait_deleted(stack: &Stack) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(1);
    let clock = SystemClock::default();
    while stack.tiers().iter().any(|tier| tier.garbage_bytes > 0) {
        if clock.now_ns() > MOVE_TIME_MAX.as_nanos() as u64 {
            return Err(Error::new(ErrorKind::Busy, "run the benchmark")
                .because("what a migration left is not deleted"));
        }
        clock.sleep(LOOK);
    }
    Ok(())
}

/// A file on each tier's file system, as large as what is copied, which is removed just before a
/// migration, as `cp`'s last target is before `cp`: both find as much memory that was in use until
/// then. A virtual machine may have to ask its host for other memory, and that takes longer than
/// the copy.
struct Spares {
    paths: [PathBuf; 2],
    size_bytes: u64,
}

impl Spares {
    fn new(paths: [PathBuf; 2], size_bytes: u64) -> Result<Self> {
        let spares = Self { paths, size_bytes };
        [TierIndex(0), TierIndex(1)].into_iter().try_for_each(|tier| spares.put_back(tier))?;
        Ok(spares)
    }

    fn remove(&self, tier: TierIndex) -> Result<()> {
        std::fs::remove_file(&self.paths[tier.index()])
            .map_err(|error| Error::from_io("remove the spare file", error))
    }

    fn put_back(&self, tier: TierIndex) -> Result<()> {
        let wrong = |error| Error::from_io("write the spare file", error);
        let zeros = std::io::repeat(0).take(self.size_bytes);
        let mut file = File::create(&self.paths[tier.index()]).map_err(wrong)?;
        std::io::copy(&mut BufReader::with_capacity(1 << 18, zeros), &mut file).map_err(wrong)?;
        file.sync_all().map_err(wrong)
    }
}

/// The two sides of a round.
struct Pair<'a> {
    stack: &'a Stack,
    key: &'a Key,
    readers: Option<&'a mut Readers>,
    spares: &'a Spares,
}

impl Pair<'_> {
    fn cp(&mut self, from: &Path, to: &Path) -> Result<f64> {
        wait_deleted(self.stack)?;
        match &mut self.readers {
            None => cp(from, to),
            Some(readers) => readers.during(self.stack, self.key, false, || cp(from, to)),
        }
    }

    fn migrate(&mut self, to: TierIndex) -> Result<f64> {
        wait_deleted(self.stack)?;
        self.spares.remove(to)?;
        let (stack, key) = (self.stack, self.key);
        let taken_s = match &mut self.readers {
            None => migrate(stack, key, to),
            Some(readers) => readers.during(stack, key, true, || migrate(stack, key, to)),
        };
        self.spares.put_back(to)?;
        taken_s
    }
}

/// Latencies of 4 KiB reads, in microseconds, while something else runs.
#[derive(Default)]
struct Readers {
    while_cp: Vec<f64>,
    while_moving: Vec<f64>,
    /// 99th percentile of each round: moving divided by `cp`.
    p99: [Vec<f64>; 2],
    errors: u64,
}

impl Readers {
    fn during(
        &mut self,
        stack: &Stack,
        key: &Key,
        is_moving: bool,
        body: impl FnOnce() -> Result<f64>,
    ) -> Result<f64> {
        let object = stack.open(key, &Open::read())?;
        let blocks = object.stat()?.size_bytes / 4096;
        let stop = AtomicBool::new(false);
        let (result, (mut latencies, errors)) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let clock = SystemClock::default();
                let mut random = Random::new(2);
                let (mut latencies, mut errors) = (Vec::new(), 0);
                let mut buffer = [0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    let before_ns = clock.now_ns();
                    let offset = random.below(blocks) * 4096;
                    errors += u64::from(object.read_exact(offset, &mut buffer).is_err());
                    latencies.push((clock.now_ns() - before_ns) as f64 / 1e3);
                }
                (latencies, errors)
            });
            let result = body();
            stop.store(true, Ordering::Relaxed);
            (result, reader.join().expect("a reader does not panic"))
        });
        self.errors += errors;
        if !latencies.is_empty() {
            self.p99[usize::from(is_moving)].push(quantile(&mut latencies, 0.99));
        }
        let all = if is_moving { &mut self.while_moving } else { &mut self.while_cp };
        all.append(&mut latencies);
        result
    }

    fn rows(&mut self, rounds: usize) -> Vec<Row> {
        let [while_cp, while_moving] = &self.p99;
        let ratios: Vec<_> =
            while_cp.iter().zip(while_moving).map(|(cp, moving)| moving / cp).collect();
        if ratios.is_empty() {
            return Vec::new();
        }
        let bound = Bound::of(&ratios);
        let errors = self.errors as f64;
        // One is one too many, however few rounds there were.
        let is_clean =
            if self.errors == 0 { resolved(rounds, Verdict::Met) } else { Verdict::Missed };
        let ratio = Row {
            case: "readers meanwhile".into(),
            what: "p99 of 4 KiB reads in us, beside that while cp copies".into(),
            value: quantile(&mut self.while_moving, 0.99),
            control: quantile(&mut self.while_cp, 0.99),
            low95: bound.low95,
            high95: bound.high95,
            bar: "at most 1.5 times".into(),
            verdict: resolved(rounds, Verdict::at_most(&bound, 1.5)),
        };
        let count = Row {
            case: "readers meanwhile".into(),
            what: "errors".into(),
            value: errors,
            control: 0.0,
            low95: errors,
            high95: errors,
            bar: "none".into(),
            verdict: is_clean,
        };
        vec![ratio, count]
    }
}

/// The longest write of a writer whose object migrates to and fro, beside the same writer while
/// as many copies of a file are made.
fn stalls(
    stack: &Stack,
    file: &Path,
    moves: usize,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Row> {
    const OBJECT_BYTES: usize = 1 << 20;
    let key = Key::new("bench", "written")?;
    let object = stack.open(&key, &Open::create_new())?;
    object.write(0, &vec![1; OBJECT_BYTES])?;
    let small = file.with_extension("small");
    std::fs::write(&small, vec![1; OBJECT_BYTES])
        .map_err(|error| Error::from_io("write the yardstick's file", error))?;
    let target = file.with_extension("small-target");
    let writes = |body: &mut dyn FnMut() -> Result<()>| -> Result<Vec<f64>> {
        let is_over = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let longest = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let clock = SystemClock::default();
                let data = [5; 4096];
                let mut random = Random::new(3);
                let mut times_ms = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let offset = random.below((OBJECT_BYTES / 4096) as u64) * 4096;
                    let before_ns = clock.now_ns();
                    if let Err(error) = object.write(offset, &data) {
                        *failure.lock().expect("nobody panics") = Some(error);
                        break;
                    }
                    times_ms.push((clock.now_ns() - before_ns) as f64 / 1e6);
                    // An application writes in bursts; a spinning writer would leave no pause in
                    // which a migration could end.
                    if times_ms.len() % 64 == 0 {
                        clock.sleep(Duration::from_millis(1));
                    }
                }
                times_ms
            });
            let result = body();
            is_over.store(true, Ordering::Relaxed);
            let times_ms = writer.join().expect("the writer does not panic");
            result.map(|()| times_ms)
        })?;
        match failure.into_inner().expect("nobody panics") {
            Some(error) => Err(error),
            None => Ok(longest),
        }
    };
    let mut moved = 0;
    let mut tries = 0;
    let moving = writes(&mut || {
        while moved < moves && tries < moves * 3 {
            check_stop(stop)?;
            tries += 1;
            let to = TierIndex(((moved + 1) % 2) as u8);
            // A writer that never pauses may win; that attempt counts, and is not a failure.
            if migrate(stack, &key, to).is_ok() {
                moved += 1;
                progress.advance(1);
            }
        }
        Ok(())
    })?;
    let copy = |_| check_stop(stop).and_then(|()| cp(&small, &target)).map(drop);
    let control = writes(&mut || (0..tries).try_for_each(copy))?;
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let (value, control) = (longest(&moving), longest(&control));
    let enough = moved >= STALL_MOVES_MIN;
    let verdict = match value <= control + 5.0 {
        true if enough => Verdict::Met,
        true => Verdict::NotResolved,
        false => Verdict::Missed,
    };
    Ok(Row {
        case: "writer meanwhile".into(),
        what: format!("longest write in ms over {moved} migrations, beside {tries} copies by cp"),
        value,
        control,
        low95: value,
        high95: value,
        bar: "at most the control and 5 ms".into(),
        verdict,
    })
}
