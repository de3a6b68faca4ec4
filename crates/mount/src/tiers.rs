// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers as they are seen and steered from inside a mount: the attributes `user.terrace.*`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::units::parse_bytes;
use terrace_core::{Access, ErrorKind, Key};
use terrace_fs::{Failure, Files, Kind, Marking, Node, Place};
use terrace_store::{Explanation, MoveKind, MoveTicket, Store};

use crate::front::Front;

type Result<T, E = Failure> = std::result::Result<T, E>;

/// What all of the attributes begin with.
const PREFIX: &[u8] = b"user.terrace.";

/// Longest wait for a migration of a file to the tier that it is pinned to, or for one to be given up.
const PIN_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is tried to bring a file to a tier, where others have it moved, too.
const PIN_TRIES_MAX: u32 = 16;

/// Lengths that pieces of a file may have: below, the cost of a file for each outweighs what it is
/// good for; stripes over several servers are not longer.
const SEGMENT_BYTES: RangeInclusive<u64> = 4096..=1 << 30;

/// Names the attributes to a program that sets another one.
const ATTRIBUTES: &str = "the attributes are tier, pin, hint, segment and movable, and to read alone \
    state, key and store; `terrace tiers` lists the tiers";

/// Most bytes of a name or a value that are logged.
const SHOWN_BYTES_MAX: usize = 64;

/// Where a file is while its bytes are with the metadata.
const WITH_METADATA: &str = "metadata";

/// Where the tiers of a mounted file system can be seen and steered.
pub struct Tiers {
    store: Store,
    address: String,
}

impl Tiers {
    /// The tiers of a store that others reach by `address`.
    pub fn new(store: &Store, address: &str) -> Self {
        Self { store: store.clone(), address: address.into() }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

/// The name behind the prefix, where it is an attribute of tiers.
pub(crate) fn attribute(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(PREFIX)
}

/// The value of an attribute.
pub(crate) fn get(front: &Front, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
    let marks = &node.marks;
    let value = match name {
        b"movable" => marks.is_movable.map(|is_movable| if is_movable { "1" } else { "0" }.into()),
        b"hint" => marks.is_hot.map(|is_hot| if is_hot { "hot" } else { "cold" }.into()),
        b"pin" => marks.pin.as_deref().map(|tier| if tier.is_empty() { "1" } else { tier }.into()),
        b"segment" => marks.segment_bytes.map(|bytes| bytes.to_string()),
        b"key" if node.kind == Kind::File => Some(front.key(node)?.to_string()),
        b"store" => front.tiers().map(|tiers| tiers.address.clone()),
        b"tier" if node.kind == Kind::File => tier(front, node)?,
        b"state" if node.kind == Kind::File => Some(state(front, node)?),
        _ => None,
    };
    value.map(String::into_bytes).ok_or(Failure::of(Errno::NODATA))
}

/// Sets an attribute, and does what it asks for.
pub(crate) fn set(front: &Front, node: &Node, name: &[u8], value: &[u8]) -> Result<()> {
    let refused = |right: &str| refuse(name, value, right, Errno::INVAL);
    let value = std::str::from_utf8(value).map_err(|_| refused("a text is expected"))?.trim();
    let marking = match name {
        b"movable" => Marking::Movable(Some(boolean(value).map_err(|_| refused("1 or 0"))?)),
        b"hint" => Marking::Hot(match value {
            "hot" => Some(true),
            "cold" => Some(false),
            "none" => None,
            _ => return Err(refused("hot, cold or none")),
        }),
        b"pin" => Marking::Pin(match value {
            "0" | "no" | "false" => None,
            "" | "1" | "yes" | "true" => Some("".into()),
            tier => Some(front.known_tier(name, tier)?.into()),
        }),
        b"segment" => {
            let bytes = length(value).filter(|bytes| SEGMENT_BYTES.contains(bytes));
            let bytes = bytes.ok_or_else(|| refused("a length from 4KiB to 1GiB"))?;
            check_uncut(node)?;
            Marking::Segment(Some(bytes))
        }
        b"tier" => return migrate(front, node, name, value),
        b"key" | b"store" | b"state" => {
            let right = "it can only be read";
            return Err(refuse(name, value.as_bytes(), right, Errno::PERM));
        }
        _ => return Err(refused(ATTRIBUTES)),
    };
    mark(front, node, &marking)
}

/// Refuses to set an attribute. The program gets only a number, so that the log says what would be right.
fn refuse(name: &[u8], value: &[u8], right: &str, errno: Errno) -> Failure {
    let shown = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
        String::from_utf8_lossy(shown).into_owned()
    };
    tracing::warn!(
        attribute = format!("user.terrace.{}", shown(name)),
        value = shown(value),
        right,
        "cannot set an attribute of a file"
    );
    Failure::of(errno)
}

/// Takes an attribute back.
pub(crate) fn remove(front: &Front, node: &Node, name: &[u8]) -> Result<()> {
    let marks = &node.marks;
    let (is_there, marking) = match name {
        b"movable" => (marks.is_movable.is_some(), Marking::Movable(None)),
        b"hint" => (marks.is_hot.is_some(), Marking::Hot(None)),
        b"pin" => (marks.pin.is_some(), Marking::Pin(None)),
        b"segment" => {
            check_uncut(node)?;
            (marks.segment_bytes.is_some(), Marking::Segment(None))
        }
        b"key" | b"store" | b"state" | b"tier" => return Err(Errno::PERM.into()),
        _ => return Err(refuse(name, b"", ATTRIBUTES, Errno::PERM)),
    };
    match is_there {
        true => mark(front, node, &marking),
        false => Err(Errno::NODATA.into()),
    }
}

/// Brings a file to the tier that it is pinned to, and pins it.
pub(crate) fn apply_pin(front: &Front, node: &Node) -> Result<()> {
    let (Kind::File, Some(tiers)) = (node.kind, front.tiers()) else { return Ok(()) };
    let Some(tier) = &node.marks.pin else {
        return match node.place {
            Place::Inline => Ok(()),
            Place::Object => Ok(tiers.store.unpin(&front.key(node)?)?),
        };
    };
    let key = with_object(front.files(), node)?;
    if !tier.is_empty() {
        bring(tiers, &key, tier)?;
    }
    Ok(tiers.store.pin(&key)?)
}

/// Has all of a file on a tier. What moves it elsewhere at the time is given up: a pin counts from when
/// it is asked for.
fn bring(tiers: &Tiers, key: &Key, tier: &str) -> Result<()> {
    let mut refused = None;
    for _ in 0..PIN_TRIES_MAX {
        let explanation = tiers.store.explain(key)?;
        if end_moves(tiers, &explanation, tier)? {
            // That was in the way.
            refused = None;
            continue;
        }
        if is_on(&explanation, tier) {
            return Ok(());
        }
        // Nothing moves it, so something else is in the way.
        if let Some(failure) = refused.take() {
            return Err(failure);
        }
        tiers.store.unpin(key)?;
        match move_and_wait(tiers, key, tier) {
            Err(failure) if failure.errno() == Errno::BUSY => refused = Some(failure),
            moved => moved?,
        }
    }
    Err(refused.unwrap_or(Errno::BUSY.into()))
}

/// Waits for the migrations of a file, and gives up those that do not lead to a tier; whether there were
/// any.
fn end_moves(tiers: &Tiers, explanation: &Explanation, tier: &str) -> Result<bool> {
    let mut were_any = false;
    for segment in &explanation.segments {
        let Some(moving) = &segment.moving else { continue };
        let leads_there = is_there(&moving.to, tier);
        if leads_there.is_none() {
            continue;
        }
        were_any = true;
        let ticket = MoveTicket(moving.id);
        if leads_there == Some(false) {
            // One that is unknown has ended.
            unless_unknown(tiers.store.cancel(ticket))?;
        }
        if let Some(None) = unless_unknown(tiers.store.wait(ticket, PIN_TIME_MAX))? {
            return Err(Errno::BUSY.into());
        }
    }
    Ok(were_any)
}

/// Refuses a file that has an object: that was cut, or not, when it was made.
fn check_uncut(node: &Node) -> Result<()> {
    match node.place {
        Place::Object => Err(Errno::BUSY.into()),
        Place::Inline => Ok(()),
    }
}

fn mark(front: &Front, node: &Node, marking: &Marking) -> Result<()> {
    let marked = front.files().mark(node.number, marking)?;
    match marking {
        // Also where it was marked so before: that may have failed behind the mark.
        Marking::Pin(_) => apply_pin(front, &marked),
        _ => Ok(()),
    }
}

/// The tiers that hold parts of a file, in the order of the parts.
fn tier(front: &Front, node: &Node) -> Result<Option<String>> {
    if node.place == Place::Inline {
        return Ok(Some(WITH_METADATA.into()));
    }
    let Some(tiers) = front.tiers() else { return Ok(None) };
    let explanation = tiers.store.explain(&front.key(node)?)?;
    let mut names: Vec<&str> = Vec::new();
    for segment in &explanation.segments {
        if !names.contains(&segment.tier.as_str()) {
            names.push(&segment.tier);
        }
    }
    Ok(Some(names.join(",")))
}

/// How a file is open, and whether it moves.
fn state(front: &Front, node: &Node) -> Result<String> {
    let mut words = vec![match front.is_passed(node.number) {
        None => "closed".to_string(),
        Some(true) => "passthrough".into(),
        Some(false) => "served".into(),
    }];
    if let (Place::Object, Some(tiers)) = (node.place, front.tiers()) {
        let explanation = tiers.store.explain(&front.key(node)?)?;
        let moving = explanation.segments.iter().find_map(|segment| segment.moving.as_ref());
        if let Some(moving) = moving {
            words.push(format!("moving from {} to {}", moving.from, moving.to));
        }
        if explanation.is_pinned {
            words.push("pinned".into());
        }
    }
    Ok(words.join(", "))
}

/// Asks for a migration; the file is there once it has ended. Of a directory: of all files that are
/// below it at the time, in the background.
fn migrate(front: &Front, node: &Node, name: &[u8], tier: &str) -> Result<()> {
    if !matches!(node.kind, Kind::File | Kind::Directory) {
        return Err(Errno::OPNOTSUPP.into());
    }
    let tier = front.known_tier(name, tier)?;
    let unsupported = Failure::of(Errno::OPNOTSUPP);
    if node.kind.is_directory() {
        return front.below().ok_or(unsupported)?.migrate(node.number, tier);
    }
    if front.is_passed(node.number) == Some(true) {
        return Err(Errno::TXTBSY.into());
    }
    let tiers = front.tiers().ok_or(unsupported)?;
    let is_unlinked = || front.files().node(node.number).map_or(true, |node| node.links == 0);
    migrate_file(front.files(), &tiers.store, node, &tier).map(drop).map_err(|failure| {
        match failure.errno() {
            // Its object was deleted since the caller looked it up.
            Errno::IO if is_unlinked() => Failure::of(Errno::STALE),
            // The mount can be written, or the kernel would have refused it: the file is pinned.
            Errno::ROFS => Failure::of(Errno::PERM),
            _ => failure,
        }
    })
}

/// Asks for the migrations of a file's segments.
pub(crate) fn migrate_file(
    files: &Arc<Files>,
    store: &Store,
    node: &Node,
    tier: &str,
) -> Result<Vec<MoveTicket>> {
    let key = with_object(files, node)?;
    Ok(store.migrate(&key, tier, MoveKind::Move, 0, "asked for by its attribute")?)
}

/// The key of a file's object; a small file gets one.
fn with_object(files: &Arc<Files>, node: &Node) -> Result<Key> {
    if node.place == Place::Inline {
        let (_, file) = files.open(node.number, Access::Write)?;
        file.give_object()?;
        file.close()?;
    }
    files.key(node.number)
}

/// Whether a tier is meant by a name.
fn is_called(tier: &str, name: &str) -> bool {
    tier == name || tier.rsplit_once('/').is_some_and(|(_, tier)| tier == name)
}

/// Whether a file is where it is to be.
fn is_on(explanation: &Explanation, tier: &str) -> bool {
    let there = explanation.segments.iter().filter_map(|segment| is_there(&segment.tier, tier));
    there.reduce(|all, one| all && one).unwrap_or(false)
}

/// Whether what is on a tier is on the one that is meant; `None` where it is not concerned. Over
/// several servers `SERVER/TIER` concerns the part on that server, and `TIER` all parts.
fn is_there(on: &str, meant: &str) -> Option<bool> {
    match (on.rsplit_once('/'), meant.rsplit_once('/')) {
        (Some((server, _)), Some((wanted, _))) if server != wanted => None,
        _ => Some(is_called(on, meant)),
    }
}

fn move_and_wait(tiers: &Tiers, key: &Key, tier: &str) -> Result<()> {
    let reason = "pinned there by its attribute";
    for ticket in tiers.store.migrate(key, tier, MoveKind::Move, 0, reason)? {
        let report = tiers.store.wait(ticket, PIN_TIME_MAX)?;
        let outcome = report.and_then(|report| report.outcome);
        match outcome.as_deref() {
            Some("done") => {}
            Some("no-space") => return Err(Errno::NOSPC.into()),
            _ => return Err(Errno::BUSY.into()),
        }
    }
    Ok(())
}

/// What is said of a migration; `None` where it is unknown.
fn unless_unknown<T>(said: terrace_core::Result<T>) -> Result<Option<T>> {
    match said {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        said => Ok(Some(said?)),
    }
}

/// A length as the attribute shows it (bytes), as tools that set attributes take it (`64K`), or with
/// a unit as everywhere else.
fn length(value: &str) -> Option<u64> {
    let (number, factor) = match value.as_bytes().last()? {
        b'k' | b'K' => (&value[..value.len() - 1], 1 << 10),
        b'm' | b'M' => (&value[..value.len() - 1], 1 << 20),
        b'g' | b'G' => (&value[..value.len() - 1], 1 << 30),
        b'0'..=b'9' => (value, 1),
        _ => return parse_bytes(value).ok(),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn boolean(value: &str) -> Result<bool> {
    match value {
        "1" | "yes" | "true" => Ok(true),
        "0" | "no" | "false" => Ok(false),
        _ => Err(Errno::INVAL.into()),
    }
}

impl Front {
    /// The name of a tier that there is, as the value of an attribute. Over several servers, where one is
    /// called `SERVER/TIER`, `TIER` means those of all.
    fn known_tier(&self, attribute: &[u8], name: &str) -> Result<String> {
        let tiers = self.tiers().ok_or(Failure::of(Errno::OPNOTSUPP))?;
        let known = tiers.store.tiers()?;
        if known.iter().any(|tier| is_called(&tier.name, name)) {
            return Ok(name.into());
        }
        let names: Vec<_> = known.iter().map(|tier| tier.name.as_str()).collect();
        let right = format!("one of the tiers {}, which `terrace tiers` lists", names.join(", "));
        Err(refuse(attribute, name.as_bytes(), &right, Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_that_of_one_server_or_of_all() {
        assert!(is_called("slow", "slow"));
        assert!(is_called("node1:7420/slow", "slow"));
        assert!(is_called("node1:7420/slow", "node1:7420/slow"));
        for wrong in ["", "ow", "node2:7420/slow", "/slow"] {
            assert!(!is_called("node1:7420/slow", wrong), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_read_as_they_are_shown_and_as_people_write_them() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("4096", 4096),
            ("4K", 4096),
            ("64k", 64 << 10),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
            ("64KiB", 64 << 10),
            ("1.5 MiB", 3 << 19),
            ("1MB", 1_000_000),
            ("512B", 512),
        ] {
            assert_eq!(length(text), Some(bytes), "{text}");
        }
        for wrong in
            ["", "K", "-4K", "1.5", "4 K B", "4T", "99999999999999999999", "9999999999999G"]
        {
            assert_eq!(length(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tier_of_one_server_concerns_the_part_there() {
        for (on, meant, expected) in [
            ("slow", "slow", Some(true)),
            ("fast", "slow", Some(false)),
            ("a/slow", "slow", Some(true)),
            ("a/fast", "slow", Some(false)),
            ("a/slow", "a/slow", Some(true)),
            ("a/fast", "a/slow", Some(false)),
            ("b/fast", "a/slow", None),
        ] {
            assert_eq!(is_there(on, meant), expected, "{meant} of {on}");
        }
    }
}
