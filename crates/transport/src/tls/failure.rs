// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with an encrypted connection, in words that say what to do.

use std::{error, fmt, io};

use rustls::CertificateError;
use terrace_core::{Applied, Error, ErrorKind};

/// The other side speaks without TLS.
#[derive(Debug)]
struct NotEncrypted;

impl fmt::Display for NotEncrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side speaks without TLS")
    }
}

impl error::Error for NotEncrypted {}

pub(super) fn not_encrypted() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, NotEncrypted)
}

/// A connection that can be used no more.
pub(super) fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Why a client has no encrypted connection with a server.
pub(super) fn not_reached(source: io::Error) -> Error {
    let inner = source.get_ref();
    if inner.is_some_and(|inner| inner.is::<NotEncrypted>()) {
        return Error::new(ErrorKind::Denied, "use the server").because(
            "it speaks without TLS; reach it without `tls=`, or let it serve with --tls-cert",
        );
    }
    let reason = match inner.and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => {
            return Error::new(ErrorKind::Denied, "use the server")
                .because(reason_for(wrong))
                .caused_by(source);
        }
        Some(rustls::Error::PeerIncompatible(_) | rustls::Error::AlertReceived(_)) => {
            return Error::new(ErrorKind::Unsupported, "use the server")
                .because("it does not agree to TLS 1.3 as this client speaks it")
                .caused_by(source);
        }
        Some(_) => "the connection was damaged before it was encrypted",
        None => match source.kind() {
            io::ErrorKind::TimedOut => "it does not answer",
            io::ErrorKind::UnexpectedEof => "it closed the connection before it was encrypted",
            _ => "the connection broke before it was encrypted",
        },
    };
    Error::new(ErrorKind::Unreachable { applied: Applied::No }, "reach the server")
        .because(reason)
        .caused_by(source)
}

fn reason_for(wrong: &CertificateError) -> &'static str {
    match wrong {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not one that the file in `tls=` vouches for"
        }
        // The source tells the names.
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name; `tls-name=` says which one to expect"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; do the clocks agree?"
        }
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority; a server needs one with \
             `basicConstraints=CA:FALSE`"
        }
        _ => "its certificate is not accepted",
    }
}
