// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A section of a configuration: values by key, and errors that say where and what is right.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use terrace_core::{Error, Result, units};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Every section with its keys. `docs/reference/configuration.md` has a row for each.
pub(super) const SECTIONS: &[(&str, &[&str])] = &[
    ("", &["store", "tier", "catalog", "policy", "trace", "scrub"]),
    (
        "[store]",
        &[
            "persistency",
            "move_threads",
            "move_bandwidth",
            "move_yields",
            "degraded",
            "objects_in_memory",
        ],
    ),
    (
        "[[tier]]",
        &[
            "name",
            "backend",
            "path",
            "bucket",
            "prefix",
            "endpoint",
            "region",
            "credentials",
            "profile",
            "deadline",
            "pool",
            "namespace",
            "user",
            "conf",
            "keyring",
            "service",
            "root",
            "compress",
            "encrypt",
            "packed_share",
            "capacity",
            "keep_deleted",
            "latency",
            "bandwidth",
            "read_bandwidth",
            "write_bandwidth",
            "parallelism",
            "total_bandwidth",
            "seek",
            "write_latency",
            "write_burst",
            "sustained_write_bandwidth",
            "create_latency",
            "sync_latency",
            "cached_latency",
            "cached_bandwidth",
            "recently_used",
            "cpu_share",
            "move_latency",
            "move_cpu",
            "idle_power",
            "active_power",
            "price_per_1000_write_requests",
            "price_per_1000_read_requests",
            "price_per_gb_month",
            "price_per_gb_read",
            "watermarks",
            "throttle",
        ],
    ),
    ("watermarks", &["low", "high", "critical"]),
    ("throttle", &["latency", "bandwidth", "read_bandwidth", "write_bandwidth", "parallelism"]),
    ("[catalog]", &["engine", "path", "checkpoint", "checkpoint_every"]),
    ("[scrub]", &["every", "bandwidth"]),
    (
        "[policy]",
        &[
            "name",
            "library",
            "program",
            "after_events",
            "every",
            "post_events",
            "round_bytes",
            "call_time_max",
            "dry_run",
            "parameters",
            "files",
        ],
    ),
    ("[trace]", &["path", "decisions", "hash_names", "max_size"]),
];

/// Letters of what is compared with what there is; longer words are no slips.
const NEAREST_LENGTH_MAX: usize = 64;

/// The text of a configuration and the name of its file.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) origin: &'a str,
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn parse(self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(self.text.len(), |span| span.start);
            // The parser's messages may have a second line; ours have one.
            self.wrong(at, error.message().trim().replace('\n', "; "))
        })
    }

    /// An error at an offset into the text.
    pub(super) fn wrong(self, offset_bytes: usize, reason: impl Display) -> Error {
        let before = self.text.get(..offset_bytes).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let reason = match self.origin {
            // The text is in no file in which a person could look up a line.
            "" => reason.to_string(),
            origin => format!("{origin}:{line}:{column}: {reason}"),
        };
        Error::invalid("use the configuration", reason)
    }
}

/// A section; without a table where the file has none.
#[derive(Clone)]
pub(super) struct Section<'a> {
    source: Source<'a>,
    /// For people: `[store]`, or `tier "fast"` once its name is known.
    label: String,
    start_bytes: usize,
    table: Option<&'a DeTable<'a>>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn whole(source: Source<'a>, document: &'a Spanned<DeTable<'a>>) -> Result<Self> {
        Self::new(source, "", 0, document.get_ref())
    }

    /// A section; refuses keys that it does not have.
    fn new(
        source: Source<'a>,
        kind: &str,
        start_bytes: usize,
        table: &'a DeTable<'a>,
    ) -> Result<Self> {
        let keys = keys_of(kind);
        let unknown =
            table.iter().map(|(key, _)| key).filter(|key| !keys.contains(&&**key.get_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            Some(key) => Err(source.wrong(key.span().start, unknown_key(kind, key.get_ref()))),
            None => Ok(Self { source, label: kind.into(), start_bytes, table: Some(table) }),
        }
    }

    /// The section under a key; without a table where there is none.
    pub(super) fn section(&self, key: &str, kind: &'static str) -> Result<Section<'a>> {
        match self.table(key, kind)? {
            Some((span, table)) => Section::new(self.source, kind, span.start, table),
            None => Ok(Section { label: kind.into(), table: None, ..self.clone() }),
        }
    }

    /// The sections of an array of tables.
    pub(super) fn sections(&self, key: &str, kind: &'static str) -> Result<Vec<Section<'a>>> {
        let right = format!("a section that begins with {kind} is expected for each {key}");
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let array = value.get_ref().as_array().ok_or_else(|| self.wrong(key, &right))?;
        let section = |item: &'a Spanned<DeValue<'a>>| {
            let start = item.span().start;
            let table = item.get_ref().as_table();
            let table = table.ok_or_else(|| self.source.wrong(start, &right))?;
            Section::new(self.source, kind, start, table)
        };
        array.iter().map(section).collect()
    }

    /// Keys and their values as text, for parameters that only a policy knows.
    pub(super) fn pairs(&self, key: &str, kind: &str) -> Result<Vec<(usize, String, String)>> {
        let Some((_, table)) = self.table(key, kind)? else {
            return Ok(Vec::new());
        };
        let mut pairs = Vec::new();
        for (name, value) in table.iter() {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => {
                    let read = i64::from_str_radix(number.as_str(), number.radix());
                    read.map_or_else(|_| number.to_string(), |number| number.to_string())
                }
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(switch) => switch.to_string(),
                other => {
                    let reason = format!(
                        "the parameter `{name}` is {}; a text, a number, true or false is expected",
                        article(other.type_str())
                    );
                    return Err(self.source.wrong(value.span().start, reason));
                }
            };
            pairs.push((name.span().start, name.get_ref().to_string(), text));
        }
        pairs.sort_by_key(|(at, ..)| *at);
        Ok(pairs)
    }

    /// Whether the file has this section.
    pub(super) fn is_given(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the section has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// What people call it from now on.
    pub(super) fn set_label(&mut self, label: String) {
        self.label = label;
    }

    /// An error at a key's value, or at the head of the section without it.
    pub(super) fn wrong(&self, key: &str, reason: impl Display) -> Error {
        let at = self.value(key).map_or(self.start_bytes, |value| value.span().start);
        let label = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        self.source.wrong(at, format!("{label}{reason}"))
    }

    /// An error at an offset that [`Section::pairs`] gave.
    pub(super) fn wrong_at(&self, offset_bytes: usize, reason: impl Display) -> Error {
        self.source.wrong(offset_bytes, format!("{}: {reason}", self.label))
    }

    /// A text.
    pub(super) fn text(&self, key: &str, example: &str) -> Result<Option<&'a str>> {
        self.read(key, &format!("a text such as \"{example}\""), |value| value.as_str())
    }

    /// `true` or `false`.
    pub(super) fn switch(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "true or false", |value| value.as_bool())
    }

    /// A text, or else `true` or `false` as an error.
    pub(super) fn switch_or_text(
        &self,
        key: &str,
        example: &str,
    ) -> Result<Option<std::result::Result<&'a str, bool>>> {
        let right = format!("a text such as \"{example}\", true or false");
        self.read(key, &right, |value| match value {
            DeValue::Boolean(switch) => Some(Err(*switch)),
            _ => value.as_str().map(Ok),
        })
    }

    /// A whole number within bounds.
    pub(super) fn count<N>(&self, key: &str, bounds: RangeInclusive<N>) -> Result<Option<N>>
    where
        N: Display + PartialOrd + TryFrom<i64>,
    {
        let right = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.read(key, &right, |value| {
            let number = value.as_integer()?;
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            N::try_from(number).ok().filter(|number| bounds.contains(number))
        })
    }

    /// A share of a whole, above 0 and at most 1.
    pub(super) fn share(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, "a number above 0 and at most 1, such as 0.9", |value| {
            number(value).filter(|share| *share > 0.0 && *share <= 1.0)
        })
    }

    /// A price in the currency of the user; 0 where it is not given.
    pub(super) fn price(&self, key: &str) -> Result<f64> {
        let price = self.read(key, "a finite number of at least 0, such as 0.023", |value| {
            number(value).filter(|price| price.is_finite() && *price >= 0.0)
        })?;
        Ok(price.unwrap_or(0.0))
    }

    /// A size above zero.
    pub(super) fn size(&self, key: &str) -> Result<Option<u64>> {
        let size = self.unit(key, "a size such as \"200GB\"", units::parse_bytes)?;
        self.above_zero(key, size, size == Some(0))
    }

    /// A duration; zero is one.
    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>> {
        let right = "a duration such as \"80us\"";
        let duration = self.unit(key, right, units::parse_duration)?;
        // 584 years: everything inside counts nanoseconds in 64 bits.
        match duration {
            Some(duration) if u64::try_from(duration.as_nanos()).is_err() => {
                Err(self.wrong(key, format!("`{key}` is too long; {right} is expected")))
            }
            duration => Ok(duration),
        }
    }

    /// A duration above zero.
    pub(super) fn interval(&self, key: &str) -> Result<Option<Duration>> {
        let interval = self.duration(key)?;
        self.above_zero(key, interval, interval == Some(Duration::ZERO))
    }

    /// Bytes per second, above zero.
    pub(super) fn rate(&self, key: &str) -> Result<Option<f64>> {
        self.unit(key, "a rate above zero such as \"3GB/s\"", units::parse_rate)
    }

    /// Watts.
    pub(super) fn power(&self, key: &str) -> Result<Option<f64>> {
        self.unit(key, "a power such as \"5W\"", units::parse_power)
    }

    fn above_zero<T>(&self, key: &str, value: T, is_zero: bool) -> Result<T> {
        if is_zero {
            let reason = format!("`{key}` is zero; a value above zero is expected");
            return Err(self.wrong(key, reason));
        }
        Ok(value)
    }

    fn unit<T>(
        &self,
        key: &str,
        right: &str,
        parse: impl Fn(&str) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.read(key, right, |value| value.as_str())? else { return Ok(None) };
        parse(text).map(Some).map_err(|error| {
            let reason = format!("`{key}` is \"{}\"; {right} is expected", text.escape_debug());
            self.wrong(key, reason).caused_by(error)
        })
    }

    fn read<T>(
        &self,
        key: &str,
        right: &str,
        convert: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let value = value.get_ref();
        convert(value).map(Some).ok_or_else(|| {
            self.wrong(key, format!("`{key}` is {}; {right} is expected", describe(value)))
        })
    }

    fn table(&self, key: &str, kind: &str) -> Result<Option<(Range<usize>, &'a DeTable<'a>)>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || {
            let right = if kind.starts_with('[') {
                format!("one section {kind}")
            } else {
                let keys = keys_of(kind);
                format!("a table such as {{ {} = … }} with {}", keys[0], keys.join(", "))
            };
            self.wrong(
                key,
                format!("`{key}` is {}; {right} is expected", describe(value.get_ref())),
            )
        };
        value.get_ref().as_table().map(|table| Some((value.span(), table))).ok_or_else(wrong)
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table?.get(key)
    }
}

fn keys_of(kind: &str) -> &'static [&'static str] {
    SECTIONS.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, keys)| keys)
}

fn unknown_key(kind: &str, key: &str) -> String {
    let place = if kind.is_empty() { "here".into() } else { format!("in {kind}") };
    let elsewhere = || SECTIONS.iter().find(|(_, keys)| keys.contains(&key));
    let near = match (nearest(key, keys_of(kind)), elsewhere()) {
        (Some(near), _) => format!("did you mean `{near}`? "),
        (None, Some((section, _))) if !section.is_empty() => format!("it belongs in {section}; "),
        _ => String::new(),
    };
    let known = keys_of(kind).join(", ");
    format!("there is no `{}` {place}; {near}known are {known}", key.escape_debug())
}

/// The word that is most similar to `typed`.
pub(super) fn nearest<'w>(typed: &str, words: &[&'w str]) -> Option<&'w str> {
    let typed = typed.to_lowercase().replace('-', "_");
    let length = typed.chars().count();
    if length > NEAREST_LENGTH_MAX {
        return None;
    }
    let distance_max = (length / 3).clamp(1, 3);
    words
        .iter()
        .map(|word| (distance(&typed, &word.replace('-', "_")), *word))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Letters to insert, delete, replace or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // One row a letter of `from`; a swap looks two rows back.
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let is_same = from[i - 1] == to[j - 1];
            let mut best = (rows[i - 1][j - 1] + usize::from(!is_same))
                .min(rows[i - 1][j] + 1)
                .min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(number) => f64::from_str(number.as_str()).ok(),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number as f64)
        }
        _ => None,
    }
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", text.escape_debug()),
        DeValue::Integer(number) => format!("the number {}", number.as_str()),
        DeValue::Float(number) => format!("the number {}", number.as_str()),
        DeValue::Boolean(switch) => switch.to_string(),
        other => article(other.type_str()),
    }
}

fn article(noun: &str) -> String {
    match noun.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {noun}"),
        _ => format!("a {noun}"),
    }
}
