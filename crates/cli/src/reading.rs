// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What verbs have in common that read traces of any format.

use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use terrace_core::Error;
use terrace_replay::{Columns, Format, Options, Trace};

use crate::failure::Result;

/// What stands for standard input in place of a path.
const STDIN: &str = "-";

/// What messages call it.
const STDIN_NAME: &str = "standard input";

/// A trace by its name, which can be opened as often as it is needed.
pub(crate) enum Given<'a> {
    /// A file, or a directory.
    Path(&'a Path),
    /// What came from standard input, in a file that has no name.
    Kept(File),
}

impl<'a> Given<'a> {
    /// Takes a trace by its path. Standard input is read to its end and kept on the disk of temporary
    /// files, unless it is a file of which nothing was read.
    pub(crate) fn new(path: &'a Path) -> Result<Self> {
        if !is_stdin(path) {
            return Ok(Given::Path(path));
        }
        let mut stdin = stdin()?;
        if stdin.metadata().is_ok_and(|metadata| metadata.is_file())
            && stdin.stream_position().is_ok_and(|position| position == 0)
        {
            return Ok(Given::Kept(stdin));
        }
        let kept = tempfile::tempfile().and_then(|mut kept| {
            io::copy(&mut stdin, &mut kept)?;
            Ok(kept)
        });
        Ok(Given::Kept(kept.map_err(|error| {
            Error::from_io("keep standard input to read it again", error)
                .with("directory", std::env::temp_dir().display())
        })?))
    }

    /// Opens it from its beginning.
    ///
    /// # Errors
    ///
    /// As [`Trace::open`].
    pub(crate) fn open(&self, options: &Options) -> terrace_core::Result<Trace> {
        match self {
            Given::Path(path) => Trace::open(path, options),
            Given::Kept(kept) => {
                // Not another descriptor of the same opening, which would share its place.
                let again = File::open(format!("/proc/self/fd/{}", kept.as_raw_fd()));
                let again = again.map_err(|error| Error::from_io("open the trace", error))?;
                Trace::from_stream(Box::new(again), STDIN_NAME, options)
            }
        }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        match self {
            Given::Path(path) => path.display().to_string(),
            Given::Kept(_) => STDIN_NAME.into(),
        }
    }
}

/// Whether a path stands for standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == STDIN
}

/// Whether two paths lead to the same file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(one).is_some_and(|path| real(other) == Some(path))
}

/// Opens a trace that is read once, and what it is called; standard input as it comes.
pub(crate) fn open_once(path: &Path, options: &Options) -> Result<(Trace, String)> {
    if !is_stdin(path) {
        return Ok((Trace::open(path, options)?, path.display().to_string()));
    }
    Ok((Trace::from_stream(Box::new(stdin()?), STDIN_NAME, options)?, STDIN_NAME.into()))
}

fn stdin() -> Result<File> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let reason = "standard input is a terminal: let a program write a trace to it, or name one";
        return Err(Error::invalid("read the trace", reason).into());
    }
    let owned = stdin.as_fd().try_clone_to_owned();
    Ok(File::from(owned.map_err(|error| Error::from_io("read standard input", error))?))
}

/// How a trace of any format is read.
#[derive(Args, Debug)]
pub(crate) struct Reading {
    /// Format of the trace [default: recognised]
    #[arg(long, value_name = "FORMAT",
          value_parser = PossibleValuesParser::new(Format::ALL.map(Format::word)), ignore_case = true)]
    format: Option<String>,
    /// Which columns of text are what, by name or by number: `id=block,size=4,time=1`, also op,
    /// offset, length, client, latency; `time_ms=1` sets the unit [default: from the heading]
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
