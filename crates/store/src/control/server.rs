// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner's side: accepts connections and carries out their requests, a thread each.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::BufReader;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use terrace_core::{Backend, Clock, Error, ErrorKind, Result, SystemClock};

use super::call::{Call, CapabilityFields, Failure, Outcome, PROTOCOL_VERSION, Welcome};
use super::frame::{self, DATA_BYTES_MAX};
use super::session::{Answer, Session};
use super::socket::Listener;
use crate::owner::Owned;

/// Connections at once; each is a thread.
const CONNECTIONS_MAX: usize = 256;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest silence in the middle of a message, or before the first.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Longest silence between requests, unless the session has open objects.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The control socket of a store; other processes are served until this is dropped, which
/// finishes the requests that run.
pub(crate) struct Serving {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens, and serves from now on.
    pub(crate) fn start(owned: &Arc<Owned>) -> Result<Self> {
        let server = Arc::new(Server {
            owned: Arc::clone(owned),
            listener: Listener::bind(&owned.directory)?,
            is_over: AtomicBool::new(false),
            instance: random_number(),
            sessions: Mutex::default(),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            clock: SystemClock::default(),
        });
        let serve = {
            let server = Arc::clone(&server);
            move || server.serve()
        };
        let thread = thread::Builder::new()
            .name("terrace-control".into())
            .spawn(serve)
            .map_err(|error| Error::from_io("serve the store", error))?;
        Ok(Self { server, thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.is_over.store(true, Ordering::Release);
        self.server.listener.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and nothing depends on what it left.
            let _ = thread.join();
        }
    }
}

struct Server {
    owned: Arc<Owned>,
    listener: Listener,
    is_over: AtomicBool,
    /// Tells this time of serving from others.
    instance: u64,
    sessions: Mutex<HashMap<u64, Weak<Session>>>,
    connections: Mutex<HashMap<u64, UnixStream>>,
    next_connection: AtomicU64,
    clock: SystemClock,
}

/// A connection's entry in the server's list, while this lives.
struct Admitted<'a> {
    number: u64,
    connections: &'a Mutex<HashMap<u64, UnixStream>>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        lock(self.connections).remove(&self.number);
    }
}

impl Server {
    fn serve(&self) {
        thread::scope(|scope| {
            while !self.is_over.load(Ordering::Acquire) {
                match self.listener.accept() {
                    Ok(stream) => match self.admit(&stream) {
                        Some(admitted) => {
                            // Without a thread the connection is closed, and the peer sees that.
                            let _ = thread::Builder::new()
                                .name("terrace-client".into())
                                .spawn_scoped(scope, move || self.converse(&stream, &admitted));
                        }
                        None => self.turn_away(&stream),
                    },
                    // Mostly a lack of descriptors: some are free again a moment later.
                    Err(_) if !self.is_over.load(Ordering::Acquire) => self.clock.sleep(PAUSE),
                    Err(_) => {}
                }
            }
            self.hang_up();
        });
    }

    /// Takes a connection in; `None` where there are too many.
    fn admit(&self, stream: &UnixStream) -> Option<Admitted<'_>> {
        let mut connections = lock(&self.connections);
        if connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        connections.insert(number, stream.try_clone().ok()?);
        Some(Admitted { number, connections: &self.connections })
    }

    fn turn_away(&self, stream: &UnixStream) {
        let error = Error::new(ErrorKind::Busy, "serve a connection")
            .because("there are too many")
            .with("connections_max", CONNECTIONS_MAX);
        // Nobody waits for this thread: what does not fit the socket's buffer is not sent.
        let _ = stream.set_nonblocking(true);
        reply(stream, 0, Outcome::Error(Failure::of(&error)), &[]);
    }

    /// Ends all connections once their running requests are done.
    fn hang_up(&self) {
        for stream in lock(&self.connections).values() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Serves a connection until it ends.
    fn converse(&self, stream: &UnixStream, _admitted: &Admitted<'_>) {
        // Without timeouts a stalled peer would hold up the end of serving.
        let is_set = stream
            .set_read_timeout(Some(STALL_MAX))
            .and_then(|()| stream.set_write_timeout(Some(STALL_MAX)));
        if is_set.is_err() {
            return;
        }
        let mut reader = BufReader::new(stream);
        let mut session = None;
        while wait_for_request(&reader, session.as_deref()) {
            let received = frame::receive::<Call>(&mut reader, DATA_BYTES_MAX as u64);
            let (head, body) = match received {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(error) => {
                    // Nothing that follows on this connection means anything.
                    reply(stream, 0, Outcome::Error(Failure::of(&error)), &[]);
                    return;
                }
            };
            let id = head.id;
            let outcome = match (head.content, &session) {
                (Call::Hello { version, session: number, access }, None) => {
                    self.greet(version).inspect(|_| session = Some(self.join(number, access)))
                }
                (call, Some(session)) => self.carry_out(stream, id, session, call, &body),
                (_, None) => Err(Error::invalid("serve a request", "the first one is `hello`")),
            };
            let is_sent = match outcome {
                Ok(answer) => {
                    let outcome = Outcome::Ok { json_bytes: answer.json.len() };
                    reply(stream, id, outcome, &[&answer.json, &answer.bytes])
                }
                Err(error) => reply(stream, id, Outcome::Error(Failure::of(&error)), &[]),
            };
            if !is_sent || session.is_none() {
                return;
            }
        }
    }

    fn greet(&self, version: u32) -> Result<Answer> {
        if version != PROTOCOL_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, "serve a connection")
                .because("the owner of the store is another version of terrace")
                .with("version", version)
                .with("owner_version", PROTOCOL_VERSION));
        }
        let stack = &self.owned.stack;
        let capability = stack.capability();
        Answer::json(&Welcome {
            version,
            instance: self.instance,
            process: std::process::id(),
            target: stack.target().into(),
            capability: CapabilityFields {
                atomicity: capability.atomicity,
                persistency: capability.persistency,
                sparse: capability.sparse,
                ordered_listing: capability.ordered_listing,
                keeps_data: capability.keeps_data,
                labels: capability.labels,
            },
        })
    }

    /// The session of this number, which ends with its last connection.
    fn join(&self, number: u64, access: terrace_core::Access) -> Arc<Session> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&number).and_then(Weak::upgrade) {
            return session;
        }
        sessions.retain(|_, session| session.strong_count() > 0);
        let session = Arc::new(Session::new(access));
        sessions.insert(number, Arc::downgrade(&session));
        session
    }

    fn carry_out(
        &self,
        stream: &UnixStream,
        id: u64,
        session: &Session,
        call: Call,
        body: &[u8],
    ) -> Result<Answer> {
        let is_gone = Cell::new(false);
        let mut progress = |done, total| {
            // Most that takes long has to end all the same; a scrub has not.
            is_gone.set(!reply(stream, id, Outcome::Progress { done, total }, &[]));
        };
        // A bug that one request runs into is no reason to end the others.
        let is_gone = || is_gone.get();
        let work = || session.carry_out(&self.owned, call, body, &mut progress, &is_gone);
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Io, "serve a request")
                .because("the owner of the store met a bug; its standard error tells more"))
        })
    }
}

/// Waits until something comes; false where it is time to close the connection.
fn wait_for_request(reader: &BufReader<&UnixStream>, session: Option<&Session>) -> bool {
    let silence_max = if session.is_some() { IDLE_MAX } else { STALL_MAX };
    while reader.buffer().is_empty() && !is_readable(*reader.get_ref(), silence_max) {
        if !session.is_some_and(Session::has_handles) {
            return false;
        }
    }
    true
}

/// Whether something can be read, or the end be seen, within this time.
fn is_readable(socket: impl AsFd, timeout: Duration) -> bool {
    let timeout =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    let mut descriptors = [PollFd::new(&socket, PollFlags::IN)];
    // An interruption by a signal is as good as the end of the time.
    matches!(rustix::event::poll(&mut descriptors, Some(&timeout)), Ok(count) if count > 0)
}

/// Sends a reply; whether it was sent.
fn reply(mut stream: &UnixStream, id: u64, outcome: Outcome, parts: &[&[u8]]) -> bool {
    frame::send(&mut stream, id, outcome, parts).is_ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No map of this file is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that others do not have; its keys come from the operating system.
pub(super) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
