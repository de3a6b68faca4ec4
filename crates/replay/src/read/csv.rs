// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text in columns, with a heading or with columns that somebody names.

use std::borrow::Cow;

use terrace_core::{Error, Result};

use super::ids::object_of;
use super::names::{Named, Names};
use super::{BATCH, Options, Source, Tells};
use crate::input::Input;
use crate::request::{Operation, Request};

/// What may separate columns.
const SEPARATORS: [u8; 3] = [b',', b'\t', b';'];

/// Columns at most.
const COLUMNS_MAX: usize = 1024;

const SECOND_NS: u64 = 1_000_000_000;

const UNENDED: &str = "a quoted column does not end";

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
enum Meaning {
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
}

/// Which column is what, as a user says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(Vec<(Meaning, Which)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    /// By the name in the heading.
    Name(String),
    /// From 0.
    Index(usize),
}

impl Columns {
    /// Reads `id=block_id,size=4`: columns by name, or by number from 1.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            Error::invalid("read the columns", reason).with("columns", format!("{text:?}"))
        };
        let mut columns: Vec<(Meaning, Which)> = Vec::new();
        for part in text.split(',') {
            let (word, which) = part.split_once('=').ok_or_else(|| {
                wrong("a list such as id=2,size=3 is expected, by name or by number from 1")
            })?;
            let meaning = Meaning::ALL.into_iter().find(|(one, _)| *one == word.trim());
            let (_, meaning) = meaning.ok_or_else(|| {
                wrong("there are the columns id, size, time, op, offset, length, client, latency")
            })?;
            if columns.iter().any(|(other, _)| *other == meaning) {
                return Err(wrong("a column is named twice"));
            }
            let which = match which.trim().parse::<usize>() {
                Ok(number @ 1..=COLUMNS_MAX) => Which::Index(number - 1),
                Ok(_) => return Err(wrong("columns are counted from 1, to 1024")),
                Err(_) => Which::Name(which.trim().to_string()),
            };
            columns.push((meaning, which));
        }
        match columns.iter().any(|(meaning, _)| *meaning == Meaning::Id) {
            true => Ok(Self(columns)),
            false => Err(wrong("the column of the object is missing: id=…")),
        }
    }

    fn has_names(&self) -> bool {
        self.0.iter().any(|(_, which)| matches!(which, Which::Name(_)))
    }

    /// What the columns are, of a line that has these.
    fn find(&self, names: &[String]) -> Result<Vec<Option<Meaning>>, String> {
        let mut meanings = vec![None; names.len()];
        for (meaning, which) in &self.0 {
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

/// What separates the columns of a line, if it has several.
pub(crate) fn separator(line: &[u8]) -> Option<u8> {
    SEPARATORS.into_iter().find(|separator| line.contains(separator))
}

pub(super) struct Csv {
    input: Input,
    shape: Shape,
    /// The first line, where it is no heading.
    first: Option<Vec<u8>>,
    rows: u64,
    has_lives: bool,
    names: Names,
}

/// What a line is made of.
struct Shape {
    separator: u8,
    /// What each column is.
    meanings: Vec<Option<Meaning>>,
    /// Nanoseconds for each unit of the time, and of the latency.
    time_unit_ns: u64,
    latency_unit_ns: u64,
}

impl Csv {
    pub(super) fn open(mut input: Input, options: &Options) -> Result<Self> {
        let columns = options.columns.as_ref();
        let Some(line) = input.line()?.map(<[u8]>::to_vec) else {
            return Err(input.corrupt("it is empty, and has no heading"));
        };
        let separator = separator(&line).unwrap_or(b',');
        let fields: Option<Vec<_>> = Fields::new(&line, separator).take(COLUMNS_MAX + 1).collect();
        let fields = fields.ok_or_else(|| input.wrong(UNENDED))?;
        if fields.len() > COLUMNS_MAX {
            return Err(input.wrong("it has more than 1024 columns"));
        }
        let name_of = |name: &Cow<'_, [u8]>| String::from_utf8_lossy(name).trim().to_string();
        let names: Vec<String> = fields.iter().map(name_of).collect();
        let meanings = match columns {
            Some(columns) => columns.find(&names),
            None => guess(&names),
        };
        let meanings = meanings.map_err(|reason| {
            Error::invalid("read the trace", reason).with("file", input.name())
        })?;
        let unit_ns = |meaning| {
            let index = meanings.iter().position(|one| *one == Some(meaning));
            index.map_or(SECOND_NS, |index| unit_of(&names[index]))
        };
        let (time_unit_ns, latency_unit_ns) = (unit_ns(Meaning::Time), unit_ns(Meaning::Latency));
        let shape = Shape { separator, meanings, time_unit_ns, latency_unit_ns };
        // Numbers may name columns with a heading or without: only without can the line be read.
        let is_heading = columns.is_none_or(Columns::has_names)
            || shape.request(&line, 0, &mut Names::default()).is_err();
        let (first, names) = ((!is_heading).then_some(line), Names::default());
        Ok(Self { input, shape, first, rows: 0, has_lives: options.has_lives, names })
    }
}

impl Source for Csv {
    fn fill(&mut self, requests: &mut Vec<Request>) -> Result<()> {
        while requests.len() < BATCH {
            let names = &mut self.names;
            let request = if let Some(first) = self.first.take() {
                self.shape.request(&first, self.rows, names)
            } else {
                let Some(line) = self.input.line()? else { return Ok(()) };
                if line.trim_ascii().is_empty() {
                    continue;
                }
                self.shape.request(line, self.rows, names)
            };
            let request = request.map_err(|reason| self.input.wrong(reason))?;
            self.rows += 1;
            if self.has_lives || request.operation.is_access() {
                requests.push(request);
            }
        }
        Ok(())
    }

    fn tells(&self) -> Tells {
        self.shape.tells()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn want_names(&mut self) {
        self.names.want();
    }

    fn take_names(&mut self) -> Vec<(u64, Named)> {
        self.names.take()
    }
}

impl Shape {
    fn tells(&self) -> Tells {
        let has = |meaning| self.meanings.contains(&Some(meaning));
        Tells { clients: has(Meaning::Client), latencies: has(Meaning::Latency) }
    }

    /// The request of a line, or what is wrong with it. Without a time a row is a second, without
    /// sizes every object is 1 byte.
    fn request(&self, line: &[u8], row: u64, names: &mut Names) -> Result<Request, &'static str> {
        let mut request = Request::whole(row.saturating_mul(SECOND_NS), 0, 1, Operation::Unknown);
        let (mut size, mut length) = (None, None);
        let mut count = 0;
        for field in Fields::new(line, self.separator) {
            let field = field.ok_or(UNENDED)?;
            let field = field.trim_ascii();
            let meaning =
                self.meanings.get(count).ok_or("it has more columns than the first line")?;
            count += 1;
            let Some(meaning) = meaning else { continue };
            match meaning {
                Meaning::Id if field.is_empty() => return Err("the object has no name"),
                Meaning::Id => {
                    request.object = object_of(field);
                    names.note_text(request.object, field);
                }
                Meaning::Size => {
                    size = Some(whole(field).ok_or("the size is no whole number")?);
                }
                Meaning::Length => {
                    length = Some(whole(field).ok_or("the length is no whole number")?);
                }
                Meaning::Offset => {
                    request.offset_bytes = whole(field).ok_or("the offset is no whole number")?;
                }
                Meaning::Time => {
                    request.time_ns =
                        time(field, self.time_unit_ns).ok_or("the time is no number")?;
                }
                Meaning::Latency => {
                    let latency_ns = time(field, self.latency_unit_ns);
                    request.latency_ns = latency_ns.ok_or("the latency is no number")?;
                }
                Meaning::Operation => request.operation = operation(field),
                Meaning::Client => {
                    let client = whole(field).and_then(|client| u32::try_from(client).ok());
                    request.client = client.ok_or("the client is no number of 32 bits")?;
                }
            }
        }
        request.size_bytes = size.or(length).unwrap_or(1);
        request.length_bytes = length.or(size).unwrap_or(1);
        match count == self.meanings.len() {
            true => Ok(request),
            false => Err("it has fewer columns than the first line"),
        }
    }
}

/// What columns with these names are.
fn guess(names: &[String]) -> Result<Vec<Option<Meaning>>, String> {
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

/// The columns of a line; `None` for one whose quotes do not end.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    fn new(line: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(line), separator }
    }

    /// A field in quotes, in which two quotes are one (RFC 4180, section 2).
    fn quoted(&mut self, rest: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let mut text = Vec::new();
        let mut bytes = rest.iter().enumerate().skip(1).peekable();
        while let Some((index, byte)) = bytes.next() {
            match (byte, bytes.peek()) {
                (b'"', Some((_, b'"'))) => {
                    text.push(b'"');
                    bytes.next();
                }
                (b'"', Some((_, next))) if **next != self.separator => return None,
                (b'"', _) => {
                    self.rest = rest.get(index + 2..);
                    return Some(text.into());
                }
                _ => text.push(*byte),
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<Cow<'a, [u8]>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        if rest.first() == Some(&b'"') {
            return Some(self.quoted(rest));
        }
        match rest.iter().position(|byte| *byte == self.separator) {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                Some(Some(rest[..end].into()))
            }
            None => Some(Some(rest.into())),
        }
    }
}

/// The unit of a time whose column has this name.
fn unit_of(name: &str) -> u64 {
    match name.rsplit_once('_').map_or("", |(_, unit)| unit) {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        _ => SECOND_NS,
    }
}

/// A number that is whole and not negative.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    let is_plain = text.first()?.is_ascii_digit();
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// A number of seconds in nanoseconds.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    time(text, SECOND_NS)
}

/// A number of units, with or without a fraction, in nanoseconds.
fn time(text: &[u8], unit_ns: u64) -> Option<u64> {
    // 10^-12 of a second is finer than anything here shows.
    const DIGITS_MAX: usize = 12;
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = whole(parts.next()?)?.checked_mul(unit_ns)?;
    let Some(fraction) = parts.next().filter(|fraction| !fraction.is_empty()) else {
        return Some(seconds);
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(DIGITS_MAX)];
    let part = u128::from(whole(digits)?) * u128::from(unit_ns) / 10_u128.pow(digits.len() as u32);
    seconds.checked_add(part as u64)
}

/// What a word stands for: what makes or ends something as a whole, else as far as its beginning
/// tells.
fn operation(word: &[u8]) -> Operation {
    let is_life = |one: &Operation| word.eq_ignore_ascii_case(one.word().as_bytes());
    if let Some(life) = Operation::LIVES.into_iter().find(is_life) {
        return life;
    }
    let begins = |with: &str| {
        word.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    let is_letter = |letter: u8| word.eq_ignore_ascii_case(&[letter]);
    match () {
        () if is_letter(b'r') || ["read", "get"].iter().any(|with| begins(with)) => Operation::Read,
        () if is_letter(b'w') || ["write", "put", "set"].iter().any(|with| begins(with)) => {
            Operation::Write
        }
        () => Operation::Unknown,
    }
}
