// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated network between clients and a server.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_client::Dial;
use terrace_core::{Applied, Clock, Error, ErrorKind, Random, Result};
use terrace_server::Server;
use terrace_transport::Transport;
use terrace_wire::{HEADER_BYTES, Header, Kind, LAST_WORD};

use super::pipe::Pipe;

/// How often, of each frame, something goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// It comes late.
    pub(crate) delay: f64,
    /// It does not come, and the connection goes on; but no last word comes behind it, which speaks of
    /// all that was sent before, as a stream that lost something would end.
    pub(crate) drop: f64,
    /// The connection breaks before, in or after it.
    pub(crate) cut: f64,
    /// A request or an answer comes twice.
    pub(crate) duplicate: f64,
    /// A connection is refused.
    pub(crate) refuse: f64,
    /// Requests that come twice have another number the second time, so that the server does not
    /// know them: as if it kept no answers. A bug to be found.
    pub(crate) renumber: bool,
}

/// The time of the clients: it passes while they wait.
#[derive(Debug, Default)]
pub(crate) struct SimulatedClock {
    now_ns: AtomicU64,
}

impl SimulatedClock {
    fn pass(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.pass(duration);
        std::thread::yield_now();
    }
}

/// The way to a server, which may be exchanged.
pub(crate) struct Net {
    pub(crate) clock: Arc<SimulatedClock>,
    server: Mutex<Arc<Server>>,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
}

impl Net {
    pub(crate) fn new(server: Server, faults: Faults, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::default(),
            server: Mutex::new(Arc::new(server)),
            faults: Mutex::new(faults),
            random: Mutex::new(Random::new(seed)),
        })
    }

    /// Ends the server and puts another one in its place.
    pub(crate) fn restart(&self, server: Server) {
        let old = std::mem::replace(&mut *lock(&self.server), Arc::new(server));
        old.end();
    }

    /// From now on nothing goes wrong.
    pub(crate) fn heal(&self) {
        *lock(&self.faults) = Faults::default();
    }

    fn faults(&self) -> Faults {
        *lock(&self.faults)
    }

    fn chance(&self, rate: f64) -> bool {
        lock(&self.random).chance(rate)
    }

    fn below(&self, bound: u64) -> u64 {
        lock(&self.random).below(bound)
    }
}

/// What clients of a network connect with.
pub(crate) struct Wire(pub(crate) Arc<Net>);

impl Dial for Wire {
    fn dial(&self, _: Duration) -> Result<Arc<dyn Transport>> {
        let net = &self.0;
        if net.chance(net.faults().refuse) {
            let kind = ErrorKind::Unreachable { applied: Applied::No };
            return Err(Error::new(kind, "reach the server").because("the network refuses"));
        }
        let (there, back) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>, is_client| {
            Arc::new(End {
                net: Arc::clone(net),
                is_client,
                timeout: Mutex::new(None),
                incoming: Arc::clone(incoming),
                outgoing: Arc::clone(outgoing),
                frame: Mutex::default(),
                has_lost: AtomicBool::new(false),
            })
        };
        let server = Arc::clone(&lock(&net.server));
        server.serve(end(&there, &back, false));
        Ok(end(&back, &there, true))
    }

    fn target(&self) -> String {
        "simulated".into()
    }
}

/// One end of a connection.
struct End {
    net: Arc<Net>,
    is_client: bool,
    timeout: Mutex<Option<Duration>>,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    /// The beginning of a frame that is not whole yet.
    frame: Mutex<Vec<u8>>,
    /// Whether a frame did not come.
    has_lost: AtomicBool,
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("simulated")
    }
}

impl End {
    /// Sends a frame, as well as the network does.
    fn send(&self, frame: &[u8]) {
        let (net, faults) = (&self.net, self.net.faults());
        let header = header_of(frame).expect("whole");
        let looks = if net.chance(faults.delay) { 1 + net.below(30) as u32 } else { 0 };
        if net.chance(faults.drop) {
            self.has_lost.store(true, Ordering::SeqCst);
            return;
        }
        let is_last_word = header.kind == Kind::Farewell && frame[HEADER_BYTES..] == *LAST_WORD;
        if is_last_word && self.has_lost.load(Ordering::SeqCst) {
            return;
        }
        if net.chance(faults.cut) {
            let count = net.below(frame.len() as u64 + 1) as usize;
            self.outgoing.push(&frame[..count], looks);
            self.shutdown(Shutdown::Both);
            return;
        }
        self.outgoing.push(frame, looks);
        // The parts behind a request that is not whole would belong to its copy.
        let is_whole = header.payload_bytes as usize + HEADER_BYTES + header.head_bytes as usize
            == frame.len();
        let may_repeat = matches!(header.kind, Kind::Request | Kind::Answer) && is_whole;
        if may_repeat && net.chance(faults.duplicate) {
            match faults.renumber && header.kind == Kind::Request {
                true => self.outgoing.push(&renumbered(&header, frame), looks),
                false => self.outgoing.push(frame, looks),
            }
        }
    }
}

/// The frame with the number of a request that nobody asked.
fn renumbered(header: &Header, frame: &[u8]) -> Vec<u8> {
    const FAR: u64 = 1 << 40;
    let (head, payload) = frame[HEADER_BYTES..].split_at(header.head_bytes as usize);
    let mut bytes = Vec::new();
    Header { id: header.id + FAR, ..*header }.write(head, &mut bytes);
    bytes.extend(payload);
    bytes
}

/// The header of what begins here, once it is whole.
fn header_of(bytes: &[u8]) -> Option<Header> {
    let start = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(Header::read(start).expect("both ends are ours"))
}

impl Transport for End {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.incoming.read(buffer);
            if read.is_err() && !self.is_client {
                // A server has all the time: only for clients it passes.
                continue;
            }
            if read.is_err() {
                self.net.clock.pass(lock(&self.timeout).unwrap_or_default());
            }
            return read;
        }
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.outgoing.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut frame = lock(&self.frame);
        let mut count = 0;
        for slice in slices {
            frame.extend_from_slice(slice);
            count += slice.len();
        }
        while let Some(header) = header_of(&frame) {
            let bytes = HEADER_BYTES + (header.head_bytes + header.payload_bytes) as usize;
            if frame.len() < bytes {
                break;
            }
            let whole: Vec<u8> = frame.drain(..bytes).collect();
            self.send(&whole);
        }
        Ok(count)
    }

    fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Write {
            self.incoming.close();
        }
        if how != Shutdown::Read {
            self.outgoing.close();
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        *lock(&self.timeout) = timeout;
        Ok(())
    }

    fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn is_readable(&self, _: Duration) -> bool {
        self.incoming.is_readable()
    }

    fn is_ended(&self) -> bool {
        self.incoming.is_closed()
    }

    fn channel(&self) -> Vec<u8> {
        Vec::new()
    }

    fn peer(&self) -> String {
        "simulated".into()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shutdown(Shutdown::Both);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
