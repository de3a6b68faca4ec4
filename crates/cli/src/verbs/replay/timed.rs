// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay --model time`.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use terrace_core::{Error, ErrorKind, panic_text};
use terrace_replay::{Observer, Options, Population, Timed, TimedReplay, Trace};
use terrace_tuning::Modelled;

use super::contenders::Contender;
use super::pictures::Drawing;
use super::report::{Replayed, Report};
use super::{page, stories};
use crate::context::Context;
use crate::failure::{Result, from_local};
use crate::output::Output;
use crate::progress::Progress;
use crate::reading::Given;

/// What is wanted beside the table.
pub(super) struct Wanted<'a> {
    /// Objects of which the history is printed.
    pub(super) explained: &'a [String],
    /// Where a page goes.
    pub(super) page: Option<&'a Path>,
}

/// Replays a trace with each of them, on all processors, and tells what came of it.
pub(super) fn run(
    path: &Path,
    options: &Options,
    modelled: &Modelled,
    mut contenders: Vec<Contender>,
    wanted: &Wanted<'_>,
    context: &Context,
) -> Result<()> {
    let options = Options { has_lives: true, ..options.clone() };
    let given = Given::new(path)?;
    let open = || given.open(&options);
    let mut trace = open()?;
    let mut progress = Progress::items("look for objects", None);
    let population = Population::read(&mut trace, &mut |requests| progress.advance(requests))?;
    drop(progress);
    trace.notes().iter().for_each(|note| context.note(note));
    let asked = stories::find(path, wanted.explained, &population)?;
    let population = Arc::new(population);
    let is_drawn = |contender: &Contender| wanted.page.is_some() && !contender.is_bound;
    let drawn = contenders.iter().filter(|one| is_drawn(one)).count();
    for contender in &mut contenders {
        contender.options.followed = asked.iter().map(|asked| asked.object).collect();
        contender.drawing = is_drawn(contender).then(|| Drawing::of(drawn));
    }
    let whole = |contender: &Contender| {
        (contender.name.clone(), contender.is_bound, contender.drawing.clone())
    };
    let names: Vec<_> = contenders.iter().map(whole).collect();
    let all = population.requests().saturating_mul(names.len() as u64);
    let mut progress = Progress::items("replay", Some(all));
    let (sender, answered) = channel();
    let results = thread::scope(|scope| {
        let running = scope.spawn(|| replay_all(contenders, &population, &open, sender));
        // It ends with the last sender.
        answered.iter().for_each(|requests| progress.advance(requests));
        running.join().expect("what is replayed does not panic")
    });
    drop(progress);
    let (mut replays, mut failures) = (Vec::new(), VecDeque::new());
    for ((name, is_bound, drawing), result) in names.into_iter().zip(results) {
        match result {
            Ok(timed) => {
                let picture = drawing.map(|drawing| drawing.finish(&timed));
                replays.push(Replayed { name, is_bound, timed, picture });
            }
            Err(error) => failures.push_back(error),
        }
    }
    if replays.iter().all(|one| one.is_bound)
        && let Some(first) = failures.pop_front()
    {
        return Err(first.into());
    }
    let report = Report {
        name: given.name(),
        format: trace.format(),
        requests: population.requests(),
        objects: population.objects() as u64,
        has_prices: modelled.settings.tiers.iter().any(|tier| !tier.figures.prices.is_free()),
        replays,
        asked,
    };
    let mut output = Output::new();
    if context.is_json {
        output.json(&report.value())?;
    } else {
        for line in report.lines() {
            output.line(line)?;
        }
    }
    output.flush()?;
    if let Some(file) = wanted.page {
        std::fs::write(file, page::page(&report, modelled)?)
            .map_err(|error| from_local("write the report", error).with("file", file.display()))?;
    }
    // The others are worth having all the same.
    match failures.pop_front() {
        None => Ok(()),
        Some(first) => {
            failures.iter().for_each(|error| context.note(&error.to_string()));
            Err(first.into())
        }
    }
}

/// A policy may be a first try.
fn policy_failed(panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Io, "replay the trace")
        .because(format!("it failed with this policy: {}", panic_text(panic)))
}

/// As many at once as there are processors; the outcomes in the order of the contenders.
fn replay_all(
    contenders: Vec<Contender>,
    population: &Arc<Population>,
    open: &(impl Fn() -> terrace_core::Result<Trace> + Sync),
    sender: Sender<u64>,
) -> Vec<terrace_core::Result<Timed>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let contenders: Vec<_> =
        contenders.into_iter().map(|contender| Mutex::new((Some(contender), None))).collect();
    let lock = |index: usize| contenders[index].lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for _ in 0..threads.min(contenders.len()) {
            let sender = sender.clone();
            let (next, lock) = (&next, &lock);
            let count = contenders.len();
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let taken = lock(index).0.take();
                    let Contender { options, policy, name, drawing, .. } =
                        taken.expect("each is taken once");
                    let observer = drawing.map(|drawing| Box::new(drawing) as Box<dyn Observer>);
                    // The receiver of progress was dropped where sending fails.
                    let mut progress = |requests| _ = sender.send(requests);
                    let run = || {
                        let population = Arc::clone(population);
                        let replay = TimedReplay::new(options);
                        replay.run_observed(population, open()?, policy, observer, &mut progress)
                    };
                    let outcome = catch_unwind(AssertUnwindSafe(run))
                        .unwrap_or_else(|panic| Err(policy_failed(&*panic)))
                        .map_err(|error| error.with("policy", &name));
                    lock(index).1 = Some(outcome);
                }
            });
        }
    });
    drop(sender);
    let outcome = |one: Mutex<(Option<Contender>, Option<terrace_core::Result<Timed>>)>| {
        let (_, outcome) = one.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.expect("all have run")
    };
    contenders.into_iter().map(outcome).collect()
}
