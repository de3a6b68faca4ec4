// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace convert` and `terrace trace cut`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use terrace_core::Error;
use terrace_core::units::{format_duration, parse_duration};
use terrace_replay::{Cut as Part, Format, Options, WRITABLE, convert};

use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::reading::{Given, Reading};

#[derive(Args, Debug)]
pub(super) struct Convert {
    /// A file, the directory of a trace, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Format to write
    #[arg(long, value_name = "FORMAT", ignore_case = true,
          value_parser = PossibleValuesParser::new(WRITABLE.map(Format::word)))]
    to: String,
    /// The new file, or the new directory of a trace
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

#[derive(Args, Debug)]
pub(super) struct Cut {
    /// A file, the directory of a trace, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Only from so long after the first request on
    #[arg(long, value_name = "DURATION")]
    from: Option<String>,
    /// Only before so long after the first request
    #[arg(long, value_name = "DURATION")]
    until: Option<String>,
    /// Only so large a part of the objects, with all their requests: between 0 and 1
    #[arg(long, value_name = "PART")]
    sample: Option<f64>,
    /// Which objects a sample has: another number chooses others
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "sample")]
    seed: u64,
    /// Format to write [default: that of the trace, or csv where it can only be read]
    #[arg(long, value_name = "FORMAT", ignore_case = true,
          value_parser = PossibleValuesParser::new(WRITABLE.map(Format::word)))]
    to: Option<String>,
    /// The new file, or the new directory of a trace
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

impl Convert {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let to = Format::from_word(&self.to)?;
        write(context, &self.trace, &self.reading, &Part::default(), Some(to), &self.output)
    }
}

impl Cut {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.from.is_none() && self.until.is_none() && self.sample.is_none() {
            let reason = "nothing says what to keep: give --from, --until or --sample";
            return Err(Error::invalid("cut the trace", reason).into());
        }
        let time_ns = |text: &Option<String>, default_ns: u64| match text {
            Some(text) => parse_duration(text)
                .map(|duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
            None => Ok(default_ns),
        };
        let (from_ns, until_ns) = (time_ns(&self.from, 0)?, time_ns(&self.until, u64::MAX)?);
        if from_ns >= until_ns {
            let reason = "--until has to be later than --from";
            return Err(Error::invalid("cut the trace", reason)
                .with("from", format_duration(Duration::from_nanos(from_ns)))
                .with("until", format_duration(Duration::from_nanos(until_ns)))
                .into());
        }
        let part = Part::default().window(from_ns, until_ns);
        let part = part.sample(self.sample.unwrap_or(1.0), self.seed)?;
        let to = self.to.as_deref().map(Format::from_word).transpose()?;
        write(context, &self.trace, &self.reading, &part, to, &self.output)
    }
}

fn write(
    context: &Context,
    trace: &Path,
    reading: &Reading,
    part: &Part,
    to: Option<Format>,
    output: &Path,
) -> Result<()> {
    // What makes and ends objects belongs to a trace as what reads and writes them does.
    context.check_output(output)?;
    let options = Options { has_lives: true, ..reading.options()? };
    let given = Given::new(trace)?;
    let open = || given.open(&options);
    let first = open()?;
    let format = match (to, first.format()) {
        (Some(format), _) => format,
        (None, format) if WRITABLE.contains(&format) => format,
        (None, _) => Format::Csv,
    };
    let interrupt = Interrupt::watch()?;
    let mut progress = Progress::items("convert", None);
    let converted = convert(first, &open, part, format, output, &mut |requests| {
        progress.advance(requests);
        !interrupt.is_set()
    });
    drop(progress);
    let Some(converted) = converted? else {
        interrupt.check("nothing was written")?;
        unreachable!("only a signal ends it early");
    };
    converted.notes.iter().for_each(|note| context.note(note));
    let name = output.display().to_string();
    let mut lines = Output::new();
    if context.is_json {
        lines.json(&json!({
            "file": name,
            "format": format.word(),
            "read": converted.read,
            "written": converted.written,
        }))?;
    } else {
        let requests = count(converted.written, "request");
        let of = converted.read;
        lines.line(format_args!("{requests} of {of} in {} ({format})", show_name(&name)))?;
    }
    lines.flush()
}
