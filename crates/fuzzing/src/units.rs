// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes, durations, rates and powers as people write them.

use terrace_core::{ErrorKind, Result, units};

/// A number with a unit is read, or refused with what would be right; what the exact forms print
/// reads back.
pub(crate) fn unit(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let bytes = known(text, units::parse_bytes(text));
    if let Some(bytes) = bytes {
        assert!(bytes < 1 << 63, "{bytes} from {text:?}");
        let own = units::format_bytes(bytes);
        assert_eq!(units::parse_bytes(&own).expect(&own), bytes, "{own}");
        assert!(!units::show_bytes(bytes).is_empty());
    }
    let duration = known(text, units::parse_duration(text));
    if let Some(duration) = duration {
        let own = units::format_duration(duration);
        assert_eq!(units::parse_duration(&own).expect(&own), duration, "{own}");
    }
    let rate = known(text, units::parse_rate(text));
    if let Some(rate) = rate {
        assert!(rate > 0.0 && rate.is_finite(), "{rate} from {text:?}");
    }
    let power = known(text, units::parse_power(text));
    if let Some(power) = power {
        assert!(power >= 0.0 && power.is_finite(), "{power} from {text:?}");
    }
    bytes.is_some() || duration.is_some() || rate.is_some() || power.is_some()
}

fn known<T>(text: &str, parsed: Result<T>) -> Option<T> {
    parsed
        .inspect_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(" such as ") || text.len() > 4, "{error}");
        })
        .ok()
}
