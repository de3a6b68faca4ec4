// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows a directory at another place, until that is unmounted:
//!
//! ```text
//! mirror SOURCE MOUNTPOINT [threads=N] [timeout=SECONDS] [keep-cache] [write-back] [pass-through]
//!        [OPTIONS OF MOUNT]
//! ```

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::Mode;
use terrace_fuse::mirror::{Mirror, MirrorOptions};
use terrace_fuse::{MountOptions, Session};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(source), Some(mountpoint)) = (arguments.next(), arguments.next()) else {
        return Err(invalid("needs a source and a mountpoint"));
    };
    let mut mount_options = MountOptions::default();
    let mut options = MirrorOptions::default();
    let mut threads = 2;
    mount_options.apply(["default_permissions"])?;
    for argument in arguments {
        match argument.split_once('=') {
            Some(("threads", number)) => {
                threads = number.parse().map_err(|_| invalid("threads is a number"))?;
            }
            Some(("timeout", seconds)) => {
                let seconds = seconds.parse().map_err(|_| invalid("timeout is in seconds"))?;
                let timeout = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| invalid("timeout is in seconds"))?;
                options.entry_timeout = timeout;
                options.attributes_timeout = timeout;
                options.negative_timeout = timeout;
            }
            _ if argument == "keep-cache" => options.keeps_cache = true,
            _ if argument == "write-back" => options.writes_back = true,
            _ if argument == "pass-through" => options.passes_through = true,
            _ => mount_options.apply([&*argument])?,
        }
    }
    // The kernel has applied that of who makes something.
    rustix::process::umask(Mode::empty());
    let wanted = Mirror::wanted(&options);
    let session = Session::mount(&PathBuf::from(mountpoint), &mount_options, &wanted)?;
    let mirror = Mirror::open(&PathBuf::from(source), options, session.passthrough())?;
    eprintln!("{:?}", session.negotiated());
    session.serve(threads, &mirror)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
