// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which column of text is what: by its name in the heading, or given by a user.

use terrace_core::{Error, Result};

/// Columns at most.
pub(super) const COLUMNS_MAX: usize = 1024;

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// What a column is, and the names in headings that say so, the most telling first. `io_size` and
/// `op_time` are those of the block traces that come with CacheLib, whose `block_id_size` is the
/// length of the name.
const MEANINGS: [(Meaning, &[&str]); 8] = [
    (
        Meaning::Id,
        &["id", "obj_id", "object_id", "object", "obj", "block_id", "block", "lbn", "lba", "key"],
    ),
    (
        Meaning::Size,
        &[
            "size",
            "obj_size",
            "object_size",
            "size_bytes",
            "io_size",
            "length_bytes",
            "length",
            "bytes",
        ],
    ),
    (
        Meaning::Time,
        &["time", "timestamp", "clock_time", "op_time", "time_s", "time_ms", "time_us", "time_ns"],
    ),
    (Meaning::Operation, &["op", "operation", "op_name", "kind"]),
    (Meaning::Offset, &["offset", "offset_bytes", "io_offset"]),
    (Meaning::Length, &["length", "length_bytes"]),
    (Meaning::Client, &["client", "rank", "pid"]),
    (Meaning::Latency, &["latency", "latency_s", "latency_ms", "latency_us", "latency_ns"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Id,
    Size,
    Time,
    Operation,
    Offset,
    Length,
    Client,
    Latency,
}

impl Meaning {
    const ALL: [(&'static str, Meaning); 8] = [
        ("id", Meaning::Id),
        ("size", Meaning::Size),
        ("time", Meaning::Time),
        ("op", Meaning::Operation),
        ("offset", Meaning::Offset),
        ("length", Meaning::Length),
        ("client", Meaning::Client),
        ("latency", Meaning::Latency),
    ];

    /// Of a word, which may end in the unit: `time_ms`.
    fn of_word(word: &str) -> Option<Self> {
        let of = |word: &str| Self::ALL.into_iter().find(|(one, _)| *one == word);
        let of_unit = || {
            let (word, unit) = word.split_once('_')?;
            of(word)
                .filter(|(_, one)| one.has_unit() && UNITS.iter().any(|(name, _)| *name == unit))
        };
        of(word).or_else(of_unit).map(|(_, meaning)| meaning)
    }

    fn has_unit(self) -> bool {
        matches!(self, Meaning::Time | Meaning::Latency)
    }
}

/// Units of time that names may end in, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", SECOND_NS), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// Which column is what, as a user says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(Vec<Column>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    meaning: Meaning,
    which: Which,
    /// The unit of a time, where it is given.
    unit_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    /// By the name in the heading.
    Name(String),
    /// From 0.
    Index(usize),
}

impl Columns {
    /// Reads `id=block_id,size=4`: columns by name, or by number from 1. `time_ms=1` says the unit,
    /// too, and so for latencies.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            Error::invalid("read the columns", reason).with("columns", format!("{text:?}"))
        };
        let mut columns: Vec<Column> = Vec::new();
        for part in text.split(',') {
            let (word, which) = part.split_once('=').ok_or_else(|| {
                wrong("a list such as id=2,size=3 is expected, by name or by number from 1")
            })?;
            let word = word.trim();
            let meaning = Meaning::of_word(word).ok_or_else(|| {
                wrong(
                    "there are the columns id, size, time, op, offset, length, client, latency, and \
                     with a unit time_ms, latency_us and the like",
                )
            })?;
            if columns.iter().any(|other| other.meaning == meaning) {
                return Err(wrong("a column is named twice"));
            }
            let which = match which.trim().parse::<usize>() {
                Ok(number @ 1..=COLUMNS_MAX) => Which::Index(number - 1),
                Ok(_) => return Err(wrong("columns are counted from 1, to 1024")),
                Err(_) => Which::Name(which.trim().to_string()),
            };
            columns.push(Column { meaning, which, unit_ns: unit_of(word) });
        }
        match columns.iter().any(|column| column.meaning == Meaning::Id) {
            true => Ok(Self(columns)),
            false => Err(wrong("the column of the object is missing: id=…")),
        }
    }

    pub(super) fn has_names(&self) -> bool {
        self.0.iter().any(|column| matches!(column.which, Which::Name(_)))
    }

    /// The unit of a time, where it is given.
    pub(super) fn unit_ns(&self, meaning: Meaning) -> Option<u64> {
        self.0.iter().find(|column| column.meaning == meaning)?.unit_ns
    }

    /// What the columns are, of a line that has these.
    pub(super) fn find(&self, names: &[String]) -> Result<Vec<Option<Meaning>>, String> {
        let mut meanings = vec![None; names.len()];
        for Column { meaning, which, .. } in &self.0 {
            let index = match which {
                Which::Index(index) => Some(*index).filter(|index| *index < names.len()),
                Which::Name(name) => names.iter().position(|other| other == name),
            };
            let Some(index) = index else {
                return Err(match which {
                    Which::Name(name) => {
                        format!("its first line has no column {name}; it has {}", names.join(", "))
                    }
                    Which::Index(index) => {
                        format!(
                            "its first line has no column {}; it has {}",
                            index + 1,
                            names.len()
                        )
                    }
                });
            };
            meanings[index] = Some(*meaning);
        }
        Ok(meanings)
    }
}

/// What columns with these names are.
pub(super) fn guess(names: &[String]) -> Result<Vec<Option<Meaning>>, String> {
    let mut meanings = vec![None; names.len()];
    for (meaning, known) in MEANINGS {
        let position =
            |known: &&str| names.iter().position(|name| name.eq_ignore_ascii_case(known));
        if let Some(index) = known.iter().find_map(position) {
            meanings[index] = Some(meaning);
        }
    }
    match meanings.contains(&Some(Meaning::Id)) {
        true => Ok(meanings),
        false => Err("its first line names no column of objects; say which columns are what, for \
                      example id=2,size=3"
            .into()),
    }
}

/// Whether a name is one of those that columns of objects have.
pub(super) fn is_object(name: &str) -> bool {
    let (_, known) = MEANINGS[0];
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The unit that a name ends in, such as `time_us`.
pub(super) fn unit_of(name: &str) -> Option<u64> {
    let (_, unit) = name.rsplit_once('_')?;
    let known = UNITS.iter().find(|(known, _)| unit.eq_ignore_ascii_case(known));
    known.map(|(_, unit_ns)| *unit_ns)
}
