// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server: accepts connections, and keeps what they share.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terrace_core::{Access, Applied, Clock, Error, ErrorKind, Result};
use terrace_transport::{Endpoint, Listener, ServerTls, Socket, Transport, random_bytes};
use terrace_wire::{Failure, Kind, Openings, Secret, VERSION_TELLS_OPENINGS, small_frame};

use crate::buffers::Buffers;
use crate::connection::Connection;
use crate::counts::{Counts, RequestsReport};
use crate::crew::Crew;
use crate::limits::Limits;
use crate::service::Service;
use crate::session::Session;
use crate::workers::Workers;

/// Linux's numbers of what a lack of descriptors is reported as: `EMFILE` and `ENFILE`.
const MFILE: i32 = 24;
const NFILE: i32 = 23;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// How often strangers and sessions without connections are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// Address space for the stack of a connection's thread; what is not used costs nothing.
const STACK_BYTES: usize = 1 << 20;

/// Serves one store until it is dropped or [`Server::end`] is called.
pub struct Server {
    shared: Arc<Shared>,
}

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) limits: Limits,
    pub(crate) secret: Option<Secret>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) counts: Counts,
    pub(crate) clock: Arc<dyn Clock>,
    sessions: Mutex<Sessions>,
    /// Notified when what the service kept for a session is dropped.
    dropped: Condvar,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Notified when a connection came or ended.
    ended: Condvar,
    next_connection: AtomicU64,
    is_over: AtomicBool,
    listeners: Mutex<Vec<Arc<Listener>>>,
    crew: Arc<Crew>,
    pub(crate) workers: Workers,
    /// Whether a thread looks after strangers and sessions: none does before the first came.
    is_swept: AtomicBool,
}

/// Sessions by their numbers.
#[derive(Default)]
struct Sessions {
    live: HashMap<u64, Arc<Session>>,
    /// Those that have ended, and for which the service still keeps something: a client that comes
    /// back would be in its own way.
    ending: HashSet<u64>,
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
        let shared = Arc::new(Shared {
            service,
            limits,
            secret,
            buffers: Arc::new(Buffers::new(limits.buffers_bytes_max, limits.stall_max)),
            counts: Counts::default(),
            clock,
            sessions: Mutex::default(),
            dropped: Condvar::new(),
            connections: Mutex::default(),
            ended: Condvar::new(),
            next_connection: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            listeners: Mutex::default(),
            crew: Arc::default(),
            workers: Workers::default(),
            is_swept: AtomicBool::new(false),
        });
        Self { shared }
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
        lock(&self.shared.listeners).push(Arc::clone(&listener));
        let accept = move |shared: &Arc<Shared>| shared.accept(&listener, &wrap);
        self.shared
            .spawn("terrace-accept", accept)
            .map_err(|error| Error::from_io("serve the store", error))?;
        Ok(endpoint)
    }

    /// Serves a connection that came some other way.
    pub fn serve(&self, transport: Arc<dyn Transport>) {
        self.shared.admit(transport);
    }

    /// What it does at the moment, and did so far.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// How long requests took, and what failed.
    pub fn requests(&self) -> RequestsReport {
        self.shared.counts.report()
    }

    /// Ends: refuses new connections, lets running requests end, for a bounded time, and closes
    /// all connections. Calling it again does nothing.
    pub fn end(&self) {
        self.shared.end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Does something on a thread of its own, which the end of the server waits for.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<()> {
        let (shared, member) = (Arc::clone(self), self.crew.join());
        let work = move || {
            work(&shared);
            // In this order: a connection that is not counted any more uses nothing of what is
            // served.
            drop(shared);
            drop(member);
        };
        std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(work).map(drop)
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
        while !self.is_over.load(Ordering::Acquire) {
            match accept() {
                Ok(transport) => self.admit(transport),
                // Mostly a lack of descriptors: some are free again a moment later.
                Err(error) if !self.is_over.load(Ordering::Acquire) => {
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
                    self.clock.sleep(PAUSE);
                }
                Err(_) => {}
            }
        }
    }

    /// Takes a connection in and serves it on a thread of its own, unless there are too many.
    fn admit(self: &Arc<Self>, transport: Arc<dyn Transport>) {
        let connection = Arc::new(Connection::new(transport, self.clock.now_ns()));
        let mut connections = lock(&self.connections);
        if self.is_over.load(Ordering::Acquire) || connections.len() >= self.limits.connections_max
        {
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
        if strangers.len() >= self.limits.strangers_max
            && let Some((_, oldest)) = strangers.iter().min_by_key(|(since_ns, _)| *since_ns)
        {
            // A peer that floods the server with connections crowds out itself first.
            oldest.is_sent_away.store(true, Ordering::Release);
            oldest.transport.shutdown(Shutdown::Both);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        connections.insert(number, Arc::clone(&connection));
        drop(connections);
        let spawned =
            self.spawn("terrace-client", move |shared| shared.converse(number, &connection));
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
        } else if let Err(error) = self.spawn("terrace-sweep", |shared| shared.sweep()) {
            tracing::warn!(%error, "nobody looks after strangers until the next connection");
            self.is_swept.store(false, Ordering::Release);
        }
    }

    fn converse(self: &Arc<Self>, number: u64, connection: &Arc<Connection>) {
        let peer = connection.transport.peer();
        tracing::debug!(peer, connection = number, "connected");
        match connection.converse(self) {
            Ok(()) => tracing::debug!(peer, connection = number, "disconnected"),
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(peer, connection = number, error = error.chain(), "refused");
            }
            Err(error) => {
                tracing::info!(peer, connection = number, error = error.chain(), "connection lost");
            }
        }
        let mut connections = lock(&self.connections);
        while connection.is_waiting() {
            connections = self.ended.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        drop(connections);
        if self.is_over() {
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
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        let error = match self.is_over() {
            true => {
                // A client that waits for a server waits for the next one.
                let kind = ErrorKind::Unreachable { applied: Applied::No };
                Error::new(kind, "serve a connection").because("the server is about to end")
            }
            false => Error::new(ErrorKind::Busy, "serve a connection")
                .because("there are too many")
                .with("connections_max", self.limits.connections_max),
        };
        // This thread must not block: what does not fit the socket's buffer is not sent.
        let _ = connection.transport.set_write_timeout(Some(Duration::from_millis(1)));
        let head = Failure::of(&error).to_head();
        let _ = connection.sending.frame(Kind::Failed, 0, &head, b"", false);
    }

    /// Which opening of the store is served, for a client of this version.
    pub(crate) fn openings(&self, version: u16) -> Openings {
        let openings = (version >= VERSION_TELLS_OPENINGS).then(|| self.service.openings());
        openings.unwrap_or_default()
    }

    /// Whether it is about to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// No request of a connection waits for storage any more.
    pub(crate) fn waited(&self) {
        // Under the lock, so that a thread that looks at it and then waits is woken.
        let _connections = lock(&self.connections);
        self.ended.notify_all();
    }

    /// The session of this number.
    pub(crate) fn join(&self, number: u64, access: Access) -> Result<Arc<Session>> {
        let is_ending = |sessions: &mut Sessions| sessions.ending.contains(&number);
        let sessions = lock(&self.sessions);
        // Not for as long as the client waits: it is to hear why.
        let wait_max = self.limits.greeting_time_max / 2;
        let waited = self.dropped.wait_timeout_while(sessions, wait_max, is_ending);
        let mut sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        if is_ending(&mut sessions) {
            // It may try again.
            let kind = ErrorKind::Unreachable { applied: Applied::No };
            return Err(Error::new(kind, "begin a session")
                .because("the one before it of the same client has not ended so far"));
        }
        let sessions = &mut sessions.live;
        if let Some(session) = sessions.get(&number) {
            if session.access != access {
                return Err(Error::new(ErrorKind::Denied, "join a session")
                    .because("it was begun for another kind of access"));
            }
            session.connections.fetch_add(1, Ordering::AcqRel);
            return Ok(Arc::clone(session));
        }
        if sessions.len() >= self.limits.sessions_max {
            return Err(Error::new(ErrorKind::Busy, "begin a session")
                .because("there are too many")
                .with("sessions_max", self.limits.sessions_max));
        }
        let mut life = [0; 8];
        random_bytes(&mut life)?;
        let session = Arc::new(Session::new(access, u64::from_le_bytes(life), &self.limits));
        session.connections.fetch_add(1, Ordering::AcqRel);
        sessions.insert(number, Arc::clone(&session));
        Ok(session)
    }

    /// A connection does not use its session any more.
    pub(crate) fn leave(&self, session: &Session) {
        session.left_ns.store(self.clock.now_ns(), Ordering::Release);
        session.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends strangers that take too long, and sessions whose clients did not come back. Sleeps as
    /// long as there are none of either.
    fn sweep(&self) {
        // A connection that begins or ends takes this lock before it wakes this thread.
        let mut connections = lock(&self.connections);
        while !self.is_over.load(Ordering::Acquire) {
            let now_ns = self.clock.now_ns();
            let is_older = |since_ns: u64, than: Duration| {
                now_ns.saturating_sub(since_ns) >= than.as_nanos() as u64
            };
            let mut is_needed = false;
            for connection in connections.values() {
                if connection.is_stranger.load(Ordering::Acquire) {
                    is_needed = true;
                    if is_older(connection.since_ns, self.limits.greeting_time_max) {
                        connection.transport.shutdown(Shutdown::Both);
                    }
                }
            }
            let mut ended = Vec::new();
            let mut sessions = lock(&self.sessions);
            sessions.live.retain(|number, session| {
                if session.connections.load(Ordering::Acquire) > 0 {
                    return true;
                }
                let is_kept =
                    !is_older(session.left_ns.load(Ordering::Acquire), self.limits.linger);
                is_needed |= is_kept;
                if !is_kept {
                    ended.push((*number, Arc::clone(session)));
                }
                is_kept
            });
            sessions.ending.extend(ended.iter().map(|(number, _)| *number));
            drop(sessions);
            connections = if !ended.is_empty() {
                // Outside the lock: closing their objects may block.
                drop(connections);
                // Of all of them first: others wait for that, be it locks.
                for (number, session) in &ended {
                    let dropped = catch_unwind(AssertUnwindSafe(|| session.kept.end()));
                    lock(&self.sessions).ending.remove(number);
                    self.dropped.notify_all();
                    if dropped.is_err() {
                        tracing::error!("what was kept for a client could not be dropped");
                    }
                }
                drop(ended);
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
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        for listener in lock(&self.listeners).drain(..) {
            listener.close();
        }
        let connections = lock(&self.connections);
        self.ended.notify_all();
        for connection in connections.values() {
            // Nothing more is read; what runs is finished, and the rest of the frames say so.
            connection.sending.farewell(self.limits.stall_max);
            connection.transport.shutdown(Shutdown::Read);
        }
        drop(connections);
        self.workers.end();
        let deadline_ns =
            self.clock.now_ns().saturating_add(self.limits.drain_time_max.as_nanos() as u64);
        if !self.crew.wait(&*self.clock, deadline_ns) {
            let connections = lock(&self.connections);
            tracing::warn!(connections = connections.len(), "requests did not end in time");
            for connection in connections.values() {
                connection.transport.shutdown(Shutdown::Both);
            }
        }
        self.service.ends();
        let sessions = std::mem::take(&mut lock(&self.sessions).live);
        drop(sessions);
    }

    fn status(&self) -> Status {
        let (mut connections, mut strangers) = (0, 0);
        for connection in lock(&self.connections).values() {
            match connection.is_stranger.load(Ordering::Acquire) {
                true => strangers += 1,
                false => connections += 1,
            }
        }
        let sessions: Vec<_> = lock(&self.sessions).live.values().map(Arc::clone).collect();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            connections,
            strangers,
            sessions: sessions.len() as u64,
            handles: sessions.iter().map(|session| session.handle_count() as u64).sum(),
            requests: count(&self.counts.requests),
            operations: count(&self.counts.operations),
            received_bytes: count(&self.counts.received_bytes),
            sent_bytes: count(&self.counts.sent_bytes),
            refused: count(&self.counts.refused),
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
