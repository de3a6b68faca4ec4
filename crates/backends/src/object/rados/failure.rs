// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an error of librados means, in words for people.

use std::time::Duration;

use rustix::io::Errno as Number;
use terrace_core::units::format_duration;
use terrace_core::{Error, ErrorKind};

use super::library::Errno;

/// Why an operation on an object, or on the pool, failed. `has_pool` is asked only where the pool may have been
/// deleted, which has the same number as a missing object.
pub(super) fn of(
    operation: &'static str,
    errno: Errno,
    has_pool: impl FnOnce() -> bool,
    deadline: Duration,
) -> Error {
    let number = Number::from_raw_os_error(errno);
    let (kind, reason) = match number {
        Number::NOENT if !has_pool() => {
            (ErrorKind::Io, "the pool was deleted (`ceph osd pool ls`)")
        }
        Number::NOENT => (ErrorKind::NotFound, "there is no such object"),
        // The attribute that tells an object from the next one of its name has another value.
        Number::CANCELED => (ErrorKind::NotFound, "the object was deleted"),
        Number::EXIST => (ErrorKind::Exists, "there is such an object"),
        Number::NOSPC => (ErrorKind::NoSpace, "the cluster or the pool is full"),
        Number::DQUOT => (ErrorKind::NoSpace, "the quota of the pool is reached"),
        Number::PERM | Number::ACCESS => (
            ErrorKind::Denied,
            "the capabilities of the user do not allow this; docs/how-to/rados.md lists them",
        ),
        Number::ROFS => (ErrorKind::Denied, "the pool takes no writes"),
        Number::OPNOTSUPP => (ErrorKind::Unsupported, "the pool cannot do this"),
        Number::FBIG => {
            return Error::new(ErrorKind::NoSpace, operation)
                .because("the OSDs take no object of this size")
                .caused_by(std::io::Error::from(number));
        }
        // A change may have been carried out, or will be. As of a bucket that is `Io`, after which callers expect
        // neither: `Unreachable` is an error of servers, and the stack expects it of no tier.
        Number::TIMEDOUT => {
            let deadline = format_duration(deadline);
            return Error::new(ErrorKind::Io, operation).because(format!(
                "the cluster did not complete the request within {deadline}: an OSD or the monitors do not \
                 answer (`ceph status`)"
            ));
        }
        Number::SHUTDOWN => (
            ErrorKind::Io,
            "the cluster has blocklisted this client (`ceph osd blocklist ls`); open the store again",
        ),
        _ => return Error::from_io(operation, number.into()),
    };
    Error::new(kind, operation).because(reason)
}

/// Why the cluster cannot be connected to.
pub(super) fn of_connecting(operation: &'static str, errno: Errno, deadline: Duration) -> Error {
    let number = Number::from_raw_os_error(errno);
    let (kind, reason) = match number {
        Number::TIMEDOUT => {
            let deadline = format_duration(deadline);
            return Error::new(ErrorKind::Io, operation)
                .because(format!("no monitor of the cluster answers within {deadline}"));
        }
        Number::NOENT => (
            ErrorKind::Denied,
            "no key of the user was found: set `keyring`, or put it where the configuration of Ceph expects it",
        ),
        Number::PERM | Number::ACCESS => {
            (ErrorKind::Denied, "the monitors refuse the key of the user, or do not know the user")
        }
        Number::OPNOTSUPP => (
            ErrorKind::Denied,
            "the monitors and this client have no method of authentication in common: is there a key?",
        ),
        Number::INVAL => (
            ErrorKind::Invalid,
            "the configuration of Ceph names no monitors, or its keyring cannot be read",
        ),
        _ => return Error::from_io(operation, number.into()),
    };
    Error::new(kind, operation).because(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    #[test]
    fn an_error_becomes_advice() {
        for (errno, kind, words) in [
            (Number::TIMEDOUT, ErrorKind::Io, "within 5s"),
            (Number::PERM, ErrorKind::Denied, "docs/how-to/rados.md"),
            (Number::DQUOT, ErrorKind::NoSpace, "quota"),
            (Number::SHUTDOWN, ErrorKind::Io, "blocklisted"),
            (Number::CANCELED, ErrorKind::NotFound, "deleted"),
        ] {
            let error = of("write", errno.raw_os_error(), || true, DEADLINE);
            assert_eq!(error.kind(), kind);
            assert!(error.chain().contains(words), "{}", error.chain());
        }
    }

    #[test]
    fn an_object_of_a_deleted_pool_is_not_missing() {
        let missing = |has_pool| of("read", Number::NOENT.raw_os_error(), || has_pool, DEADLINE);
        assert_eq!(missing(true).kind(), ErrorKind::NotFound);
        assert_eq!(missing(false).kind(), ErrorKind::Io);
        assert!(missing(false).chain().contains("the pool was deleted"));
    }

    #[test]
    fn a_connection_that_fails_says_why() {
        for (errno, kind, words) in [
            (Number::TIMEDOUT, ErrorKind::Io, "no monitor of the cluster answers within 5s"),
            (Number::ACCESS, ErrorKind::Denied, "refuse the key"),
            (Number::NOENT, ErrorKind::Denied, "set `keyring`"),
        ] {
            let error = of_connecting("open a pool", errno.raw_os_error(), DEADLINE);
            assert_eq!(error.kind(), kind);
            assert!(error.chain().contains(words), "{}", error.chain());
        }
    }
}
