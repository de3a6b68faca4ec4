// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points in time for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    fn times_are_shown_in_utc() {
        assert_eq!(show_wall(1_000_000_000_000_000_000), "2001-09-09 01:46:40Z");
        assert_eq!(show_wall(951_782_400_000_000_000), "2000-02-29 00:00:00Z");
        assert_eq!(show_wall(0), "-");
    }
}
