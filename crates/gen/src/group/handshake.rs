// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first words on a TCP connection: both sides show that they know the secret, and that they are
//! about to do the same.

use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::line::{Lines, STRANGER_BYTES_MAX, send};
use super::message::{ToCoordinator, ToWorker};
use super::secret::{Secret, Side, nonce};
use crate::arguments::Pattern;
use crate::error::{Error, Result};

/// How long the other side may take for each line.
const ANSWER_SECONDS_MAX: u64 = 10;

/// One that is gone without a word is noticed after about 30 s.
const KEEPALIVE_IDLE_SECONDS: u64 = 10;
const KEEPALIVE_INTERVAL_SECONDS: u64 = 5;
const KEEPALIVE_TRIES: u32 = 4;

/// Where workers join.
pub(crate) struct Door {
    pub(crate) secret: Secret,
    pub(crate) phase: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) processes: u64,
    /// Ranks that are taken.
    pub(crate) taken: Mutex<Vec<u64>>,
}

impl Door {
    /// Whether a rank was free; it is not any more.
    fn take(&self, rank: u64) -> bool {
        // A vector that only grows is whole at any time.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !taken.contains(&rank);
        if is_free {
            taken.push(rank);
        }
        is_free
    }
}

/// The coordinator's side: which process has joined. One that is refused gets the reason.
pub(crate) fn receive(stream: TcpStream, door: &Door) -> Result<(u64, TcpStream)> {
    prepare(&stream)?;
    let ours = nonce()?;
    let mut writer = stream.try_clone().map_err(|error| Error::system("join", error))?;
    send(&mut writer, &ToWorker::Hello { nonce: ours.clone() })?;
    let mut lines = Lines::new(stream, STRANGER_BYTES_MAX);
    let Some(ToCoordinator::Join { rank, nonce: theirs, proof, phase, pattern }) = lines.next()?
    else {
        return Err(Error::new("join", "it is not a worker of this program"));
    };
    let mut refuse = |reason: &str| {
        // It may not be there any more; that it was refused is reported here in any case.
        let _ = send(&mut writer, &ToWorker::Refused { reason: reason.to_owned() });
        Err(Error::new("join", reason.to_owned()).with("rank", rank))
    };
    let words = words(&ours, &theirs, rank);
    let words = words.each_ref().map(String::as_str);
    if !door.secret.is_proof(Side::Worker, &words, &proof) {
        return refuse("the secret is not that of the coordinator");
    }
    if phase != door.phase || pattern != door.pattern {
        return refuse("the phase or its pattern is not that of the coordinator");
    }
    if rank >= door.processes {
        return refuse("the rank is not below the number of processes");
    }
    if !door.take(rank) {
        return refuse("another worker has the rank");
    }
    let proof = door.secret.proof(Side::Coordinator, &words);
    send(&mut writer, &ToWorker::Welcome { processes: door.processes, proof })?;
    let stream = lines.into_stream()?;
    stream.set_read_timeout(None).map_err(|error| Error::system("join", error))?;
    Ok((rank, stream))
}

/// The worker's side: joins, and gives back the number of processes.
pub(crate) fn offer(
    stream: TcpStream,
    secret: &Secret,
    phase: &str,
    pattern: &Pattern,
    rank: u64,
) -> Result<(u64, TcpStream)> {
    prepare(&stream)?;
    let mut writer = stream.try_clone().map_err(|error| Error::system("join", error))?;
    let mut lines = Lines::new(stream, STRANGER_BYTES_MAX);
    let Some(ToWorker::Hello { nonce: theirs }) = lines.next()? else {
        return Err(Error::new("join", "that is not a coordinator of this program"));
    };
    let ours = nonce()?;
    let words = words(&theirs, &ours, rank);
    let words = words.each_ref().map(String::as_str);
    let join = ToCoordinator::Join {
        rank,
        nonce: ours.clone(),
        proof: secret.proof(Side::Worker, &words),
        phase: phase.to_owned(),
        pattern: pattern.clone(),
    };
    send(&mut writer, &join)?;
    match lines.next()? {
        Some(ToWorker::Welcome { processes, proof }) => {
            if !secret.is_proof(Side::Coordinator, &words, &proof) {
                return Err(Error::new("join", "the coordinator does not know the secret"));
            }
            let stream = lines.into_stream()?;
            stream.set_read_timeout(None).map_err(|error| Error::system("join", error))?;
            Ok((processes, stream))
        }
        Some(ToWorker::Refused { reason } | ToWorker::Abort { reason }) => {
            Err(Error::new("join", reason).with("rank", rank))
        }
        _ => Err(Error::new("join", "the coordinator did not answer").with("rank", rank)),
    }
}

/// What both sides sign.
fn words(coordinator: &str, worker: &str, rank: u64) -> [String; 3] {
    [coordinator.to_owned(), worker.to_owned(), rank.to_string()]
}

fn prepare(stream: &TcpStream) -> Result<()> {
    use rustix::net::sockopt;
    let set = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))?;
        stream.set_write_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(KEEPALIVE_IDLE_SECONDS))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(KEEPALIVE_INTERVAL_SECONDS))?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES)?;
        std::io::Result::Ok(())
    };
    set().map_err(|error| Error::system("join", error))
}
