// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a command fails: one line on standard error and an exit status that a script can rely on.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use terrace_core::{Error, ErrorKind, Key};

/// The result of anything a verb does.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// An operation failed.
    Failed(Error),
    /// A signal asked to stop; everything is tidied up.
    Interrupted {
        /// The signal.
        signal: i32,
        /// What became of the work, for people.
        what: String,
    },
    /// The reader of standard output has ended (`| head`).
    ReaderGone,
    /// Everything was reported already; only the status is left.
    Reported(u8),
}

impl Failure {
    /// The status the command ends with.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Failed(error) => status_of(error.kind()),
            Failure::Interrupted { signal, .. } => 128 + *signal as u8,
            Failure::ReaderGone => 128 + SIGPIPE as u8,
            Failure::Reported(status) => *status,
        }
    }

    /// What the caller can do about it, where it is an error.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Failure::Failed(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// Prints the failure as one line: for people, or as JSON.
    pub fn report(&self, is_json: bool) {
        match self {
            Failure::Failed(error) => {
                print(is_json, error.kind().word(), &error.chain());
            }
            Failure::Interrupted { what, .. } => print(is_json, "interrupted", what),
            Failure::ReaderGone | Failure::Reported(_) => {}
        }
    }

    /// The same, naming the object that it is about.
    pub fn about(self, key: &Key) -> Self {
        match self {
            Failure::Failed(error) => Failure::Failed(about(error, key)),
            other => other,
        }
    }

    /// Ends the process the way the failure wants it: by the signal where there was one, so that
    /// a shell sees it.
    pub fn exit(self) -> ExitCode {
        let status = self.status();
        let signal = match self {
            Failure::Interrupted { signal, .. } => Some(signal),
            Failure::ReaderGone => Some(SIGPIPE),
            Failure::Failed(_) | Failure::Reported(_) => None,
        };
        if let Some(signal) = signal {
            // Does not return where it works; the status says the same where it does not.
            let _ = emulate_default_handler(signal);
        }
        ExitCode::from(status)
    }
}

/// Names the object that an error is about, where the store has not.
pub fn about(error: Error, key: &Key) -> Error {
    if error.to_string().contains(key.as_str()) { error } else { error.with("key", key) }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error)
    }
}

/// Turns an error of the local file system, which is no tier, into ours: where it has no room, that
/// says nothing of the tiers.
pub fn from_local(operation: &'static str, error: io::Error) -> Error {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let error = Error::from_io(operation, error);
    if is_full { error.because("no space left on the local disk") } else { error }
}

/// Turns a failure to write to standard output into ours.
pub fn from_output(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::ReaderGone;
    }
    from_local("write to standard output", error).into()
}

/// The exit statuses and their meaning; `docs/reference/cli.md` and every help page list them.
const STATUSES: &[(u8, &str)] = &[
    (0, "done"),
    (1, "failed: input/output error; fsck, scrub, item check: problems found"),
    (2, "the command line, or a value in it, is wrong"),
    (3, "not found"),
    (4, "no space left on any allowed tier or the local disk, or a quota is used up"),
    (5, "in use by another process or operation: retry later"),
    (6, "exists already"),
    (7, "permission denied, or the object is pinned"),
    (8, "stored data is damaged"),
    (9, "changed meanwhile: look again, then retry"),
    (10, "not supported here"),
    (11, "target did not answer"),
    (130, "interrupted (128 + the number of the signal)"),
];

/// The table of exit statuses, as in every long help.
pub fn statuses() -> String {
    let mut text = String::from("Exit status:\n");
    for (status, meaning) in STATUSES {
        text.push_str(&format!("  {status:<4} {meaning}\n"));
    }
    text
}

/// The status of a command line that cannot be read.
pub const STATUS_USAGE: u8 = 2;

/// The exit status that stands for a kind of error.
pub fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => STATUS_USAGE,
        ErrorKind::NotFound => 3,
        ErrorKind::NoSpace => 4,
        ErrorKind::Busy => 5,
        ErrorKind::Exists => 6,
        ErrorKind::Denied => 7,
        ErrorKind::Corrupt => 8,
        ErrorKind::Stale => 9,
        ErrorKind::Unsupported => 10,
        ErrorKind::Unreachable { .. } => 11,
        _ => 1,
    }
}

/// Prints an error line. Line breaks of an inner message become spaces: one error, one line.
pub fn print(is_json: bool, kind: &str, message: &str) {
    let words: Vec<_> = message.split_whitespace().collect();
    let message = words.join(" ");
    if is_json {
        complain(serde_json::json!({ "error": { "kind": kind, "message": message } }));
    } else {
        complain(format_args!("terrace: {message}"));
    }
}

/// Tells a person something that is no failure.
pub fn note(text: &str, is_json: bool) {
    if !is_json {
        complain(format_args!("terrace: note: {text}"));
    }
}

/// Prints a line on standard error, if anybody is there to read it.
pub fn complain(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Carries a command over several things on past failures: each is reported at once, and the
/// first decides the status.
pub struct Failures {
    is_json: bool,
    /// Whether what is not there was found by walking, and is gone since.
    passes_gone: bool,
    status: Option<u8>,
}

impl Failures {
    /// None so far.
    pub fn new(is_json: bool) -> Self {
        Self { is_json, passes_gone: false, status: None }
    }

    /// None so far of a command that may walk: what others remove while it does is no failure.
    pub fn walking(is_json: bool, is_recursive: bool) -> Self {
        Self { passes_gone: is_recursive, ..Self::new(is_json) }
    }

    /// Takes note of a result. Returns the value if there is one, and passes on what ends the
    /// whole command: a signal, or a reader that is gone.
    pub fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(failure) if self.passes_gone && failure.kind() == Some(ErrorKind::NotFound) => {
                Ok(None)
            }
            Err(failure @ (Failure::Failed(_) | Failure::Reported(_))) => {
                failure.report(self.is_json);
                self.status.get_or_insert(failure.status());
                Ok(None)
            }
            Err(end) => Err(end),
        }
    }

    /// Tells a person something that is none.
    pub fn tell(&self, text: &str) {
        note(text, self.is_json);
    }

    /// The end: success if there was no failure.
    pub fn finish(self) -> Result<()> {
        self.status.map_or(Ok(()), |status| Err(Failure::Reported(status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_documented_status() {
        for word in [
            "not-found",
            "exists",
            "no-space",
            "corrupt",
            "stale",
            "busy",
            "unsupported",
            "denied",
            "invalid",
            "unreachable",
            "io",
        ] {
            let kind = ErrorKind::from_word(word).expect("a known word");
            let status = status_of(kind);
            assert!(STATUSES.iter().any(|(known, _)| *known == status), "{word} has {status}");
        }
    }

    #[test]
    fn what_goes_while_a_command_walks_is_no_failure() {
        let gone = || -> Result<()> { Err(Error::new(ErrorKind::NotFound, "look").into()) };
        let mut failures = Failures::walking(false, true);
        assert_eq!(failures.note(gone()).expect("goes on"), None);
        failures.finish().expect("there was none");
        let mut failures = Failures::walking(false, false);
        assert_eq!(failures.note(gone()).expect("goes on"), None);
        assert_eq!(failures.finish().expect_err("it was named").status(), 3);
    }

    #[test]
    fn the_first_failure_decides_the_status() {
        let mut failures = Failures::new(false);
        for kind in [ErrorKind::Busy, ErrorKind::NotFound] {
            let result: Result<()> = Err(Error::new(kind, "test").into());
            assert!(failures.note(result).expect("goes on").is_none());
        }
        assert_eq!(failures.finish().expect_err("failed").status(), 5);
    }
}
