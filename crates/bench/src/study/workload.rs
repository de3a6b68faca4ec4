// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run of the study: all objects are written, then some of them are read again and again.

use std::time::Duration;

use hdrhistogram::Histogram;
use terrace_backends::kv::open_kv;
use terrace_core::{
    Backend, Clock, Error, ErrorKind, Hint, Key, Op, Random, Reply, Request, Result, Semantics,
    SystemClock, TierView, View,
};
use terrace_measure::sides::latencies;
use terrace_stack::{Parts, Stack, Tactics, Tier};

use super::pair::Medium;
use super::{OBJECT_BYTES, Plan, Run, Settings};
use crate::micro::Keys;
use crate::micro::picks::Picks;
use crate::place::Scratch;

/// The fast tier has room for one in so many objects.
const FAST_PART: usize = 4;

/// Reads for each object.
const READS: usize = 2;

/// Parameters other than the defaults, which are made for hours and not for a second.
pub(crate) fn parameters(policy: &str) -> &'static [(&'static str, &'static str)] {
    match policy {
        "lru" | "heat" | "workflow" | "rules" => &[("idle", "20ms"), ("min_residency", "100ms")],
        "prefetch" => {
            &[("idle", "20ms"), ("min_residency", "100ms"), ("together", "1ms"), ("deadline", "1s")]
        }
        "write-buffer" => &[("timeout", "50ms")],
        "elevator" | "energy" => &[("idle", "20ms")],
        "s3-fifo" | "sieve" | "arc" | "2q" | "w-tinylfu" | "gdsf" => {
            &[("idle", "20ms"), ("min_residency", "100ms"), ("together", "1ms")]
        }
        _ => &[],
    }
}

/// A policy with these parameters, for people.
pub(super) fn words(policy: &str) -> String {
    let mut words = policy.to_string();
    for (name, value) in parameters(policy) {
        words.push_str(&format!(" {name}={value}"));
    }
    words
}

/// Runs it on a store of its own.
pub(super) fn run(settings: &Settings, plan: &Plan, repetition: u64) -> Result<Run> {
    let fast = Scratch::new(&settings.fast)?;
    let disk = Scratch::new(&settings.disk)?;
    let mut tiers = Vec::new();
    let objects = plan.pair.objects(settings.objects);
    let fast_bytes = (objects.div_ceil(FAST_PART) * OBJECT_BYTES) as u64;
    for (index, medium) in plan.pair.media.iter().enumerate() {
        let scratch = if *medium == Medium::Disk { &disk } else { &fast };
        let name = ["fast", "slow"][index];
        let capacity_bytes = [fast_bytes, 1 << 40][index];
        tiers.push(medium.tier(name, &scratch.inside(name)?, capacity_bytes)?);
    }
    let stack = stack(plan, &fast, tiers)?;
    let run = measure(&stack, objects, plan, repetition);
    stack.close()?;
    run
}

fn stack(plan: &Plan, fast: &Scratch, tiers: Vec<Tier>) -> Result<Stack> {
    let view = tiers.iter().map(|tier| TierView::empty(&tier.name, tier.figures)).collect();
    let own = |(name, value): &(&str, &str)| ((*name).to_string(), (*value).to_string());
    let parameters: Vec<_> = parameters(plan.policy).iter().map(own).collect();
    let policy = terrace_policies::create(plan.policy, &View::new(view, 0), &parameters)?;
    let mut parts = Parts::new(tiers, open_kv("fjall", &fast.inside("catalog")?)?);
    parts.settings.persistency = plan.pair.level();
    let every = Duration::from_millis(10);
    parts.tactics = Some(Tactics { every, ..Tactics::new(plan.policy, policy) });
    Stack::create(&parts)?;
    Stack::open(parts)
}

fn measure(stack: &Stack, objects: usize, plan: &Plan, repetition: u64) -> Result<Run> {
    /// Longest wait for the migrations that writing has caused.
    const IDLE_MAX: Duration = Duration::from_secs(60);
    let semantics = Semantics::at_level(plan.pair.level());
    let keys = (0..objects).map(|number| Key::new("study", &format!("object-{number:06}")));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let mut data = vec![0; OBJECT_BYTES];
    Random::new(3).fill(&mut data);
    let mut writes_ns = latencies();
    let clock = SystemClock::default();
    for keys in keys.chunks(plan.batch) {
        let create = |key| Request::Create { key, data: &data, hint: Hint::default() };
        execute(stack, keys.iter().map(create), &semantics, &mut writes_ns)?;
    }
    let write_s = clock.now_ns() as f64 / 1e9;
    // Reading begins when the policy has put things where it wants them.
    stack.run_policy()?;
    stack.wait_idle(IDLE_MAX);

    let before = stack.tiers();
    let picks = Picks::new(Keys::Zipf, objects, repetition);
    let reads = (objects * READS) as u64;
    let mut buffers = vec![0; OBJECT_BYTES * plan.batch];
    let mut reads_ns = latencies();
    let clock = SystemClock::default();
    let positions: Vec<_> = (0..reads).collect();
    for positions in positions.chunks(plan.batch) {
        let read = |(position, buffer): (&u64, _)| {
            let key = &keys[picks.at(*position)];
            Request::Read { key, offset_bytes: 0, buffer }
        };
        let requests = positions.iter().zip(buffers.chunks_mut(OBJECT_BYTES)).map(read);
        execute(stack, requests, &semantics, &mut reads_ns)?;
    }
    let read_s = clock.now_ns() as f64 / 1e9;
    let after = stack.tiers();
    let served = |tier: usize| (after[tier].ledger.reads - before[tier].ledger.reads) as f64;
    let moved: u64 = after.iter().map(|tier| tier.ledger.moved_in_bytes).sum();
    Ok(Run {
        write_s,
        read_s,
        writes_ns,
        reads_ns,
        reads,
        fast_reads: served(0) / (served(0) + served(1)),
        moved: moved as f64 / (objects * OBJECT_BYTES) as f64,
    })
}

/// Carries out a batch and notes its time; anything but success, and a read that is short, fails.
fn execute<'a>(
    stack: &Stack,
    requests: impl Iterator<Item = Request<'a>>,
    semantics: &Semantics,
    latencies_ns: &mut Histogram<u64>,
) -> Result<()> {
    let mut operations: Vec<_> = requests.map(Op::new).collect();
    let clock = SystemClock::default();
    stack.execute(&mut operations, semantics);
    latencies_ns.saturating_record(clock.now_ns());
    operations.into_iter().try_for_each(|operation| match operation.outcome {
        Some(Ok(Reply::Done)) => Ok(()),
        Some(Ok(Reply::Count(OBJECT_BYTES))) => Ok(()),
        Some(Err(error)) => Err(error),
        other => Err(Error::new(ErrorKind::Io, "run the benchmark")
            .because("an operation did not do what it was asked for")
            .with("outcome", format!("{other:?}"))),
    })
}
