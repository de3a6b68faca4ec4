// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens, and answers scrapes on threads of their own.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use terrace_core::{Clock, Error, Result, SystemClock};
use terrace_transport::{Endpoint, Listener, Socket, Transport};

use crate::http::{self, Answer};
use crate::samples::{Samples, Source};

/// Pause after a connection that could not be accepted, mostly for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest time at the end for answers that are being sent.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// Address space for the stack of a connection's thread.
const STACK_BYTES: usize = 256 << 10;

/// Bounds on what peers can make an exporter do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; each is a thread. A further one closes the oldest.
    pub connections_max: usize,
    /// Longest head of a request.
    pub request_bytes_max: usize,
    /// Longest time from the beginning of a connection to the end of its answer.
    pub time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 8, request_bytes_max: 8 << 10, time_max: Duration::from_secs(5) }
    }
}

/// Reads where to listen: `HOST:PORT` or `unix:PATH`.
///
/// # Errors
///
/// `Invalid`, also without a port.
pub fn read_address(text: &str) -> Result<Endpoint> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port && !text.starts_with("unix:") {
        return Err(Error::invalid("read an address", "HOST:PORT is expected, or unix:PATH")
            .with("address", format!("{text:?}")));
    }
    text.parse()
}

/// Answers `GET /metrics` until it is dropped.
pub struct Exporter {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
}

struct Shared {
    sources: Vec<Box<dyn Source>>,
    limits: Limits,
    clock: SystemClock,
    is_over: AtomicBool,
    connections: Mutex<Connections>,
    /// Notified when a thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Connections {
    next: u64,
    /// By number, the oldest first.
    open: BTreeMap<u64, Arc<Socket>>,
    /// Threads, also those whose connection was closed and that have not noticed yet.
    threads: usize,
}

impl Exporter {
    /// Listens and answers from now on.
    ///
    /// # Errors
    ///
    /// `Busy` where another process listens there, `Denied`, `Invalid`, `Io`.
    pub fn start(
        address: &Endpoint,
        sources: Vec<Box<dyn Source>>,
        limits: Limits,
    ) -> Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        let shared = Arc::new(Shared {
            sources,
            limits,
            clock: SystemClock::default(),
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
            ended: Condvar::new(),
        });
        let (accepting, accepted) = (Arc::clone(&shared), Arc::clone(&listener));
        shared.lock().threads += 1;
        let spawned = thread::Builder::new()
            .name("terrace-metrics".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                accepting.accept(&accepted);
                accepting.thread_ends();
            });
        match spawned {
            Ok(_) => Ok(Self { shared, listener }),
            Err(error) => Err(Error::from_io("start a thread", error)),
        }
    }

    /// Where it listens; a port that was to be free is known here.
    pub fn endpoint(&self) -> &Endpoint {
        self.listener.endpoint()
    }

    /// The URL of the metrics, or the path of the socket.
    pub fn url(&self) -> String {
        match self.endpoint() {
            Endpoint::Unix(_) => self.endpoint().to_string(),
            tcp => format!("http://{tcp}/metrics"),
        }
    }
}

impl Drop for Exporter {
    /// Waits for scrapes that run, which read what is about to be closed. Peers that send no request, or do not read
    /// the answer, are given up.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.listener.close();
        let mut connections = self.shared.lock();
        connections.open.values().for_each(|socket| socket.shutdown(Shutdown::Read));
        let is_answering = |connections: &mut Connections| connections.threads > 0;
        let waited = self.shared.ended.wait_timeout_while(connections, ENDING_MAX, is_answering);
        connections = waited.unwrap_or_else(PoisonError::into_inner).0;
        connections.open.values().for_each(|socket| socket.shutdown(Shutdown::Both));
        while connections.threads > 0 {
            connections =
                self.shared.ended.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        // Each change of it is one step.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread_ends(&self) {
        self.lock().threads -= 1;
        self.ended.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        while !self.is_over.load(Ordering::Acquire) {
            match listener.accept() {
                Ok(socket) => self.admit(Arc::new(socket)),
                Err(error) if !self.is_over.load(Ordering::Acquire) => {
                    tracing::warn!(%error, "a scrape was not accepted");
                    self.clock.sleep(PAUSE);
                }
                Err(_) => {}
            }
        }
    }

    /// Answers a connection on a thread of its own.
    fn admit(self: &Arc<Self>, socket: Arc<Socket>) {
        let mut connections = self.lock();
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        while connections.open.len() >= self.limits.connections_max {
            // One that floods the exporter with connections closes its own first: a scrape takes milliseconds.
            if let Some((_, oldest)) = connections.open.pop_first() {
                oldest.shutdown(Shutdown::Both);
            }
        }
        // Threads of connections that were just closed end soon; others are not begun before they do.
        while connections.threads > 2 * self.limits.connections_max {
            connections = self.ended.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, Arc::clone(&socket));
        connections.threads += 1;
        drop(connections);
        let shared = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("terrace-scrape".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                shared.converse(&socket);
                socket.shutdown(Shutdown::Both);
                shared.lock().open.remove(&number);
                drop(socket);
                shared.thread_ends();
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "a scrape has no thread");
            self.lock().open.remove(&number);
            self.thread_ends();
        }
    }

    /// Reads one request and answers it. Errors of the connection are the end of it.
    fn converse(&self, socket: &Socket) {
        let end_ns = self.clock.now_ns().saturating_add(self.limits.time_max.as_nanos() as u64);
        let Some(answer) = self.read(socket, end_ns) else { return };
        let is_whole = matches!(answer, Answer::Metrics { .. });
        let bytes = answer.to_bytes(|| Samples::of(&self.sources).to_openmetrics());
        if self.write(socket, &bytes, end_ns) && !is_whole {
            // What the peer still sends would reset the connection before it has read the answer.
            socket.shutdown(Shutdown::Write);
            self.discard(socket, end_ns);
        }
    }

    fn read(&self, socket: &Socket, end_ns: u64) -> Option<Answer> {
        let mut head = Vec::new();
        let mut buffer = [0; 1024];
        loop {
            socket.set_read_timeout(Some(self.left(end_ns)?)).ok()?;
            let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
            head.extend_from_slice(&buffer[..count]);
            if let Some(answer) = http::answer_to(&head, self.limits.request_bytes_max) {
                return Some(answer);
            }
        }
    }

    fn write(&self, socket: &Socket, mut bytes: &[u8], end_ns: u64) -> bool {
        while !bytes.is_empty() {
            let Some(left) = self.left(end_ns) else { return false };
            let is_set = socket.set_write_timeout(Some(left)).is_ok();
            match socket.write_vectored(&[IoSlice::new(bytes)]) {
                Ok(count) if is_set => bytes = &bytes[count..],
                _ => return false,
            }
        }
        true
    }

    /// Reads what a peer still sends, up to its end, and not for long.
    fn discard(&self, socket: &Socket, end_ns: u64) {
        let mut buffer = [0; 1024];
        let mut left_bytes = 8 * self.limits.request_bytes_max;
        while let Some(left) = self.left(end_ns)
            && socket.set_read_timeout(Some(left)).is_ok()
            && let Ok(count @ 1..) = socket.read(&mut buffer)
            && left_bytes > count
        {
            left_bytes -= count;
        }
    }

    /// The time that is left for a connection; `None` where it is over.
    fn left(&self, end_ns: u64) -> Option<Duration> {
        let left_ns = end_ns.saturating_sub(self.clock.now_ns());
        (left_ns > 0).then(|| Duration::from_nanos(left_ns))
    }
}

#[cfg(test)]
mod tests;
