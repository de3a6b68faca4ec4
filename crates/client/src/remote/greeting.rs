// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new connection up to the server's welcome.

use std::io::Write;

use terrace_core::{Applied, Error, ErrorKind, Result};
use terrace_transport::random_bytes;
use terrace_wire::{
    Challenge, Failure, FrameReader, HEAD_BYTES_MAX, Hello, Kind, NONCE_BYTES, Next, PROOF_BYTES,
    Proof, Side, Transcript, VERSION, VERSION_MIN, Welcome, send, small_frame,
};

use super::dial::Timed;
use super::options::Options;

/// Greets a server until `deadline_ns`; what it says, and the version that both speak.
///
/// # Errors
///
/// `Denied` where either side does not know the secret, `Unsupported` (no common version), `Busy`,
/// `Unreachable` with `Applied::No`.
pub(super) fn greet(
    reader: &mut FrameReader<Timed>,
    options: &Options,
    session: u64,
) -> Result<(Welcome, u16)> {
    let mut nonce = [0; NONCE_BYTES];
    random_bytes(&mut nonce)?;
    let hello = Hello { version_min: VERSION_MIN, version_max: VERSION, nonce };
    say(reader, Kind::Hello, &hello.to_head())?;
    let challenge = Challenge::from_head(&hear(reader, Kind::Challenge)?)?;
    if !(VERSION_MIN..=VERSION).contains(&challenge.version) {
        return Err(Error::new(ErrorKind::Unsupported, "use the server")
            .because("it speaks another version of the protocol")
            .with("server", challenge.version)
            .with("client", format!("{VERSION_MIN}..{VERSION}")));
    }
    let transport = &reader.stream().transport;
    let channel = transport.channel();
    let transcript = Transcript { hello: &hello, challenge: &challenge, channel: &channel };
    let secret = options.secret.as_ref().filter(|_| !transport.passes_descriptors());
    let denied = |reason| Err(Error::new(ErrorKind::Denied, "use the server").because(reason));
    let proof = match secret {
        Some(secret) if challenge.needs_proof => secret.prove(Side::Client, transcript),
        Some(_) => return denied("it asks for no secret, so that it could be anybody's"),
        None if challenge.needs_proof => return denied("it asks for a secret, and none is given"),
        None => [0; PROOF_BYTES],
    };
    let proof = Proof { proof, session, access: options.access };
    say(reader, Kind::Proof, &proof.to_head())?;
    let welcome = Welcome::from_head(&hear(reader, Kind::Welcome)?)?;
    match secret {
        Some(secret) if !secret.verify(Side::Server, transcript, &welcome.proof) => {
            denied("it does not know the secret")
        }
        _ => Ok((welcome, challenge.version)),
    }
}

fn say(reader: &FrameReader<Timed>, kind: Kind, head: &[u8]) -> Result<()> {
    let mut stream = reader.stream().clone();
    let sent = send(&mut stream, &small_frame(kind, 0, head), &[]);
    sent.and_then(|()| stream.flush().map_err(|error| Error::from_io("greet the server", error)))
        .map_err(nothing_done)
}

fn hear(reader: &mut FrameReader<Timed>, kind: Kind) -> Result<Vec<u8>> {
    match reader.next(HEAD_BYTES_MAX).map_err(nothing_done)? {
        Next::Frame(start) if start.header.payload_bytes > 0 => Err(unexpected()),
        Next::Frame(start) if start.header.kind == kind => Ok(start.head),
        Next::Frame(start) if start.header.kind == Kind::Failed => {
            Err(Failure::from_head(&start.head)?.into_error())
        }
        Next::Frame(start) if start.header.kind == Kind::Farewell => {
            Err(silent("it is about to end"))
        }
        Next::Frame(_) => Err(unexpected()),
        Next::Idle => Err(silent("it does not answer")),
        Next::End => Err(silent("it closed the connection")),
    }
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "greet the server")
        .because("it says something else than expected")
}

fn silent(reason: &str) -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::No }, "reach the server").because(reason)
}

/// Before the welcome nothing was asked for.
fn nothing_done(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unreachable { .. } => {
            // The error itself would say that something may have been applied.
            let source = std::error::Error::source(&error);
            let source = source.map_or_else(String::new, |source| format!(": {source}"));
            silent(&format!("the connection broke{source}"))
        }
        _ => error,
    }
}
