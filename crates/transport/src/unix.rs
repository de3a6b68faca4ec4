// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unix sockets in the file system, however long their paths are.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Longest path of a socket (`sun_path` in unix(7), less its NUL).
const PATH_BYTES_MAX: usize = 107;

/// A path to a socket that is short enough, while this lives.
struct Name {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl Name {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path: path.into(), _directory: None });
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = directory.unwrap_or(Path::new("."));
        let descriptor = rustix::fs::open(directory, flags, Mode::empty())?;
        let short = Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string());
        Ok(Self { path: short.join(name), _directory: Some(descriptor) })
    }
}

/// Listens on a socket that only its owner, and root, can connect to. One on which no process
/// listens any more is replaced. From the moment the path exists, it can be connected to: the socket
/// gets its name there as the last step.
///
/// # Errors
///
/// `AddrInUse` where a process listens, `AlreadyExists` where something else is there; those of the
/// system.
pub(crate) fn bind(path: &Path) -> io::Result<(UnixListener, Bound)> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            // Its owner may be busy, or it may be another user's: it is not taken away.
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = tempfile::Builder::new()
        .prefix(".socket-")
        .make_in(directory.unwrap_or(Path::new(".")), listen)?;
    // Fails where another process came first, whose socket stays.
    let named = std::fs::hard_link(made.path(), path);
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
        _ => error,
    })?;
    let (listener, _without_its_first_name) = made.into_parts();
    let identity = identity(path)?;
    Ok((listener, Bound { path: path.into(), identity }))
}

/// The name that a listener has given to its socket.
#[derive(Debug)]
pub(crate) struct Bound {
    path: PathBuf,
    identity: (u64, u64),
}

impl Bound {
    /// Removes it, unless another listener has it by now, as it may once this one refuses connections.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // The next listener there replaces it anyhow.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Listens at a path where nothing is.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let name = Name::of(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&name.path)?)?;
    // Connecting fails before `listen`, so no connection comes in before this.
    rustix::fs::chmod(&name.path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Connects to one.
///
/// # Errors
///
/// Those of the system.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Name::of(path)?.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_be_longer_than_an_address() {
        let home = tempfile::tempdir().expect("directory");
        let directory = home.path().join("long/".repeat(60));
        std::fs::create_dir_all(&directory).expect("writable");
        let path = directory.join("socket");
        connect(&path).expect_err("nobody is there");
        let (listener, _) = bind(&path).expect("listens");
        connect(&path).expect("somebody is there");
        assert_eq!(bind(&path).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        bind(&path).expect("takes over what is left");
        let names = std::fs::read_dir(path.parent().expect("the directory")).expect("readable");
        assert_eq!(names.count(), 1, "only the socket is left");
    }

    #[test]
    fn what_is_there_can_be_connected_to() {
        let home = tempfile::tempdir().expect("directory");
        for number in 0..300 {
            let path = home.path().join(format!("socket-{number}"));
            let connected = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    while !path.exists() {
                        std::hint::spin_loop();
                    }
                    connect(&path).map(drop)
                });
                let _bound = bind(&path).expect("listens");
                waiting.join().expect("no panic")
            });
            connected.expect("somebody listens");
        }
    }
}
