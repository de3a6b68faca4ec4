// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an operation costs through a stack beside the raw backend.

use serde::Serialize;
use terrace_core::{Backend, Clock, Key, Object, ObjectExt, Open, Result, SystemClock};

use super::place::{Scratch, directory, fast_place, stack};
use super::statistics::{Bound, median};
use super::{Verdict, cpu_ns};

/// Interleaved blocks of each case: raw and stack in turns, the first alternating.
const BLOCKS: usize = 40;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) case: &'static str,
    pub(crate) level: &'static str,
    /// Nanoseconds per operation, medians of the blocks.
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
    pub(crate) bar: &'static str,
    pub(crate) verdict: Verdict,
}

/// What a bar limits.
enum Bar {
    MoreNs(f64),
    Ratio(f64),
}

/// Objects that the two sides work on.
struct Pair {
    raw: Box<dyn Object>,
    stack: Box<dyn Object>,
}

const OBJECT_BYTES: usize = 16 << 20;

/// Runs all cases for about `seconds` in all.
pub(crate) fn run(seconds: f64) -> Result<Vec<Case>> {
    let scratch = Scratch::new(&fast_place())?;
    let raw = directory(&scratch.inside("raw")?)?;
    let paths = [scratch.inside("tier0")?, scratch.inside("tier1")?];
    let stacked = stack(&scratch, &[&paths[0], &paths[1]], Some("lru"))?;
    let bare_path = scratch.inside("bare")?;
    let bare = stack(&scratch, &[&bare_path], None)?;
    let pair = pair_of(&*raw, &stacked, "object")?;
    let bare_pair = pair_of(&*raw, &bare, "bare")?;
    // Ten cases share the time; each has two sides.
    let block_ns = seconds * 1e9 / 10.0 / (2 * BLOCKS) as f64;
    let mut cases = Vec::new();
    for (case, bytes, is_write, bar, words) in [
        ("read-4k", 4 << 10, false, Bar::MoreNs(300.0), "at most 300 ns more"),
        ("write-4k", 4 << 10, true, Bar::MoreNs(300.0), "at most 300 ns more"),
        ("read-1m", 1 << 20, false, Bar::Ratio(1.02), "at most 1.02 times"),
        ("write-1m", 1 << 20, true, Bar::Ratio(1.02), "at most 1.02 times"),
    ] {
        let mut sides =
            [transfer(&*pair.raw, bytes, is_write), transfer(&*pair.stack, bytes, is_write)];
        let [raw, stack] = &mut sides;
        let row = compare(case, block_ns, raw, stack, bar, words)?;
        cases.push(row);
    }
    for (case, is_write) in [("bare-read-4k", false), ("bare-write-4k", true)] {
        let mut raw = transfer(&*bare_pair.raw, 4 << 10, is_write);
        let mut stack = transfer(&*bare_pair.stack, 4 << 10, is_write);
        let bar = Bar::Ratio(1.01);
        let row = compare(case, block_ns, &mut raw, &mut stack, bar, "at most 1.01 times")?;
        cases.push(row);
    }
    let key = Key::new("bench", "object")?;
    let mut open_raw = opening(&*raw, &key);
    let mut open_stack = opening(&stacked, &key);
    let bar = Bar::MoreNs(500.0);
    let row =
        compare("open", block_ns, &mut open_raw, &mut open_stack, bar, "at most 500 ns more")?;
    cases.push(row);
    let mut create_raw = creating(&*raw);
    let mut create_stack = creating(&stacked);
    let bar = Bar::MoreNs(5000.0);
    let row = compare(
        "create",
        block_ns,
        &mut create_raw,
        &mut create_stack,
        bar,
        "at most 5000 ns more",
    )?;
    cases.push(row);
    drop((create_raw, create_stack, open_raw, open_stack));
    for (case, is_write) in [("scaling-2-read-4k", false), ("scaling-2-write-4k", true)] {
        let row = scaling(case, &*raw, &stacked, &pair, is_write, block_ns)?;
        cases.push(row);
    }
    drop((pair, bare_pair));
    stacked.close()?;
    bare.close()?;
    Ok(cases)
}

fn pair_of(raw: &dyn Backend, stack: &dyn Backend, name: &str) -> Result<Pair> {
    let key = Key::new("bench", name)?;
    let data = vec![7; OBJECT_BYTES];
    let make = |backend: &dyn Backend| -> Result<Box<dyn Object>> {
        let object = backend.open(&key, &Open::create_new())?;
        object.write(0, &data)?;
        Ok(object)
    };
    Ok(Pair { raw: make(raw)?, stack: make(stack)? })
}

/// An operation to be repeated; its argument counts up.
type Step<'a> = Box<dyn FnMut(u64) -> Result<()> + Send + 'a>;

fn transfer(object: &dyn Object, bytes: usize, is_write: bool) -> Step<'_> {
    let mut buffer = vec![1; bytes];
    let slots = (OBJECT_BYTES / bytes) as u64;
    Box::new(move |index| {
        // A stride that visits every block and never the next one.
        let offset = (index * 7 % slots) * bytes as u64;
        if is_write {
            object.write(offset, &buffer)
        } else {
            object.read_exact(offset, &mut buffer)
        }
    })
}

fn opening<'a>(backend: &'a dyn Backend, key: &'a Key) -> Step<'a> {
    let how = Open::read();
    Box::new(move |_| backend.open(key, &how).map(drop))
}

fn creating(backend: &dyn Backend) -> Step<'_> {
    let mut number = 0_u64;
    Box::new(move |_| {
        number += 1;
        let key = Key::new("create", &format!("object-{number}"))?;
        backend.open(&key, &Open::create_new()).map(drop)
    })
}

/// Repeats a step for about `block_ns`; nanoseconds per operation.
fn block(step: &mut Step<'_>, block_ns: f64) -> Result<f64> {
    /// Operations between two looks at the clock.
    const STRIDE: u64 = 16;
    let clock = SystemClock::default();
    let mut count = 0;
    let started_ns = clock.now_ns();
    loop {
        for _ in 0..STRIDE {
            step(count)?;
            count += 1;
        }
        let passed_ns = (clock.now_ns() - started_ns) as f64;
        if passed_ns >= block_ns {
            return Ok(passed_ns / count as f64);
        }
    }
}

fn compare(
    case: &'static str,
    block_ns: f64,
    raw: &mut Step<'_>,
    stack: &mut Step<'_>,
    bar: Bar,
    words: &'static str,
) -> Result<Case> {
    block(raw, block_ns)?;
    block(stack, block_ns)?;
    let (mut raws, mut stacks, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..BLOCKS {
        for is_stack in [index % 2 == 0, index % 2 != 0] {
            if is_stack {
                let (cpu, clock) = (cpu_ns(), SystemClock::default());
                let per_op = block(stack, block_ns)?;
                let count = clock.now_ns() as f64 / per_op;
                cpus.push((cpu_ns() - cpu) as f64 / count);
                stacks.push(per_op);
            } else {
                raws.push(block(raw, block_ns)?);
            }
        }
    }
    let paired = || raws.iter().zip(&stacks);
    let difference = Bound::of(&paired().map(|(raw, stack)| stack - raw).collect::<Vec<_>>());
    let ratio = Bound::of(&paired().map(|(raw, stack)| stack / raw).collect::<Vec<_>>());
    let verdict = match bar {
        Bar::MoreNs(limit) => Verdict::at_most(&difference, limit),
        Bar::Ratio(limit) => Verdict::at_most(&ratio, limit),
    };
    Ok(Case {
        case,
        level: "process",
        raw_ns: median(&mut raws),
        stack_ns: median(&mut stacks),
        low95_ns: difference.low95,
        high95_ns: difference.high95,
        ratio: ratio.median,
        ratio_low95: ratio.low95,
        ratio_high95: ratio.high95,
        cpu_ns_per_op: median(&mut cpus),
        bar: words,
        verdict,
    })
}

/// How well two threads on different objects do, stack beside raw. `ratio` is the stack's
/// speed-up by the second thread divided by the raw backend's.
fn scaling(
    case: &'static str,
    raw: &dyn Backend,
    stack: &dyn Backend,
    first: &Pair,
    is_write: bool,
    block_ns: f64,
) -> Result<Case> {
    let second = pair_of(raw, stack, case)?;
    let one = |object: &dyn Object| block(&mut transfer(object, 4 << 10, is_write), block_ns / 4.0);
    // Nanoseconds per operation when two threads work at once.
    let two = |a: &dyn Object, b: &dyn Object| -> Result<f64> {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| one(b));
            let mine = one(a)?;
            let other = other.join().expect("a benchmark thread does not panic")?;
            Ok((mine + other) / 2.0)
        })
    };
    let (mut ratios, mut raws, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        let raw_gain = one(&*first.raw)? / two(&*first.raw, &*second.raw)?;
        let stack_two = two(&*first.stack, &*second.stack)?;
        let stack_gain = one(&*first.stack)? / stack_two;
        raws.push(two(&*first.raw, &*second.raw)?);
        stacks.push(stack_two);
        ratios.push(stack_gain / raw_gain);
    }
    let ratio = Bound::of(&ratios);
    let difference: Vec<_> = raws.iter().zip(&stacks).map(|(raw, stack)| stack - raw).collect();
    let difference = Bound::of(&difference);
    Ok(Case {
        case,
        level: "process",
        raw_ns: median(&mut raws),
        stack_ns: median(&mut stacks),
        low95_ns: difference.low95,
        high95_ns: difference.high95,
        ratio: ratio.median,
        ratio_low95: ratio.low95,
        ratio_high95: ratio.high95,
        cpu_ns_per_op: median(&mut stacks),
        bar: "at least 0.9 times the scaling of the raw backend",
        verdict: Verdict::at_least(&ratio, 0.9),
    })
}
