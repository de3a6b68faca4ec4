// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounting for a process that cannot do so itself: one in a name space of mounts of its own, where no other
//! program would see the mount.
//!
//! The process that serves listens at a socket ([`Mounter`]); the one that mounts connects ([`mount_for`]) and
//! gets the options. It sends the connection with the kernel, or ends the stream; and reads how far the kernel
//! is to read ahead once the file system can be used, or the end of the stream where that failed.

use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::mount::{Mounted, checked, mount_by_kernel, receive_descriptor};
use crate::options::MountOptions;

/// How long the process that mounts is waited for. A service manager starts it as soon as this one waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A socket at which a process waits for the one that mounts for it.
#[derive(Debug)]
pub struct Mounter {
    listener: UnixListener,
}

impl Mounter {
    /// Listens at `socket`, also where an earlier process has left one.
    ///
    /// # Errors
    ///
    /// Those of `bind(2)`, `EADDRINUSE` also where something else than a socket is there.
    pub fn bind(socket: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket).or_else(|error| {
            let is_left = error.kind() == io::ErrorKind::AddrInUse && is_left(socket)?;
            if !is_left {
                return Err(error);
            }
            fs::remove_file(socket)?;
            UnixListener::bind(socket)
        })?;
        Ok(Self { listener })
    }

    /// Waits for the process that mounts, and returns the connection with the kernel.
    pub(crate) fn wait(&self, options: &MountOptions) -> io::Result<(OwnedFd, Served)> {
        let mut listening = [PollFd::new(&self.listener, PollFlags::IN)];
        let longest = Timespec::try_from(WAIT_MAX).expect("it is a minute");
        let came = loop {
            match poll(&mut listening, Some(&longest)) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        if came == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no process came to mount it"));
        }
        let (mut stream, _) = self.listener.accept()?;
        let user = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        if !user.is_root() && user != rustix::process::geteuid() {
            let reason = format!("user {} may not mount for this process", user.as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        stream.write_all(options.line().as_bytes())?;
        let file = receive_descriptor(&stream)?.ok_or_else(|| {
            io::Error::other("the process that was to mount it could not, and says why")
        })?;
        Ok((file, Served(stream)))
    }
}

/// Whether there is a socket at which no process listens any more.
fn is_left(path: &Path) -> io::Result<bool> {
    // A file of another kind refuses connections, too.
    Ok(fs::symlink_metadata(path)?.file_type().is_socket()
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Reports to the process that mounted that the file system can be used.
#[derive(Debug)]
pub(crate) struct Served(UnixStream);

impl Served {
    /// The same with how far the kernel is to read ahead.
    pub(crate) fn report(mut self, readahead_bytes: u32) -> io::Result<()> {
        writeln!(self.0, "{readahead_bytes}")
    }
}

/// Mounts at `directory` for the process that waits at `socket`; returns when the file system can be used.
///
/// # Errors
///
/// Those of `connect(2)` and `mount(2)`; `BrokenPipe` where the process ends before it serves: then nothing is
/// mounted.
pub fn mount_for(socket: &Path, directory: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    // From here on the other process learns of a failure by the end of the stream.
    let directory = checked(directory)?;
    let mut lines = BufReader::new(&stream).lines();
    let mut line = || lines.next().unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()));
    let mut options = MountOptions::default();
    options.apply_line(&line()?)?;
    let file = mount_by_kernel(&directory, &options)?;
    let mounted = Mounted::by_kernel(directory);
    let served = send_descriptor(&stream, &file).and_then(|()| {
        drop(file);
        line()?.parse::<u32>().map_err(io::Error::other)
    });
    match served {
        // A shorter one is slower, and no failure.
        Ok(readahead_bytes) => {
            let _ = mounted.set_readahead(readahead_bytes);
            Ok(())
        }
        Err(error) => {
            mounted.unmount(true)?;
            Err(error)
        }
    }
}

fn send_descriptor(stream: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    let fits = control.push(SendAncillaryMessage::ScmRights(&files));
    assert!(fits, "there is space for one descriptor");
    rustix::net::sendmsg(stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
