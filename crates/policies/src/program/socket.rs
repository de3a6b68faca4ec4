// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames to a program and its answers: numbers of 32 and 64 bits, a JSON head, bytes.

use std::cell::Cell;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::Value;
use terrace_core::{Canceller, Error, Result};

use super::reply::Reply;

/// Longest that an answer may take. A store gives up on its policy long before; this ends the
/// thread that waited, and a replay, which has no watchdog.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The same for calls that a caller waits for: to start, with what it imports, and to take a
/// parameter.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// Most bytes of a head, and of what follows it.
const HEAD_BYTES_MAX: u32 = 64 << 20;
const BODY_BYTES_MAX: u64 = 256 << 20;

const PREFIX_BYTES: usize = 16;

/// What a program is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Call {
    Start = 1,
    Observe = 2,
    Plan = 3,
    Message = 4,
    SetParameter = 5,
    Save = 6,
    Restore = 7,
}

impl Call {
    pub(super) fn word(self) -> &'static str {
        match self {
            Call::Start => "start",
            Call::Observe => "observe",
            Call::Plan => "plan",
            Call::Message => "message",
            Call::SetParameter => "set_parameter",
            Call::Save => "save",
            Call::Restore => "restore",
        }
    }

    fn longest(self) -> Duration {
        match self {
            Call::Start | Call::SetParameter => START_TIME_MAX,
            _ => ANSWER_TIME_MAX,
        }
    }

    pub(super) fn operation(self) -> &'static str {
        match self {
            Call::Start => "start the policy",
            Call::Observe | Call::Plan => "ask the policy",
            Call::Message => "answer the message",
            Call::SetParameter => "set the parameter",
            Call::Save => "save the policy's state",
            Call::Restore => "restore the policy's state",
        }
    }
}

/// The way to a program.
#[derive(Debug)]
pub(super) struct Socket {
    stream: UnixStream,
    /// What the stream waits, as it was set last.
    longest: Cell<Duration>,
}

impl Socket {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, longest: Cell::default() }
    }

    /// Makes a call that waits fail as if the process had ended.
    pub(super) fn canceller(&self) -> io::Result<Canceller> {
        let stream = self.stream.try_clone()?;
        Ok(Box::new(move || hang_up(&stream)))
    }

    /// Starts the program, which gets the memory of its news.
    pub(super) fn start(&self, head: &Value, memory: BorrowedFd<'_>) -> Result<Reply> {
        self.call(Call::Start, head, &[], Some(memory))
    }

    /// Sends a call and waits for its answer.
    pub(super) fn ask(&self, call: Call, head: &Value, body: &[u8]) -> Result<Reply> {
        self.call(call, head, body, None)
    }

    fn call(
        &self,
        call: Call,
        head: &Value,
        body: &[u8],
        memory: Option<BorrowedFd<'_>>,
    ) -> Result<Reply> {
        self.exchange(call, head, body, memory).map_err(|error| {
            let told = match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("no answer within {} s", call.longest().as_secs())
                }
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset => "its process ended".into(),
                io::ErrorKind::InvalidData => return invalid(call, &error.to_string()),
                _ => return Error::from_io(call.operation(), error),
            };
            invalid(call, &told)
        })
    }

    fn exchange(
        &self,
        call: Call,
        head: &Value,
        body: &[u8],
        memory: Option<BorrowedFd<'_>>,
    ) -> io::Result<Reply> {
        if self.longest.get() != call.longest() {
            self.stream.set_read_timeout(Some(call.longest()))?;
            self.stream.set_write_timeout(Some(call.longest()))?;
            self.longest.set(call.longest());
        }
        let head = serde_json::to_vec(head)?;
        let mut front = Vec::with_capacity(PREFIX_BYTES + head.len());
        front.extend((call as u32).to_le_bytes());
        front.extend((head.len() as u32).to_le_bytes());
        front.extend((body.len() as u64).to_le_bytes());
        front.extend(head);
        self.send(&mut [IoSlice::new(&front), IoSlice::new(body)], memory)?;
        self.answer()
    }

    /// Sends it all, and a descriptor with the first byte.
    fn send(
        &self,
        mut parts: &mut [IoSlice<'_>],
        memory: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(memory) = &memory {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(memory)));
        }
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match rustix::net::sendmsg(&self.stream, parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(sent) => {
                    IoSlice::advance_slices(&mut parts, sent);
                    control.clear();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn answer(&self) -> io::Result<Reply> {
        let mut stream = &self.stream;
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix)?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| prefix[at + byte]));
        let (status, head_bytes) = (number(0), number(4));
        let body_bytes = u64::from(number(8)) | u64::from(number(12)) << 32;
        if head_bytes > HEAD_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
            let told = format!("an answer of {head_bytes} and {body_bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        let read = |bytes: u64| {
            // Grows with what comes: a peer that announces much and sends little gets little.
            let mut into = Vec::new();
            stream.take(bytes).read_to_end(&mut into)?;
            if (into.len() as u64) < bytes {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            Ok(into)
        };
        let (head, body) = (read(head_bytes.into())?, read(body_bytes)?);
        Ok(Reply { status, head, body })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The process sees it, although a canceller may have the same stream.
        hang_up(&self.stream);
    }
}

fn hang_up(stream: &UnixStream) {
    // It fails where the other side has gone, which is as good.
    let _ = stream.shutdown(Shutdown::Both);
}

fn invalid(call: Call, told: &str) -> Error {
    Error::invalid(call.operation(), told)
}
