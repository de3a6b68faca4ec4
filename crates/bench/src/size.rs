// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store of many objects takes: time to open, memory, listing, checking.

mod lost;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use terrace_backends::kv::open_kv;
use terrace_core::{
    Backend, Clock, Cursor, Error, ErrorKind, Figures, Hint, Key, ObjectExt, Op, Open, Persistency,
    Random, Request, Result, Semantics, SystemClock, TierView, View,
};
use terrace_measure::{Verdict, check_stop};
use terrace_stack::{Parts, Stack, Tactics, Tier};

use super::place::{Scratch, directory, fast_place};

/// Objects created with one call.
const BATCH: u64 = 1000;

/// Objects that are opened and read, at most.
const ACCESSES_MAX: u64 = 100_000;

/// Objects from which on the bars hold: below, what every store takes decides.
const BARS_FROM: u64 = 1_000_000;

/// A store of this many opens in `OPEN_S_MAX`.
const OPEN_OBJECTS_MAX: u64 = 1_000_000;
const OPEN_S_MAX: f64 = 2.0;

/// Memory of the process for each object.
const BYTES_MAX: f64 = 300.0;

/// From here on, 1.3 times as much.
const MANY: u64 = 10_000_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many objects; each takes an inode, and is empty without `rebuild`.
    pub objects: u64,
    /// Where the store is made, and removed afterwards; without one in main memory, where there is a tmpfs.
    pub directory: Option<PathBuf>,
    /// The policy of the store.
    pub policy: String,
    /// The engine of its catalog.
    pub engine: String,
    /// Instead, loses the catalog, makes it anew from the tiers, and compares every object with what was written
    /// to it.
    pub rebuild: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    objects: u64,
    policy: String,
    engine: String,
    create_per_s: f64,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) step: &'static str,
    pub(crate) seconds: f64,
    pub(crate) per_s: f64,
    /// Anonymous memory of the process after the step; with `--rebuild` the most that was seen in
    /// it.
    pub(crate) memory_bytes: u64,
    pub(crate) bytes_per_object: f64,
    pub(crate) bar: String,
    pub(crate) verdict: Option<Verdict>,
}

/// Makes a store in a process of its own, then opens it here and looks at it, until `stop` is set.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Report> {
    let place = settings.directory.clone().unwrap_or_else(fast_place);
    let scratch = Scratch::new(&place)?;
    let clock = SystemClock::default();
    let create_s = seconds(&clock, || fill_elsewhere(scratch.path(), settings, stop))?.1;
    let mut steps = Steps { clock: &clock, stop, objects: settings.objects, rows: Vec::new() };
    if settings.rebuild {
        lost::measure(scratch.path(), settings, &mut steps)?;
    } else {
        look(scratch.path(), settings, &mut steps)?;
    }
    Ok(Report {
        objects: settings.objects,
        policy: settings.policy.clone(),
        engine: settings.engine.clone(),
        create_per_s: settings.objects as f64 / create_s,
        rows: steps.rows,
    })
}

/// Opens the store and does what takes longer the more objects there are.
fn look(place: &Path, settings: &Settings, steps: &mut Steps<'_>) -> Result<()> {
    let stack = steps.take("open", 1, || Stack::open(parts(place, settings)?))?;
    steps.take("list", settings.objects, || list(&stack, settings.objects))?;
    let accesses = settings.objects.min(ACCESSES_MAX);
    steps.take("stat", accesses, || each(settings.objects, accesses, |key| stack.stat(key)))?;
    steps.take("open and read", accesses, || {
        each(settings.objects, accesses, |key| {
            stack.open(key, &Open::read())?.read(0, &mut [0; 64])
        })
    })?;
    steps.take("fsck", settings.objects, || check(&stack, settings.objects))?;
    steps.take("close", 1, || stack.close())
}

/// Rows as they come.
struct Steps<'a> {
    clock: &'a SystemClock,
    stop: &'a AtomicBool,
    objects: u64,
    rows: Vec<Row>,
}

impl Steps<'_> {
    fn take<T>(
        &mut self,
        step: &'static str,
        count: u64,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        check_stop(self.stop)?;
        let (value, seconds) = seconds(self.clock, body)?;
        self.push(step, count, seconds, anonymous_bytes()?);
        Ok(value)
    }

    fn push(&mut self, step: &'static str, count: u64, seconds: f64, memory_bytes: u64) {
        let bytes_per_object = memory_bytes as f64 / self.objects as f64;
        let (bar, is_met) = self.bar(step, seconds, bytes_per_object);
        let verdict = is_met.map(|is_met| if is_met { Verdict::Met } else { Verdict::Missed });
        let per_s = count as f64 / seconds.max(1e-9);
        self.rows.push(Row { step, seconds, per_s, memory_bytes, bytes_per_object, bar, verdict });
    }

    /// The bar of a step, and whether it is met. What a check keeps in memory is gone with it.
    fn bar(&self, step: &str, seconds: f64, bytes_per_object: f64) -> (String, Option<bool>) {
        if self.objects < BARS_FROM || matches!(step, "fsck" | "close") {
            return (String::new(), None);
        }
        if lost::STEPS.contains(&step) {
            let has_bar = step == lost::IN_ALL && self.objects <= OPEN_OBJECTS_MAX;
            let bar = has_bar.then(|| format!("{} s", lost::SECONDS_MAX));
            return (bar.unwrap_or_default(), has_bar.then_some(seconds <= lost::SECONDS_MAX));
        }
        let bytes_max = if self.objects < MANY { BYTES_MAX } else { 1.3 * BYTES_MAX };
        let fits = bytes_per_object <= bytes_max;
        if step == "open" && self.objects <= OPEN_OBJECTS_MAX {
            let bar = format!("{OPEN_S_MAX} s, {bytes_max:.0} B an object");
            return (bar, Some(fits && seconds <= OPEN_S_MAX));
        }
        (format!("{bytes_max:.0} B an object"), Some(fits))
    }
}

fn seconds<T>(clock: &SystemClock, body: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let started_ns = clock.now_ns();
    let value = body()?;
    Ok((value, (clock.now_ns() - started_ns) as f64 / 1e9))
}

fn fill_elsewhere(place: &Path, settings: &Settings, stop: &AtomicBool) -> Result<()> {
    /// Between two looks whether it is over or interrupted.
    const LOOK: Duration = Duration::from_millis(10);
    const OPERATION: &str = "make a large store";
    let program =
        std::env::current_exe().map_err(|error| Error::from_io("find this program", error))?;
    let mut command = Command::new(program);
    command.args(["bench", "size", "--policy", &settings.policy, "--engine", &settings.engine]);
    command.args(settings.rebuild.then_some("--rebuild"));
    command.args(["--objects", &settings.objects.to_string(), "--fill"]).arg(place);
    let failed = |error| Error::from_io(OPERATION, error);
    let mut child = command.spawn().map_err(failed)?;
    let ended = loop {
        if let Some(ended) = child.try_wait().map_err(failed)? {
            break ended;
        }
        if let Err(stopped) = check_stop(stop) {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(stopped);
        }
        SystemClock::default().sleep(LOOK);
    };
    if ended.success() {
        return Ok(());
    }
    // Its error is printed already.
    Err(Error::new(ErrorKind::Io, OPERATION).because(ended.to_string()))
}

/// Makes a store of many objects.
pub fn fill(place: &Path, settings: &Settings) -> Result<()> {
    let parts = parts(place, settings)?;
    Stack::create(&parts)?;
    let stack = Stack::open(parts)?;
    let semantics = Semantics::at_level(Persistency::Process);
    let mut number = 0;
    while number < settings.objects {
        let end = (number + BATCH).min(settings.objects);
        let keys: Vec<Key> = (number..end).map(name).collect::<Result<_>>()?;
        let bytes = |number| if settings.rebuild { lost::content(number) } else { Vec::new() };
        let contents: Vec<_> = (number..end).map(bytes).collect();
        let request = |(key, data)| Request::Create { key, data, hint: Hint::default() };
        let objects = keys.iter().zip(contents.iter().map(Vec::as_slice));
        let mut operations: Vec<_> = objects.map(|object| Op::new(request(object))).collect();
        stack.execute(&mut operations, &semantics);
        for operation in operations {
            operation.outcome.expect("a batch fills every outcome")?;
        }
        number = end;
    }
    if settings.rebuild {
        lost::spread(&stack, settings.objects)?;
    }
    stack.close()
}

fn parts(place: &Path, settings: &Settings) -> Result<Parts> {
    let policy = settings.policy.as_str();
    let inside = |name: &str| {
        let path = place.join(name);
        let made = std::fs::create_dir_all(&path);
        made.map(|()| path).map_err(|error| Error::from_io("make a directory", error))
    };
    let names = ["tier0", "tier1"];
    let mut tiers = Vec::new();
    for name in names {
        tiers.push(Tier::new(name, directory(&inside(name)?)?));
    }
    let mut parts = Parts::new(tiers, open_kv(&settings.engine, &inside("catalog")?)?);
    let view = names.map(|name| TierView::empty(name, Figures::default()));
    let decides = terrace_policies::create(policy, &View::new(view.into(), 0), &[])?;
    parts.tactics = Some(Tactics::new(policy, decides));
    Ok(parts)
}

fn name(number: u64) -> Result<Key> {
    Key::new("bench", &format!("object-{number}"))
}

fn list(stack: &Stack, objects: u64) -> Result<()> {
    let mut cursor = Cursor::start();
    let mut count = 0;
    loop {
        let page = stack.list("bench", "", &cursor, BATCH as usize)?;
        count += page.keys.len() as u64;
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    expect_all("list a large store", count, objects)
}

/// Does something with objects chosen by chance.
fn each<T>(objects: u64, count: u64, mut body: impl FnMut(&Key) -> Result<T>) -> Result<()> {
    let mut random = Random::new(1);
    (0..count).try_for_each(|_| body(&name(random.below(objects))?).map(drop))
}

fn check(stack: &Stack, objects: u64) -> Result<()> {
    let report = stack.check(false, &mut |_, _| {})?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::new(ErrorKind::Corrupt, "check a large store")
            .because(problem.detail.clone())
            .with("place", &problem.place));
    }
    expect_all("check a large store", report.objects, objects)
}

fn expect_all(operation: &'static str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, operation)
        .because("not every object was met once")
        .with("found", found)
        .with("expected", expected))
}

/// Memory of this process that no file is behind.
fn anonymous_bytes() -> Result<u64> {
    const OPERATION: &str = "read the memory of this process";
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| Error::from_io(OPERATION, error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map(|count| count * 1024).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, OPERATION).because("the kernel does not tell it")
    })
}
