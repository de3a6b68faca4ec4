// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutual exclusion of callers that make or delete what has a name: an empty object is the arbiter,
//! because of several callers that open it as new one succeeds.

use terrace_core::{Error, ErrorKind, Key, Open, Result};

use crate::Base;

/// Runs `body` while it holds the claim `key`.
///
/// A crash leaves the claim behind: whether its holder will go on cannot be known, so others are
/// refused until it was removed by hand.
///
/// # Errors
///
/// `Busy` where another caller holds it; those of `body`; what the store returns.
pub(crate) fn with_claim<T>(
    base: &dyn Base,
    key: &Key,
    operation: &'static str,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // It stays empty, so it lies on one server where objects are spread over several.
    let how = Open { size_hint_bytes: Some(0), ..Open::create_new() };
    match base.open(key, &how) {
        Ok(claim) => drop(claim),
        Err(error) if error.kind() == ErrorKind::Exists => {
            return Err(Error::new(ErrorKind::Busy, operation)
                .because(
                    "somebody makes or deletes it just now, or was interrupted: `terrace item \
                     check` shows and removes what was left",
                )
                .with("claim", key));
        }
        Err(error) => return Err(error),
    }
    let result = body();
    let released = delete_if_exists(base, key);
    // The first failure is the one that explains the other.
    let value = result?;
    released?;
    Ok(value)
}

/// Removes an object that may be gone.
pub(crate) fn delete_if_exists(base: &dyn Base, key: &Key) -> Result<()> {
    match base.delete(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
