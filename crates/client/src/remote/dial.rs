// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a server is reached.

use std::fmt;
use std::io::{self, IoSlice, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrace_core::{Clock, Error, Result};
use terrace_transport::{ClientTls, Endpoint, Transport, connect};

use super::silence::Silence;

/// Makes connections to one server.
pub trait Dial: Send + Sync {
    /// A new connection.
    ///
    /// # Errors
    ///
    /// `Unreachable` with `Applied::No` where the server does not answer within `timeout`; `Denied`.
    fn dial(&self, timeout: Duration) -> Result<Arc<dyn Transport>>;

    /// The server's address, for messages.
    fn target(&self) -> String;
}

/// A server behind a socket.
#[derive(Clone, Debug)]
pub struct Address {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Measures the time for connecting.
    pub clock: Arc<dyn Clock>,
}

impl Dial for Address {
    fn dial(&self, timeout: Duration) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(connect(&self.endpoint, timeout, &*self.clock)?))
    }

    fn target(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(path) => format!("terrace+unix://{}", path.display()),
            tcp => format!("terrace://{tcp}"),
        }
    }
}

/// A server that is reached over TLS.
#[derive(Clone, Debug)]
pub struct TlsAddress {
    /// Where it listens.
    pub address: Address,
    /// Which server is trusted.
    pub tls: ClientTls,
}

impl Dial for TlsAddress {
    fn dial(&self, timeout: Duration) -> Result<Arc<dyn Transport>> {
        let Address { endpoint, clock } = &self.address;
        let Endpoint::Tcp { host, .. } = endpoint else {
            return Err(Error::invalid("reach the server", "a Unix socket needs no encryption")
                .with("server", endpoint));
        };
        let begun_ns = clock.now_ns();
        let socket = connect(endpoint, timeout, &**clock)?;
        let spent = Duration::from_nanos(clock.now_ns().saturating_sub(begun_ns));
        let connected = self.tls.connect(socket, host, timeout.saturating_sub(spent), &**clock);
        Ok(Arc::new(connected.map_err(|error| error.with("server", endpoint))?))
    }

    fn target(&self) -> String {
        self.address.target()
    }
}

/// How often a reader that waits looks at its deadline.
const TICK: Duration = Duration::from_millis(50);

/// A connection that is read up to a deadline, which the reading thread sets.
#[derive(Clone)]
pub(crate) struct Timed {
    pub(crate) transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    deadline_ns: Arc<AtomicU64>,
    pub(super) silence: Arc<Silence>,
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transport.fmt(f)
    }
}

impl Timed {
    /// # Errors
    ///
    /// Those of the transport.
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        write_timeout: Duration,
        silence: Arc<Silence>,
    ) -> io::Result<Self> {
        transport.set_read_timeout(Some(TICK))?;
        transport.set_write_timeout(Some(write_timeout.max(TICK)))?;
        silence.watch(Arc::downgrade(&transport));
        Ok(Self { transport, clock, deadline_ns: Arc::default(), silence })
    }

    /// Reading fails from then on.
    pub(crate) fn set_deadline(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    /// Ends the connection after sending failed. Where the other side has closed it, what it sent
    /// before that can be read still; else nothing comes any more.
    pub(crate) fn end_sending(&self, error: &Error) {
        let source = std::error::Error::source(error);
        let source = source.and_then(|source| source.downcast_ref::<io::Error>());
        let is_closed = source.is_some_and(|source| {
            matches!(source.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        });
        if !is_closed {
            self.transport.shutdown(Shutdown::Both);
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.transport.read(buffer) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    if self.clock.now_ns() >= self.deadline_ns.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                }
                Ok(count) => {
                    if count > 0 {
                        self.silence.note_heard(|| self.clock.now_ns());
                    }
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes a connection as a stream.
impl io::Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.transport.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
