// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an operation on files fails: a number that every program knows, and what was behind it.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use terrace_core::{Applied, Error, ErrorKind};

/// A failed operation on files.
///
/// Programs see the number. Where something broke, as opposed to a file that is not there, the
/// text names it, for logs and for the user of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    errno: Errno,
    text: Option<Box<str>>,
}

/// The result of an operation on files.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with this number and nothing to add.
    pub const fn of(errno: Errno) -> Self {
        Self { errno, text: None }
    }

    /// A record that contradicts its checksum, its form or another one.
    pub(crate) fn corrupt(what: &str) -> Self {
        Self { errno: Errno::IO, text: Some(format!("the file system is damaged: {what}").into()) }
    }

    /// The number.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Whether the same may succeed later: the server did not answer, or is busy.
    pub fn may_pass(&self) -> bool {
        matches!(self.errno, Errno::HOSTUNREACH | Errno::BUSY)
    }

    /// What broke; `None` where the number says everything.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The failure as an error of the store, for callers that are no programs reading files.
    pub fn into_error(self, operation: &'static str) -> Error {
        let error = match self.errno {
            // A caller that waits for a silent server has to know that it is so.
            Errno::HOSTUNREACH => {
                let kind = ErrorKind::Unreachable { applied: Applied::Unknown };
                Error::new(kind, operation).caused_by(std::io::Error::from(self.errno))
            }
            errno => Error::from_io(operation, errno.into()),
        };
        match self.text {
            Some(text) => error.because(text),
            None => error,
        }
    }

    /// The form that crosses a network: Linux's number and the text.
    pub(crate) fn to_wire(&self) -> WireFailure {
        WireFailure { errno: self.errno.raw_os_error(), text: self.text.clone() }
    }

    pub(crate) fn from_wire(wire: WireFailure) -> Self {
        // Any other number is none of the kernel's; programs would not know it.
        let is_known = (1..=4095).contains(&wire.errno);
        let errno = if is_known { Errno::from_raw_os_error(wire.errno) } else { Errno::IO };
        Self { errno, text: wire.text }
    }
}

/// See [`Failure::to_wire`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WireFailure {
    errno: i32,
    text: Option<Box<str>>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::of(errno)
    }
}

impl From<Error> for Failure {
    /// What a program sees of an error of the store. That an object or a pair is not there is
    /// damage: the name of the file was found.
    fn from(error: Error) -> Self {
        let cause = error.os_error().map(Errno::from_raw_os_error);
        let exhausted = cause.filter(|errno| is_exhaustion(*errno));
        let errno = match error.kind() {
            ErrorKind::NoSpace => exhausted.unwrap_or(Errno::NOSPC),
            ErrorKind::Busy => Errno::BUSY,
            ErrorKind::Stale => Errno::STALE,
            ErrorKind::Unsupported => Errno::OPNOTSUPP,
            ErrorKind::Denied => Errno::ROFS,
            ErrorKind::Invalid => Errno::INVAL,
            ErrorKind::Unreachable { .. } => Errno::HOSTUNREACH,
            _ => exhausted.unwrap_or(Errno::IO),
        };
        Self { errno, text: Some(error.chain().into()) }
    }
}

/// Whether an error of the operating system says that a resource is used up, or a limit reached. Programs see which, as
/// on a local file system; any other cause is what the error's kind makes of it, since it says something of the tier and
/// not of the file.
pub fn is_exhaustion(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::NOLCK
            | Errno::DQUOT
            | Errno::FBIG
            | Errno::NOSPC
            | Errno::NAMETOOLONG
    )
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{text} ({})", self.errno),
            None => write!(f, "{}", self.errno),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_told_and_other_causes_are_not() {
        let told = |kind, errno: Errno| {
            let below = Error::from_io("open object", errno.into());
            Failure::from(Error::new(kind, "read").caused_by(below)).errno()
        };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOLCK, Errno::FBIG] {
            assert_eq!(told(ErrorKind::Io, errno), errno);
        }
        assert_eq!(told(ErrorKind::NoSpace, Errno::DQUOT), Errno::DQUOT);
        assert_eq!(told(ErrorKind::Busy, Errno::AGAIN), Errno::BUSY, "it passes");
        assert_eq!(told(ErrorKind::Io, Errno::NOSPC), Errno::NOSPC);
        for errno in [Errno::NOENT, Errno::NODEV, Errno::STALE, Errno::TIMEDOUT] {
            assert_eq!(told(ErrorKind::Io, errno), Errno::IO, "{errno}");
        }
        assert_eq!(told(ErrorKind::Denied, Errno::ROFS), Errno::ROFS);
        let away = ErrorKind::Unreachable { applied: Applied::No };
        assert_eq!(told(away, Errno::MFILE), Errno::HOSTUNREACH, "it passes");
    }

    #[test]
    fn whoever_does_not_answer_is_known_as_such_again() {
        for applied in [Applied::No, Applied::Unknown] {
            let error = Error::new(ErrorKind::Unreachable { applied }, "ask");
            let failure = Failure::from(error);
            assert!(failure.may_pass());
            let kind = failure.into_error("open a file system").kind();
            assert!(matches!(kind, ErrorKind::Unreachable { .. }), "{kind:?}");
        }
        let kind = Failure::from(Errno::NOENT).into_error("look").kind();
        assert_eq!(kind, ErrorKind::NotFound);
    }
}
