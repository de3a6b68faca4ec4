// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns over keys: `*` is any text, also with `/` in it, `?` is one character.

use std::fmt;

/// A pattern that a whole key `namespace/name` matches or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    text: String,
}

impl Glob {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// Whether all of `key` matches. Takes at most length of key × length of pattern steps.
    pub(crate) fn is_match(&self, key: &str) -> bool {
        let (pattern, key) = (self.text.as_str(), key);
        let (mut pattern_at, mut key_at) = (0, 0);
        // Where to go on after a mismatch: behind the last star, with one more character for it.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let wanted = pattern[pattern_at..].chars().next();
            let found = key[key_at..].chars().next();
            match (wanted, found) {
                (None, None) => return true,
                (Some('*'), _) => {
                    pattern_at += 1;
                    retry = Some((pattern_at, key_at));
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    pattern_at += wanted.len_utf8();
                    key_at += found.len_utf8();
                }
                _ => {
                    let Some((after_star, star_end)) = retry else { return false };
                    let Some(swallowed) = key[star_end..].chars().next() else { return false };
                    (pattern_at, key_at) = (after_star, star_end + swallowed.len_utf8());
                    retry = Some((pattern_at, key_at));
                }
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_keys() {
        for (pattern, key, expected) in [
            ("*", "run/a", true),
            ("run/*", "run/a/b", true),
            ("run/*", "runs/a", false),
            ("run/?.h5", "run/ä.h5", true),
            ("run/?.h5", "run/10.h5", false),
            ("*/ckpt-*.h5", "run/ckpt-1.h5.ckpt-2.h5", true),
            ("*/ckpt-*.h5", "run/ckpt-1.h4", false),
            ("", "a/b", false),
            ("a/b**", "a/b", true),
        ] {
            assert_eq!(Glob::new(pattern).is_match(key), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn many_stars_end_soon() {
        let glob = Glob::new(&"*a".repeat(100));
        assert!(!glob.is_match(&format!("n/{}b", "a".repeat(400))));
    }
}
