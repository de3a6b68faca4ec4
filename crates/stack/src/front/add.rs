// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adding a tier to a store that is open.

use std::sync::Arc;

use terrace_core::{Cursor, Error, ErrorKind, Result, TierIndex};

use crate::catalog::header::TierEntry;
use crate::catalog::record::SEGMENT_NAMESPACE;
use crate::catalog::versions::MARKER_NAMESPACE;
use crate::recover::open::{check_keeping, keeps_identity};
use crate::recover::superblock::{Stage, is_free, superblock};
use crate::runner;
use crate::shared::Shared;
use crate::tiers::list::TierState;
use crate::tiers::parts::{Tactics, Tier};

const OPERATION: &str = "add a tier";

/// Adds a tier behind the others, and swaps the policy for one that knows it.
///
/// The superblock comes first, then the catalog, then memory. A crash in between leaves a
/// superblock of this store that names a tier which it does not have; that one may be added again.
pub(crate) fn add(shared: &Arc<Shared>, tier: Tier, tactics: Option<Tactics>) -> Result<()> {
    shared.check_writable(OPERATION)?;
    shared.check_many(OPERATION)?;
    let _changing = crate::lock(&shared.tiers.changing);
    check(shared, &tier)
        .map_err(|error| error.with("tier", &tier.name).with("target", tier.backend.target()))?;
    if keeps_identity(&tier) {
        let next = superblock(shared.store_id, &tier.name, shared.epoch, Stage::Open);
        tier.backend.set_superblock(&next).map_err(|error| error.with("tier", &tier.name))?;
    }
    shared.failpoints.hit("add.superblock")?;
    let number = shared.catalog.header().new_tier_number(&shared.catalog.tiers.all());
    shared.catalog.change_header(|header| {
        header.tiers.push(TierEntry::new(number, &tier.name, shared.epoch));
    })?;
    shared.failpoints.hit("add.header")?;
    // Before the tier becomes visible: from then on a record may name it.
    shared.catalog.tiers.push(number);
    // Closed until the policy knows it: one that does not would meet segments on a tier that its
    // view does not have.
    shared.tiers.push(TierState::new(&tier, true));
    let tactics = tactics.unwrap_or_else(|| runner::none(shared));
    let swapped = runner::set_policy(shared, tactics);
    let (index, state) = shared.tiers.find(&tier.name).expect("it was just added");
    state.set_draining(false);
    shared.update_keeping();
    shared.tell_tier(index, "added");
    swapped
}

fn check(shared: &Shared, tier: &Tier) -> Result<()> {
    let refused = |kind, reason: &'static str| Err(Error::new(kind, OPERATION).because(reason));
    if let Some(reason) = &tier.offline {
        return Err(Error::new(ErrorKind::Io, OPERATION).because(reason.clone()));
    }
    check_keeping(tier)?;
    if shared.tiers.len() >= TierIndex::COUNT_MAX {
        return refused(
            ErrorKind::Busy,
            "a store has at most 32 tiers, and those that were removed count until it is opened \
             again",
        );
    }
    if shared.tiers.find(&tier.name).is_some() {
        return refused(ErrorKind::Exists, "the store has a tier of this name");
    }
    let capability = tier.backend.capability();
    if capability.persistency == terrace_core::Persistency::None {
        return Ok(());
    }
    if !capability.identity {
        return refused(
            ErrorKind::Unsupported,
            "its file system keeps no extended attributes (user.*)",
        );
    }
    let found = tier.backend.superblock()?;
    let is_begun = |found: &terrace_core::Superblock| {
        (found.store_id, found.tier.as_str()) == (shared.store_id, tier.name.as_str())
    };
    if found.is_some_and(|found| !is_free(&found) && !is_begun(&found)) {
        return refused(ErrorKind::Exists, "it belongs to a store already");
    }
    // A marker that is left over would count for a file of this store.
    for namespace in [SEGMENT_NAMESPACE, MARKER_NAMESPACE] {
        let page = tier.backend.list(namespace, "", &Cursor::start(), 1)?;
        if !page.keys.is_empty() {
            return refused(ErrorKind::Exists, "it holds files of a tier already");
        }
    }
    Ok(())
}
