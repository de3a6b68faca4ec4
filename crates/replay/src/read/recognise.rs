// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Telling the kinds of traces apart.

use super::{csv, dftracer, dxt, lcs, oracle_general, vscsi};
use crate::format::Format;

/// The format of a file with this name that begins with these bytes, as far as they tell.
/// `is_all` where the file has no more than these.
pub(super) fn recognise(start: &[u8], is_all: bool, name: &str) -> Option<Format> {
    if lcs::begins(start) {
        return Some(Format::Lcs);
    }
    // First of those that nothing marks: where it fits, nothing else does.
    if oracle_general::is_certain(start, is_all) {
        return Some(Format::OracleGeneral);
    }
    if is_text(start) {
        return of_text(start, is_all);
    }
    match () {
        () if oracle_general::is_named(name) => Some(Format::OracleGeneral),
        () if vscsi::is_likely(start) => Some(Format::Vscsi),
        () if oracle_general::is_likely(start) => Some(Format::OracleGeneral),
        () => None,
    }
}

fn of_text(start: &[u8], is_all: bool) -> Option<Format> {
    let mut lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').collect();
    if !is_all && lines.len() > 1 {
        // The last one goes on behind what is seen.
        lines.pop();
    }
    let lines = lines.iter().map(|line| line.trim_ascii());
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    let first = *lines.peek()?;
    match () {
        () if lines.clone().any(dxt::is_sign) => Some(Format::Dxt),
        () if dftracer::is_sign(first) => Some(Format::Dftracer),
        () if csv::is_likely(lines.clone()) => Some(Format::Csv),
        // Names may be numbers or words, but there is one on a line.
        () if lines.all(|line| !line.contains(&b' ')) => Some(Format::Ids),
        () => None,
    }
}

/// Whether these bytes are text, as traces in text are.
fn is_text(start: &[u8]) -> bool {
    let is_odd = |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t');
    !start.is_empty() && !start.iter().any(is_odd)
}
