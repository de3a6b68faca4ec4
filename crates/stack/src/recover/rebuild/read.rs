// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files are on the tiers, and what they say.

use terrace_core::{Error, Identity, Result, Stat, TierIndex};

use crate::catalog::files::{self, FileName};
use crate::recover::open::keeps_identity;
use crate::report::Problem;
use crate::tiers::parts::{Parts, Tier};

/// A file with what it says of itself.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) name: FileName,
    pub(super) stat: Result<Stat, Error>,
    pub(super) identity: Result<Option<Identity>, Error>,
}

/// The names of all files, in order of the objects. Others' files are reported.
pub(super) fn list_all(parts: &Parts, problems: &mut Vec<Problem>) -> Result<Vec<FileName>> {
    let mut names = Vec::new();
    for (index, tier) in parts.tiers.iter().enumerate().filter(|(_, tier)| keeps_identity(tier)) {
        files::list(
            TierIndex(index as u8),
            &*tier.backend,
            &mut |name| names.push(name),
            &mut |key| {
                problems.push(Problem {
                    kind: "unknown-file".into(),
                    place: tier.name.clone(),
                    detail: format!("{key} is not the name of a segment; it was left alone"),
                });
            },
        )?;
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads lengths and marks, in the order of `names`.
pub(super) fn read_files(tiers: &[Tier], names: &[FileName]) -> Vec<FoundFile> {
    files::look_at(names, |name| {
        let backend = &tiers[name.tier.index()].backend;
        let key = name.key();
        FoundFile { name: *name, stat: backend.stat(&key), identity: backend.identity(&key) }
    })
}
