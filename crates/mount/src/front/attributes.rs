// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The attributes `user.terrace.*`, through which the tiers of files are seen and steered from inside a mount.

use std::ops::RangeInclusive;

use rustix::io::Errno;
use terrace_core::units::parse_bytes;
use terrace_fs::{Failure, Kind, Marking, Node, Place};

use super::Front;
use crate::tiers::{is_called, migrate_file, with_object};

type Result<T, E = Failure> = std::result::Result<T, E>;

/// What all of the attributes begin with.
const PREFIX: &[u8] = b"user.terrace.";

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
        b"store" => front.tiers().map(|tiers| tiers.address().into()),
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
            Place::Object => Ok(tiers.store().admin().unpin(&front.key(node)?)?),
        };
    };
    let key = with_object(front.files(), node)?;
    if !tier.is_empty() {
        tiers.bring(&key, tier)?;
    }
    Ok(tiers.store().admin().pin(&key)?)
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
    let explanation = tiers.store().admin().explain(&front.key(node)?)?;
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
        let explanation = tiers.store().admin().explain(&front.key(node)?)?;
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
    migrate_file(front.files(), tiers.store(), node, &tier).map(drop).map_err(|failure| {
        match failure.errno() {
            // Its object was deleted since the caller looked it up.
            Errno::IO if is_unlinked() => Failure::of(Errno::STALE),
            // The mount can be written, or the kernel would have refused it: the file is pinned.
            Errno::ROFS => Failure::of(Errno::PERM),
            _ => failure,
        }
    })
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
        let known = tiers.store().admin().tiers()?;
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
}
