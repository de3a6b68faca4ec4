// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections between clients and servers: addresses, sockets, secrets, encryption. Nothing here
//! knows the protocol that runs over them.

mod contest;
mod endpoint;
mod private;
mod secret;
mod socket;
mod spin;
mod tls;
mod tuning;
mod unix;

pub use endpoint::{Endpoint, PORT_DEFAULT};
pub use secret::{default_secret_file, make_secret_file, random_bytes, read_secret_file};
pub use socket::{Listener, Socket, connect};
pub use spin::Spin;
pub use tls::{ClientTls, ServerTls, TlsSocket};

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A connection: bytes in both directions, in order, until it breaks.
///
/// # Contract
///
/// - One thread may read while another writes.
/// - `read` returns `WouldBlock` or `TimedOut` when nothing came within the read timeout; the same
///   for `write_vectored`. The connection is as good as before then.
/// - `shutdown` ends both, also those that wait at this moment.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Reads what has come, at least one byte; 0 at the end.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes a part of what is given, at least one byte.
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends one direction or both.
    fn shutdown(&self, how: Shutdown);

    /// Longest time that `read` waits; `None` for ever.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Longest time that `write_vectored` waits; `None` for ever.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Whether something can be read, or the end be seen, within this time.
    fn is_readable(&self, timeout: Duration) -> bool;

    /// Whether the other side has ended the connection, or is gone. Does not wait.
    fn is_ended(&self) -> bool;

    /// What only the two ends of an encrypted connection know; empty where it is not encrypted.
    fn channel(&self) -> Vec<u8>;

    /// Whether descriptors can be passed: both ends are on one machine.
    fn passes_descriptors(&self) -> bool {
        false
    }

    /// Sends bytes and descriptors, which arrive with the first of them.
    fn send_descriptors(&self, _: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Descriptors that came with the bytes that were read so far, oldest first.
    fn take_descriptors(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// The other side, for logs.
    fn peer(&self) -> String;
}

/// Reads a connection as a stream.
#[derive(Clone, Debug)]
pub struct Incoming<T>(pub T);

impl<T: std::ops::Deref<Target: Transport>> Read for Incoming<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Writes a connection as a stream.
#[derive(Clone, Debug)]
pub struct Outgoing<T>(pub T);

impl<T: std::ops::Deref<Target: Transport>> Write for Outgoing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
