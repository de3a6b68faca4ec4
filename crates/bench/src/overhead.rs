// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an operation costs through a stack beside the raw backend.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier};

use serde::Serialize;
use terrace_console::progress::Progress;
use terrace_core::{Backend, BackendExt, Error, ErrorKind, Key, Object, ObjectExt, Open, Result};
use terrace_measure::blocks::{GROUPS_MIN, Samples, Step, Turn, Until, block, interleave, memory};
use terrace_measure::{Bound, Verdict, check_stop, cpu_ns, median};
use terrace_stack::{Stack, Tactics};

use super::place::{Scratch, directory, fast_place, policy_of, slow_place, stack, view_of};

/// What can be measured, in the order of the table.
pub const CASES: [&str; 16] = [
    "read-4k",
    "write-4k",
    "read-1m",
    "write-1m",
    "bare-read-4k",
    "bare-write-4k",
    "open",
    "create",
    "scaling-2-read-4k",
    "scaling-2-write-4k",
    "record-read-4k",
    "record-write-4k",
    "record-read-64k",
    "record-write-64k",
    "python-read-4k",
    "python-write-4k",
];

/// Cases that are measured only when they are named: they need Python with NumPy.
const NAMED_ONLY: &str = "python-";

/// The policy of those: it counts what is read and written, and asks for nothing.
const COUNTS: &str = "\
from terrace.policy import READ, WRITE, Policy

class Counts(Policy):
    reads = writes = 0

    def observe(self, view, events):
        self.reads += int((events['kind'] == READ).sum())
        self.writes += int((events['kind'] == WRITE).sum())
";

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For all cases together, about.
    pub seconds: f64,
    /// Groups of four blocks for each case.
    pub groups: usize,
    /// Some of [`CASES`].
    pub cases: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub(crate) case: &'static str,
    pub(crate) level: &'static str,
    /// Nanoseconds per operation, medians of the groups.
    pub(crate) raw_ns: f64,
    pub(crate) stack_ns: f64,
    /// 95 % bound of the difference, nanoseconds per operation.
    pub(crate) low95_ns: f64,
    pub(crate) high95_ns: f64,
    /// Stack divided by raw, with its 95 % bound.
    pub(crate) ratio: f64,
    pub(crate) ratio_low95: f64,
    pub(crate) ratio_high95: f64,
    /// CPU time of the whole process per operation of the stack.
    pub(crate) cpu_ns_per_op: f64,
    pub(crate) groups: usize,
    pub(crate) bar: &'static str,
    pub(crate) verdict: Verdict,
}

/// What a bar limits.
#[derive(Clone, Copy)]
enum Bar {
    MoreNs(f64),
    Ratio(f64),
    Scaling(f64),
}

impl Bar {
    fn words(self) -> &'static str {
        match self {
            Bar::MoreNs(80.0) => "at most 80 ns more",
            Bar::MoreNs(300.0) => "at most 300 ns more",
            Bar::MoreNs(500.0) => "at most 500 ns more",
            Bar::MoreNs(_) => "at most 5000 ns more",
            Bar::Ratio(1.03) => "at most 1.03 times",
            Bar::Ratio(1.02) => "at most 1.02 times",
            Bar::Ratio(_) => "at most 1.01 times",
            Bar::Scaling(_) => "at least 0.9 times the scaling of the raw backend",
        }
    }

    fn verdict(self, difference: &Bound, ratio: &Bound) -> Verdict {
        match self {
            Bar::MoreNs(limit) => Verdict::at_most(difference, limit),
            Bar::Ratio(limit) => Verdict::at_most(ratio, limit),
            Bar::Scaling(limit) => Verdict::at_least(ratio, limit),
        }
    }
}

const OBJECT_BYTES: usize = 16 << 20;

/// The two stacks and what they are compared with.
struct Bench<'a> {
    /// The benchmark is interrupted.
    stop: &'a AtomicBool,
    groups: usize,
    block_ns: f64,
    raw: Arc<dyn Backend>,
    /// Two tiers and a policy; and the first tier's directory without them.
    stacked: Stack,
    below_stacked: Arc<dyn Backend>,
    /// One tier and no policy.
    bare: Stack,
    below_bare: Arc<dyn Backend>,
    /// Where traces go: a disk.
    traces: Scratch,
    /// Where the policy in Python goes.
    counts: PathBuf,
    progress: Progress,
}

/// Runs the chosen cases, until `stop` is set.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<Case>> {
    let scratch = Scratch::new(&fast_place())?;
    let tier = |name: &str| scratch.inside(name);
    let [fast, slow, alone] = [tier("tier0")?, tier("tier1")?, tier("bare")?];
    let directory_of = |path: &Path| directory(path);
    let chosen: Vec<_> = CASES
        .into_iter()
        .filter(|case| match settings.cases.is_empty() {
            true => !case.starts_with(NAMED_ONLY),
            false => settings.cases.iter().any(|one| one == case),
        })
        .collect();
    // Four blocks in each group, and the ones before the first.
    let blocks = (chosen.len() * (4 * settings.groups + 2)).max(1);
    let total = (chosen.len() * settings.groups) as u64;
    let mut bench = Bench {
        stop,
        groups: settings.groups,
        block_ns: settings.seconds * 1e9 / blocks as f64,
        raw: directory_of(&tier("raw")?)?,
        stacked: stack(&scratch, &[&fast, &slow], Some("lru"))?,
        below_stacked: directory_of(&fast)?,
        bare: stack(&scratch, &[&alone], None)?,
        below_bare: directory_of(&alone)?,
        traces: Scratch::new(&slow_place())?,
        counts: scratch.path().join("counts.py"),
        progress: Progress::items("bench overhead", Some(total)),
    };
    let cases = chosen.into_iter().map(|case| bench.case(case)).collect::<Result<Vec<_>>>()?;
    bench.stacked.close()?;
    bench.bare.close()?;
    Ok(cases)
}

/// A trace of all events, on a disk as it would be; as bounded as anything that a benchmark leaves.
fn recording(directory: &Path) -> terrace_trace::Settings {
    let directory = directory.into();
    terrace_trace::Settings { directory, max_bytes: 256 << 20, salt: None, has_decisions: false }
}

impl Bench<'_> {
    fn case(&mut self, case: &'static str) -> Result<Case> {
        match case {
            "read-4k" => self.transfers(case, 4 << 10, false, Bar::MoreNs(300.0)),
            "write-4k" => self.transfers(case, 4 << 10, true, Bar::MoreNs(300.0)),
            "read-1m" => self.transfers(case, 1 << 20, false, Bar::Ratio(1.02)),
            "write-1m" => self.transfers(case, 1 << 20, true, Bar::Ratio(1.02)),
            "bare-read-4k" => self.transfers(case, 4 << 10, false, Bar::Ratio(1.01)),
            "bare-write-4k" => self.transfers(case, 4 << 10, true, Bar::Ratio(1.01)),
            "open" => self.opens(case),
            "create" => self.creates(case),
            "scaling-2-read-4k" => self.scaling(case, false),
            "scaling-2-write-4k" => self.scaling(case, true),
            "record-read-4k" => self.recordings(case, 4 << 10, false, Bar::MoreNs(80.0)),
            "record-write-4k" => self.recordings(case, 4 << 10, true, Bar::MoreNs(80.0)),
            "record-read-64k" => self.recordings(case, 64 << 10, false, Bar::Ratio(1.03)),
            "record-write-64k" => self.recordings(case, 64 << 10, true, Bar::Ratio(1.03)),
            "python-read-4k" => self.policies(case, false),
            _ => self.policies(case, true),
        }
    }

    fn transfers(
        &mut self,
        case: &'static str,
        bytes: usize,
        is_write: bool,
        bar: Bar,
    ) -> Result<Case> {
        let (above, below) = if case.starts_with("bare") {
            (&self.bare, &self.below_bare)
        } else {
            (&self.stacked, &self.below_stacked)
        };
        let pair = Pair::new(above, &**below, case)?;
        let sides = [&*pair.raw, &*pair.stack].map(|object| transfer(object, bytes, is_write));
        let until = Until::TimeNs(self.block_ns);
        let (groups, prepare) = (self.groups, &mut |_| check_stop(self.stop));
        let samples = interleave(groups, until, bytes, sides, &mut self.progress, prepare)?;
        Ok(row(case, &samples, &samples.paired(|raw, stack| stack / raw), bar))
    }

    /// A stack while it records, beside the same while it does not: `raw` is the second. Both touch
    /// the same bytes in the same pages, because two objects of 16 MiB differ by up to a quarter in
    /// how fast they are written, for as long as they are where they are.
    fn recordings(
        &mut self,
        case: &'static str,
        bytes: usize,
        is_write: bool,
        bar: Bar,
    ) -> Result<Case> {
        /// Events until every place of a thread's ring was used, while a trace is recorded.
        const RING_EVENTS: u64 = 32 << 10;
        let (stacked, traces, stop) = (&self.stacked, &self.traces, self.stop);
        let object = stacked.open(&Key::new("bench", case)?, &Open::create_new())?;
        object.write(0, &vec![7; OBJECT_BYTES])?;
        let mut is_recorded = false;
        // Beginning and ending are not measured, nor what a thread needs for its next event then.
        let mut prepare = |turn| {
            check_stop(stop)?;
            if is_recorded == (turn == Turn::Ours) {
                return Ok(());
            }
            is_recorded = !is_recorded;
            if is_recorded {
                stacked.record(recording(traces.path()), None)?;
            } else {
                stacked.stop_recording()?;
            }
            let mut warm_up = transfer(&*object, 4 << 10, is_write);
            block(&mut warm_up, Until::Count(RING_EVENTS), &mut memory(4 << 10)).map(drop)
        };
        let sides = [&*object, &*object].map(|object| transfer(object, bytes, is_write));
        let until = Until::TimeNs(self.block_ns);
        let samples =
            interleave(self.groups, until, bytes, sides, &mut self.progress, &mut prepare)?;
        if is_recorded {
            stacked.stop_recording()?;
        }
        Ok(row(case, &samples, &samples.paired(|raw, stack| stack / raw), bar))
    }

    /// A stack under a policy in Python, beside the same under a built-in one: `raw` is the second.
    fn policies(&mut self, case: &'static str, is_write: bool) -> Result<Case> {
        const BYTES: usize = 4 << 10;
        /// Starting a process, and ending one, goes on beside what comes behind it.
        const WARM_UP_NS: f64 = 2e8;
        let (stacked, stop, file) = (&self.stacked, self.stop, &self.counts);
        std::fs::write(file, COUNTS)
            .map_err(|error| Error::from_io("write the policy of the benchmark", error))?;
        let object = stacked.open(&Key::new("bench", case)?, &Open::create_new())?;
        object.write(0, &vec![7; OBJECT_BYTES])?;
        let mut is_python = false;
        // Beginning is not measured.
        let mut prepare = |turn| {
            check_stop(stop)?;
            if is_python == (turn == Turn::Ours) {
                return Ok(());
            }
            is_python = !is_python;
            let policy = match is_python {
                true => terrace_policies::program::start(file, &view_of(2), &[])?,
                false => policy_of("lru", 2)?,
            };
            stacked.set_policy(Tactics::new(if is_python { "counts" } else { "lru" }, policy))?;
            let mut warm_up = transfer(&*object, BYTES, is_write);
            block(&mut warm_up, Until::TimeNs(WARM_UP_NS), &mut memory(BYTES)).map(drop)
        };
        let sides = [&*object, &*object].map(|object| transfer(object, BYTES, is_write));
        let until = Until::TimeNs(self.block_ns);
        let samples =
            interleave(self.groups, until, BYTES, sides, &mut self.progress, &mut prepare)?;
        stacked.set_policy(Tactics::new("lru", policy_of("lru", 2)?))?;
        Ok(row(case, &samples, &samples.paired(|raw, stack| stack / raw), Bar::Ratio(1.02)))
    }

    fn opens(&mut self, case: &'static str) -> Result<Case> {
        let pair = Pair::new(&self.stacked, &*self.below_stacked, case)?;
        let how = Open::read();
        let (below, above) = (&*self.below_stacked, &self.stacked);
        let raw: Step<'_> = Box::new(|_, _| below.open(&pair.below, &how).map(drop));
        let stack: Step<'_> = Box::new(|_, _| above.open(&pair.above, &how).map(drop));
        let until = Until::TimeNs(self.block_ns);
        let (groups, prepare) = (self.groups, &mut |_| check_stop(self.stop));
        let samples = interleave(groups, until, 0, [raw, stack], &mut self.progress, prepare)?;
        Ok(row(case, &samples, &samples.paired(|raw, stack| stack / raw), Bar::MoreNs(500.0)))
    }

    fn creates(&mut self, case: &'static str) -> Result<Case> {
        let raw = creating(&*self.raw);
        let mut stack = creating(&self.stacked);
        let one_ns = block(&mut stack, Until::Count(1000), &mut memory(0))?.per_op_ns();
        let until = Until::Count((self.block_ns / one_ns) as u64);
        let (groups, prepare) = (self.groups, &mut |_| check_stop(self.stop));
        let samples = interleave(groups, until, 0, [raw, stack], &mut self.progress, prepare)?;
        Ok(row(case, &samples, &samples.paired(|raw, stack| stack / raw), Bar::MoreNs(5000.0)))
    }

    /// How well two threads on different objects do, stack beside raw. `ratio` is the stack's
    /// speed-up by the second thread divided by the raw backend's.
    fn scaling(&mut self, case: &'static str, is_write: bool) -> Result<Case> {
        let first = Pair::new(&self.stacked, &*self.below_stacked, &format!("{case}-1"))?;
        let second = Pair::new(&self.stacked, &*self.below_stacked, &format!("{case}-2"))?;
        // One thread and two share the time of a block.
        let until = Until::TimeNs(self.block_ns / 2.0);
        let raws = [&*first.raw, &*second.raw];
        let stacks = [&*first.stack, &*second.stack];
        // Nanoseconds per operation of one thread alone, and of each when two work at once.
        let both = |objects: [&dyn Object; 2]| -> Result<[f64; 2]> {
            Ok([together(&objects[..1], until, is_write)?, together(&objects, until, is_write)?])
        };
        let mut samples = Samples::default();
        let mut ratios = Vec::new();
        for _ in 0..self.groups {
            check_stop(self.stop)?;
            let first_raw = both(raws)?;
            let cpu = cpu_ns();
            let (stack, again) = (both(stacks)?, both(stacks)?);
            let cpu = (cpu_ns() - cpu) as f64;
            let last_raw = both(raws)?;
            let mean = |a: [f64; 2], b: [f64; 2]| [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
            let (raw, stack) = (mean(first_raw, last_raw), mean(stack, again));
            ratios.push((stack[0] / stack[1]) / (raw[0] / raw[1]));
            samples.yardstick.push(raw[1]);
            samples.ours.push(stack[1]);
            let operations = self.block_ns * (1.0 / stack[0] + 2.0 / stack[1]);
            samples.ours_cpu.push(cpu / operations);
            self.progress.advance(1);
        }
        Ok(row(case, &samples, &ratios, Bar::Scaling(0.9)))
    }
}

/// An object of a stack, and the file below it opened through the raw backend: both sides touch
/// the same bytes in the same pages.
struct Pair {
    above: Key,
    below: Key,
    stack: Box<dyn Object>,
    raw: Box<dyn Object>,
}

impl Pair {
    fn new(stack: &Stack, tier: &dyn Backend, name: &str) -> Result<Self> {
        let above = Key::new("bench", name)?;
        let object = stack.open(&above, &Open::create_new())?;
        object.write(0, &vec![7; OBJECT_BYTES])?;
        for below in tier.list_all("seg", "")? {
            if tier.identity(&below)?.is_some_and(|identity| identity.key == above) {
                let raw = tier.open(&below, &Open::write())?;
                return Ok(Self { above, below, stack: object, raw });
            }
        }
        Err(Error::new(ErrorKind::Unsupported, "run the benchmark")
            .because("its directory keeps no extended attributes")
            .with("target", tier.target()))
    }
}

fn transfer(object: &dyn Object, bytes: usize, is_write: bool) -> Step<'_> {
    let slots = (OBJECT_BYTES / bytes) as u64;
    Box::new(move |index, buffer| {
        // A stride that visits every block and never the next one.
        let offset = (index * 7 % slots) * bytes as u64;
        if is_write { object.write(offset, buffer) } else { object.read_exact(offset, buffer) }
    })
}

fn creating(backend: &dyn Backend) -> Step<'_> {
    let mut number = 0_u64;
    Box::new(move |_, _| {
        number += 1;
        let key = Key::new("create", &format!("object-{number}"))?;
        backend.open(&key, &Open::create_new()).map(drop)
    })
}

/// Nanoseconds per operation of each thread, when as many as there are objects work at once.
fn together(objects: &[&dyn Object], until: Until, is_write: bool) -> Result<f64> {
    let start = Barrier::new(objects.len());
    let work = |object: &dyn Object| {
        let mut step = transfer(object, 4 << 10, is_write);
        // What a thread needs for its first operation is not what scales.
        let mut buffer = memory(4 << 10);
        let ready = block(&mut step, Until::Count(1), &mut buffer);
        start.wait();
        ready.and_then(|_| block(&mut step, until, &mut buffer))
    };
    let blocks: Result<Vec<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = objects.iter().map(|object| scope.spawn(|| work(*object))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("a benchmark thread does not panic")
        };
        threads.into_iter().map(join).collect()
    });
    let blocks = blocks?;
    Ok(blocks.iter().map(|block| block.per_op_ns()).sum::<f64>() / blocks.len() as f64)
}

fn row(case: &'static str, samples: &Samples, ratios: &[f64], bar: Bar) -> Case {
    let difference = Bound::of(&samples.paired(|raw, stack| stack - raw));
    let ratio = Bound::of(ratios);
    let groups = ratios.len();
    let verdict = bar.verdict(&difference, &ratio);
    Case {
        case,
        level: "process",
        raw_ns: median(&mut samples.yardstick.clone()),
        stack_ns: median(&mut samples.ours.clone()),
        low95_ns: difference.low95,
        high95_ns: difference.high95,
        ratio: ratio.median,
        ratio_low95: ratio.low95,
        ratio_high95: ratio.high95,
        cpu_ns_per_op: median(&mut samples.ours_cpu.clone()),
        groups,
        bar: bar.words(),
        verdict: if groups < GROUPS_MIN { Verdict::NotResolved } else { verdict },
    }
}
