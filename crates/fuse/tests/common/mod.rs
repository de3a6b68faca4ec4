// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file system that is mounted for a test.
#![allow(dead_code, unreachable_pub, reason = "not every test uses everything")]

use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::Mode;
use tempfile::TempDir;
use terrace_fuse::mirror::{Mirror, MirrorOptions};
use terrace_fuse::{FileSystem, InitFlags, MountOptions, Notifier, Session, Unmounter, Wanted};

/// Whether this is one of the programs that run the tests of another one over `io_uring`.
pub const USES_URING: bool = {
    let name = env!("CARGO_CRATE_NAME").as_bytes();
    matches!(name, [.., b'_', b'u', b'r', b'i', b'n', b'g'])
};

/// Whether the kernel offers that.
const URING_FILE: &str = "/sys/module/fuse/parameters/enable_uring";

/// Threads that serve a mount.
const THREADS: usize = 2;

/// A file system that is served by threads of the test until this is dropped.
pub struct Mounted {
    directory: TempDir,
    pub unmounter: Unmounter,
    pub notifier: Notifier,
    server: Option<JoinHandle<io::Result<()>>>,
}

/// Whether tests can mount; they must as root, and others are told. Over `io_uring` they must where the
/// kernel offers it.
pub fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount here");
        return false;
    }
    let can = !USES_URING
        || std::fs::read_to_string(URING_FILE).is_ok_and(|offered| offered.trim() == "Y");
    if !can {
        eprintln!("skipped: the kernel does not offer to ask over io_uring file={URING_FILE}");
    }
    can
}

/// A directory with `below`, which is shown, and `mount`, where.
pub fn places() -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::create_dir(directory.path().join("below")).expect("below");
    std::fs::create_dir(directory.path().join("mount")).expect("mount");
    directory
}

impl Mounted {
    /// Mounts what `make` returns for the session and the directory `below`.
    pub fn new<F: FileSystem + 'static>(
        wanted: &Wanted,
        make: impl FnOnce(&Session, &Path) -> F,
    ) -> Self {
        // Modes are to be those that were asked for; every test of the process wants this.
        rustix::process::umask(Mode::empty());
        let directory = places();
        let mut options = MountOptions::default();
        options.apply(["default_permissions,allow_other,suid,dev"]).expect("options");
        let wanted = Wanted { uring: USES_URING, ..*wanted };
        let session = Session::mount(&directory.path().join("mount"), &options, &wanted)
            .expect("root can mount");
        let flags = session.negotiated().flags;
        assert_eq!(flags.contains(InitFlags::OVER_IO_URING), USES_URING);
        let files = make(&session, &directory.path().join("below"));
        let (unmounter, notifier) = (session.unmounter(), session.notifier());
        let server = std::thread::spawn(move || session.serve(THREADS, &files));
        Self { directory, unmounter, notifier, server: Some(server) }
    }

    pub fn mirror(options: MirrorOptions) -> Self {
        Self::new(&Mirror::wanted(&options), |session, below| {
            Mirror::open(below, options, session.passthrough()).expect("a directory")
        })
    }

    /// A path of the file system.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    /// The same in the directory that a mirror shows.
    pub fn below(&self, name: &str) -> PathBuf {
        self.directory.path().join("below").join(name)
    }

    /// Waits until serving has ended because of an unmount elsewhere.
    pub fn wait(&mut self) -> io::Result<()> {
        self.server.take().expect("is waited for once").join().expect("serving does not panic")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            // Lazily, so that a test that fails with open files ends.
            self.unmounter.unmount_lazily().expect("unmount");
            if !std::thread::panicking() {
                self.wait().expect("serving ends well");
            }
        }
    }
}
