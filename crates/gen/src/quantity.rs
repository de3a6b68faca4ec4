// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes and seconds as a person writes them.

const UNITS: [(&str, u64); 13] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    // As IOR has them.
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("b", 1),
];

/// Reads a number of bytes: `4096`, `64k`, `1MiB`, `4GB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let unit = UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit)));
    let (digits, unit) = unit.unwrap_or((&lower, 1));
    let number: Option<u64> = digits.trim_end().parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "not a number of bytes, as in 4096, 64k or 1MiB".to_owned())
}

/// Reads a time in seconds as nanoseconds: `0.5`, `30`.
pub(crate) fn seconds_as_ns(text: &str) -> Result<u64, String> {
    /// About 31 years: a larger one is a mistake, and its nanoseconds still fit.
    const SECONDS_MAX: f64 = 1e9;
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok((seconds * 1e9) as u64),
        _ => Err("not a time in seconds above 0, as in 0.5 or 30".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, seconds_as_ns};

    #[test]
    fn sizes_as_ior_and_as_people_write_them() {
        for (text, value) in
            [("0", 0), ("4096", 4096), ("64k", 65536), ("1m", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        assert_eq!(bytes("4MB"), Ok(4_000_000));
        assert_eq!(bytes("512B"), Ok(512));
        for text in ["", "k", "-1", "1.5m", "1x", "99999999999t"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_positive_and_finite() {
        assert_eq!(seconds_as_ns("0.5"), Ok(500_000_000));
        for text in ["0", "-1", "nan", "inf", "1e10", "1s"] {
            assert!(seconds_as_ns(text).is_err(), "{text}");
        }
    }
}
