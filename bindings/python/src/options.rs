// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options as Python passes them.

use std::time::Duration;

use terrace::{Hint, Options, Result, Semantics, Temperature};

use crate::errors::invalid;

/// Semantics from their text, for example `posix,persistency=storage`.
pub(crate) fn semantics(text: Option<&str>) -> Result<Semantics> {
    text.map_or(Ok(Semantics::default()), str::parse)
}

/// A hint from its word.
pub(crate) fn hint(word: Option<&str>) -> Result<Hint> {
    let temperature = match word {
        None | Some("unknown") => Temperature::Unknown,
        Some("hot") => Temperature::Hot,
        Some("cold") => Temperature::Cold,
        Some(other) => {
            let reason = "one of hot, cold, unknown is expected";
            return Err(invalid("read a hint", reason).with("hint", other));
        }
    };
    Ok(Hint { temperature })
}

/// All of them.
pub(crate) fn options(
    semantics_text: Option<&str>,
    hint_word: Option<&str>,
    label: Option<Vec<u8>>,
    size_bytes: Option<u64>,
) -> Result<Options> {
    Ok(Options { semantics: semantics(semantics_text)?, hint: hint(hint_word)?, label, size_bytes })
}

/// The longest wait that a program may ask for.
const WAIT_S_MAX: f64 = 1e9;

/// A timeout in seconds; one below zero is zero, and `None` and infinity are none.
pub(crate) fn timeout(seconds: Option<f64>) -> Result<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() {
        return Err(invalid("wait", "the timeout is not a number"));
    }
    let is_finite = seconds <= WAIT_S_MAX;
    Ok(is_finite.then(|| Duration::from_secs_f64(seconds.max(0.0))))
}
