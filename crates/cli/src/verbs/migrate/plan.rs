// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace migrate --dry-run`.

use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Error, ErrorKind};
use terrace_store::SegmentReport;

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
        let tiers: Vec<_> = store.admin().tiers()?.into_iter().map(|tier| tier.name).collect();
        check_tier(&tiers, tier)?;
        for_each_key(store, keys, is_recursive, &mut failures, &mut |_, key| {
            let explanation = store.admin().explain(&key)?;
            let mut is_concerned = explanation.segments.is_empty();
            for segment in &explanation.segments {
                let Some(tier) = target(&segment.tier, tier, &tiers) else { continue };
                is_concerned = true;
                let would = would(segment, &tier, explanation.is_pinned);
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
            if !is_concerned {
                return Err(Error::new(ErrorKind::NotFound, "migrate")
                    .because("no server that has a part of it has this tier")
                    .with("tier", format!("{tier:?}"))
                    .into());
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

/// The tier that a segment on tier `from` would move to; `None` where it would not be asked to: of several servers
/// a tier is called `SERVER/TIER`, and `TIER` means that of each server that has one.
fn target(from: &str, tier: &str, tiers: &[String]) -> Option<String> {
    let Some((server, _)) = from.rsplit_once('/') else { return Some(tier.to_owned()) };
    let target = match tier.rsplit_once('/') {
        Some((named, _)) if named != server => return None,
        Some(_) => tier.to_owned(),
        None => format!("{server}/{tier}"),
    };
    tiers.contains(&target).then_some(target)
}

/// What would happen: `move`, `stay` (it is there), `refuse` (pinned), `switch` (a clean copy is
/// there, no bytes move), `wait` (another migration of it is on its way).
fn would(segment: &SegmentReport, tier: &str, is_pinned: bool) -> &'static str {
    if segment.tier == tier {
        "stay"
    } else if is_pinned {
        "refuse"
    } else if segment.moving.is_some() {
        "wait"
    } else if segment.copies.iter().any(|copy| copy == tier) {
        "switch"
    } else {
        "move"
    }
}

fn check_tier(tiers: &[String], tier: &str) -> Result<()> {
    let is_meant =
        |name: &String| name == tier || name.rsplit_once('/').is_some_and(|(_, name)| name == tier);
    if tiers.iter().any(is_meant) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, "migrate")
        .because(format!("there is no such tier, only {}", tiers.join(", ")))
        .with("tier", format!("{tier:?}"))
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_would_move_on_its_own_server() {
        let tiers = ["a/fast", "a/slow", "b/fast"].map(str::to_owned);
        for (from, tier, expected) in [
            ("a/fast", "slow", Some("a/slow")),
            ("a/fast", "a/slow", Some("a/slow")),
            ("b/fast", "slow", None),
            ("b/fast", "a/slow", None),
            ("b/fast", "fast", Some("b/fast")),
        ] {
            assert_eq!(target(from, tier, &tiers).as_deref(), expected, "{from} to {tier}");
        }
        assert_eq!(
            target("fast", "slow", &["fast", "slow"].map(str::to_owned)).as_deref(),
            Some("slow")
        );
    }
}
