// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel can pass files of any tier through.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terrace_fuse::Passthrough;

/// A tier whose files it cannot pass through.
pub(crate) struct Refused {
    name: String,
    /// Its file system.
    pub(crate) device: u64,
    reason: String,
}

/// Of these tiers, those of which it can pass through no file.
pub(crate) fn refused(passthrough: &Passthrough, tiers: &[(String, PathBuf)]) -> Vec<Refused> {
    let probe = |(name, directory): &(String, PathBuf)| {
        let (device, reason) = probe(passthrough, directory)?;
        Some(Refused { name: name.clone(), device, reason })
    };
    tiers.iter().filter_map(probe).collect()
}

/// Why it can of none of so many tiers; `None` where it can of one.
pub(crate) fn refusal(refused: &[Refused], tiers: usize) -> Option<String> {
    if tiers == 0 {
        return Some("no tier hands out files: they are throttled, or no directories".into());
    }
    if refused.len() < tiers {
        return None;
    }
    let reasons: Vec<_> =
        refused.iter().map(|tier| format!("tier {}: {}", tier.name, tier.reason)).collect();
    Some(format!("the kernel can pass through files of no tier; {}", reasons.join("; ")))
}

/// Why it can pass through no file of a directory, and the file system of that.
fn probe(passthrough: &Passthrough, directory: &Path) -> Option<(u64, String)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // What cannot be tried may work.
    let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let error = passthrough.open(file.as_fd()).err()?;
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => "it is on overlayfs or another stacked file system".into(),
        Some(Errno::PERM) => "the kernel does that for root alone (CAP_SYS_ADMIN)".into(),
        _ => error.to_string(),
    };
    Some((rustix::fs::fstat(&file).ok()?.st_dev, reason))
}
