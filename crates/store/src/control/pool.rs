// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's connections: each serves one request at a time.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use terrace_core::{Applied, Error, ErrorKind, Result};

use super::call::{Call, Outcome};
use super::frame::{self, DATA_BYTES_MAX};
use super::session::Answer;
use super::socket;
use crate::directory::Directory;

/// Connections of one client; more threads than that wait for each other.
const CONNECTIONS_MAX: usize = 16;

/// Longest body of a reply: a list of a million migrations.
const REPLY_BODY_BYTES_MAX: u64 = 1 << 30;

/// Longest wait for the first reply of an owner.
const HELLO_TIME_MAX: Duration = Duration::from_secs(2);

/// A connection to the owner.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    next_id: u64,
}

impl Connection {
    /// Connects and introduces itself; returns the owner's answer too.
    pub(super) fn open(directory: &Directory, hello: &Call) -> Result<(Self, Answer)> {
        let stream = socket::connect(directory).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                unreachable(Applied::No).caused_by(error)
            }
            _ => Error::from_io("reach the owner of the store", error)
                .with("socket", directory.socket().display()),
        })?;
        let limit = |time| {
            stream.set_read_timeout(time).map_err(|error| unreachable(Applied::No).caused_by(error))
        };
        limit(Some(HELLO_TIME_MAX))?;
        let stream_too = stream.try_clone().map_err(|e| unreachable(Applied::No).caused_by(e))?;
        let mut connection = Self { stream: BufReader::new(stream_too), next_id: 1 };
        let answer = connection.exchange(hello, &[], &mut |_, _| {})??;
        // A device may take as long as it likes.
        limit(None)?;
        Ok((connection, answer))
    }

    /// Sends a request and waits for its answer. The outer error means that the connection is of
    /// no more use, the inner one is the owner's.
    pub(super) fn exchange(
        &mut self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Result<Answer>> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        if body_bytes > DATA_BYTES_MAX {
            return Ok(Err(Error::invalid("ask the owner of the store", "it is too much at once")
                .with("bytes", body_bytes)
                .with("bytes_max", DATA_BYTES_MAX)));
        }
        let id = self.next_id;
        self.next_id += 1;
        if let Err(error) = frame::send(self.stream.get_mut(), id, call, parts) {
            if error.kind() == ErrorKind::Invalid {
                // Too long, and nothing was sent.
                return Ok(Err(error));
            }
            // An owner that hangs up may have said why.
            return match self.receive(id, &mut |_, _| {}) {
                Ok(Err(reason)) => Err(reason),
                _ => Err(unreachable(Applied::No).caused_by(error)),
            };
        }
        self.receive(id, progress)
    }

    fn receive(&mut self, id: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Result<Answer>> {
        let lost = || unreachable(Applied::Unknown);
        loop {
            let received = frame::receive::<Outcome>(&mut self.stream, REPLY_BODY_BYTES_MAX);
            let received = received.map_err(|error| lost().caused_by(error))?;
            let (head, mut json) = received.ok_or_else(lost)?;
            match head.content {
                // About the connection, not about a request: nothing was done.
                Outcome::Error(failure) if head.id == 0 => return Err(failure.into_error()),
                _ if head.id != id => return Err(lost()),
                Outcome::Progress { done, total } => progress(done, total),
                Outcome::Error(failure) => return Ok(Err(failure.into_error())),
                Outcome::Ok { json_bytes } if json_bytes <= json.len() => {
                    let bytes = json.split_off(json_bytes);
                    return Ok(Ok(Answer { json, bytes }));
                }
                Outcome::Ok { .. } => return Err(lost()),
            }
        }
    }

    /// Whether the owner has not hung up while nobody used the connection.
    fn is_alive(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // Nothing is to be read between requests, not even the end.
        let seen = rustix::net::recv(self.stream.get_ref(), &mut [0_u8; 1][..], flags);
        self.stream.buffer().is_empty() && matches!(seen, Err(Errno::AGAIN))
    }
}

/// Connections that are lent to one thread at a time.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Lent or idle.
    open: usize,
}

impl Pool {
    /// Lends a connection, an idle one or a new one.
    pub(super) fn lend(&self, open: impl FnOnce() -> Result<Connection>) -> Result<Lent<'_>> {
        let mut state = self.state();
        loop {
            while let Some(connection) = state.idle.pop() {
                if connection.is_alive() {
                    return Ok(Lent { pool: self, connection: Some(connection) });
                }
                state.open -= 1;
            }
            if state.open < CONNECTIONS_MAX {
                break;
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.open += 1;
        drop(state);
        // Gives the place back if there is no connection to be had.
        let mut lent = Lent { pool: self, connection: None };
        lent.connection = Some(open()?);
        Ok(lent)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that goes back to its pool, unless it broke.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Lent<'_> {
    /// As [`Connection::exchange`], with one kind of error.
    pub(super) fn exchange(
        &mut self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        let connection = self.connection.as_mut().expect("only a broken one is gone, once");
        let exchanged = connection.exchange(call, parts, progress);
        exchanged.unwrap_or_else(|error| {
            self.connection = None;
            Err(error)
        })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        match self.connection.take() {
            Some(connection) => state.idle.push(connection),
            None => state.open -= 1,
        }
        drop(state);
        self.pool.returned.notify_one();
    }
}

/// The owner cannot be reached, or went away.
pub(super) fn unreachable(applied: Applied) -> Error {
    Error::new(ErrorKind::Unreachable { applied }, "reach the owner of the store")
}
