// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every verb gets: which store, and how to print.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Command;
use terrace_core::{Access, Clock, Error, ErrorKind, SystemClock};
use terrace_fs::Files;
use terrace_settings::Places;
use terrace_store::{OpenOptions, Store};

use crate::attributes;
use crate::failure::{self, Failure, Result};

/// Longest wait for a process to end that has a file system mounted for itself.
const ENDING_TIME_MAX: Duration = Duration::from_secs(2);

/// The same for one that answers no more: it has begun to end.
const GOING_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How a command opens a store without an owner: others wait until it ends, because requests that went
/// through it would fail then.
pub(crate) fn alone(access: Access) -> OpenOptions {
    OpenOptions { access, serve: false, ..OpenOptions::default() }
}

/// An error of opening a store: the directory of a mount is easily taken for that of the store.
fn named(error: Error, address: &str) -> Error {
    match attributes::store_of(Path::new(address)) {
        Some(store) if error.kind() == ErrorKind::NotFound => {
            let reason = "it is in a mounted store, which is named by its own address";
            error.because(reason).with("mounted", store)
        }
        _ => error,
    }
}

/// The global options.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    store: Option<String>,
    /// Whether a program reads what is printed.
    pub(crate) is_json: bool,
    /// Builds the command line with all verbs, for those that describe it.
    command_line: fn() -> Command,
}

impl Context {
    /// From the command line.
    pub(crate) fn new(store: Option<String>, is_json: bool, command_line: fn() -> Command) -> Self {
        Self { store, is_json, command_line }
    }

    /// The same for another store.
    pub(crate) fn at(&self, store: &str) -> Self {
        Self { store: Some(store.into()), ..self.clone() }
    }

    /// The whole command line, as parsed, completed and documented.
    pub(crate) fn command_line(&self) -> Command {
        (self.command_line)()
    }

    /// The store that the command line or the environment names.
    pub(crate) fn store(&self) -> Result<&str> {
        let reason = "no store is named: give --store DIR or set TERRACE_STORE";
        self.store
            .as_deref()
            .filter(|store| !store.is_empty())
            .ok_or_else(|| Error::invalid("open the store", reason).into())
    }

    /// The address of the store, where it is that of servers.
    pub(crate) fn servers(&self) -> Option<&str> {
        self.store.as_deref().filter(|store| Store::is_behind_servers(store))
    }

    /// Refuses to write a file in a directory of the store that is named, or of any other.
    ///
    /// # Errors
    ///
    /// `Invalid`.
    pub(crate) fn check_output(&self, file: &Path) -> Result<()> {
        let store = self.store.as_deref().filter(|store| !store.is_empty());
        Ok(store.map(Places::of).unwrap_or_default().check_output(file)?)
    }

    /// Runs `body` on the open store and closes it. Used by verbs that change something.
    pub(crate) fn with_store<T>(&self, body: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        self.with_options(alone(Access::Write), body)
    }

    /// The same for verbs that only look; works where a tier is missing.
    pub(crate) fn with_store_for_reading<T>(
        &self,
        body: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        self.with_options(alone(Access::Read), body)
    }

    /// The same, opened as `options` say.
    pub(crate) fn with_options<T>(
        &self,
        options: OpenOptions,
        body: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        self.with_options_at(self.store()?, options, body)
    }

    /// The same on a store that was named otherwise.
    pub(crate) fn with_options_at<T>(
        &self,
        address: &str,
        options: OpenOptions,
        body: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        let store = Store::open_with(address, options).map_err(|error| named(error, address))?;
        for note in store.opening_notes() {
            self.note(&note);
        }
        let result = body(&store);
        let closed = store.close();
        // The first failure is the one that explains the other.
        let value = result?;
        closed?;
        Ok(value)
    }

    /// The same for verbs that use a file system, which `open` opens. Where another process has it
    /// mounted for itself, that may be about to end: `umount` returns a moment before.
    pub(crate) fn with_files_at<T>(
        &self,
        address: &str,
        options: &dyn Fn() -> OpenOptions,
        open: &dyn Fn(&Store) -> Result<Arc<Files>>,
        body: impl FnOnce(&Store, Arc<Files>) -> Result<T>,
    ) -> Result<T> {
        let clock = SystemClock::default();
        let begun_ns = clock.now_ns();
        let is_ending = |store: &Store, failure: &Failure| {
            let waited = Duration::from_nanos(clock.now_ns() - begun_ns);
            let longest = match failure.kind() {
                Some(ErrorKind::Busy | ErrorKind::Unsupported) => ENDING_TIME_MAX,
                Some(ErrorKind::Unreachable { .. }) => GOING_TIME_MAX,
                _ => Duration::ZERO,
            };
            store.is_attached() && !Store::is_behind_servers(address) && waited < longest
        };
        let mut body = Some(body);
        loop {
            let done = self.with_options_at(address, options(), |store| match open(store) {
                Err(failure) if is_ending(store, &failure) => Ok(None),
                opened => {
                    let body = body.take().expect("it is called once");
                    body(store, opened?).map(Some)
                }
            })?;
            match done {
                Some(value) => return Ok(value),
                None => clock.sleep(PAUSE),
            }
        }
    }

    /// Tells a person something on standard error that is no error.
    pub(crate) fn note(&self, text: &str) {
        failure::note(text, self.is_json);
    }

    /// Tells a person at a terminal that a policy only acts while the store is open.
    pub(crate) fn note_unheld(&self, store: &Store) -> Result<()> {
        if !store.is_attached() && stderr().is_terminal() && store.admin().policy()?.is_some() {
            self.note(
                "nothing holds this store: its policy acts when it is next open; \
                 `terrace hold` keeps it running",
            );
        }
        Ok(())
    }
}
