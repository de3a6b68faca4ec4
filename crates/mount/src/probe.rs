// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel can pass files of any tier through.

use std::path::PathBuf;

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
        let reason = passthrough.refusal(directory)?;
        let device = rustix::fs::stat(directory).ok()?.st_dev;
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
