// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points in time for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use terrace_core::units::parse_duration;
use terrace_core::{Error, Result};

/// Shows nanoseconds since 1970 as UTC: `2026-11-20 20:04:58Z`; `-` for 0, which means unknown.
pub(crate) fn show_wall(wall_ns: u64) -> String {
    if wall_ns == 0 {
        return "-".into();
    }
    let seconds = wall_ns / 1_000_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// The same with nanoseconds, which read back by [`parse_wall`].
pub(crate) fn show_wall_exactly(wall_ns: u64) -> String {
    let seconds = show_wall(wall_ns.max(1));
    format!("{}.{:09}Z", seconds.trim_end_matches('Z'), wall_ns % 1_000_000_000)
}

/// Reads a point in time: `2026-11-20 20:04:58` in UTC, with or without a fraction and a `Z`, or a
/// duration before now.
pub(crate) fn parse_wall(text: &str) -> Result<u64> {
    if let Ok(ago) = parse_duration(text) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(u64::try_from(now.saturating_sub(ago).as_nanos()).unwrap_or(u64::MAX));
    }
    read_wall(text).ok_or_else(|| {
        let reason = "a time such as \"2026-11-20 20:04:58\" (UTC) is expected, or a duration \
                      before now such as \"10min\"";
        Error::invalid("read a time", reason).with("value", format!("{text:?}"))
    })
}

fn read_wall(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, separator| -> Option<Vec<u64>> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        text.split(separator).map(|part| part.parse().ok().filter(|_| digits(part))).collect()
    };
    let [year, month, day_of_month] = numbers(day, '-')?.try_into().ok()?;
    let [hour, minute, second] = numbers(time, ':')?.try_into().ok()?;
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = hour < 24 && minute < 60 && second < 60 && is_fraction;
    if !is_time || !(1970..=2553).contains(&year) {
        return None;
    }
    // At most 584 years of days: looked for by what they are shown as.
    let first = (year - 1970) * 365;
    let mut days = first..first + 366 + (year - 1970) / 4 + 1;
    let days = days.find(|days| date(*days) == (year, month, day_of_month))?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(seconds * 1_000_000_000 + nanoseconds)
}

/// Shows how long ago a point in time was, in its largest unit: `12s ago`.
pub(crate) fn show_ago(wall_ns: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_nanos(wall_ns);
    let Ok(ago) = SystemTime::now().duration_since(then) else { return "now".into() };
    let seconds = ago.as_secs();
    match seconds {
        0..120 => format!("{seconds}s ago"),
        120..7_200 => format!("{}min ago", seconds / 60),
        7_200..172_800 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// Year, month and day of a day since 1970 in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut rest = days;
    let mut year = 1970;
    // A u64 of nanoseconds ends in 2554: at most 584 rounds.
    loop {
        let year_days = if is_leap(year) { 366 } else { 365 };
        if rest < year_days {
            break;
        }
        rest -= year_days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for month_days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < month_days {
            break;
        }
        rest -= month_days;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for wall_ns in [1, 951_782_400_000_000_000, 1_709_164_800_123_456_789, 1 << 63] {
            assert_eq!(parse_wall(&show_wall_exactly(wall_ns)).expect("legal"), wall_ns);
        }
        let day = parse_wall("2000-02-29").expect("legal");
        assert_eq!(day, 951_782_400_000_000_000);
        assert_eq!(parse_wall("2000-02-29T00:00:01.5").expect("legal"), day + 1_500_000_000);
        for wrong in ["yesterday", "2001-02-29", "2000-02-29 24:00:00", "2000-13-01", "+1-01-01"] {
            assert!(parse_wall(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(show_wall(1_000_000_000_000_000_000), "2001-09-09 01:46:40Z");
        assert_eq!(show_wall(951_782_400_000_000_000), "2000-02-29 00:00:00Z");
        assert_eq!(show_wall(0), "-");
    }
}
