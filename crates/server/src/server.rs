// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server: accepts connections, and ends them.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terrace_core::{Applied, Clock, Error, ErrorKind, Result};
use terrace_transport::{Endpoint, Listener, ServerTls, Socket, Transport};
use terrace_wire::{Failure, Kind, Secret, small_frame};

use crate::connection::Connection;
use crate::counts::RequestsReport;
use crate::limits::Limits;
use crate::service::Service;
use crate::shared::Shared;

/// Linux's numbers of what a lack of descriptors is reported as: `EMFILE` and `ENFILE`.
const MFILE: i32 = 24;
const NFILE: i32 = 23;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// How often strangers and sessions without connections are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// Serves one store until it is dropped or [`Server::end`] is called.
pub struct Server {
    acceptor: Arc<Acceptor>,
}

/// Accepts connections, and ends them.
struct Acceptor {
    shared: Arc<Shared>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Notified when a connection came or ended.
    ended: Condvar,
    next_connection: AtomicU64,
    listeners: Mutex<Vec<Arc<Listener>>>,
    /// Whether a thread looks after strangers and sessions: none does before the first came.
    is_swept: AtomicBool,
}

/// What a server does at the moment, and did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Connections that have proved themselves.
    pub connections: u64,
    /// Connections that have not.
    pub strangers: u64,
    /// Sessions, those without connections included.
    pub sessions: u64,
    /// Objects that sessions have open.
    pub handles: u64,
    /// Requests and calls that came.
    pub requests: u64,
    /// Operations in them.
    pub operations: u64,
    /// Bytes of payloads that came.
    pub received_bytes: u64,
    /// Bytes of large reads that went out.
    pub sent_bytes: u64,
    /// Connections that were not served.
    pub refused: u64,
}

impl Server {
    /// A server that does not listen yet. Without a secret every client that reaches it is served;
    /// over a Unix socket its mode decides, and no secret is asked for.
    pub fn new(
        service: Arc<dyn Service>,
        secret: Option<Secret>,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let acceptor = Acceptor {
            shared: Arc::new(Shared::new(service, secret, limits, clock)),
            connections: Mutex::default(),
            ended: Condvar::new(),
            next_connection: AtomicU64::new(0),
            listeners: Mutex::default(),
            is_swept: AtomicBool::new(false),
        };
        Self { acceptor: Arc::new(acceptor) }
    }

    /// Listens, and serves every client that connects from now on. Returns where: a port that was
    /// to be free is known then.
    ///
    /// # Errors
    ///
    /// `Busy` where another process listens there, `Denied`, `Invalid`, `Io`.
    pub fn listen(&self, endpoint: &Endpoint) -> Result<Endpoint> {
        self.listen_as(endpoint, |socket| Ok(Arc::new(socket)))
    }

    /// Listens as [`Server::listen`] does, and serves clients that speak TLS.
    ///
    /// # Errors
    ///
    /// Those of [`Server::listen`]; `Invalid` for a Unix socket, which needs no encryption.
    pub fn listen_tls(&self, endpoint: &Endpoint, tls: &ServerTls) -> Result<Endpoint> {
        if matches!(endpoint, Endpoint::Unix(_)) {
            return Err(Error::invalid("listen", "a Unix socket needs no encryption")
                .with("address", endpoint));
        }
        let tls = tls.clone();
        let refusal = refusal_without_tls();
        self.listen_as(endpoint, move |socket| Ok(Arc::new(tls.accept(socket, refusal.clone())?)))
    }

    fn listen_as(
        &self,
        endpoint: &Endpoint,
        wrap: impl Fn(Socket) -> Result<Arc<dyn Transport>> + Send + 'static,
    ) -> Result<Endpoint> {
        let listener = Arc::new(Listener::bind(endpoint)?);
        let endpoint = listener.endpoint().clone();
        lock(&self.acceptor.listeners).push(Arc::clone(&listener));
        self.acceptor
            .spawn("terrace-accept", move |acceptor| acceptor.accept(&listener, &wrap))
            .map_err(|error| Error::from_io("serve the store", error))?;
        Ok(endpoint)
    }

    /// Serves a connection that came some other way.
    pub fn serve(&self, transport: Arc<dyn Transport>) {
        self.acceptor.admit(transport);
    }

    /// What it does at the moment, and did so far.
    pub fn status(&self) -> Status {
        self.acceptor.status()
    }

    /// How long requests took, and what failed.
    pub fn requests(&self) -> RequestsReport {
        self.acceptor.shared.counts.report()
    }

    /// Ends: refuses new connections, lets running requests end, for a bounded time, and closes
    /// all connections. Calling it again does nothing.
    pub fn end(&self) {
        self.acceptor.end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Acceptor {
    /// Does something on a thread of its own, which the end of the server waits for.
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        let acceptor = Arc::clone(self);
        self.shared.crew.spawn(name, move || work(&acceptor))
    }

    fn accept(
        self: &Arc<Self>,
        listener: &Listener,
        wrap: &dyn Fn(Socket) -> Result<Arc<dyn Transport>>,
    ) {
        let accept = || {
            let socket = listener.accept();
            wrap(socket.map_err(|error| Error::from_io("accept a connection", error))?)
        };
        while !self.shared.is_over() {
            match accept() {
                Ok(transport) => self.admit(transport),
                // Mostly a lack of descriptors: some are free again a moment later.
                Err(error) if !self.shared.is_over() => {
                    let limit = match error.os_error() {
                        Some(MFILE) => {
                            ": RLIMIT_NOFILE of the server is reached (ulimit -n, LimitNOFILE=)"
                        }
                        Some(NFILE) => ": fs.file-max of the machine is reached",
                        _ => "",
                    };
                    let error = error.chain();
                    tracing::warn!(
                        error, address = %listener.endpoint(), "a connection was not accepted{limit}"
                    );
                    self.shared.clock.sleep(PAUSE);
                }
                Err(_) => {}
            }
        }
    }

    /// Takes a connection in and serves it on a thread of its own, unless there are too many.
    fn admit(self: &Arc<Self>, transport: Arc<dyn Transport>) {
        let connection = Arc::new(Connection::new(transport, self.shared.clock.now_ns()));
        let mut connections = lock(&self.connections);
        if self.shared.is_over() || connections.len() >= self.shared.limits.connections_max {
            drop(connections);
            self.turn_away(&connection);
            return;
        }
        let strangers: Vec<_> = connections
            .values()
            .filter(|one| one.is_stranger.load(Ordering::Acquire))
            // Its thread may not have noticed yet; each new one costs another one its place.
            .filter(|one| !one.is_sent_away.load(Ordering::Acquire))
            .map(|one| (one.since_ns, Arc::clone(one)))
            .collect();
        if strangers.len() >= self.shared.limits.strangers_max
            && let Some((_, oldest)) = strangers.iter().min_by_key(|(since_ns, _)| *since_ns)
        {
            // A peer that floods the server with connections crowds out itself first.
            oldest.is_sent_away.store(true, Ordering::Release);
            oldest.transport.shutdown(Shutdown::Both);
            self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        connections.insert(number, Arc::clone(&connection));
        drop(connections);
        let spawned =
            self.spawn("terrace-client", move |acceptor| acceptor.converse(number, &connection));
        if let Err(error) = spawned {
            // The connection is closed with its last owner, and the peer sees that.
            tracing::warn!(%error, "a connection has no thread");
            lock(&self.connections).remove(&number);
        }
        self.see_that_it_is_swept();
    }

    fn see_that_it_is_swept(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::AcqRel) {
            // It may be asleep.
            self.ended.notify_all();
        } else if let Err(error) = self.spawn("terrace-sweep", |acceptor| acceptor.sweep()) {
            tracing::warn!(%error, "clients that do not introduce themselves are kept until the next connection");
            self.is_swept.store(false, Ordering::Release);
        }
    }

    fn converse(self: &Arc<Self>, number: u64, connection: &Arc<Connection>) {
        let peer = connection.transport.peer();
        tracing::debug!(peer, connection = number, "connected");
        match connection.converse(&self.shared) {
            Ok(()) => tracing::debug!(peer, connection = number, "disconnected"),
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(peer, connection = number, error = error.chain(), "refused");
            }
            Err(error) => {
                tracing::info!(peer, connection = number, error = error.chain(), "connection lost");
            }
        }
        connection.await_storage();
        if self.shared.is_over() {
            // All that was read as a whole has its answer by now, and nothing more is read.
            connection.sending.last_word();
        }
        connection.transport.shutdown(Shutdown::Both);
        let mut connections = lock(&self.connections);
        connections.remove(&number);
        drop(connections);
        self.ended.notify_all();
    }

    fn turn_away(&self, connection: &Connection) {
        self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        let error = match self.shared.is_over() {
            true => {
                // A client that waits for a server waits for the next one.
                let kind = ErrorKind::Unreachable { applied: Applied::No };
                Error::new(kind, "serve a connection").because("the server is about to end")
            }
            false => Error::new(ErrorKind::Busy, "serve a connection")
                .because("there are too many")
                .with("connections_max", self.shared.limits.connections_max),
        };
        // This thread must not block: what does not fit the socket's buffer is not sent.
        let _ = connection.transport.set_write_timeout(Some(Duration::from_millis(1)));
        let head = Failure::of(&error).to_head();
        let _ = connection.sending.frame(Kind::Failed, 0, &head, b"", false);
    }

    /// Ends strangers that take too long, and sessions whose clients did not come back. Sleeps as
    /// long as there are none of either.
    fn sweep(&self) {
        // A connection that begins or ends takes this lock before it wakes this thread.
        let mut connections = lock(&self.connections);
        while !self.shared.is_over() {
            let now_ns = self.shared.clock.now_ns();
            let is_older = |since_ns: u64, than: Duration| {
                now_ns.saturating_sub(since_ns) >= than.as_nanos() as u64
            };
            let mut is_needed = false;
            for connection in connections.values() {
                if connection.is_stranger.load(Ordering::Acquire) {
                    is_needed = true;
                    if is_older(connection.since_ns, self.shared.limits.greeting_time_max) {
                        connection.transport.shutdown(Shutdown::Both);
                    }
                }
            }
            let is_left_long = |left_ns: u64| is_older(left_ns, self.shared.limits.linger);
            let (expired, is_any_left) = self.shared.sessions.expire(is_left_long);
            is_needed |= is_any_left;
            connections = if !expired.is_empty() {
                // Outside the lock: closing their objects may block.
                drop(connections);
                self.shared.sessions.end(expired);
                lock(&self.connections)
            } else if is_needed {
                let waited = self.ended.wait_timeout(connections, SWEEP_EVERY);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.ended.wait(connections).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn end(&self) {
        if !self.shared.begin_end() {
            return;
        }
        for listener in lock(&self.listeners).drain(..) {
            listener.close();
        }
        let connections = lock(&self.connections);
        self.ended.notify_all();
        for connection in connections.values() {
            // Nothing more is read; what runs is finished, and the rest of the frames say so.
            connection.sending.farewell(self.shared.limits.stall_max);
            connection.transport.shutdown(Shutdown::Read);
        }
        drop(connections);
        self.shared.workers.end();
        let deadline_ns = self
            .shared
            .clock
            .now_ns()
            .saturating_add(self.shared.limits.drain_time_max.as_nanos() as u64);
        if !self.shared.crew.wait(&*self.shared.clock, deadline_ns) {
            let connections = lock(&self.connections);
            tracing::warn!(connections = connections.len(), "requests did not end in time");
            for connection in connections.values() {
                connection.transport.shutdown(Shutdown::Both);
            }
        }
        self.shared.service.ends();
        self.shared.sessions.clear();
    }

    fn status(&self) -> Status {
        let (mut connections, mut strangers) = (0, 0);
        for connection in lock(&self.connections).values() {
            match connection.is_stranger.load(Ordering::Acquire) {
                true => strangers += 1,
                false => connections += 1,
            }
        }
        let sessions = self.shared.sessions.all();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            connections,
            strangers,
            sessions: sessions.len() as u64,
            handles: sessions.iter().map(|session| session.handle_count() as u64).sum(),
            requests: count(&self.shared.counts.requests),
            operations: count(&self.shared.counts.operations),
            received_bytes: count(&self.shared.counts.received_bytes),
            sent_bytes: count(&self.shared.counts.sent_bytes),
            refused: count(&self.shared.counts.refused),
        }
    }
}

/// The reply to a client that speaks without TLS where TLS is spoken.
fn refusal_without_tls() -> Vec<u8> {
    let error = Error::new(ErrorKind::Denied, "use the server").because(
        "it serves with TLS alone; add `tls=FILE` with its certificate, or that of its authority",
    );
    small_frame(Kind::Failed, 0, &Failure::of(&error).to_head())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No map of this file is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
