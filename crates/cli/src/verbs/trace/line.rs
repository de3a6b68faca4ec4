// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One record: as a line for people, as JSON, as a row of CSV.

use serde_json::{Map, Value, json};
use terrace_core::units::show_ns;
use terrace_core::{Action, ActionKind};
use terrace_trace::{Access, Cause, PolicyChange, Record, Round, Subject};

use super::choice::Found;
use crate::output::{count, show_name};
use crate::time::show_wall_exactly;

/// The names of the columns.
pub(super) const CSV_HEADING: &str = "time_ns,kind,object_id,key,segment,start_bytes,tier,\
    offset_bytes,length_bytes,latency_ns,guard_ns,stack_ns,count,outcome";

/// For people.
pub(super) fn text(found: &Found<'_>) -> String {
    let time = show_wall_exactly(found.wall_ns);
    let what = match found.record {
        Record::Access(access) => access_text(found, access),
        Record::Round(round) => {
            let (events, actions) = (count(round.events, "event"), count(round.actions, "action"));
            format!("round {}: {events}, {actions}", round.number)
        }
        Record::Decision(action) => {
            let (word, tier) = action_words(action.kind);
            let to = tier.map(|tier| format!(" {}", found.tier(tier))).unwrap_or_default();
            format!("{word}{to} {}: {}", name(found), action.reason)
        }
        Record::Policy(change) => format!("policy {}: {}", change.name, cause(change).0),
        Record::Snapshot(_) | Record::State(_) => String::new(),
    };
    format!("{time}  {:<8}  {what}", found.kind)
}

fn access_text(found: &Found<'_>, access: &Access) -> String {
    let Access { event, waits } = access;
    let tier = found.tier(event.tier.index());
    let mut text = format!("{tier:<8}  {}", name(found));
    let range = event.offset_bytes..event.offset_bytes.saturating_add(event.length_bytes);
    if event.length_bytes > 0 || event.latency_ns > 0 {
        text.push_str(&format!("  bytes {}..{}", range.start, range.end));
    }
    if event.latency_ns > 0 {
        text.push_str(&format!("  {}", show_ns(event.latency_ns)));
    }
    if waits.guard_ns > 0 {
        text.push_str(&format!("  guard {}", show_ns(waits.guard_ns)));
    }
    if event.count > 1 {
        text.push_str(&format!("  {} summed up", event.count));
    }
    if event.outcome != terrace_core::Outcome::Done {
        text.push_str(&format!("  {}", event.outcome));
    }
    text
}

/// What a record is about, for people.
pub(super) fn name(found: &Found<'_>) -> String {
    let Some(subject) = found.subject else { return "?".into() };
    let key = subject.name.key();
    match subject.segment {
        0 => show_name(key.as_str()),
        segment => format!("{} segment {segment}", show_name(key.as_str())),
    }
}

/// For programs.
pub(super) fn value(found: &Found<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("time_ns".into(), found.wall_ns.into());
    fields.insert("kind".into(), found.kind.into());
    if let Some(Subject { object_id, segment, start_bytes, name }) = found.subject {
        fields.insert("object_id".into(), (*object_id).into());
        fields.insert("key".into(), name.key().as_str().into());
        fields.insert("segment".into(), (*segment).into());
        fields.insert("start_bytes".into(), (*start_bytes).into());
    }
    let rest = match found.record {
        Record::Access(Access { event, waits }) => json!({
            "tier": found.tier(event.tier.index()),
            "offset_bytes": event.offset_bytes,
            "length_bytes": event.length_bytes,
            "latency_ns": event.latency_ns,
            "guard_ns": waits.guard_ns,
            "stack_ns": waits.stack_ns,
            "count": event.count,
            "outcome": event.outcome.word(),
        }),
        Record::Round(round) => round_value(found, round),
        Record::Decision(action) => decision_value(found, action),
        Record::Policy(change) => policy_value(change),
        Record::Snapshot(_) | Record::State(_) => Value::Null,
    };
    if let Value::Object(rest) = rest {
        fields.extend(rest);
    }
    Value::Object(fields)
}

fn round_value(found: &Found<'_>, round: &Round) -> Value {
    let tiers = round.tiers.iter().enumerate().map(|(index, tier)| {
        json!({
            "name": found.tier(index),
            "used_bytes": tier.used_bytes,
            "reserved_bytes": tier.reserved_bytes,
            "copy_bytes": tier.copy_bytes,
            "garbage_bytes": tier.garbage_bytes,
            "incoming_bytes": tier.incoming_bytes,
            "outgoing_bytes": tier.outgoing_bytes,
            "utilisation": tier.utilisation,
        })
    });
    json!({
        "number": round.number,
        "events": round.events,
        "actions": round.actions,
        "budget_bytes": round.budget_bytes,
        "budget_actions": round.budget_actions,
        "tiers": tiers.collect::<Vec<_>>(),
    })
}

fn decision_value(found: &Found<'_>, action: &Action) -> Value {
    let (word, tier) = action_words(action.kind);
    json!({
        "action": word,
        "tier": tier.map(|tier| found.tier(tier)),
        "priority": action.priority,
        "benefit_s": action.benefit_s,
        "reason": action.reason,
    })
}

fn policy_value(change: &PolicyChange) -> Value {
    let (word, detail) = cause(change);
    let parameters = change.parameters.iter();
    let parameters = parameters.map(|one| (one.name.clone(), one.value.clone().into()));
    json!({
        "name": change.name,
        "cause": word,
        "detail": detail,
        "seed": change.seed,
        "parameters": parameters.collect::<Map<String, Value>>(),
    })
}

/// What changed a policy: a word, and what more there is to say.
pub(super) fn cause(change: &PolicyChange) -> (&'static str, Option<String>) {
    match &change.cause {
        Cause::Start(None) => ("start", None),
        Cause::Start(Some(state)) => {
            ("start", Some(format!("{} bytes of state", state.bytes.len())))
        }
        Cause::Running => ("running", None),
        Cause::Parameter(one) => ("parameter", Some(format!("{}={}", one.name, one.value))),
        Cause::Message { kind, .. } => ("message", Some(kind.clone())),
        Cause::Fallback { why } => ("fallback", Some(why.clone())),
    }
}

/// The word for an action, and the tier it is about.
fn action_words(kind: ActionKind) -> (&'static str, Option<usize>) {
    match kind {
        ActionKind::Move { to } => ("move", Some(to.index())),
        ActionKind::Promote { to } => ("promote", Some(to.index())),
        ActionKind::Copy { to } => ("copy", Some(to.index())),
        ActionKind::DropCopy { tier } => ("drop-copy", Some(tier.index())),
        ActionKind::Cancel => ("cancel", None),
    }
}

/// A row of CSV; `None` for what is no event.
pub(super) fn csv(found: &Found<'_>) -> Option<String> {
    let Record::Access(Access { event, waits }) = found.record else { return None };
    let id = found.subject.map(|subject| subject.object_id.to_string()).unwrap_or_default();
    let key = found.key().map(|key| quoted(key.as_str())).unwrap_or_default();
    let subject = found.subject.map(|subject| (subject.segment, subject.start_bytes));
    let (segment, start) = subject.unwrap_or_default();
    Some(format!(
        "{},{},{id},{key},{segment},{start},{},{},{},{},{},{},{},{}",
        found.wall_ns,
        found.kind,
        quoted(found.tier(event.tier.index())),
        event.offset_bytes,
        event.length_bytes,
        event.latency_ns,
        waits.guard_ns,
        waits.stack_ns,
        event.count,
        event.outcome.word(),
    ))
}

/// A text as RFC 4180 has it: in quotes where it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_comma_is_quoted() {
        assert_eq!(quoted("run/a"), "run/a");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
