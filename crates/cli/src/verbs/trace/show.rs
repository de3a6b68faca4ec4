// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace show`.

use clap::Args;

use super::choice::Choice;
use super::line;
use super::summary::Summary;
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

#[derive(Args, Debug)]
pub(super) struct Show {
    #[command(flatten)]
    choice: Choice,
    /// Stop after so many records
    #[arg(long, value_name = "COUNT", conflicts_with = "summary")]
    limit: Option<u64>,
    /// Print what it comes to instead: counts, bytes and latencies by kind and tier
    #[arg(long)]
    summary: bool,
}

impl Show {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.summary { self.sum_up(context) } else { self.print(context) }
    }

    fn print(&self, context: &Context) -> Result<()> {
        let mut output = Output::new();
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut print = |found: &super::choice::Found<'_>| {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            if context.is_json {
                output.json(&line::value(found))?;
            } else {
                output.line(line::text(found))?;
            }
            Ok(left > 0)
        };
        let came = self.choice.read(context, &mut print)?;
        output.flush()?;
        came.finish()
    }

    fn sum_up(&self, context: &Context) -> Result<()> {
        let mut summary = Summary::default();
        let came = self.choice.read(context, &mut |found| {
            summary.add(found);
            Ok(true)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&summary.value(&came))?;
        } else {
            for line in summary.lines(&came) {
                output.line(line)?;
            }
        }
        output.flush()?;
        came.finish()
    }
}
