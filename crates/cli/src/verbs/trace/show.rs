// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace show`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use terrace_core::Error;
use terrace_replay::{Options, Profile};

use super::choice::Choice;
use super::summary::Summary;
use super::{line, load, picture};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, show_name};
use crate::progress::Progress;
use crate::reading::{Given, Reading, is_same};

#[derive(Args, Debug)]
pub(super) struct Show {
    #[command(flatten)]
    choice: Choice,
    /// Stop after so many records
    #[arg(long, value_name = "COUNT", conflicts_with = "summary")]
    limit: Option<u64>,
    /// Print what it comes to instead: counts, bytes and latencies by kind and tier, and of the whole
    /// trace reuse distances and the working set over time
    #[arg(long)]
    summary: bool,
    /// Draw it instead: write a page with the timeline of accesses and migrations, the fill of tiers and waits,
    /// for a browser, to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["summary", "limit"])]
    html: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

impl Show {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        match self.choice.file() {
            Some(file) => match &self.html {
                Some(page) => self.draw_file(context, file, page),
                None => self.sum_up_file(context, file),
            },
            None if self.reading.is_given() => {
                let reason = "--format and --columns are for files of other programs";
                Err(Error::invalid("show the trace", reason).into())
            }
            None if self.summary => self.sum_up(context),
            None => match &self.html {
                Some(page) => picture::of_store(context, &self.choice, page),
                None => self.print(context),
            },
        }
    }

    fn draw_file(&self, context: &Context, file: &Path, page: &Path) -> Result<()> {
        if !self.choice.is_whole() {
            let reason = "a file of another program is drawn as a whole; `terrace trace cut` cuts parts out of it";
            return Err(Error::invalid("draw the trace", reason).into());
        }
        if is_same(page, file) {
            let reason = "the page would take the place of the trace";
            return Err(Error::invalid("draw the trace", reason).with("option", "--html").into());
        }
        picture::of_file(context, file, &self.reading.options()?, page)
    }

    /// Of a trace of another program there is only the summary.
    fn sum_up_file(&self, context: &Context, file: &Path) -> Result<()> {
        if !self.choice.is_whole() || self.limit.is_some() {
            let reason = "a file of another program is only summed up, as a whole; `terrace trace \
                          cut` cuts parts out of it";
            return Err(Error::invalid("show the trace", reason).into());
        }
        let options = self.reading.options()?;
        let given = Given::new(file)?;
        let format = given.open(&options)?.format();
        let profile = profile(&given, &options)?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "format": format.word(), "load": load::value(&profile) }))?;
        } else {
            output.line(format_args!("{} ({format})", show_name(&given.name())))?;
            load::lines(&profile).iter().try_for_each(|line| output.line(line))?;
        }
        output.flush()
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
        // What is damaged cannot be followed as a whole.
        let is_whole = self.choice.is_whole() && !came.is_damaged();
        let directory = self.choice.directory(context)?;
        let profile =
            is_whole.then(|| profile(&Given::Path(&directory), &Options::default())).transpose()?;
        let mut output = Output::new();
        if context.is_json {
            let mut value = summary.value(&came);
            value["load"] = profile.as_ref().map(load::value).into();
            output.json(&value)?;
        } else {
            for line in summary.lines(&came) {
                output.line(line)?;
            }
            if let Some(profile) = profile.filter(|profile| profile.all.count > 0) {
                output.line("")?;
                load::lines(&profile).iter().try_for_each(|line| output.line(line))?;
            }
        }
        output.flush()?;
        came.finish()
    }
}

fn profile(trace: &Given<'_>, options: &Options) -> Result<Profile> {
    let mut progress = Progress::items("show", None);
    let open = || trace.open(options);
    Ok(Profile::of(&open, &mut |requests| progress.advance(requests))?)
}
