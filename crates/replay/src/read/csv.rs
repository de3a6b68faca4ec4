// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text in columns, with a heading or with columns that a user names.
//!
//! What separates them is what divides the first lines into equally many. Where columns are named by
//! number there may be no heading: the first line is one if it cannot be read, or if no column of it is
//! a number and it has the name of a column of objects, or a number is below.

use std::borrow::Cow;

use terrace_core::{Error, Result};

use super::columns::{COLUMNS_MAX, Columns, Meaning, SECOND_NS, guess, is_object, unit_of};
use super::ids::object_of;
use super::names::{Named, Names};
use super::{BATCH, Options, START_BYTES, Source, Tells};
use crate::input::Input;
use crate::request::{Operation, Request};

/// What may separate columns.
const SEPARATORS: [u8; 3] = [b',', b'\t', b';'];

/// Lines that tell what separates columns.
const LINES_MAX: usize = 16;

const UNENDED: &str = "a quoted column does not end";

const NO_TIME: &str = "the time is no number";

const LATE: &str = "the time is later than 584 years: it may be in ms, us or ns, which the end of the \
                    column's name tells (time_ms), or --columns (time_ms=1)";

/// Whether these lines, the first ones of a file, are columns: separated, or one with a name that says
/// that it has objects.
pub(crate) fn is_likely<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    let first = lines.clone().next();
    let is_heading =
        |line: &[u8]| std::str::from_utf8(line).is_ok_and(|name| is_object(bare(name)));
    separator(lines).is_some() || first.is_some_and(is_heading)
}

/// What separates the columns of these lines, if they have several: what divides them into equally
/// many; of several such what names the object, and what divides into most.
fn separator<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone) -> Option<u8> {
    let count = |line: &[u8], separator| {
        // Quotes that do not end are no columns.
        Fields::new(line, separator)
            .take(COLUMNS_MAX)
            .try_fold(0, |count, field| field.map(|_| count + 1))
    };
    let lines = lines.filter(|line| !line.trim_ascii().is_empty()).take(LINES_MAX);
    let first = lines.clone().next()?;
    let counts = SEPARATORS.into_iter().filter_map(|separator| {
        let columns = count(first, separator).filter(|columns| *columns > 1)?;
        let is_even = lines.clone().all(|line| count(line, separator) == Some(columns));
        let has_object = guess(&names(first, separator)).is_ok();
        Some((is_even, has_object, columns, separator))
    });
    // Of equals the first.
    let better = |best: (bool, bool, usize, u8), next: (bool, bool, usize, u8)| {
        if (next.0, next.1, next.2) > (best.0, best.1, best.2) { next } else { best }
    };
    counts.reduce(better).map(|(.., separator)| separator)
}

/// The names of columns in a heading, in front of which there may be a `#`.
fn names(line: &[u8], separator: u8) -> Vec<String> {
    let fields = Fields::new(line, separator).map_while(|field| field);
    let names = fields.map(|name| String::from_utf8_lossy(&name).trim().to_string());
    let mut names: Vec<String> = names.collect();
    if let Some(first) = names.first_mut() {
        *first = bare(first).to_string();
    }
    names
}

/// The first name of a heading.
fn bare(name: &str) -> &str {
    name.trim_start_matches('#').trim()
}

/// Whether a line has a column that is a number.
fn has_number(line: &[u8], separator: u8) -> bool {
    let mut fields = Fields::new(line, separator).map_while(|field| field);
    fields.any(|field| is_number(field.trim_ascii()))
}

/// The first lines that can be seen whole.
fn first_lines(seen: &[u8], is_all: bool) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = seen.split(|byte| *byte == b'\n').take(LINES_MAX + 1).collect();
    if lines.len() <= LINES_MAX && !is_all && lines.len() > 1 {
        lines.pop();
    }
    let lines = lines.into_iter().filter(|line| !line.trim_ascii().is_empty());
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect()
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
        let start = input.peek(START_BYTES)?;
        let lines = first_lines(start, start.len() < START_BYTES);
        let Some(line) = input.line()?.map(<[u8]>::to_vec) else {
            return Err(input.corrupt("it is empty, and has no heading"));
        };
        let separator = separator(lines.iter().map(Vec::as_slice)).unwrap_or(b',');
        let fields: Option<Vec<_>> = Fields::new(&line, separator).take(COLUMNS_MAX + 1).collect();
        let fields = fields.ok_or_else(|| input.wrong(UNENDED))?;
        if fields.len() > COLUMNS_MAX {
            return Err(input.wrong("it has more than 1024 columns"));
        }
        let names = names(&line, separator);
        let meanings = match columns {
            Some(columns) => columns.find(&names),
            None => guess(&names),
        };
        let meanings = meanings.map_err(|reason| {
            Error::invalid("read the trace", reason).with("file", input.name())
        })?;
        let unit_ns = |meaning| {
            let index = meanings.iter().position(|one| *one == Some(meaning));
            let said = columns.and_then(|columns| columns.unit_ns(meaning));
            said.or_else(|| unit_of(&names[index?])).unwrap_or(SECOND_NS)
        };
        let (time_unit_ns, latency_unit_ns) = (unit_ns(Meaning::Time), unit_ns(Meaning::Latency));
        let shape = Shape { separator, meanings, time_unit_ns, latency_unit_ns };
        let is_words = || {
            let has_number_below = || lines.get(1).is_some_and(|line| has_number(line, separator));
            let has_name = names.iter().any(|name| is_object(name));
            !has_number(&line, separator) && (has_name || has_number_below())
        };
        let is_heading = columns.is_none_or(Columns::has_names)
            || shape.request(&line, 0, &mut Names::default()).is_err()
            || is_words();
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
                        time(field, self.time_unit_ns).ok_or_else(|| match is_number(field) {
                            true => LATE,
                            false => NO_TIME,
                        })?;
                }
                Meaning::Latency => {
                    let latency_ns = time(field, self.latency_unit_ns);
                    request.latency_ns = latency_ns.ok_or("the latency is no number")?;
                }
                Meaning::Operation => request.operation = operation(field),
                Meaning::Client => {
                    let number = whole(field).and_then(|client| u32::try_from(client).ok());
                    // Half of the hash of a name tells so few apart as well.
                    request.client = number.unwrap_or_else(|| object_of(field) as u32);
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

/// A number that is whole and not negative.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    let is_plain = text.first()?.is_ascii_digit();
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// Whether this is a number that is not negative, with or without a fraction.
fn is_number(text: &[u8]) -> bool {
    let is_other = |byte: &u8| !byte.is_ascii_digit() && *byte != b'.';
    text.first().is_some_and(u8::is_ascii_digit) && !text.iter().any(is_other)
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
