// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How operations ended.

use std::ops::Range;
use std::sync::Arc;

use terrace_core::{Identity, Result, Space, Stat, Superblock};

use crate::codec::{Reader, Writer, wrong};
use crate::failure::Failure;
use crate::operation::{
    OPERATIONS_MAX, read_identity, read_superblock, write_identity, write_superblock,
};

/// How one operation ended.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Outcome {
    /// It is done.
    Done,
    /// It failed.
    Failed(Failure),
    /// So many bytes were read; they are in the payload.
    Read(u32),
    /// Size and times.
    Stat(Stat),
    /// It is open, as this handle.
    Opened(Opened),
    /// Where an append begins.
    Appended(u64),
    /// The next range with data.
    Data(Option<Range<u64>>),
    /// A page of names of a listing, and the cursor to go on with.
    Page { names: Vec<String>, next: Option<Vec<u8>> },
    /// Capacity and use.
    Space(Space),
    /// The length of a value in the payload; `None` where the key has none.
    Value(Option<u32>),
    /// Lengths of keys and values of a page of pairs in the payload, and whether the page ends
    /// before the range does only because it is full.
    Pairs { lengths_bytes: Vec<(u16, u32)>, is_cut: bool },
    /// The ticket of a commit.
    Ticket(u64),
    /// Whether a pair that was to be removed was there.
    Removed(bool),
    /// What a transaction read has changed: nothing was written.
    Conflict,
    /// The identity of an object.
    Identity(Option<Box<Identity>>),
    /// The superblock.
    Superblock(Option<Box<Superblock>>),
    /// A descriptor of the object's file comes with the frame, unless this is `None`; behind it one
    /// of the page of words, where there is a word.
    Leased(Option<Leased>),
    /// A draft was published; the label of the value that it replaced, empty for none.
    Published(Arc<[u8]>),
}

/// An object that a server opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opened {
    /// Its number in the session.
    pub handle: u64,
    /// When the object was created: tells it from another one of the same name.
    pub created_ns: u64,
    /// What is stored with it; empty for nothing.
    pub label: Arc<[u8]>,
}

/// What makes a descriptor valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Index of the generation word; `None` where the file is valid as long as the handle.
    pub word: Option<u32>,
    /// What the word has to be.
    pub generation: u64,
}

/// The head of an answer.
pub fn write_outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + outcomes.len() * 8);
    Writer(&mut bytes).u16(outcomes.len() as u16);
    for outcome in outcomes {
        write_outcome(outcome, &mut bytes);
    }
    bytes
}

/// Reads what [`write_outcomes`] wrote.
///
/// # Errors
///
/// `Invalid`.
pub fn read_outcomes(head: &[u8]) -> Result<Vec<Outcome>> {
    let mut input = Reader::new(head);
    let count = usize::from(input.u16()?);
    if count > OPERATIONS_MAX {
        return Err(wrong("it has too many outcomes").with("operations_max", OPERATIONS_MAX));
    }
    let outcomes = (0..count).map(|_| read_outcome(&mut input)).collect::<Result<_>>()?;
    input.end()?;
    Ok(outcomes)
}

fn write_outcome(outcome: &Outcome, bytes: &mut Vec<u8>) {
    if let Outcome::Failed(failure) = outcome {
        bytes.push(1);
        failure.write(bytes);
        return;
    }
    let out = &mut Writer(bytes);
    match outcome {
        Outcome::Done => _ = out.u8(0),
        Outcome::Failed(_) => unreachable!("written above"),
        Outcome::Read(bytes) => _ = out.u8(2).u32(*bytes),
        Outcome::Stat(stat) => {
            out.u8(3).u64(stat.size_bytes).u64(stat.allocated_bytes);
            out.u64(stat.created_ns).u64(stat.modified_ns).u8(u8::from(stat.is_labelled));
        }
        Outcome::Opened(opened) => {
            out.u8(4).u64(opened.handle).u64(opened.created_ns).list(&opened.label);
        }
        Outcome::Appended(offset_bytes) => _ = out.u8(5).u64(*offset_bytes),
        Outcome::Data(range) => {
            out.u8(6).u8(u8::from(range.is_some()));
            if let Some(range) = range {
                out.u64(range.start).u64(range.end);
            }
        }
        Outcome::Page { names, next } => {
            out.u8(7).u32(names.len() as u32);
            for name in names {
                out.text(name);
            }
            out.u8(u8::from(next.is_some())).list(next.as_deref().unwrap_or_default());
        }
        Outcome::Space(space) => {
            out.u8(9).u64(space.capacity_bytes).u64(space.used_bytes);
        }
        Outcome::Value(length) => {
            out.u8(10).u8(u8::from(length.is_some())).u32(length.unwrap_or_default());
        }
        Outcome::Pairs { lengths_bytes, is_cut } => {
            out.u8(11).u8(u8::from(*is_cut)).u32(lengths_bytes.len() as u32);
            for (key, value) in lengths_bytes {
                out.u16(*key).u32(*value);
            }
        }
        Outcome::Ticket(ticket) => _ = out.u8(12).u64(*ticket),
        Outcome::Removed(was_there) => _ = out.u8(13).u8(u8::from(*was_there)),
        Outcome::Conflict => _ = out.u8(14),
        Outcome::Identity(identity) => {
            out.u8(15).u8(u8::from(identity.is_some()));
            if let Some(identity) = identity {
                write_identity(identity, out);
            }
        }
        Outcome::Superblock(superblock) => {
            out.u8(16).u8(u8::from(superblock.is_some()));
            if let Some(superblock) = superblock {
                write_superblock(superblock, out);
            }
        }
        Outcome::Leased(leased) => {
            out.u8(17).u8(u8::from(leased.is_some()));
            if let Some(leased) = leased {
                out.u8(u8::from(leased.word.is_some())).u32(leased.word.unwrap_or_default());
                out.u64(leased.generation);
            }
        }
        Outcome::Published(label) => _ = out.u8(18).list(label),
    }
}

fn read_outcome(input: &mut Reader<'_>) -> Result<Outcome> {
    Ok(match input.u8()? {
        0 => Outcome::Done,
        1 => Outcome::Failed(Failure::read(input)?),
        2 => Outcome::Read(input.u32()?),
        3 => Outcome::Stat(Stat {
            size_bytes: input.u64()?,
            allocated_bytes: input.u64()?,
            created_ns: input.u64()?,
            modified_ns: input.u64()?,
            is_labelled: input.flag()?,
            // Of this machine alone.
            is_held: false,
        }),
        4 => Outcome::Opened(Opened {
            handle: input.u64()?,
            created_ns: input.u64()?,
            label: input.list()?.into(),
        }),
        5 => Outcome::Appended(input.u64()?),
        6 => Outcome::Data(match input.flag()? {
            true => Some(input.u64()?..input.u64()?),
            false => None,
        }),
        7 => {
            let names = read_names(input)?;
            let has_next = input.flag()?;
            let next = input.list()?;
            Outcome::Page { names, next: has_next.then(|| next.to_vec()) }
        }
        9 => Outcome::Space(Space {
            capacity_bytes: input.u64()?,
            used_bytes: input.u64()?,
            // Means nothing on another machine.
            file_system: None,
        }),
        10 => {
            let has_value = input.flag()?;
            let length = input.u32()?;
            Outcome::Value(has_value.then_some(length))
        }
        11 => {
            let is_cut = input.flag()?;
            let mut lengths_bytes = Vec::new();
            for _ in 0..input.u32()? {
                lengths_bytes.push((input.u16()?, input.u32()?));
            }
            Outcome::Pairs { lengths_bytes, is_cut }
        }
        12 => Outcome::Ticket(input.u64()?),
        13 => Outcome::Removed(input.flag()?),
        14 => Outcome::Conflict,
        15 => Outcome::Identity(match input.flag()? {
            true => Some(Box::new(read_identity(input)?)),
            false => None,
        }),
        16 => Outcome::Superblock(match input.flag()? {
            true => Some(Box::new(read_superblock(input)?)),
            false => None,
        }),
        17 => Outcome::Leased(match input.flag()? {
            true => {
                let has_word = input.flag()?;
                let word = input.u32()?;
                Some(Leased { word: has_word.then_some(word), generation: input.u64()? })
            }
            false => None,
        }),
        18 => Outcome::Published(input.list()?.into()),
        _ => return Err(wrong("an outcome is unknown")),
    })
}

fn read_names(input: &mut Reader<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for _ in 0..input.u32()? {
        names.push(input.text()?.into());
    }
    Ok(names)
}
