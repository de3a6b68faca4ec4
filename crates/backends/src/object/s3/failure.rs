// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an answer of the service means, in words for people. Bodies of answers are not repeated: they
//! may hold the id of a key.

use std::io;

use rustix::io::Errno;
use terrace_core::{Error, ErrorKind};

use crate::object::service::failure::cut;

/// What precedes the status in the text of an error.
pub(super) const STATUS: &str = "Server returned non-2xx status code: ";

/// Paths of a machine's metadata service.
const METADATA_PATHS: [&str; 2] = ["/latest/api/token", "/latest/meta-data/"];

/// Why a request failed.
pub(super) fn of(operation: &'static str, error: &object_store::Error) -> Error {
    describe(operation, error, ErrorKind::Io)
}

/// The same for a request that concerns one object or directory of a bucket of others: `Unsupported` where the
/// service refuses it for good, and the reason is not one of those that concern the whole bucket.
pub(super) fn of_one(operation: &'static str, error: &object_store::Error) -> Error {
    let is_final = matches!(status(&error.to_string()), Some(400..=407 | 409..=428 | 430..=499));
    describe(operation, error, if is_final { ErrorKind::Unsupported } else { ErrorKind::Io })
}

/// An error of the service; `refused` is the kind of one that [`of_code`] does not know.
fn describe(operation: &'static str, error: &object_store::Error, refused: ErrorKind) -> Error {
    let text = error.to_string();
    let code = between(&text, "<Code>", "</Code>");
    let (kind, reason) = match (code, error) {
        (Some(code), _) => of_code(code, refused),
        (None, object_store::Error::NotFound { .. }) => {
            (ErrorKind::NotFound, "there is no such object".into())
        }
        (
            None,
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. },
        ) => (
            ErrorKind::Denied,
            "the service refuses the credentials for this, or the object is missing and they may not list the \
             bucket (s3:ListBucket)"
                .into(),
        ),
        // Where no other credentials are found, the machine's metadata service is asked for some.
        _ if METADATA_PATHS.into_iter().any(|path| text.contains(path)) => (
            ErrorKind::Denied,
            "no credentials were found: neither in the environment nor in a file, and the metadata \
             service of the machine gives none"
                .into(),
        ),
        // An answer without a code: to a HEAD, or from a server that is no object store; or no answer at all.
        _ => (
            refused,
            format!("the service cannot be reached or does not answer as expected: {}", cut(&text)),
        ),
    };
    let mut failed = Error::new(kind, operation).because(reason);
    if let Some(code) = code {
        failed = failed.with("code", code);
    }
    if let Some(message) = between(&text, "<Message>", "</Message>").filter(|_| code.is_some()) {
        failed = failed.with("message", format!("{:?}", cut(message)));
    }
    match code.and_then(errno_of_code) {
        Some(errno) => failed.caused_by(io::Error::from(errno)),
        None => failed,
    }
}

/// The error number of a code, where it is more exact than that of the kind.
fn errno_of_code(code: &str) -> Option<Errno> {
    match code {
        "InvalidObjectState" => Some(Errno::NODATA),
        "KeyTooLongError" => Some(Errno::NAMETOOLONG),
        _ => None,
    }
}

/// The status of the answer that an error is from.
fn status(text: &str) -> Option<u16> {
    // The type that has it is private to the crate.
    let (_, rest) = text.split_once(STATUS)?;
    rest.get(..3)?.parse().ok()
}

/// Why a read of an object in a certain state failed.
pub(super) fn of_changed(operation: &'static str, error: &object_store::Error) -> Error {
    let text = error.to_string();
    let code = between(&text, "<Code>", "</Code>");
    // One that is shorter now has no such range.
    let is_changed = matches!(code, Some("InvalidRange" | "PreconditionFailed"))
        || matches!(error, object_store::Error::Precondition { .. });
    if is_changed { changed(operation) } else { of_one(operation, error) }
}

/// The error of a read of an object that is in another state now.
pub(super) fn changed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Stale, operation)
        .because("the object has been changed since it was looked at")
}

/// Why a listing failed. It is never `NotFound`: callers would take that for a listing without names.
pub(super) fn of_listing(operation: &'static str, error: &object_store::Error) -> Error {
    let failed = of_one(operation, error);
    if failed.kind() != ErrorKind::NotFound {
        return failed;
    }
    Error::new(ErrorKind::Io, operation)
        .because("the service answers a listing as if it were a missing object")
        .caused_by(failed)
}

/// Whether the object of a request is missing, and not its bucket.
pub(super) fn is_missing(error: &object_store::Error) -> bool {
    let text = error.to_string();
    let is_of_bucket = between(&text, "<Code>", "</Code>") == Some("NoSuchBucket");
    matches!(error, object_store::Error::NotFound { .. }) && !is_of_bucket
}

fn of_code(code: &str, refused: ErrorKind) -> (ErrorKind, String) {
    let (kind, reason) = match code {
        "NoSuchKey" | "NoSuchUpload" => (ErrorKind::NotFound, "there is no such object"),
        "NoSuchBucket" => (ErrorKind::Io, "there is no such bucket at this endpoint"),
        "InvalidAccessKeyId" => {
            (ErrorKind::Denied, "the service does not know the access key; check the credentials")
        }
        "SignatureDoesNotMatch" => (
            ErrorKind::Denied,
            "the secret key is wrong, or a proxy changed the request; check the credentials",
        ),
        "RequestTimeTooSkewed" | "RequestExpired" => (
            ErrorKind::Denied,
            "the clock of this machine is too far from the service's; set it (NTP) and try again",
        ),
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (ErrorKind::Denied, "the session token has expired; get new credentials")
        }
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => (
            ErrorKind::Denied,
            "the credentials may not do this, or the object is missing and they may not list the bucket \
             (s3:ListBucket); docs/how-to/s3.md lists the permissions for a tier, cache-a-bucket.md those for a source",
        ),
        "InvalidObjectState" => {
            (refused, "the object is archived: restore it, or copy it to another storage class")
        }
        "KeyTooLongError" => (refused, "the service takes no name of this length"),
        "PermanentRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "TemporaryRedirect" => {
            (ErrorKind::Invalid, "the bucket is in another region; check `region` and `endpoint`")
        }
        "InvalidBucketName" => (ErrorKind::Invalid, "this is no name of a bucket"),
        "EntityTooLarge" => (ErrorKind::NoSpace, "the service takes no object of this size"),
        "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull" => {
            (ErrorKind::NoSpace, "the service has no room left")
        }
        "BadDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
            (ErrorKind::Corrupt, "the bytes that arrived fail their checksum")
        }
        "SlowDown" | "ServiceUnavailable" | "InternalError" | "RequestTimeout" | "Throttling" => {
            (ErrorKind::Io, "the service is overloaded or broken; retries did not help")
        }
        _ => (refused, "the service refuses the request"),
    };
    (kind, reason.into())
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    let (inside, _) = rest.split_once(close)?;
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_advice_and_repeats_no_key() {
        let body = "<Error><Code>InvalidAccessKeyId</Code><Message>No such key</Message>\
                    <AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>";
        let error = object_store::Error::PermissionDenied { path: "p".into(), source: body.into() };
        let failed = of("read", &error);
        assert_eq!(failed.kind(), ErrorKind::Denied);
        let text = failed.chain();
        assert!(text.contains("does not know the access key"), "{text}");
        assert!(text.contains("No such key") && !text.contains("AKIASECRET"), "{text}");
    }

    #[test]
    fn what_concerns_one_object_is_told_from_the_rest() {
        let answered = |status: &str, body: &str| {
            let source = format!("Error performing GET - {STATUS}{status}: {body}").into();
            of_one("read", &object_store::Error::Generic { store: "S3", source })
        };
        let coded = |status: &str, code: &str| answered(status, &format!("<Code>{code}</Code>"));
        let archived = coded("403 Forbidden", "InvalidObjectState");
        assert_eq!(archived.kind(), ErrorKind::Unsupported);
        assert_eq!(archived.os_error(), Some(Errno::NODATA.raw_os_error()));
        assert!(archived.chain().contains("restore it"), "{}", archived.chain());
        let long = coded("400 Bad Request", "KeyTooLongError");
        assert_eq!(long.os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
        for (failed, kind) in [
            (coded("400 Bad Request", "InvalidRequest"), ErrorKind::Unsupported),
            (answered("400 Bad Request", ""), ErrorKind::Unsupported),
            (coded("400 Bad Request", "RequestTimeout"), ErrorKind::Io),
            (coded("404 Not Found", "NoSuchBucket"), ErrorKind::Io),
            (coded("429 Too Many Requests", "Odd"), ErrorKind::Io),
            (coded("503 Service Unavailable", "Odd"), ErrorKind::Io),
            (answered("502 Bad Gateway", ""), ErrorKind::Io),
        ] {
            assert_eq!(failed.kind(), kind, "{}", failed.chain());
        }
    }

    #[test]
    fn a_bucket_that_vanished_is_no_missing_object() {
        let missing = |code: &str| {
            let source = format!("<Error><Code>{code}</Code></Error>").into();
            object_store::Error::NotFound { path: "p".into(), source }
        };
        assert!(is_missing(&missing("NoSuchKey")));
        assert!(!is_missing(&missing("NoSuchBucket")));
        assert_eq!(of("read", &missing("NoSuchBucket")).kind(), ErrorKind::Io);
    }
}
