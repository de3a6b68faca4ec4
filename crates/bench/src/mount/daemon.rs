// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts in processes of their own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::mount::UnmountFlags;
use terrace_core::{Error, ErrorKind, Result};
use terrace_fuse::mirror::{Mirror, MirrorOptions};
use terrace_fuse::{MountOptions, Session, Wanted};

use terrace_console::output::Output;

/// Threads of every daemon: what `terrace mount` has by itself.
const THREADS: usize = 4;

/// A mount in a process of its own; ends with this.
pub(super) struct Daemon {
    child: Child,
    pub(super) place: PathBuf,
}

impl Daemon {
    /// Starts this command with arguments that mount at `place`, and waits until it says so.
    pub(super) fn start<A: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = A>,
        place: &Path,
    ) -> Result<Self> {
        std::fs::create_dir_all(place)
            .map_err(|error| Error::from_io("make a directory to mount at", error))?;
        let failed = |error| Error::from_io("start a mount", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for the command, which unmounts when it is done.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().expect("it was just piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        // Made first, so that the process ends with an error, too.
        let daemon = Self { child, place: place.into() };
        read.map_err(failed)?;
        match line.is_empty() {
            true => Err(Error::new(ErrorKind::Io, "start a mount").because("it did not come up")),
            false => Ok(daemon),
        }
    }

    /// The process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Busy or not: the measurement no longer uses it.
        let _ = rustix::mount::unmount(&self.place, UnmountFlags::DETACH);
        let _ = self.child.wait();
    }
}

/// What the command starts itself for: shows `source` at `place` and does nothing else, until it is
/// unmounted. `cached_for` and `uring` as for a mount that is measured.
pub fn mirror(source: &Path, place: &Path, cached_for: Duration, uring: bool) -> Result<()> {
    let failed = |error| Error::from_io("mirror a directory", error);
    let mut mount = MountOptions { default_permissions: true, ..MountOptions::default() };
    mount.allow_other = rustix::process::geteuid().is_root();
    let options = MirrorOptions {
        entry_timeout: cached_for,
        attributes_timeout: cached_for,
        negative_timeout: cached_for,
        keeps_cache: true,
        ..MirrorOptions::default()
    };
    // The kernel has applied the caller's umask.
    rustix::process::umask(Mode::empty());
    let wanted = Wanted { uring, ..Mirror::wanted(&options) };
    let session = Session::mount(place, &mount, &wanted).map_err(failed)?;
    let mirror = Mirror::open(source, options, session.passthrough()).map_err(failed)?;
    let mut output = Output::new();
    let said = output.line("mirrored").and_then(|()| output.flush());
    said.map_err(|_| {
        Error::new(ErrorKind::Io, "mirror a directory").because("no process listens")
    })?;
    // As many as a mount has.
    session.serve(THREADS, &mirror).map_err(failed)
}
