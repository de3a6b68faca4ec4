// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tier's superblock says of the store's openings, and whether it goes with the catalog.
//!
//! A superblock is written when an opening begins, before the catalog says so, once more when the
//! catalog does, and a last time behind a close. So a tier that is ahead of the catalog, or closed where
//! the catalog is not, tells an older copy of the catalog from a crash.

use terrace_core::{Error, ErrorKind, Result, Superblock};

use crate::Tier;
use crate::catalog::format::{self, FORMAT_VERSION};
use crate::catalog::header::Header;
use crate::shared::Shared;
use crate::tiers::list::TierState;

/// An opening begins: the catalog may not say so, and nothing was written in it.
const OPENING: u64 = 1;

/// The opening ended in an orderly way, and the catalog says so.
const CLOSED: u64 = 2;

/// How far an opening came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Opening,
    Open,
    Closed,
}

pub(crate) fn superblock(store_id: u128, tier: &str, epoch: u64, stage: Stage) -> Superblock {
    Superblock {
        store_id,
        tier: tier.into(),
        format_version: FORMAT_VERSION,
        feature_bits: match stage {
            Stage::Opening => OPENING,
            Stage::Open => 0,
            Stage::Closed => CLOSED,
        },
        epoch,
        frames: None,
    }
}

/// The superblock of a tier that was removed from its store: it is free.
pub(crate) fn free_superblock() -> Superblock {
    superblock(0, "", 0, Stage::Open)
}

/// Whether a tier is free.
pub(crate) fn is_free(found: &Superblock) -> bool {
    found.store_id == 0
}

/// Has the tiers that are there say how far this opening came, each durably; `failpoint` is behind each.
pub(crate) fn write_all(shared: &Shared, stage: Stage, failpoint: &'static str) -> Result<()> {
    for tier in shared.tiers.present().filter(|tier| says(tier)) {
        let next = superblock(shared.store_id, &tier.name, shared.epoch, stage);
        tier.backend.set_superblock(&next).map_err(|error| error.with("tier", &tier.name))?;
        shared.failpoints.hit(failpoint)?;
    }
    Ok(())
}

fn says(tier: &TierState) -> bool {
    tier.is_online() && tier.capability.identity && !tier.is_volatile()
}

/// Why a tier may not be used as it is: its objects are framed, and nothing takes them out of their frames.
pub(crate) fn framed(found: &Superblock) -> Option<&'static str> {
    found.frames.is_some().then_some(
        "the objects of the tier are framed: it was made with `compress` or `encrypt`, and its settings have \
         neither",
    )
}

/// Compares a tier with the catalog's header.
///
/// # Errors
///
/// `Stale` where one of them is an older copy, or the tier is empty; `Denied` for a tier of another
/// store or another name; `Unsupported` for another version.
pub(crate) fn check(tier: &Tier, header: &Header) -> Result<()> {
    let wrong = |kind, reason: String| {
        Err(Error::new(kind, "open a store")
            .because(reason)
            .with("tier", &tier.name)
            .with("target", tier.backend.target()))
    };
    let known = header.tiers.iter().find(|entry| entry.name == tier.name);
    let Some(found) = tier.backend.superblock()?.filter(|found| !is_free(found)) else {
        if known.is_some() {
            let reason = "the tier is empty: it lost its superblock, or another directory is \
                          mounted there";
            return wrong(ErrorKind::Stale, reason.into());
        }
        return Ok(());
    };
    if found.store_id != header.store_id {
        return wrong(
            ErrorKind::Denied,
            format!("the tier belongs to another store, {:032x}", found.store_id),
        );
    }
    if found.tier != tier.name {
        let reason = format!("the directory is that of tier {}: tiers are swapped", found.tier);
        return wrong(ErrorKind::Denied, reason);
    }
    format::check(found.format_version)
        .map_err(|error| error.with("tier", &tier.name).with("target", tier.backend.target()))?;
    if let Some(reason) = framed(&found) {
        return wrong(ErrorKind::Denied, reason.into());
    }
    if found.feature_bits & !(OPENING | CLOSED) != 0 {
        let reason = "the tier was written by another version of terrace";
        return wrong(ErrorKind::Unsupported, reason.into());
    }
    let epoch = known.map_or(header.epoch, |entry| entry.epoch);
    if found.epoch < epoch {
        let reason = "the tier is an old copy: the store was opened since it was last written";
        return wrong(ErrorKind::Stale, reason.into());
    }
    let reason = if found.epoch > epoch && !is_begun(&found, epoch, header) {
        "the store was opened with another one since"
    } else if found.epoch == header.epoch && found.feature_bits & CLOSED != 0 && is_open(header) {
        "the store was closed with another one since"
    } else {
        return Ok(());
    };
    let reason = format!(
        "the catalog is an old copy: {reason}; put the right one back, or make it anew from the \
         tiers (terrace fsck --rebuild)"
    );
    wrong(ErrorKind::Stale, reason)
}

/// Whether a tier is ahead because a crash ended an opening before the catalog knew of it.
fn is_begun(found: &Superblock, epoch: u64, header: &Header) -> bool {
    found.feature_bits & OPENING != 0
        && (found.epoch == epoch + 1 || found.epoch == header.epoch + 1)
}

/// Whether an opening goes on, or was ended by a crash, as the catalog has it: not so where it was made
/// anew, which settles the opening without a close.
fn is_open(header: &Header) -> bool {
    !header.is_clean && header.settled_epoch < header.epoch
}
