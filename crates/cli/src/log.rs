// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log of a process that serves: lines on standard error, whose level can be changed while it
//! runs.

use std::io::stderr;

use clap::ValueEnum;
use terrace_core::Error;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Result;

/// The form of a log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// A line of text for each event
    Text,
    /// A line of JSON for each event
    Json,
}

/// The log of this process.
pub(crate) struct Log {
    level: reload::Handle<LevelFilter, Registry>,
}

impl Log {
    /// Begins to log on standard error.
    pub(crate) fn start(level: &str, form: Form) -> Result<Self> {
        let (filter, handle) = reload::Layer::new(read_level(level)?);
        let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false);
        let registry = tracing_subscriber::registry().with(filter);
        let started = match form {
            Form::Text => registry.with(lines.with_ansi(false)).try_init(),
            Form::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        };
        started.map_err(|error| {
            Error::invalid("begin to log", "this process logs already").caused_by(error)
        })?;
        Ok(Self { level: handle })
    }

    /// Logs what is at least as bad as this from now on.
    pub(crate) fn set_level(&self, level: &str) -> terrace_core::Result<()> {
        let level = read_level(level)?;
        self.level.reload(level).map_err(|error| {
            Error::invalid("change the log level", "the log has ended").caused_by(error)
        })
    }

    /// What is logged now.
    pub(crate) fn level(&self) -> String {
        self.level.clone_current().map_or_else(|| "off".into(), |level| level.to_string())
    }
}

/// The level that a word names.
///
/// # Errors
///
/// `Invalid` for any other word.
pub(crate) fn read_level(level: &str) -> terrace_core::Result<LevelFilter> {
    level.parse().map_err(|_| {
        let right = "one of off, error, warn, info, debug, trace is expected";
        Error::invalid("read a log level", right).with("level", format!("{level:?}"))
    })
}
