// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP and Unix sockets.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use terrace_core::{Applied, Clock, Error, ErrorKind, Result};

use crate::Transport;
use crate::endpoint::Endpoint;
use crate::tuning::tune;
use crate::unix;

/// Most descriptors that come with one message; more are closed.
const DESCRIPTORS_MAX: usize = 4;

/// Most slices that the operating system takes at once, `IOV_MAX`.
const SLICES_MAX: usize = 1024;

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    kind: Kind,
    /// Came with what was read, and not asked for yet.
    descriptors: Mutex<Vec<OwnedFd>>,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What can be done with a socket without waiting.
pub(crate) struct Ready {
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

impl Socket {
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        tune(&stream)?;
        Ok(Self { kind: Kind::Tcp(stream), descriptors: Mutex::default() })
    }

    fn unix(stream: UnixStream) -> Self {
        Self { kind: Kind::Unix(stream), descriptors: Mutex::default() }
    }

    /// Two sockets that are connected with each other.
    ///
    /// # Errors
    ///
    /// Those of socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixStream::pair().map(|(one, other)| (Self::unix(one), Self::unix(other)))
    }

    /// Sends what there is room for now. `WouldBlock` where there is none.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self.descriptor(), bytes, flags)?)
    }

    /// Waits as long as a read would until something can be read or written. Says which: the end,
    /// too, can be read.
    pub(crate) fn wait_for_either(&self) -> io::Result<Ready> {
        let timeout = match &self.kind {
            Kind::Tcp(stream) => stream.read_timeout()?,
            Kind::Unix(stream) => stream.read_timeout()?,
        };
        let timeout = timeout.map(timespec);
        let descriptor = self.descriptor();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN | PollFlags::OUT)];
        if rustix::event::poll(&mut descriptors, timeout.as_ref())? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let events = descriptors[0].revents();
        Ok(Ready { can_write: events.contains(PollFlags::OUT), can_read: events != PollFlags::OUT })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tcp(stream) => stream.as_fd(),
            Kind::Unix(stream) => stream.as_fd(),
        }
    }

    fn read_unix(&self, stream: &UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let slices = &mut [IoSliceMut::new(buffer)];
        let received = rustix::net::recvmsg(stream, slices, &mut ancillary, flags)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                let mut kept = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
                for descriptor in descriptors {
                    // A peer cannot fill this process with descriptors that it did not ask for.
                    if kept.len() < DESCRIPTORS_MAX {
                        kept.push(descriptor);
                    }
                }
            }
        }
        Ok(received.bytes)
    }
}

impl Transport for Socket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.kind {
            Kind::Tcp(stream) => (&mut &*stream).read(buffer),
            Kind::Unix(stream) => self.read_unix(stream, buffer),
        }
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Not writev, as that of the standard library: it has no flag against the signal.
        let flags = SendFlags::NOSIGNAL;
        if let [bytes] = slices {
            // A shorter way through the operating system.
            return Ok(rustix::net::send(self.descriptor(), bytes, flags)?);
        }
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.descriptor(), slices, &mut nothing, flags)?)
    }

    fn shutdown(&self, how: Shutdown) {
        // It may have ended already.
        let _ = match &self.kind {
            Kind::Tcp(stream) => stream.shutdown(how),
            Kind::Unix(stream) => stream.shutdown(how),
        };
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(stream) => stream.set_read_timeout(timeout),
            Kind::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(stream) => stream.set_write_timeout(timeout),
            Kind::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    fn is_readable(&self, timeout: Duration) -> bool {
        let timeout = timespec(timeout);
        let descriptor = self.descriptor();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        // An interruption by a signal is as good as the end of the time.
        matches!(rustix::event::poll(&mut descriptors, Some(&timeout)), Ok(count) if count > 0)
    }

    fn is_ended(&self) -> bool {
        let descriptor = self.descriptor();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::RDHUP)];
        // What cannot be asked is not relied on.
        !matches!(rustix::event::poll(&mut descriptors, Some(&Timespec::default())), Ok(0))
    }

    fn channel(&self) -> Vec<u8> {
        Vec::new()
    }

    fn passes_descriptors(&self) -> bool {
        matches!(self.kind, Kind::Unix(_))
    }

    fn send_descriptors(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let slices = [IoSlice::new(bytes)];
        let sent =
            rustix::net::sendmsg(self.descriptor(), &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
        let mut rest = &bytes[sent..];
        while !rest.is_empty() {
            match self.write_vectored(&[IoSlice::new(rest)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_descriptors(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *self.descriptors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn peer(&self) -> String {
        match &self.kind {
            Kind::Tcp(stream) => stream.peer_addr().map_or("?".into(), |peer| peer.to_string()),
            Kind::Unix(stream) => match rustix::net::sockopt::socket_peercred(stream) {
                Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
                Err(_) => "a local process".into(),
            },
        }
    }
}

/// Connects to a server.
///
/// # Errors
///
/// `Unreachable` with `Applied::No` where nothing answers within `timeout`; `Denied`.
pub fn connect(endpoint: &Endpoint, timeout: Duration, clock: &dyn Clock) -> Result<Socket> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::from_io("reach the server", error),
        _ => unreachable(error),
    };
    let connected = match endpoint {
        Endpoint::Unix(path) => unix::connect(path).map(Socket::unix),
        Endpoint::Tcp { host, port } => connect_tcp(host, *port, timeout, clock),
    };
    connected.map_err(failed).map_err(|error| error.with("server", endpoint))
}

fn unreachable(source: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::No }, "reach the server")
        .because("it does not answer")
        .caused_by(source)
}

fn connect_tcp(host: &str, port: u16, timeout: Duration, clock: &dyn Clock) -> io::Result<Socket> {
    let deadline_ns = clock.now_ns().saturating_add(timeout.as_nanos() as u64);
    let left = || Duration::from_nanos(deadline_ns.saturating_sub(clock.now_ns()));
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in resolve(host, port, left())? {
        // Zero is not a timeout that the standard library takes.
        let left = left().max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Socket::tcp(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of a name. Asking for them cannot be given a time, so that another thread does it;
/// it ends when the resolver gives up.
fn resolve(host: &str, port: u16, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let host = host.to_owned();
    std::thread::Builder::new().name("terrace-resolve".into()).spawn(move || {
        terrace_affinity::roam();
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // The receiver may be gone.
        let _ = sender.send(found);
    })?;
    receiver.recv_timeout(timeout).unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the name of the server is not resolved in time",
        ))
    })
}

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    kind: ListenerKind,
    endpoint: Endpoint,
}

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener),
    /// Its path is removed when it is dropped.
    Unix(UnixListener, unix::Bound),
}

impl Listener {
    /// Listens. A Unix socket gets the mode 0600: only its owner, and root, can connect. One on
    /// which no process listens any more is replaced.
    ///
    /// # Errors
    ///
    /// `Busy` where another process listens there, `Denied`, `Invalid`, `Io`.
    pub fn bind(endpoint: &Endpoint) -> Result<Self> {
        let failed = |error: io::Error| {
            let error = match error.kind() {
                io::ErrorKind::AddrInUse => Error::new(ErrorKind::Busy, "listen")
                    .because("another process listens there")
                    .caused_by(error),
                _ => Error::from_io("listen", error),
            };
            error.with("address", endpoint)
        };
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).map_err(failed)?;
                let port = listener.local_addr().map_err(failed)?.port();
                let endpoint = Endpoint::Tcp { host: host.clone(), port };
                Ok(Self { kind: ListenerKind::Tcp(listener), endpoint })
            }
            Endpoint::Unix(path) => {
                let (listener, name) = unix::bind(path).map_err(failed)?;
                let kind = ListenerKind::Unix(listener, name);
                Ok(Self { kind, endpoint: endpoint.clone() })
            }
        }
    }

    /// Where it listens; a port that was to be free is known here.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// After [`Listener::close`] always; otherwise mostly a lack of descriptors.
    pub fn accept(&self) -> io::Result<Socket> {
        match &self.kind {
            ListenerKind::Tcp(listener) => Socket::tcp(listener.accept()?.0),
            ListenerKind::Unix(listener, _) => Ok(Socket::unix(listener.accept()?.0)),
        }
    }

    /// Refuses connections from now on and ends [`Listener::accept`].
    pub fn close(&self) {
        // It can only fail for what is no listening socket.
        let _ = match &self.kind {
            ListenerKind::Tcp(listener) => {
                rustix::net::shutdown(listener, rustix::net::Shutdown::Both)
            }
            ListenerKind::Unix(listener, _) => {
                rustix::net::shutdown(listener, rustix::net::Shutdown::Both)
            }
        };
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenerKind::Unix(_, name) = &self.kind {
            name.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use terrace_core::SystemClock;

    use super::*;

    #[test]
    fn a_client_reaches_a_listener() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        for endpoint in ["127.0.0.1:0".parse().expect("legal"), Endpoint::Unix(path.clone())] {
            let listener = Listener::bind(&endpoint).expect("listen");
            let endpoint = listener.endpoint().clone();
            let clock = SystemClock::default();
            let client = connect(&endpoint, Duration::from_secs(5), &clock).expect("connect");
            let server = listener.accept().expect("accept");
            client.write_vectored(&[IoSlice::new(b"hello")]).expect("write");
            let mut buffer = [0; 5];
            assert_eq!(server.read(&mut buffer).expect("read"), 5);
            listener.close();
            listener.accept().expect_err("closed");
        }
        assert!(!path.exists(), "the socket's name is left behind");
    }

    #[test]
    fn nobody_there_is_unreachable() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
        let endpoint = listener.endpoint().clone();
        drop(listener);
        let clock = SystemClock::default();
        let error = connect(&endpoint, Duration::from_secs(5), &clock).expect_err("nobody");
        assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::No });
        let nowhere = "no-such-host.invalid:1".parse().expect("legal");
        let error = connect(&nowhere, Duration::from_secs(5), &clock).expect_err("nowhere");
        assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::No });
    }

    #[test]
    fn a_dead_sockets_name_is_taken_over_and_a_living_ones_is_not() {
        let directory = tempfile::tempdir().expect("directory");
        let endpoint = Endpoint::Unix(directory.path().join("socket"));
        let Endpoint::Unix(path) = &endpoint else { unreachable!("it is") };
        drop(UnixListener::bind(path).expect("bind"));
        assert!(path.exists());
        let listener = Listener::bind(&endpoint).expect("taken over");
        assert_eq!(Listener::bind(&endpoint).expect_err("alive").kind(), ErrorKind::Busy);
        // One that refuses connections leaves the name to the next.
        listener.close();
        let next = Listener::bind(&endpoint).expect("taken over");
        drop(listener);
        assert_eq!(Listener::bind(&endpoint).expect_err("alive").kind(), ErrorKind::Busy);
        drop(next);
        std::fs::write(path, b"a file").expect("write");
        Listener::bind(&endpoint).expect_err("not a socket");
        assert_eq!(std::fs::read(path).expect("still there"), b"a file");
    }

    #[test]
    fn the_end_of_the_other_side_is_seen() {
        let (one, other) = Socket::pair().expect("pair");
        assert!(!one.is_ended());
        other.write_vectored(&[IoSlice::new(b"unread")]).expect("write");
        assert!(!one.is_ended());
        drop(other);
        assert!(one.is_ended());
    }

    #[test]
    fn descriptors_come_with_their_bytes() {
        let (one, other) = Socket::pair().expect("pair");
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"content").expect("write");
        let file = File::open(&path).expect("open");
        one.send_descriptors(b"take", &[file.as_fd()]).expect("send");
        let mut buffer = [0; 4];
        assert_eq!(other.read(&mut buffer).expect("read"), 4);
        let passed = File::from(other.take_descriptors().pop().expect("one came"));
        let mut content = [0; 7];
        passed.read_exact_at(&mut content, 0).expect("read");
        assert_eq!(&content, b"content");
        assert!(other.take_descriptors().is_empty());
    }
}
