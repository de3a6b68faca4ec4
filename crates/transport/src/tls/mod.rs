// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Encrypted connections: TLS 1.3 over a socket.
//!
//! `settings` are the files that either side needs, `failure` is what can go wrong.

mod failure;
mod settings;

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustls::Connection;
use terrace_core::Clock;

use self::failure::broken;
pub use self::settings::{ClientTls, ServerTls};
use crate::Transport;
use crate::socket::Socket;

/// What is read from the socket at once: two records (RFC 8446, section 5.2: 16 KiB and 256 bytes
/// at most).
const INCOMING_BYTES: usize = 33 << 10;

/// What is encrypted at once, before the socket gets it.
const OUTGOING_BYTES_MAX: usize = 64 << 10;

/// Length of what only the two ends know, as RFC 9266 has it.
const CHANNEL_BYTES: usize = 32;

/// Keys that are exported under this label are used for proofs on this connection alone.
const CHANNEL_LABEL: &[u8] = b"EXPORTER-Terrace-channel";

/// First byte of a record that can begin a connection: a handshake, or an alert instead.
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// An encrypted connection over a socket.
///
/// Made by [`ClientTls::connect`] or [`ServerTls::accept`]. A server's end agrees on keys with
/// its first reads, on the thread that reads; until then nothing can be written.
///
/// Locks are taken in the order of the fields. That of the connection is never held while a thread
/// waits for the socket, so that reader and writer do not wait for each other.
pub struct TlsSocket {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    connection: Mutex<Connection>,
    socket: Socket,
    /// Whether encrypted bytes wait for room in the socket, and no thread waits for that.
    has_rest: AtomicBool,
    /// Whether this side wants to read no more.
    is_deaf: AtomicBool,
    /// Known once both ends agreed on keys.
    channel: OnceLock<[u8; CHANNEL_BYTES]>,
}

/// Encrypted bytes that came and were not looked at.
struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The plain-text reply to a peer that does not begin with a handshake; `None` once one began.
    refusal: Option<Vec<u8>>,
}

/// Encrypted bytes that were not sent yet: whole records, of which the first `start` bytes are
/// sent.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    start: usize,
}

/// What a look at the bytes at hand came to.
enum Found {
    /// So many decrypted bytes.
    Bytes(usize),
    /// The other side has closed its sending direction.
    End,
    /// More has to come.
    Nothing,
}

impl TlsSocket {
    fn new(socket: Socket, mut connection: Connection, refusal: Vec<u8>) -> Self {
        // Its bounds are the lengths above: what it encrypts is taken at once.
        connection.set_buffer_limit(None);
        let incoming = Incoming {
            bytes: vec![0; INCOMING_BYTES].into(),
            start: 0,
            end: 0,
            refusal: Some(refusal),
        };
        Self {
            incoming: Mutex::new(incoming),
            outgoing: Mutex::default(),
            connection: Mutex::new(connection),
            socket,
            has_rest: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            channel: OnceLock::new(),
        }
    }

    /// Agrees on keys with the other side, until `deadline_ns`.
    fn shake_hands(&self, clock: &dyn Clock, deadline_ns: u64) -> io::Result<()> {
        let mut incoming = lock(&self.incoming);
        self.look(&mut incoming, &mut [])?;
        while self.channel.get().is_none() {
            let left_ns = deadline_ns.saturating_sub(clock.now_ns());
            if left_ns == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // The operating system takes no timeout below a microsecond.
            let left = Duration::from_nanos(left_ns).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left))?;
            match self.receive(&mut incoming) {
                Err(error) if is_passing(&error) => {}
                received => received?,
            }
            self.look(&mut incoming, &mut [])?;
        }
        self.socket.set_read_timeout(None)
    }

    /// Decrypts what has come, as far as it fits.
    fn look(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<Found> {
        let mut connection = lock(&self.connection);
        let found = self.decrypt(&mut connection, incoming, buffer);
        if !connection.is_handshaking() && self.channel.get().is_none() {
            let channel = connection
                .export_keying_material([0; CHANNEL_BYTES], CHANNEL_LABEL, None)
                .map_err(broken)?;
            // The first thread set the same value.
            let _ = self.channel.set(channel);
        }
        let has_to_say = connection.wants_write();
        drop(connection);
        if has_to_say && let Ok(mut outgoing) = self.outgoing.try_lock() {
            // A thread that writes at this moment sends it along. What does not reach the other
            // side here it notices by itself.
            let _ = self.send_now(&mut outgoing);
        }
        found
    }

    fn decrypt(
        &self,
        connection: &mut Connection,
        incoming: &mut Incoming,
        buffer: &mut [u8],
    ) -> io::Result<Found> {
        let mut done = 0;
        loop {
            let state = match connection.process_new_packets() {
                Ok(state) => state,
                // It comes again with the next call.
                Err(_) if done > 0 => return Ok(Found::Bytes(done)),
                Err(error) => return Err(broken(error)),
            };
            if buffer.is_empty() {
                if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                    return Ok(Found::Nothing);
                }
            } else {
                match connection.reader().read(&mut buffer[done..]) {
                    Ok(0) if done == 0 => return Ok(Found::End),
                    Ok(0) => return Ok(Found::Bytes(done)),
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) if done > 0 => return Ok(Found::Bytes(done)),
                    Err(error) => return Err(error),
                }
            }
            let mut fresh = &incoming.bytes[incoming.start..incoming.end];
            let is_full = done > 0 && done == buffer.len();
            if fresh.is_empty() || is_full {
                return Ok(if done > 0 { Found::Bytes(done) } else { Found::Nothing });
            }
            // A part of a record at a time, so that what is decrypted never exceeds one.
            incoming.start += connection.read_tls(&mut fresh)?;
        }
    }

    /// Waits for encrypted bytes, none of which are at hand.
    fn receive(&self, incoming: &mut Incoming) -> io::Result<()> {
        while self.has_rest.load(Ordering::Acquire) {
            let ready = self.socket.wait_for_either()?;
            if ready.can_write {
                // A thread that writes just now sends it before anything else; where it cannot be
                // sent any more, reading returns the error.
                let Ok(mut outgoing) = self.outgoing.try_lock() else { break };
                if self.send_now(&mut outgoing).is_err() {
                    break;
                }
            }
            if ready.can_read {
                break;
            }
        }
        let count = self.socket.read(&mut incoming.bytes)?;
        (incoming.start, incoming.end) = (0, count);
        if count == 0 {
            if self.channel.get().is_none() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !self.is_deaf.load(Ordering::Acquire) {
                // From now on its reader says that the connection ended without a word.
                lock(&self.connection).read_tls(&mut io::empty())?;
            }
            return Ok(());
        }
        if let Some(refusal) = incoming.refusal.take()
            && !matches!(incoming.bytes[0], HANDSHAKE | ALERT)
        {
            // A peer that does not receive it sees the connection end.
            let _ = self.socket.write_now(&refusal);
            self.socket.shutdown(Shutdown::Both);
            return Err(failure::not_encrypted());
        }
        Ok(())
    }

    /// Moves what the connection has to say behind what was not sent yet.
    fn gather(&self, connection: &mut Connection, outgoing: &mut Outgoing) {
        while connection.wants_write() {
            connection.write_tls(&mut outgoing.bytes).expect("a list takes everything");
        }
    }

    /// Sends what there is, as far as there is room for it now.
    fn send_now(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        self.gather(&mut lock(&self.connection), outgoing);
        let sent = outgoing.empty(|bytes| self.socket.write_now(bytes));
        self.has_rest.store(!outgoing.bytes.is_empty(), Ordering::Release);
        match sent {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends what there is, and waits for room as long as a write may.
    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let sent = outgoing.empty(|bytes| self.socket.write_vectored(&[IoSlice::new(bytes)]));
        self.has_rest.store(!outgoing.bytes.is_empty(), Ordering::Release);
        sent
    }

    /// Tells the other side that nothing more comes, unless it does not listen at the moment.
    fn say_goodbye(&self) {
        if self.channel.get().is_some()
            && let Ok(mut outgoing) = self.outgoing.try_lock()
        {
            lock(&self.connection).send_close_notify();
            // A peer that does not receive it sees the connection end.
            let _ = self.send_now(&mut outgoing);
        }
    }
}

impl Outgoing {
    fn empty(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.start < self.bytes.len() {
            match write(&self.bytes[self.start..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.start += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.start = 0;
        Ok(())
    }
}

impl Transport for TlsSocket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut incoming = lock(&self.incoming);
        loop {
            match self.look(&mut incoming, buffer) {
                Ok(Found::Bytes(count)) => return Ok(count),
                Ok(Found::End) => return Ok(0),
                Ok(Found::Nothing) => {}
                Err(error) => return Err(error),
            }
            self.receive(&mut incoming)?;
            if incoming.end == 0 && self.is_deaf.load(Ordering::Acquire) {
                return Ok(0);
            }
        }
    }

    /// What does not fit the socket in time is sent with a later call, before anything else: what
    /// was taken is never taken back.
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.channel.get().is_none() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut outgoing = lock(&self.outgoing);
        self.send(&mut outgoing)?;
        let mut taken = 0;
        let mut connection = lock(&self.connection);
        for slice in slices {
            let part = &slice[..slice.len().min(OUTGOING_BYTES_MAX - taken)];
            connection.writer().write_all(part)?;
            taken += part.len();
        }
        self.gather(&mut connection, &mut outgoing);
        drop(connection);
        match self.send(&mut outgoing) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Write {
            self.is_deaf.store(true, Ordering::Release);
        }
        if how != Shutdown::Read {
            self.say_goodbye();
        }
        self.socket.shutdown(how);
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)
    }

    /// A part of a record is nothing that can be read; its rest is not waited for.
    fn is_readable(&self, timeout: Duration) -> bool {
        // Where another thread reads at this moment, what comes belongs to it.
        let Ok(mut incoming) = self.incoming.try_lock() else { return false };
        let mut timeout = timeout;
        loop {
            if self.look(&mut incoming, &mut []).is_err() || self.is_at_hand() {
                return true;
            }
            if !self.socket.is_readable(timeout) {
                return false;
            }
            timeout = Duration::ZERO;
            if self.receive(&mut incoming).is_err() || incoming.end == 0 {
                return true;
            }
        }
    }

    fn is_ended(&self) -> bool {
        self.socket.is_ended()
    }

    fn channel(&self) -> Vec<u8> {
        self.channel.get().map_or_else(Vec::new, |channel| channel.to_vec())
    }

    fn peer(&self) -> String {
        self.socket.peer()
    }
}

impl TlsSocket {
    /// Whether decrypted bytes, or the word that there are no more, wait to be read.
    fn is_at_hand(&self) -> bool {
        let mut connection = lock(&self.connection);
        match connection.process_new_packets() {
            Ok(state) => state.plaintext_bytes_to_read() > 0 || state.peer_has_closed(),
            Err(_) => true,
        }
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state of a connection has keys in it.
        f.debug_struct("TlsSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Whether a call is to be made again, later.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic inside of them ends the connection's thread, and the peer notices a record that is
    // missing or damaged.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
