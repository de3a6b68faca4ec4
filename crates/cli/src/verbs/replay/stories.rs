// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay --explain`: what each policy did with one object, why, and what it saved.

use std::path::Path;

use serde_json::{Value, json};
use terrace_core::units::{show_bytes, show_ns};
use terrace_core::{Error, ErrorKind, Outcome, TierIndex};
use terrace_replay::{MoveStory, Population, Story, Timed, objects_named};

use crate::address;
use crate::failure::Result;
use crate::output::{count, show_name};

/// Moves of one object that are shown to people; programs get all.
const SHOWN_MAX: usize = 20;

/// An object that is named on the command line.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// As it was asked for.
    pub(super) name: String,
    /// The number in the trace.
    pub(super) object: u64,
}

/// What one policy did with it, for people.
pub(super) struct Told {
    /// What happened to it by and large.
    pub(super) summary: String,
    /// Each move.
    pub(super) moves: Vec<ToldMove>,
    /// What is left out.
    pub(super) rest: Option<String>,
}

/// One move, for people.
pub(super) struct ToldMove {
    pub(super) at: String,
    pub(super) what: String,
    pub(super) reason: String,
    pub(super) expected: String,
    pub(super) measured: String,
}

/// The objects of a trace that these names stand for.
pub(super) fn find(path: &Path, words: &[String], population: &Population) -> Result<Vec<Asked>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let is_number = |word: &str| word.parse::<u64>().is_ok();
    let name = |word: &String| match path.is_dir() && !is_number(word) {
        true => Ok(address::key(word)?.to_string()),
        false => Ok(word.clone()),
    };
    let names = words.iter().map(name).collect::<Result<Vec<_>>>()?;
    let mut asked: Vec<Asked> = Vec::new();
    for (word, objects) in words.iter().zip(objects_named(path, &names)?) {
        let known: Vec<_> = objects.into_iter().filter(|id| population.has(*id)).collect();
        if known.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "explain what was done with an object")
                .because("the trace has no request for it")
                .with("object", format!("{word:?}"))
                .into());
        }
        let count = known.len();
        for (index, object) in known.into_iter().enumerate() {
            let name = match count {
                1 => word.clone(),
                _ => format!("{word}, segment {index}"),
            };
            if asked.iter().all(|other| other.object != object) {
                asked.push(Asked { name, object });
            }
        }
    }
    Ok(asked)
}

/// A story as JSON, with the name that was asked for.
pub(super) fn value(asked: &Asked, story: &Story, timed: &Timed) -> Value {
    let tier = |tier: TierIndex| timed.tiers[tier.index()].name.as_str();
    let moves: Vec<_> = story
        .moves
        .iter()
        .map(|one| {
            json!({
                "segment": one.segment,
                "what": one.what,
                "from": tier(one.from),
                "to": tier(one.to),
                "asked_s": one.asked_s,
                "ended_s": one.ended.map(|(ended_s, _)| ended_s),
                "outcome": one.ended.map(|(_, outcome)| outcome.word()),
                "reason": one.reason,
                "expected_s": one.expected_s,
                "copied_bytes": one.copied_bytes,
                "accesses": one.accesses,
                "saved_s": one.saved_s,
            })
        })
        .collect();
    json!({
        "name": asked.name,
        "object": story.object,
        "placed_s": story.placed.map(|(s, _)| s),
        "placed_on": story.placed.map(|(_, on)| tier(on)),
        "reads": story.reads,
        "writes": story.writes,
        "moves": moves,
        "moves_left_out": story.moves_left_out,
    })
}

/// A story in words.
pub(super) fn tell(story: &Story, timed: &Timed) -> Told {
    let tier = |tier: TierIndex| timed.tiers[tier.index()].name.as_str();
    let placed = story.placed.map_or("never there".into(), |(s, on)| {
        format!("on {} from {s:.3} s", show_name(tier(on)))
    });
    let saved_s: f64 = story.moves.iter().map(|one| one.saved_s).sum();
    let moved = match story.moves.len() as u64 + story.moves_left_out {
        0 => "not moved".into(),
        asked => format!("{} asked for, which saved {}", count(asked, "move"), show_s(saved_s)),
    };
    let summary = format!(
        "{placed}; {}, {}; {moved}",
        count(story.reads, "read"),
        count(story.writes, "write"),
    );
    let moves = story.moves.iter().take(SHOWN_MAX).map(|one| tell_move(one, tier)).collect();
    let rest = (story.moves.len() as u64).saturating_sub(SHOWN_MAX as u64) + story.moves_left_out;
    let rest = (rest > 0).then(|| format!("and {rest} more; --json has them"));
    Told { summary, moves, rest }
}

fn tell_move<'a>(one: &MoveStory, tier: impl Fn(TierIndex) -> &'a str) -> ToldMove {
    let (from, to) = (show_name(tier(one.from)), show_name(tier(one.to)));
    let place = match one.what {
        "drop-copy" => format!("on {to}"),
        "cancel" => format!("on {from}"),
        _ => format!("{from} -> {to}"),
    };
    let ended = match one.ended {
        None => "not ended".into(),
        Some((_, Outcome::Done)) if one.copied_bytes == 0 => "done at once".into(),
        Some((at_s, outcome)) => {
            format!("{} at {at_s:.3} s, {}", outcome.word(), show_bytes(one.copied_bytes))
        }
    };
    let segment =
        if one.segment == 0 { String::new() } else { format!("segment {} ", one.segment) };
    let is_done = matches!(one.ended, Some((_, Outcome::Done)));
    ToldMove {
        at: format!("{:.3} s", one.asked_s),
        what: format!("{segment}{} {place}, {ended}", one.what),
        reason: show_name(&one.reason),
        expected: match one.expected_s {
            0.0 => "no saving".into(),
            seconds => show_s(seconds),
        },
        measured: match is_done {
            true if one.accesses == 0 => "nothing: no request followed".into(),
            true => format!("{} by {}", show_s(one.saved_s), count(one.accesses, "request")),
            false => "–".into(),
        },
    }
}

/// Seconds that were saved; lost, where they are less than none.
fn show_s(seconds: f64) -> String {
    let ns = (seconds.abs() * 1e9).round() as u64;
    let sign = if seconds < 0.0 && ns > 0 { "-" } else { "" };
    format!("{sign}{}", show_ns(ns))
}

/// A story as lines of text.
pub(super) fn lines(policy: &str, told: &Told) -> Vec<String> {
    let mut lines = vec![format!("  {policy}: {}", told.summary)];
    for one in &told.moves {
        lines.push(format!("    {}  {}: {}", one.at, one.what, one.reason));
        lines.push(format!("      expected {}; measured {}", one.expected, one.measured));
    }
    lines.extend(told.rest.iter().map(|rest| format!("    {rest}")));
    lines
}
