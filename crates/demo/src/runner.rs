// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out all plans, writes the page and keeps one store.

use std::thread;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use terrace_core::{Clock, Error, Result, SystemClock};
use terrace_measure::Machine;

use crate::blocks::{self, Series};
use crate::place::Place;
use crate::plan::{self, Plan};
use crate::report::{DemoReport, RunReport};
use crate::slow::{self, Slow};
use crate::{Finished, Options, measure, page, steps, stories, verdicts};

/// What `partdiff` computes between two checkpoints by default.
const COMPUTING: Duration = Duration::from_millis(25);

/// The run whose store stays.
const KEPT: &str = "write-buffer-deduced";

/// Runs everything, writes the page and keeps one store.
///
/// # Errors
///
/// `Exists` and `Busy` where the directory cannot be used, `Corrupt` where something else was read
/// than was written, and everything a store can meet.
pub fn run(options: &Options) -> Result<Finished> {
    let clock = SystemClock::default();
    let place = Place::prepare(&options.dir)?;
    if matches!(options.slow, Slow::Given(_)) {
        place.note_elsewhere()?;
    }
    let partdiff = partdiff::Settings {
        dimension: options.dimension,
        checkpoints: options.checkpoints,
        interval: options.interval.unwrap_or_else(|| calibrate(options.dimension, &clock)),
        ..partdiff::Settings::default()
    };
    let plans = plan::plans(options, &partdiff);
    let runner = Runner { place: &place, bars: MultiProgress::new() };
    let runs = runner.run_all(&plans)?;
    let blocks = runner.run_blocks(&plans)?;
    place.keep_store(KEPT)?;

    let report = DemoReport {
        version: env!("CARGO_PKG_VERSION").into(),
        command: options.command.clone(),
        machine: Machine::describe(place.dir()),
        simulated: stories::simulated(&options.slow),
        workload: stories::workload(&partdiff),
        verdicts: verdicts::verdicts(&runs, &blocks),
        runs,
        blocks,
        elapsed_s: clock.now_ns() as f64 * 1e-9,
    };
    let steps = steps::steps(&place, &options.example_policy, &partdiff);
    let page = place.page();
    std::fs::write(&page, page::page(&report, &steps))
        .map_err(|error| Error::from_io("write the report", error).with("file", page.display()))?;
    Ok(Finished { report, steps, page })
}

/// How many iterations take about [`COMPUTING`] on this machine.
fn calibrate(dimension: usize, clock: &dyn Clock) -> u64 {
    const ITERATIONS: u64 = 30;
    let mut grid = partdiff::Grid::new(dimension);
    let mut shortest_ns = u64::MAX;
    for _ in 0..3 {
        let start_ns = clock.now_ns();
        for _ in 0..ITERATIONS {
            std::hint::black_box(grid.iterate(partdiff::Method::default()));
        }
        shortest_ns = shortest_ns.min(clock.now_ns() - start_ns);
    }
    (COMPUTING.as_nanos() as u64 * ITERATIONS / shortest_ns.max(1)).max(1)
}

struct Runner<'a> {
    place: &'a Place,
    bars: MultiProgress,
}

impl Runner<'_> {
    /// Carries out all plans; reports are in the same order.
    ///
    /// Those that compute most of the time have the machine for themselves, one after the other;
    /// those that mostly wait for the simulated device run side by side.
    fn run_all(&self, plans: &[Plan]) -> Result<Vec<RunReport>> {
        let mut reports: Vec<Option<RunReport>> = vec![None; plans.len()];
        for (plan, report) in plans.iter().zip(&mut reports).filter(|(plan, _)| plan.runs_alone) {
            *report = Some(self.run(plan)?);
        }
        thread::scope(|scope| -> Result<()> {
            let running: Vec<_> = plans
                .iter()
                .zip(&mut reports)
                .filter(|(plan, _)| !plan.runs_alone)
                .map(|(plan, report)| (scope.spawn(|| self.run(plan)), report))
                .collect();
            for (run, report) in running {
                *report = Some(run.join().expect("a run does not panic")?);
            }
            Ok(())
        })?;
        Ok(plans
            .iter()
            .zip(reports)
            .map(|(plan, report)| {
                let report = report.expect("every plan was carried out");
                RunReport { story: stories::story(plan, &report), ..report }
            })
            .collect())
    }

    /// Compares the plans whose times of writing must be distinguished to a few percent.
    fn run_blocks(&self, plans: &[Plan]) -> Result<Vec<Series>> {
        let plans: Vec<_> = plans.iter().filter(|plan| plan.in_blocks).collect();
        let bar = self.bar("interleaved blocks", (plans.len() * blocks::BLOCKS) as u64);
        let series = blocks::run(&self.place.runs(), &plans, &bar)?;
        self.bars.remove(&bar);
        for plan in plans {
            self.drop_store(&format!("blocks-{}", plan.id), plan)?;
        }
        self.say(&format!("{:28} {} of each", "interleaved blocks", blocks::BLOCKS));
        Ok(series)
    }

    fn run(&self, plan: &Plan) -> Result<RunReport> {
        let skipped = |reason| RunReport {
            id: plan.id.clone(),
            name: plan.name.clone(),
            policy: plan.policy.to_string(),
            skipped: Some(reason),
            ..RunReport::default()
        };
        if let Some(reason) = plan.reason_to_skip() {
            self.say(&format!("{}: skipped, {reason}", plan.name));
            return Ok(skipped(reason));
        }
        let bar = self.bar(&plan.name, plan.steps());
        let report = measure::measure(&self.place.store(&plan.id), plan, &bar)?;
        self.bars.remove(&bar);
        self.say(&format!(
            "{:28} wrote in {:.2} s, read in {:.2} s, {} migrations",
            plan.name, report.write_s, report.read_s, report.moves
        ));
        if plan.id != KEPT {
            self.drop_store(&plan.id, plan)?;
        }
        Ok(report)
    }

    fn drop_store(&self, name: &str, plan: &Plan) -> Result<()> {
        if matches!(plan.slow, Slow::Given(_)) {
            slow::empty(&self.place.store(name))?;
        }
        self.place.drop_store(name)
    }

    fn bar(&self, name: &str, steps: u64) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(steps));
        let style = ProgressStyle::with_template("{prefix:28} {wide_bar} {pos:>4}/{len} {elapsed}");
        bar.set_style(style.expect("the template is legal"));
        bar.set_prefix(name.to_owned());
        bar
    }

    /// Tells a person how far the demo has come.
    fn say(&self, line: &str) {
        self.bars.suspend(|| eprintln!("{line}"));
    }
}
