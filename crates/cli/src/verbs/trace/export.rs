// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace trace export`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use terrace_core::Error;

use super::choice::{Choice, Found};
use super::line;
use crate::context::Context;
use crate::failure::{Result, from_local};
use crate::output::Output;

#[derive(Args, Debug)]
pub(super) struct Export {
    #[command(flatten)]
    choice: Choice,
    /// How
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    /// Write into this file, which is replaced, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One row for each event, with a heading.
    Csv,
    /// One value a line.
    Jsonl,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if let Some(file) = self.choice.file() {
            let reason = "it is a file, and no trace of a store; `terrace trace convert` reads those of \
                          other programs";
            let error = Error::invalid("export the trace", reason);
            return Err(error.with("file", file.display()).into());
        }
        match &self.output {
            Some(path) => {
                context.check_output(path)?;
                self.to_file(context, path)
            }
            None => {
                let mut output = Output::new();
                let came = self.write(context, &mut |text| output.line(text))?;
                output.flush()?;
                came.finish()
            }
        }
    }

    fn to_file(&self, context: &Context, path: &Path) -> Result<()> {
        let failed = |error| from_local("write the export", error).with("file", path.display());
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let mut records: u64 = 0;
        let came = self.write(context, &mut |text| {
            records += 1;
            Ok(writeln!(file, "{text}").map_err(failed)?)
        })?;
        file.flush().map_err(failed)?;
        let records = records - u64::from(self.format == Format::Csv);
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "file": path.display().to_string(), "records": records }))?;
        } else {
            output.line(format_args!("{records} records in {}", path.display()))?;
        }
        output.flush()?;
        came.finish()
    }

    fn write(
        &self,
        context: &Context,
        line: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<super::choice::Came> {
        if self.format == Format::Csv {
            line(line::CSV_HEADING)?;
        }
        self.choice.read(context, &mut |found: &Found<'_>| {
            let text = match self.format {
                Format::Csv => line::csv(found),
                Format::Jsonl => Some(line::value(found).to_string()),
            };
            text.map_or(Ok(()), |text| line(&text))?;
            Ok(true)
        })
    }
}
