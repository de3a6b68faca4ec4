// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readable units: `200GB`, `80us`, `3GB/s`, `5W`, in both directions.
//!
//! Decimal prefixes are powers of 1000, binary ones (`KiB`) powers of 1024.

use std::time::Duration;

use crate::error::shorten;
use crate::{Error, Result};

const BYTES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

const NANOSECONDS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const WATTS: &[(&str, f64)] = &[("mW", 1e-3), ("W", 1.0), ("kW", 1e3)];

/// Reads a size such as `200GB`, `1.5GiB` or `4096B`.
///
/// # Errors
///
/// `Invalid` without a unit, for a negative number, or from 2^63 on.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let (number, factor) = parse("size", "200GB", BYTES, text)?;
    // Offsets and lengths fit in 63 bits everywhere.
    number.times(factor).filter(|bytes| *bytes < 1 << 63).map(|bytes| bytes as u64).ok_or_else(
        || Error::invalid("read a size", "it is not below 2^63 bytes").with("value", shorten(text)),
    )
}

/// Reads a duration such as `80us`, `1.5s` or `10min`. Errors: `Invalid`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let (number, factor) = parse("duration", "80us", NANOSECONDS, text)?;
    let too_long =
        || Error::invalid("read a duration", "it is too long").with("value", shorten(text));
    let nanoseconds = number.times(factor).ok_or_else(too_long)?;
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).map_err(|_| too_long())?;
    Ok(Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32))
}

/// Reads a rate such as `3GB/s` into bytes per second. Errors: `Invalid`.
pub fn parse_rate(text: &str) -> Result<f64> {
    let wrong = || {
        Error::invalid("read a rate", "a size per second such as 3GB/s is expected")
            .with("value", shorten(text))
    };
    let size = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
    let (number, factor) = parse("rate", "3GB/s", BYTES, size)?;
    let rate = number.value * factor as f64;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err(wrong()) }
}

/// Reads a power such as `5W` into watts. Errors: `Invalid`.
pub fn parse_power(text: &str) -> Result<f64> {
    let (number, factor) = parse("power", "5W", WATTS, text)?;
    let power = number.value * factor;
    if power.is_finite() {
        Ok(power)
    } else {
        Err(Error::invalid("read a power", "a power such as 5W is expected")
            .with("value", shorten(text)))
    }
}

/// A number that is not negative, and its digits.
struct Number<'a> {
    value: f64,
    whole: &'a str,
    fraction: &'a str,
}

impl Number<'_> {
    /// The product, rounded: exact where a float is not, because sizes and times that this program
    /// writes must read back. `None` where it is far too large.
    fn times(&self, factor: u64) -> Option<u128> {
        // Of more digits no unit here shows anything.
        const DIGITS_MAX: usize = 18;
        let fraction = &self.fraction[..self.fraction.len().min(DIGITS_MAX)];
        let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse().ok() };
        let (whole, part): (u128, u128) = (read(self.whole)?, read(fraction)?);
        let scale = 10_u128.pow(fraction.len() as u32);
        let factor = u128::from(factor);
        whole.checked_mul(factor)?.checked_add((part * factor + scale / 2) / scale)
    }
}

fn parse<'a, F: Copy>(
    what: &'static str,
    example: &str,
    units: &[(&str, F)],
    text: &'a str,
) -> Result<(Number<'a>, F)> {
    let text = text.trim();
    let split = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim_start());
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    match (number.parse::<f64>(), factor) {
        (Ok(value), Some(factor)) => {
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            Ok((Number { value, whole, fraction }, factor))
        }
        _ => {
            let mut names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
            names.dedup();
            let reason = format!(
                "a {what} such as {example} is expected, with one of the units {}",
                names.join(", ")
            );
            Err(Error::invalid("read a number with a unit", reason).with("value", shorten(text)))
        }
    }
}

/// Prints a size with three significant digits and a decimal prefix: `1.23 GB`, `512 B`.
pub fn show_bytes(bytes: u64) -> String {
    if bytes == u64::MAX {
        return "unlimited".into();
    }
    show(
        bytes as f64,
        &[(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
    )
}

/// Prints a rate: `3.00 GB/s`.
pub fn show_rate(bytes_per_s: f64) -> String {
    if bytes_per_s.is_infinite() {
        return "unlimited".into();
    }
    format!("{}/s", show_bytes(bytes_per_s as u64))
}

/// Prints a duration with three significant digits: `80.0 us`, `1.50 s`.
pub fn show_ns(ns: u64) -> String {
    show(ns as f64, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
}

/// Prints a duration in the form that [`parse_duration`] reads back exactly: `80us`, `1500ms`.
pub fn format_duration(duration: Duration) -> String {
    let ns = duration.as_nanos();
    for (factor, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns.is_multiple_of(factor) {
            return format!("{}{unit}", ns / factor);
        }
    }
    format!("{ns}ns")
}

/// Prints a size in the form that [`parse_bytes`] reads back exactly: `200GB`, `4096B`.
pub fn format_bytes(bytes: u64) -> String {
    let units: [(u64, &str); 8] = [
        (1_000_000_000_000, "TB"),
        (1 << 40, "TiB"),
        (1_000_000_000, "GB"),
        (1 << 30, "GiB"),
        (1_000_000, "MB"),
        (1 << 20, "MiB"),
        (1_000, "kB"),
        (1 << 10, "KiB"),
    ];
    for (factor, unit) in units {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

fn show(value: f64, units: &[(f64, &str)]) -> String {
    let last = units[units.len() - 1];
    let (factor, unit) = units.iter().find(|(factor, _)| value >= *factor).unwrap_or(&last);
    let scaled = value / factor;
    let is_whole = *factor == last.0;
    let decimals = match scaled {
        _ if is_whole => 0,
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse_bytes("200GB").expect("legal"), 200_000_000_000);
        assert_eq!(parse_bytes("1.5 KiB").expect("legal"), 1536);
        assert_eq!(parse_duration("80us").expect("legal"), Duration::from_micros(80));
        assert_eq!(parse_rate("3GB/s").expect("legal"), 3e9);
        assert_eq!(parse_power("5W").expect("legal"), 5.0);
    }

    #[test]
    fn a_wrong_unit_says_what_would_be_right() {
        for wrong in ["200", "GB", "-1GB", "1 gb", "1e3GB", "", "1.2.3GB", "99999PB"] {
            let error = parse_bytes(wrong).expect_err(wrong).to_string();
            assert!(error.contains("size"), "{error}");
        }
        assert!(parse_rate("3GB").is_err());
        assert!(parse_rate("0GB/s").is_err());
        assert!(parse_duration("5").is_err());
    }

    #[test]
    fn a_number_without_end_is_refused_in_a_short_message() {
        let long = "9".repeat(1000);
        for error in [
            parse_bytes(&format!("{long}B")).expect_err("long"),
            parse_duration(&format!("{long}s")).expect_err("long"),
            parse_rate(&format!("{long}B/s")).expect_err("long"),
            parse_power(&format!("{long}W")).expect_err("long"),
            parse_power(&long).expect_err("long"),
        ] {
            assert!(error.to_string().len() < 300, "{error}");
        }
    }

    #[test]
    fn a_fraction_is_rounded() {
        assert_eq!(parse_bytes("0.0005kB").expect("legal"), 1);
        assert_eq!(parse_bytes(".5kB").expect("legal"), 500);
        assert_eq!(parse_duration("1.5ns").expect("legal"), Duration::from_nanos(2));
        let many = format!("1.{}1s", "0".repeat(100));
        assert_eq!(parse_duration(&many).expect("legal"), Duration::from_secs(1));
    }

    #[test]
    fn units_are_shown() {
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(1_234_000_000), "1.23 GB");
        assert_eq!(show_ns(80_000), "80.0 us");
        assert_eq!(show_ns(0), "0 ns");
    }

    #[test]
    fn formatted_units_read_back() {
        for bytes in [0, 1, 1000, 1024, 4096, 200_000_000_000, 3 << 30, (1 << 53) + 1] {
            assert_eq!(parse_bytes(&format_bytes(bytes)).expect("own form"), bytes);
        }
        for ns in [0, 1, 1500, 80_000, 1_500_000_000, 123_456_789_017_945_692, u64::MAX] {
            let duration = Duration::from_nanos(ns);
            assert_eq!(parse_duration(&format_duration(duration)).expect("own form"), duration);
        }
    }
}
