// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel can pass files of any tier through.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terrace_fuse::Passthrough;

/// Why it can of none; `None` where it can of one.
pub(crate) fn refusal(passthrough: &Passthrough, tiers: &[(String, PathBuf)]) -> Option<String> {
    let mut reasons = Vec::new();
    for (name, directory) in tiers {
        match probe(passthrough, directory) {
            Ok(()) => return None,
            Err(reason) => reasons.push(format!("tier {name}: {reason}")),
        }
    }
    if reasons.is_empty() {
        return Some("no tier hands out files: they are throttled, or no directories".into());
    }
    Some(format!("the kernel can pass through files of no tier; {}", reasons.join("; ")))
}

fn probe(passthrough: &Passthrough, directory: &Path) -> Result<(), String> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        // What cannot be tried may work.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::ROFS) => {
            return Ok(());
        }
        Err(errno) => return Err(errno.to_string()),
    };
    match passthrough.open(file.as_fd()) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            Err("it is on overlayfs or another stacked file system".into())
        }
        Err(error) => Err(error.to_string()),
    }
}
