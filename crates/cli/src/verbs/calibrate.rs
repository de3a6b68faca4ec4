// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace calibrate`.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_calibrate::{CalibrateOptions, Calibrated, calibrate, write_calibration};
use terrace_core::units::{show_bytes, show_ns, show_rate};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::progress::Progress;

/// Measure what the tiers can do, for the figures in terrace.toml
///
/// Policies weigh with the figures of tiers what a move costs and saves, and replays tell with them
/// what a load would take. This measures them: latency and bandwidth of reads and of writes, how much
/// of the latency a read saves that goes on where the one before ended, how many small reads are
/// served at once, and what large ones get together. It prints the lines for terrace.toml, or puts
/// them there with --write, where comments and everything else stay.
///
/// It goes through each tier as the store does. Where the tier is a directory, reads come from its
/// device: what the machine has of them in memory is dropped before, as far as the system takes that
/// advice. Memory that is in a device or below a virtual machine cannot be dropped. Where the tier is
/// in memory or slowed down on purpose, reads are as they come. Writes are as an application sees
/// them: with `persistency = "storage"` each is made durable; else they return when the system has
/// them, and what it then takes to make them durable counts for the bandwidth.
///
/// The store must not be open anywhere: its work would be measured, too. Up to 512 MiB lie on
/// each tier, at most half of the room that it has left, into objects of their own that are
/// deleted in the end, also after Ctrl-C; what one left that was killed, the next deletes. Of a store
/// with several tiers it moves a few objects of its own, too, in a namespace that no application has:
/// for what a migration takes beside its bytes. Nothing else is touched.
#[derive(Args, Debug)]
pub(crate) struct Calibrate {
    /// The directory of the store, in place of --store
    #[arg(value_name = "STORE")]
    directory: Option<String>,
    /// A tier to measure; may be repeated [default: all]
    #[arg(long = "tier", value_name = "NAME")]
    tiers: Vec<String>,
    /// How long it may take for all tiers together, about
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Look for where writes become slow, too; takes as long again, and writes all that time
    #[arg(long)]
    thorough: bool,
    /// Put the figures into terrace.toml
    #[arg(long)]
    write: bool,
}

impl Verb for Calibrate {
    const NAME: &'static str = "calibrate";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace calibrate my-store                          print the lines for terrace.toml
  terrace calibrate my-store --write                  put them there
  terrace calibrate --tier fast --seconds 20 --json";

    fn run(self, context: &Context) -> Result<()> {
        let context = self.directory.as_deref().map_or(context.clone(), |at| context.at(at));
        let address = context.store()?;
        let options = CalibrateOptions {
            tiers: self.tiers,
            time: Duration::from_secs(self.seconds),
            is_thorough: self.thorough,
        };
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::items("measure tiers", None);
        let all = calibrate(address, &options, &|| interrupt.is_set(), &mut |_| {
            progress.advance(1);
        })?;
        drop(progress);
        interrupt.check("nothing was changed, and what was written to the tiers is deleted")?;
        if self.write {
            write_calibration(address, &all)?;
        }
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "tiers": all, "is_written": self.write }))?;
        } else {
            for line in all.iter().flat_map(lines) {
                output.line(line)?;
            }
            if self.write {
                output.line("these figures are in terrace.toml now")?;
            }
        }
        output.flush()
    }
}

/// What was measured as comments, and the keys for the section of the tier.
fn lines(one: &Calibrated) -> Vec<String> {
    let reads = if one.is_cold { "from the device" } else { "as they come" };
    let writes = if one.is_durable { "durable one by one" } else { "as they return" };
    let mut lines = vec![format!(
        "# {}: measured on {}; reads {reads}, writes {writes}",
        one.tier,
        show_bytes(one.bytes)
    )];
    let all =
        [("read", &one.reads), ("read from memory", &one.cached_reads), ("write", &one.writes)];
    for (what, samples) in all {
        for sample in samples {
            let ns = (sample.seconds * 1e9).round() as u64;
            let (size, took) = (show_bytes(sample.bytes), show_ns(ns));
            lines.push(format!(
                "#   {what} of {size}: {took}, mean of {} without the extremes",
                sample.count
            ));
        }
    }
    for threads in one.threads.iter().chain(&one.large) {
        let rate = show_rate(threads.requests_per_s).replace("B/s", "/s");
        let size = show_bytes(threads.bytes);
        lines.push(format!("#   {} at once: {rate} of {size}", threads.threads));
    }
    for key in &one.unresolved {
        lines.push(format!(
            "#   {key} cannot be told from what requests vary by, and is a bound: measure for longer, \
             or while the machine does less"
        ));
    }
    lines.push(format!("[[tier]]  # {}", one.tier));
    let keys = one.settings().into_iter();
    lines.extend(keys.filter_map(|(key, value)| Some(format!("{key} = {}", value?))));
    let prices = one.prices.iter();
    lines.extend(prices.map(|(key, price)| format!("{key} = {price}  # as configured")));
    lines.push(String::new());
    lines
}
