// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls return, and the text of the last failure.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace::{Error, ErrorKind, Result};

/// What a call returned: what the caller can do about a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum terrace_status {
    /// It was done.
    TERRACE_OK = 0,
    /// Nothing has this name. Create it or correct the name.
    TERRACE_NOT_FOUND = 1,
    /// The name is taken. Choose another one.
    TERRACE_EXISTS = 2,
    /// Every allowed tier is full. Free space or allow another tier.
    TERRACE_NO_SPACE = 3,
    /// Stored bytes contradict their checksum or format. Use another copy; do not retry.
    TERRACE_CORRUPT = 4,
    /// What the request refers to has changed since. Look again, then retry.
    TERRACE_STALE = 5,
    /// Another process or operation holds it now. Retry later.
    TERRACE_BUSY = 6,
    /// This target cannot do it, ever. Do not retry.
    TERRACE_UNSUPPORTED = 7,
    /// Permission is missing. Change the permission.
    TERRACE_DENIED = 8,
    /// The request itself is wrong, a NULL for example. Correct it.
    TERRACE_INVALID = 9,
    /// The target did not answer in time; it may have carried the request out. Look before retrying.
    TERRACE_UNREACHABLE = 10,
    /// The target did not answer, and did not carry the request out. Retrying is safe.
    TERRACE_NOT_APPLIED = 11,
    /// The device or the operating system reported an error.
    TERRACE_IO = 12,
    /// A fault of the library. What it was working on may be in any state that a crash leaves.
    TERRACE_INTERNAL = 13,
}

use terrace_status as Status;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Carries a call out; keeps the text of its failure for `terrace_error`.
pub(crate) fn call(work: impl FnOnce() -> Result<()>) -> Status {
    match caught(work) {
        Ok(()) => Status::TERRACE_OK,
        Err(failure) => failure.remember(),
    }
}

/// What a call failed with.
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    /// Keeps the text for `terrace_error`; returns the status.
    pub(crate) fn remember(&self) -> Status {
        remember(&self.text);
        self.status
    }
}

/// Carries a call out, of which a panic is a failure.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => {
            outcome.map_err(|error| Failure { status: status(&error), text: error.chain() })
        }
        Err(_) => Err(Failure {
            status: Status::TERRACE_INTERNAL,
            text: "a fault of libterrace; standard error has its place".into(),
        }),
    }
}

pub(crate) fn remember(text: &str) {
    LAST.set(c_text(text));
}

/// A text for C.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// The status of an error.
pub(crate) fn status(error: &Error) -> Status {
    match error.kind() {
        ErrorKind::NotFound => Status::TERRACE_NOT_FOUND,
        ErrorKind::Exists => Status::TERRACE_EXISTS,
        ErrorKind::NoSpace => Status::TERRACE_NO_SPACE,
        ErrorKind::Corrupt => Status::TERRACE_CORRUPT,
        ErrorKind::Stale => Status::TERRACE_STALE,
        ErrorKind::Busy => Status::TERRACE_BUSY,
        ErrorKind::Unsupported => Status::TERRACE_UNSUPPORTED,
        ErrorKind::Denied => Status::TERRACE_DENIED,
        ErrorKind::Invalid => Status::TERRACE_INVALID,
        ErrorKind::Unreachable { applied } if format!("{applied:?}") == "No" => {
            Status::TERRACE_NOT_APPLIED
        }
        ErrorKind::Unreachable { .. } => Status::TERRACE_UNREACHABLE,
        _ => Status::TERRACE_IO,
    }
}

/// The text of the last failure of a call of this thread: one line in English. It is valid until the next call of this
/// thread; empty where none has failed yet.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// The version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
