// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_core::units::parse_duration;
use terrace_demo::{Device, Given, PARALLELISM, Slow};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, command_line};

/// That of the study that the idea comes from.
const LATENCY: Duration = Duration::from_millis(50);

/// See tiers and policies at work, in less than a minute
///
/// Runs a program that writes checkpoints of a simulation and reads them back, over a fast tier
/// and a slow one, under one policy after another. Prints a table with a verdict on each
/// comparison, writes demo-report.html (open it in a browser) and leaves a store to play with.
///
/// Both tiers are directories below --dir. The slow one is simulated: every request to it takes
/// 50 ms. --slow names a real one, for example a bucket. All times are measured, energy is modelled. Checksums are compared: the demo fails
/// where something else was read than was written.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Where the stores and the report go; emptied first if an earlier demo made it
    #[arg(long, value_name = "DIR", default_value = "terrace-demo")]
    dir: PathBuf,

    /// Also show wide reads that are better left on the slow tier, more timeouts, larger sizes
    #[arg(long)]
    full: bool,

    /// The library of the example policy
    #[arg(long, value_name = "FILE", default_value = "examples/policies/lru-c/lru.so")]
    example_policy: PathBuf,

    /// Checkpoints that each run writes [default: 100, with --full 200]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    checkpoints: Option<u64>,

    /// Points along one edge of the grid [default: 180]
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u16).range(3..=4096))]
    grid: Option<u16>,

    /// Iterations between two checkpoints [default: as many as take 25 ms]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,

    /// What every request to the simulated slow tier takes, or to that of --slow takes longer
    ///
    /// Default: 50ms, with --slow nothing.
    #[arg(long, value_name = "DURATION")]
    latency: Option<String>,

    /// The slow tier, in place of a simulated one, as `terrace init --tier` has it behind NAME=
    ///
    /// A directory on a slow disk, or a bucket: `s3://BUCKET/PREFIX,endpoint=URL,region=REGION`. Each store of
    /// the demo has a part of its own below it, `demo-NUMBER/NAME`, and leaves nothing there but that of the store
    /// that stays, which the next demo in the same --dir removes. One that fails or is interrupted leaves the
    /// others, too. Policies weigh moves with the settings latency and bandwidth, so give them.
    #[arg(long, value_name = "PATH[,SETTING=VALUE]...")]
    slow: Option<String>,
}

impl Verb for Demo {
    const NAME: &'static str = "demo";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace demo
  terrace demo --full --dir /mnt/scratch/terrace-demo
  terrace demo --slow s3://my-bucket/demo,region=eu-central-1,latency=30ms,bandwidth=100MB/s
  terrace demo --json | jq '.report.verdicts[] | {bar, finding, ratio}'";

    fn run(self, context: &Context) -> Result<()> {
        let latency = self.latency.as_deref().map(parse_duration).transpose()?;
        let slow = match &self.slow {
            Some(text) => Slow::Given(Given::read(text, latency)?),
            None => Slow::Simulated(Device {
                latency: latency.unwrap_or(LATENCY),
                bandwidth: None,
                parallelism: PARALLELISM,
            }),
        };
        let options = terrace_demo::Options {
            dir: self.dir,
            is_full: self.full,
            // The stores that load it are elsewhere.
            example_policy: std::path::absolute(&self.example_policy)
                .unwrap_or(self.example_policy),
            checkpoints: self.checkpoints.unwrap_or(if self.full { 200 } else { 100 }),
            dimension: self.grid.unwrap_or(180).into(),
            interval: self.interval,
            slow,
            command: command_line(),
        };
        let finished = terrace_demo::run(&options)?;
        let mut output = Output::new();
        if context.is_json {
            let steps: Vec<_> = finished.steps.iter().map(|step| &step.command).collect();
            output.json(&json!({
                "report": finished.report,
                "page": finished.page,
                "commands": steps,
            }))?;
        } else {
            for line in terrace_demo::lines(&finished) {
                output.line(line)?;
            }
        }
        output.flush()
    }
}
