// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace migrate --dry-run`.

use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Error, ErrorKind};
use terrace_store::{SegmentReport, Store};

use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::output::{Output, count, show_name};
use crate::selection::for_each_key;

/// Prints what moving the objects to `tier` would do.
pub(super) fn print(
    context: &Context,
    keys: &[String],
    is_recursive: bool,
    tier: &str,
) -> Result<()> {
    let mut failures = Failures::new(context.is_json);
    let mut output = Output::new();
    let (mut moves, mut bytes): (u64, u64) = (0, 0);
    context.with_store_for_reading(|store| {
        check_tier(store, tier)?;
        for_each_key(store, keys, is_recursive, &mut failures, &mut |_, key| {
            let explanation = store.explain(&key)?;
            for segment in &explanation.segments {
                let would = would(segment, tier, explanation.is_pinned);
                if would == "move" {
                    moves += 1;
                    bytes += segment.size_bytes;
                }
                if context.is_json {
                    output.json(&json!({
                        "key": key.as_str(), "segment": segment.segment, "from": segment.tier,
                        "to": tier, "size_bytes": segment.size_bytes, "would": would,
                    }))?;
                } else {
                    let key = show_name(key.as_str());
                    let size = show_bytes(segment.size_bytes);
                    let from = &segment.tier;
                    output.line(format!("{key}: would {would}, {from} -> {tier} ({size})"))?;
                }
            }
            Ok(())
        })
    })?;
    if !context.is_json {
        let moves = count(moves, "segment");
        output.line(format!("{moves} would move, {}", show_bytes(bytes)))?;
    }
    output.flush()?;
    failures.finish()
}

/// What would happen: `move`, `stay` (it is there), `refuse` (pinned), `switch` (a clean copy is
/// there, no bytes move), `wait` (another migration of it is on its way).
fn would(segment: &SegmentReport, tier: &str, is_pinned: bool) -> &'static str {
    if is_named(&segment.tier, tier) {
        "stay"
    } else if is_pinned {
        "refuse"
    } else if segment.moving.is_some() {
        "wait"
    } else if segment.copies.iter().any(|copy| is_named(copy, tier)) {
        "switch"
    } else {
        "move"
    }
}

/// Whether a tier is meant: of several servers it is called `SERVER/TIER`, and `TIER` means that of
/// whichever server has the object.
fn is_named(tier: &str, name: &str) -> bool {
    tier == name || tier.rsplit_once('/').is_some_and(|(_, tier)| tier == name)
}

fn check_tier(store: &Store, tier: &str) -> Result<()> {
    let names: Vec<_> = store.tiers()?.into_iter().map(|tier| tier.name).collect();
    if names.iter().any(|name| is_named(name, tier)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, "migrate")
        .because(format!("there is no such tier, only {}", names.join(", ")))
        .with("tier", format!("{tier:?}"))
        .into())
}
