// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket in the file system.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use terrace_core::{Error, Result};

use crate::directory::{Directory, SOCKET};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Longest path of a socket (`sun_path` in unix(7), less its NUL).
const PATH_BYTES_MAX: usize = 107;

/// A path to the socket that is short enough, while this lives.
struct Name {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl Name {
    fn of(directory: &Directory) -> std::io::Result<Self> {
        let path = directory.socket();
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(directory.path(), flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string());
        Ok(Self { path: path.join(SOCKET), _directory: Some(descriptor) })
    }
}

/// The owner's end; removes its name when it is dropped.
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens; whoever calls this owns the store, so a socket that is there is a dead owner's.
    pub(super) fn bind(directory: &Directory) -> Result<Self> {
        let path = directory.socket();
        let bind = || -> std::io::Result<UnixListener> {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let name = Name::of(directory)?;
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(&name.path)?)?;
            // Nobody can connect before `listen`, so nobody comes in before this.
            rustix::fs::chmod(&name.path, Mode::RUSR | Mode::WUSR)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(UnixListener::from(socket))
        };
        let socket = bind().map_err(|error| {
            Error::from_io("listen on the control socket", error).with("socket", path.display())
        })?;
        Ok(Self { socket, path })
    }

    /// Waits for a connection; fails once [`Listener::wake`] was called.
    pub(super) fn accept(&self) -> std::io::Result<UnixStream> {
        self.socket.accept().map(|(stream, _)| stream)
    }

    /// Refuses connections from now on and ends [`Listener::accept`], as Linux does for sockets in
    /// the file system.
    pub(super) fn wake(&self) {
        // It can only fail for what is no connected or listening socket.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next owner replaces it anyhow.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The other end.
pub(super) fn connect(directory: &Directory) -> std::io::Result<UnixStream> {
    UnixStream::connect(Name::of(directory)?.path)
}
