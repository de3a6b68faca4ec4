// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Versions of everything that a stack writes, and which of them it opens.
//!
//! Version n opens stores of n and n - 1. One of n - 1 is upgraded by the first opening for
//! writing: superblocks, then the header. `docs/formats/catalog.md` says what changed when.

use terrace_core::{Error, ErrorKind, Result};

/// The version that is written.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The oldest version that is read.
pub(crate) const FORMAT_VERSION_MIN: u32 = FORMAT_VERSION - 1;

/// First bytes of the keys of the catalog that more than one module knows: garbage, files in doubt,
/// pairs of applications, versions, and the files that these name.
pub(crate) const GARBAGE: u8 = b'g';
pub(crate) const DOUBTFUL: u8 = b'd';
pub(crate) const APPLICATION: u8 = b'k';
pub(crate) const VERSION: u8 = b'v';
pub(crate) const KEPT: u8 = b't';

/// The key of a pair of this kind in a namespace.
pub(crate) fn scoped(kind: u8, namespace: &str, name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + namespace.len() + name.len());
    out.push(kind);
    out.extend(namespace.as_bytes());
    // Namespaces have no NUL, so that one ends before another begins.
    out.push(0);
    out.extend(name);
    out
}

/// The first releases that wrote versions 1, 2, …
const RELEASES: [&str; FORMAT_VERSION as usize] = ["0.1", "0.2"];

/// Whether something that was written in the version `found` can be opened.
///
/// # Errors
///
/// `Unsupported`, with both versions, and the release that can upgrade what is too old.
pub(crate) fn check(found: u32) -> Result<()> {
    let refused = |reason: String| {
        Err(Error::new(ErrorKind::Unsupported, "open a store")
            .because(reason)
            .with("found_format", found)
            .with("newest_format", FORMAT_VERSION)
            .with("oldest_format", FORMAT_VERSION_MIN))
    };
    if found > FORMAT_VERSION {
        return refused("it was written by a newer version of terrace; use that one".into());
    }
    if found < FORMAT_VERSION_MIN {
        // Each release upgrades by one version.
        let release = release(found + 1);
        return refused(format!("its format is too old; terrace {release} upgrades it"));
    }
    Ok(())
}

/// The release that wrote a version first.
pub(crate) fn release(format: u32) -> &'static str {
    RELEASES[format as usize - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_version_and_the_one_before_are_opened() {
        check(FORMAT_VERSION).expect("written");
        check(FORMAT_VERSION_MIN).expect("read");
    }

    #[test]
    fn other_versions_are_refused_with_what_to_do() {
        let newer = check(FORMAT_VERSION + 1).expect_err("newer").to_string();
        assert!(newer.contains("newer") && newer.contains("found_format=3"), "{newer}");
        let older = check(FORMAT_VERSION_MIN - 1).expect_err("older").to_string();
        assert!(older.contains("terrace 0.1 upgrades it"), "{older}");
    }
}
