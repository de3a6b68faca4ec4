// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an error of a service means, in words for people. Bodies of answers are not repeated: they may hold
//! more than people should see.

use std::error::Error as _;

use terrace_core::{Error, ErrorKind};

use crate::object::service::failure::cut;

/// Why a request failed.
pub(super) fn of(operation: &'static str, error: &opendal::Error) -> Error {
    if let Some(status) = status(error) {
        let (kind, reason) = of_status(status);
        return Error::new(kind, operation).because(reason).with("status", status);
    }
    match error.kind() {
        opendal::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, operation).because("there is no such object")
        }
        opendal::ErrorKind::PermissionDenied => Error::new(ErrorKind::Denied, operation)
            .because("the service refuses the credentials for this"),
        _ => Error::new(ErrorKind::Io, operation).because(format!(
            "the service cannot be reached or does not answer as expected: {}",
            cut(&cause(error))
        )),
    }
}

/// Whether it may be different in a moment.
pub(super) fn is_temporary(error: &opendal::Error) -> bool {
    let is_refused = error.kind() == opendal::ErrorKind::PermissionDenied;
    // Too many requests; the crate counts it among those that stay.
    (error.is_temporary() && !is_refused) || status(error) == Some(429)
}

/// Whether the directory of a file is missing that is to be written.
pub(super) fn is_without_directory(error: &opendal::Error) -> bool {
    error.kind() == opendal::ErrorKind::NotFound || matches!(status(error), Some(404 | 409))
}

fn of_status(status: u16) -> (ErrorKind, &'static str) {
    match status {
        300..=399 => {
            (ErrorKind::Invalid, "the server is at another address; check `endpoint` and `root`")
        }
        401 => (
            ErrorKind::Denied,
            "the server refuses the user and the password, or the token; check the file \
             `credentials`",
        ),
        403 => (
            ErrorKind::Denied,
            "the user may not do this; docs/how-to/opendal.md lists the permissions",
        ),
        404 | 410 => (ErrorKind::NotFound, "there is no such object"),
        405 | 501 => (
            ErrorKind::Io,
            "the server does not take this request: it speaks no WebDAV there, or only reads; check \
             `endpoint`",
        ),
        407 => (ErrorKind::Denied, "the proxy on the way wants credentials"),
        409 => {
            (ErrorKind::Io, "a directory above the object is missing, or a file is in its place")
        }
        413 => (ErrorKind::NoSpace, "the server takes no object of this size"),
        423 => (ErrorKind::Io, "another client of the server has locked the object"),
        507 => (ErrorKind::NoSpace, "the server has no room left, or the quota is used up"),
        408 | 429 | 500 | 502..=504 => {
            (ErrorKind::Io, "the server is overloaded or broken; retries did not help")
        }
        _ => (ErrorKind::Io, "the server refuses the request"),
    }
}

/// The status of the answer that the error is from.
fn status(error: &opendal::Error) -> Option<u16> {
    // It is only in the text, as the head of the answer.
    let text = error.to_string();
    let (_, rest) = text.split_once("response: Parts { status: ")?;
    rest.get(..3)?.parse().ok()
}

/// What went wrong, and the last cause of it.
fn cause(error: &opendal::Error) -> String {
    let mut last = error.source();
    while let Some(next) = last.and_then(|error| error.source()) {
        last = Some(next);
    }
    match last {
        Some(last) => format!("{}: {last}", error.message()),
        None => error.message().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16) -> opendal::Error {
        let head = format!("Parts {{ status: {status}, version: HTTP/1.1, headers: {{}} }}");
        opendal::Error::new(opendal::ErrorKind::Unexpected, "<html>secret</html>")
            .with_context("uri", "http://host/x")
            .with_context("response", head)
    }

    #[test]
    fn a_status_becomes_advice_and_no_body_is_repeated() {
        for (status, kind, words) in [
            (401, ErrorKind::Denied, "`credentials`"),
            (403, ErrorKind::Denied, "permissions"),
            (301, ErrorKind::Invalid, "`endpoint`"),
            (405, ErrorKind::Io, "no WebDAV"),
            (507, ErrorKind::NoSpace, "no room"),
            (418, ErrorKind::Io, "refuses the request"),
        ] {
            let failed = of("read", &answered(status));
            let text = failed.chain();
            assert_eq!(failed.kind(), kind, "{text}");
            assert!(text.contains(words) && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn what_is_repeated_may_be_different_in_a_moment() {
        assert!(is_temporary(&answered(429)));
        assert!(is_temporary(&answered(503).set_temporary()));
        assert!(!is_temporary(&answered(401)));
        let refused = opendal::Error::new(opendal::ErrorKind::PermissionDenied, "no");
        assert!(!is_temporary(&refused.set_temporary()));
    }
}
