// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of verbs that read traces of any format.

use clap::Args;
use clap::builder::PossibleValuesParser;
use terrace_replay::{Columns, Format, Options};

use crate::failure::Result;

/// How a trace of any format is read.
#[derive(Args, Debug)]
pub(crate) struct Reading {
    /// Format of the trace [default: recognised]
    #[arg(long, value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(Format::ALL.map(Format::word)), ignore_case = true)]
    format: Option<String>,
    /// Which columns of text are what, by name or by number: `id=block,size=4,time=1`, also op,
    /// offset, length, client, latency; `time_ms=1` says the unit [default: told by the heading]
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<String>,
}

impl Reading {
    /// As the reader takes them.
    pub(crate) fn options(&self) -> Result<Options> {
        let format = self.format.as_deref().map(Format::from_word).transpose()?;
        let columns = self.columns.as_deref().map(Columns::parse).transpose()?;
        Ok(Options { format, columns, ..Options::default() })
    }

    /// Whether any was given.
    pub(crate) fn is_given(&self) -> bool {
        self.format.is_some() || self.columns.is_some()
    }
}
