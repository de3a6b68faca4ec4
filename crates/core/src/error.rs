// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One error for all crates; its kind says what the caller can do next.

use std::borrow::Cow;
use std::{error, fmt, io};

/// Whether a request that got no answer took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It did not: retrying is safe.
    No,
    /// It may have: look before retrying.
    Unknown,
}

/// What the caller can do about a failure.
///
/// A kind exists only if a caller acts differently on it; all other detail is context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing has this key. Create it or correct the name.
    NotFound,
    /// The key is taken. Choose another, or open it without `Create::New`.
    Exists,
    /// Every allowed tier is full. Free space or allow another tier.
    NoSpace,
    /// Stored bytes or records contradict their checksum or format. Use another copy; do not retry.
    Corrupt,
    /// What the request refers to has changed since. Look again, then retry.
    Stale,
    /// Another process or operation holds it now. Retry later.
    Busy,
    /// This target cannot do it, ever; its `Capability` says so. Do not retry.
    Unsupported,
    /// Permission is missing. Change the permission.
    Denied,
    /// The request itself is wrong. Correct it.
    Invalid,
    /// The target did not answer in time.
    Unreachable {
        /// Whether the request took effect.
        applied: Applied,
    },
    /// The device or the operating system reported an error. The source says which.
    Io,
}

impl ErrorKind {
    /// Every kind, whether applied or not counted once.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::NoSpace,
        ErrorKind::Corrupt,
        ErrorKind::Stale,
        ErrorKind::Busy,
        ErrorKind::Unsupported,
        ErrorKind::Denied,
        ErrorKind::Invalid,
        ErrorKind::Unreachable { applied: Applied::Unknown },
        ErrorKind::Io,
    ];

    /// Its index in [`ErrorKind::ALL`], for counters.
    pub fn number(self) -> usize {
        match self {
            ErrorKind::NotFound => 0,
            ErrorKind::Exists => 1,
            ErrorKind::NoSpace => 2,
            ErrorKind::Corrupt => 3,
            ErrorKind::Stale => 4,
            ErrorKind::Busy => 5,
            ErrorKind::Unsupported => 6,
            ErrorKind::Denied => 7,
            ErrorKind::Invalid => 8,
            ErrorKind::Unreachable { .. } => 9,
            ErrorKind::Io => 10,
        }
    }

    /// The word scripts see, for example `not-found`.
    pub fn word(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not-found",
            ErrorKind::Exists => "exists",
            ErrorKind::NoSpace => "no-space",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Stale => "stale",
            ErrorKind::Busy => "busy",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Denied => "denied",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unreachable { .. } => "unreachable",
            ErrorKind::Io => "io",
        }
    }

    /// The kind with this word, for errors that crossed a socket.
    pub fn from_word(word: &str) -> Option<ErrorKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    fn reason(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not found",
            ErrorKind::Exists => "already exists",
            ErrorKind::NoSpace => "no space left on any allowed tier",
            ErrorKind::Corrupt => "stored data is damaged",
            ErrorKind::Stale => "it has changed meanwhile",
            ErrorKind::Busy => "it is in use",
            ErrorKind::Unsupported => "not supported here",
            ErrorKind::Denied => "permission denied",
            ErrorKind::Invalid => "the request is not valid",
            ErrorKind::Unreachable { applied: Applied::No } => "target did not answer, not applied",
            ErrorKind::Unreachable { applied: Applied::Unknown } => {
                "target did not answer, unknown whether applied"
            }
            ErrorKind::Io => "input/output error",
        }
    }
}

/// A failed operation: what was tried, why it failed, and where.
///
/// Prints as `cannot <verb>: <reason> name=value name=value`; the source is printed with the chain
/// ([`Error::chain`]).
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    /// Replaces the kind's own reason where that says too little.
    reason: Option<String>,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

/// The result of anything in Terrace that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Starts an error: `operation` is a verb phrase that follows "cannot".
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self::about(kind, operation.into())
    }

    /// An error that another process met, from the message that it printed there: prints the same.
    pub fn relayed(kind: ErrorKind, message: &str) -> Self {
        let parts = message.strip_prefix("cannot ").and_then(|rest| rest.split_once(": "));
        let (operation, reason) = parts.unwrap_or(("do what was asked", message));
        Self::about(kind, operation.to_string().into()).because(reason)
    }

    fn about(kind: ErrorKind, operation: Cow<'static, str>) -> Self {
        let inner = Inner { kind, operation, reason: None, context: Vec::new(), source: None };
        Self { inner: Box::new(inner) }
    }

    /// An [`ErrorKind::Invalid`] error with its own reason.
    pub fn invalid(operation: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, operation).because(reason)
    }

    /// Turns an error of the operating system into ours, by its number.
    pub fn from_io(operation: &'static str, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            io::ErrorKind::InvalidInput => ErrorKind::Invalid,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => ErrorKind::Busy,
            _ => ErrorKind::Io,
        };
        Self::new(kind, operation).caused_by(source)
    }

    /// Replaces the reason that the kind gives.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.inner.reason = Some(reason.into());
        self
    }

    /// Adds `name=value` to the message. Outer layers add what inner ones cannot know.
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.inner.context.push((name, value.to_string()));
        self
    }

    /// Names the error underneath.
    pub fn caused_by(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// The error of a change of which another part may have been carried out: callers must not
    /// treat it as not carried out.
    pub fn in_part(self) -> Self {
        if self.kind() != (ErrorKind::Unreachable { applied: Applied::No }) {
            return self;
        }
        Self::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "change an object")
            .because("a part of it may have been changed")
            .caused_by(self)
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The number of the operating system's error underneath, if there is one: the outermost.
    ///
    /// What the caller can do is what the kind says. Programs that know these numbers and no kinds, as those that use a
    /// mounted store, get this one where it says more, for example which resource is used up.
    pub fn os_error(&self) -> Option<i32> {
        let first = error::Error::source(self);
        std::iter::successors(first, |inner| inner.source())
            .find_map(|inner| inner.downcast_ref::<io::Error>()?.raw_os_error())
    }

    /// The message and those of all sources, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = error::Error::source(self);
        while let Some(inner) = source {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            source = inner.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        let reason = inner.reason.as_deref().unwrap_or_else(|| inner.kind.reason());
        write!(f, "cannot {}: {reason}", inner.operation)?;
        inner.context.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

/// What a message shows of a text from outside.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_its_verb_reason_and_context() {
        let error = Error::new(ErrorKind::NoSpace, "write")
            .with("key", "climate/t2m")
            .with("need_bytes", 8);
        let text = "cannot write: no space left on any allowed tier key=climate/t2m need_bytes=8";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_chain_names_every_source_once() {
        let error = Error::from_io("open object", io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.chain().matches("os error 28").count(), 1);
    }

    #[test]
    fn the_number_of_the_operating_system_is_found_below_other_errors() {
        let full = Error::from_io("open object", io::Error::from_raw_os_error(24));
        assert_eq!(full.os_error(), Some(24));
        let outer = Error::new(ErrorKind::Busy, "read").caused_by(full);
        assert_eq!(outer.os_error(), Some(24));
        assert_eq!(Error::new(ErrorKind::NoSpace, "write").os_error(), None);
        let own = Error::from_io("read", io::Error::other("not of the system"));
        assert_eq!(own.os_error(), None);
    }

    #[test]
    fn a_relayed_error_prints_as_it_did() {
        let error = Error::new(ErrorKind::NoSpace, "write").with("key", "a/b: c");
        let relayed = Error::relayed(error.kind(), &error.to_string()).with("more", 1);
        assert_eq!(relayed.to_string(), format!("{error} more=1"));
        let odd = Error::relayed(ErrorKind::Io, "odd").to_string();
        assert_eq!(odd, "cannot do what was asked: odd");
    }

    #[test]
    fn what_was_carried_out_in_part_is_not_told_as_undone() {
        let [undone, unknown] =
            [Applied::No, Applied::Unknown].map(|applied| ErrorKind::Unreachable { applied });
        for (kind, told) in [(undone, unknown), (unknown, unknown), (ErrorKind::Io, ErrorKind::Io)]
        {
            let error = Error::new(kind, "write").with("server", "a").in_part();
            assert_eq!(error.kind(), told);
            assert!(error.chain().contains("server=a"), "{}", error.chain());
        }
    }

    #[test]
    fn a_kind_survives_its_word() {
        for kind in [ErrorKind::NotFound, ErrorKind::Busy, ErrorKind::Io] {
            assert_eq!(ErrorKind::from_word(kind.word()), Some(kind));
        }
    }
}
