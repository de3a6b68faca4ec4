// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts and unmounts: as root by the kernel's calls, otherwise with `fusermount3`.

use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::device;
use crate::options::MountOptions;

/// The program of libfuse that mounts for users other than root.
const FUSERMOUNT: &str = "fusermount3";

/// A place where a file system was mounted.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    path: PathBuf,
    by: By,
    /// Tells this mount from others that come to the same place later.
    device: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum By {
    Kernel,
    Fusermount,
    /// The process that mounted it, or another one in its name space of mounts.
    Other,
}

/// Mounts at `path` and returns the connection, on which the kernel has sent its first message.
pub(crate) fn mount(path: &Path, options: &MountOptions) -> io::Result<(OwnedFd, Mounted)> {
    let path = checked(path)?;
    let (file, by) = if rustix::process::geteuid().is_root() {
        (mount_by_kernel(&path, options)?, By::Kernel)
    } else {
        (mount_by_fusermount(&path, options)?, By::Fusermount)
    };
    let device = device_of(&path).ok();
    Ok((file, Mounted { path, by, device }))
}

/// An absolute path, so that it can be unmounted from elsewhere, of a directory.
pub(crate) fn checked(path: &Path) -> io::Result<PathBuf> {
    let path = fs::canonicalize(path)?;
    match fs::symlink_metadata(&path)?.is_dir() {
        true => Ok(path),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

impl Mounted {
    /// What another process mounted.
    pub(crate) fn by_other(path: &Path) -> Self {
        Self { path: path.into(), by: By::Other, device: None }
    }

    /// What this process mounted by the kernel's calls at a path that was checked.
    pub(crate) fn by_kernel(path: PathBuf) -> Self {
        let device = device_of(&path).ok();
        Self { path, by: By::Kernel, device }
    }

    /// Where.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets how far the kernel reads ahead of a sequential reader: more than it offers in its
    /// greeting, which is what suits a disk.
    pub(crate) fn set_readahead(&self, bytes: u32) -> io::Result<()> {
        let (major, minor) = self.device.ok_or(io::ErrorKind::NotFound)?;
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        fs::write(path, (bytes / 1024).to_string())
    }

    /// Unmounts, or does nothing where something else is mounted there by now.
    ///
    /// Where it is in use: `EBUSY`, or, where `is_lazy`, it leaves the tree at once and goes when
    /// the last user does. `Unsupported` where another process mounted it.
    pub(crate) fn unmount(&self, is_lazy: bool) -> io::Result<()> {
        let found = device_of(&self.path);
        if self.device.is_some() && found.is_ok() && found.ok() != self.device {
            return Ok(());
        }
        match self.by {
            By::Kernel => {
                let how = if is_lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
                match rustix::mount::unmount(&self.path, how | UnmountFlags::NOFOLLOW) {
                    // Nothing is mounted there (any more).
                    Err(Errno::INVAL | Errno::NOENT) => Ok(()),
                    result => Ok(result?),
                }
            }
            By::Fusermount => self.unmount_by_fusermount(is_lazy),
            By::Other => {
                let reason = "another process mounted it: it ends with umount(8)";
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
        }
    }

    fn unmount_by_fusermount(&self, is_lazy: bool) -> io::Result<()> {
        let mut command = Command::new(FUSERMOUNT);
        command.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(&self.path);
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(said(&output.stderr, &self.path))
    }
}

/// Why `fusermount3` did not do something with a path. It has one exit status for all reasons.
fn said(output: &[u8], path: &Path) -> io::Error {
    const DENIED: [&str; 6] = [
        "no write access",
        "not owned by user",
        "only allowed if",
        "is forbidden",
        "Permission denied",
        "not permitted",
    ];
    let message = String::from_utf8_lossy(output);
    // A directory may have any of these words for its name.
    let reason = message.replace(&*path.to_string_lossy(), "");
    if reason.contains("resource busy") {
        return Errno::BUSY.into();
    }
    let kind = match DENIED.iter().any(|words| reason.contains(words)) {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::Other,
    };
    io::Error::new(kind, message.trim())
}

pub(crate) fn mount_by_kernel(path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let file = rustix::fs::open(device::PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        file.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let data = CString::new(data).expect("numbers and words have no NUL");
    let kind = match options.subtype.as_str() {
        "" => "fuse".into(),
        subtype => format!("fuse.{subtype}"),
    };
    rustix::mount::mount(&*options.source, path, kind, options.flags(), &*data)?;
    Ok(file)
}

fn mount_by_fusermount(path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-o").arg(options.words()).arg("--").arg(path);
    // Its end of the socket is what it finds as its input.
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
    let output = command.stderr(Stdio::piped()).output().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot run {FUSERMOUNT}: {error}"))
    })?;
    // The command holds the other end, which must be closed before the end of the stream is seen.
    drop(command);
    let received = receive_descriptor(&ours)?;
    match (output.status.success(), received) {
        (true, Some(file)) => Ok(file),
        _ => Err(said(&output.stderr, path)),
    }
}

/// Takes a descriptor with one byte, or the end of the stream.
pub(crate) fn receive_descriptor(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(files.next())
}

/// The device that the files at `path` are on. Asks nothing of the file system that is there.
fn device_of(path: &Path) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}
