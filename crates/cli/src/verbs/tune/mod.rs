// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace tune`.

mod live;
mod page;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use terrace_core::{Error, View};
use terrace_replay::{Objective, Options, TimedOptions, TuneOptions, Tuner};

use self::report::Report;
use super::replay::named;
use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Result, from_local};
use crate::modelled::{Manner, modelled};
use crate::output::Output;
use crate::progress::Progress;
use crate::reading::{Given, Reading};

/// The least budget that is of use.
const BUDGET_MIN: u32 = 4;

/// The most: more is a slip.
const BUDGET_MAX: u32 = 1_000_000;

/// The default budget.
const BUDGET: u32 = 32;

/// Search parameters of a policy, for a trace or for a store that runs
///
/// Replays the trace in virtual time, as `terrace replay` does, with many values of the parameters of a
/// policy, and says which came to the least. The trace is cut into 16 windows. Every second one is
/// searched on: points that cover all parameters evenly on a quarter of these windows, the better half
/// of them on half of the windows, the better half of those on all, then steps around the best. The
/// other windows judge: a gain that is not there as well is none.
///
/// Searched are parameters of built-in policies whose values the project knows, those of the same names
/// in others, and what a policy in Python declares with both bounds or as a switch; or those that
/// --search names.
///
/// Beside what was found it reports the best of as many replays with parameters by chance, the defaults,
/// and `pinned`, which moves nothing. What it recommends is a section `policy` for terrace.toml.
///
/// The same seed, budget, trace and configuration come to the same on any number of processors. With
/// --seconds the budget follows from how fast the machine is; the report says it.
///
/// With --live it stays beside a store that runs, or holds it, until SIGINT (Ctrl-C) or --for. It records
/// each window of time (the trace is in the store's directory, at most 32 MB, and is removed; where the
/// store records one, that is read), and replays it in virtual time with the parameters that run, with
/// each value around one of them, and with `pinned`. One parameter is changed, by a factor of two at
/// most, only where the store would do better by more than 5 % and by more than twice what the model is
/// off by, in two windows that follow on one another. Then nothing changes for --dwell; then the change
/// is judged by what is measured, and taken back if that became worse by 10 %, and the parameter is left
/// alone for six times --dwell. Another policy is recommended, never used, and nothing is changed that
/// says what survives.
///
/// Time is, with --live, what applications wait for an access in the mean, energy what all tiers draw for
/// it by their figures. Each window is a line. Changes are those of `terrace policy set`: they are kept
/// in terrace.toml, and Ctrl-C leaves what runs; the last line says it.
#[derive(Args, Debug)]
pub(crate) struct Tune {
    /// A file, the directory of a trace, or - for standard input
    #[arg(value_name = "TRACE", required_unless_present = "live")]
    trace: Option<PathBuf>,
    /// A built-in policy, a shared library, or a Python file; with parameters that stay as they are
    /// behind colons, as in lru:idle=5s [default: the store's own, with its parameters that are not
    /// searched]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Search this parameter, and others only where they are named too; between LEAST and MOST, as in
    /// 0.1..0.9, 1..64, 10ms..1h or 1MiB..1GiB, both of which the policy must take, or as is known of it
    #[arg(long, value_name = "NAME[=LEAST..MOST]")]
    search: Vec<String>,
    /// What is to be small: edp (energy times time), energy, ed2p (energy times time squared), time, cost (what
    /// is charged for tiers with prices; not with --live)
    #[arg(long, value_name = "WHAT", default_value = "edp", value_parser = objectives())]
    objective: Objective,
    /// Replays of one half of the trace that the search may cost; as many are tried by chance
    /// [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(BUDGET_MIN)..=i64::from(BUDGET_MAX)))]
    budget: Option<u32>,
    /// How long it may take, about, in place of a budget
    #[arg(long, value_name = "SECONDS", conflicts_with = "budget", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,
    /// Of everything that is left to chance
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Write a page with tables and plots, for a browser, to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    manner: Manner,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    live: live::Live,
}

impl Verb for Tune {
    const NAME: &'static str = "tune";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace tune my-store/trace --store my-store --policy lru
  terrace tune disk.vscsi --store my-store --policy heat --objective time --seconds 60
  terrace tune disk.vscsi --store my-store --policy lru --budget 100 --html tune.html --json
  terrace tune my-store/trace --store my-store --policy my_policy.py --search window=10..10000
  terrace tune --live --store my-store --objective time
  terrace tune --live --store my-store --window 1min --dwell 5min --dry-run";

    fn run(self, context: &Context) -> Result<()> {
        // Before hours of work.
        self.html.iter().try_for_each(|file| context.check_output(file))?;
        let modelled = modelled(context)?;
        let timed = modelled.options(&self.manner.model()?)?;
        check_watts(self.objective, &timed)?;
        check_prices(self.objective, &timed, self.trace.is_none())?;
        let Some(trace) = self.trace else {
            return self.live.run(context, self.objective, &self.manner);
        };
        let (source, fixed, own) = match &self.policy {
            Some(policy) => {
                let (source, fixed) = named(policy)?;
                (source, fixed, Vec::new())
            }
            None => {
                let (source, own) = modelled.policy()?.ok_or_else(|| {
                    let reason = "the store has no policy; name one with --policy";
                    Error::invalid("tune a policy", reason)
                })?;
                (source, Vec::new(), own)
            }
        };
        // Its section is to hold wherever it is read.
        let source = source.absolute()?;
        let make = |view: &View, parameters: &[(String, String)]| source.make(view, parameters);
        let options = TuneOptions {
            policy: source.to_string(),
            fixed,
            own,
            searched: self.search.iter().map(|text| searched(text)).collect(),
            objective: self.objective,
            seed: self.seed,
        };
        let reading = Options { has_lives: true, ..self.reading.options()? };
        let given = Given::new(&trace)?;
        let format = given.open(&reading)?.format();
        let open = || given.open(&reading);
        let began = Instant::now();
        let mut progress = Progress::items("cut the trace", None);
        let tuner = Tuner::new(&timed, options.clone(), &make, &open, &mut |requests| {
            progress.advance(requests);
        })?;
        drop(progress);
        let budget = self.seconds.map(|seconds| affordable(&tuner, seconds, began.elapsed()));
        let budget = budget.or(self.budget).unwrap_or(BUDGET);
        // By searching and by chance.
        let all = 2 * u64::from(budget) * tuner.trained_requests();
        let mut progress = Progress::items("search", Some(all));
        let tuned = tuner.search(budget, &mut |requests| progress.advance(requests))?;
        drop(progress);
        let trace = given.name();
        let report = Report { trace, format, source, options, tuned };
        let mut output = Output::new();
        if context.is_json {
            output.json(&report.value())?;
        } else {
            for line in report.lines() {
                output.line(line)?;
            }
        }
        output.flush()?;
        match &self.html {
            None => Ok(()),
            Some(file) => {
                let page = page::page(&report, &modelled)?;
                Ok(std::fs::write(file, page).map_err(|error| {
                    from_local("write the report", error).with("file", file.display())
                })?)
            }
        }
    }
}

/// A parameter that is searched, with its values where they are given.
fn searched(text: &str) -> (String, Option<String>) {
    match text.split_once('=') {
        Some((name, values)) => (name.into(), Some(values.into())),
        None => (text.into(), None),
    }
}

/// Refuses what needs energy where the power of tiers is not given.
fn check_watts(objective: Objective, timed: &TimedOptions) -> Result<()> {
    let draws = timed.tiers.iter().any(|tier| tier.view.figures.active_w > 0.0);
    if draws || !objective.needs_watts() {
        return Ok(());
    }
    let reason = "the configuration says of no tier what it draws (idle_power, active_power); \
                  --objective time needs no energy";
    Err(Error::invalid("tune a policy", reason).with("objective", objective.word()).into())
}

/// Refuses what needs prices where tiers have none, or where a store runs, which measures none.
fn check_prices(objective: Objective, timed: &TimedOptions, is_live: bool) -> Result<()> {
    let is_free = timed.tiers.iter().all(|tier| tier.view.figures.prices.is_free());
    let reason = match objective.needs_prices() {
        true if is_live => "what a store costs is not measured while it runs; name a trace",
        true if is_free => {
            "the configuration has no prices of tiers (price_per_gb_month and the like)"
        }
        _ => return Ok(()),
    };
    Err(Error::invalid("tune a policy", reason).with("objective", objective.word()).into())
}

/// The budget that takes so many seconds, as fast as what was replayed to prepare.
fn affordable(tuner: &Tuner<'_>, seconds: u64, prepared: Duration) -> u32 {
    let per_s = tuner.prepared_requests() as f64 / prepared.as_secs_f64().max(1e-3);
    let left_s = (seconds as f64 - prepared.as_secs_f64()).max(0.0);
    let replays = left_s * per_s / (2 * tuner.trained_requests()) as f64;
    (replays as u32).clamp(BUDGET_MIN, BUDGET_MAX)
}

fn objectives() -> impl clap::builder::TypedValueParser<Value = Objective> {
    let words = Objective::ALL.map(Objective::word);
    PossibleValuesParser::new(words).map(|word| {
        let found = Objective::ALL.into_iter().find(|objective| objective.word() == word);
        found.expect("the parser allows no other words")
    })
}
