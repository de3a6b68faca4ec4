// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What went wrong: `cannot VERB: REASON name=value`.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::{error, fmt, io};

/// A failed operation: what was tried, why it failed, and where.
#[derive(Debug)]
pub(crate) struct Error {
    operation: &'static str,
    reason: Reason,
    context: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Reason {
    Said(Cow<'static, str>),
    System(io::Error),
    /// What another process printed about its own failure, whole.
    Told(String),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure that this program found by itself.
    pub(crate) fn new(operation: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { operation, reason: Reason::Said(reason.into()), context: Vec::new() }
    }

    /// A failure of the operating system.
    pub(crate) fn system(operation: &'static str, error: impl Into<io::Error>) -> Self {
        Self { operation, reason: Reason::System(error.into()), context: Vec::new() }
    }

    /// A failure of another process, which says it in words of its own.
    pub(crate) fn told(message: String) -> Self {
        Self { operation: "go on", reason: Reason::Told(message), context: Vec::new() }
    }

    /// Whether it failed because the other end of a connection is gone.
    pub(crate) fn is_disconnected(&self) -> bool {
        let Reason::System(error) = &self.reason else { return false };
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    }

    /// Adds `name=value` to the message.
    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((name, value.to_string()));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Said(reason) => write!(f, "cannot {}: {reason}", self.operation)?,
            Reason::System(error) => write!(f, "cannot {}: {error}", self.operation)?,
            Reason::Told(message) => f.write_str(message)?,
        }
        self.context.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.reason {
            Reason::System(error) => Some(error),
            Reason::Said(_) | Reason::Told(_) => None,
        }
    }
}
