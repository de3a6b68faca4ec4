// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output: lines for people, JSON for programs.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::failure::{Result, from_output};

/// Standard output, buffered.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Takes standard output.
    pub fn new() -> Self {
        Self { writer: BufWriter::new(io::stdout().lock()) }
    }

    /// Prints a line.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        writeln!(self.writer, "{text}").map_err(from_output)
    }

    /// Prints a value as one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).expect("our reports have only text keys");
        self.line(text)
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(from_output)
    }

    /// Passes everything on. A verb calls it at its end, so that a failure is not lost.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(from_output)
    }
}

/// Whether a person reads standard output.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Shows a name without the characters that would break lines or steer a terminal.
pub fn show_name(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if c.is_control() => {
                write!(shown, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string works");
            }
            c => shown.push(c),
        }
    }
    shown
}

/// A price in the currency of the configuration.
pub fn show_price(price: f64) -> String {
    match price {
        small if small > 0.0 && small < 0.001 => format!("{small:.3e}"),
        price => format!("{price:.4}"),
    }
}

/// Bytes that are no text, for JSON.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Quotes a word for a shell where it needs that.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command that runs, as a shell reads it.
pub fn command_line() -> String {
    std::env::args().map(|word| quote(&word)).collect::<Vec<_>>().join(" ")
}

/// `1 object`, `2 objects`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        assert_eq!((quote("lru:high=0.8"), quote("a b")), ("lru:high=0.8".into(), "'a b'".into()));
        assert_eq!((quote("it's"), quote("")), (r"'it'\''s'".into(), "''".into()));
    }

    #[test]
    fn a_shown_name_stays_on_its_line() {
        assert_eq!(show_name("a\nb\u{1b}[1m ü"), "a\\nb\\u{1b}[1m ü");
    }
}
