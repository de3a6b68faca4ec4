// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How names of objects become paths of files, and back.

use std::path::{Path, PathBuf};

use terrace_core::{Error, Key};

use super::End;
use crate::address::Range;
use crate::failure::Result;

/// The last part of a source's name, for a target that is a directory.
pub(super) fn last_part(source: &End) -> Result<String> {
    match source {
        End::Stored(key) => {
            let name = key.name();
            Ok(name.rsplit('/').next().unwrap_or(name).to_string())
        }
        End::Local(path) => match path.file_name() {
            Some(name) => text(Path::new(name)),
            None => Err(Error::invalid("copy", "the source has no name to give to the copy")
                .with("source", path.display())
                .into()),
        },
        End::Stream => {
            let reason = "standard input has no name: name the target in full";
            Err(Error::invalid("copy", reason).into())
        }
    }
}

/// A path as text, for a name in the store.
pub(super) fn text(path: &Path) -> Result<String> {
    let reason = "the file's name is not UTF-8";
    path.to_str()
        .map(String::from)
        .ok_or_else(|| Error::invalid("copy", reason).with("file", path.display()).into())
}

/// A name as a path below some directory: never outside it.
pub(super) fn relative_path(name: &str) -> Result<PathBuf> {
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let reason = "the object's name is not a path inside a directory";
        let hint = "name a file as the target";
        return Err(Error::invalid("copy", format!("{reason}: {hint}"))
            .with("name", format!("{name:?}"))
            .into());
    }
    Ok(name.split('/').collect())
}

/// What a copy of `key` keeps of its name when all of `range` is copied: what follows the last
/// slash of the prefix.
pub(super) fn kept_name<'a>(key: &'a Key, range: &Range) -> &'a str {
    let cut = range.prefix.rfind('/').map_or(0, |slash| slash + 1);
    &key.name()[cut..]
}

/// The key of `name` under a target prefix, which means a directory.
pub(super) fn key_under(range: &Range, name: &str) -> Result<Key> {
    let separator = if range.prefix.is_empty() || range.prefix.ends_with('/') { "" } else { "/" };
    Ok(Key::new(&range.namespace, &format!("{}{separator}{name}", range.prefix))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::range;

    #[test]
    fn an_unsafe_name_is_no_path() {
        for name in ["..", "a/../b", "/etc/passwd", "a//b", "a/", ".", "./a"] {
            assert!(relative_path(name).is_err(), "{name}");
        }
        assert_eq!(relative_path("a/..b/c").expect("safe"), Path::new("a/..b/c"));
    }

    #[test]
    fn names_keep_what_follows_the_last_slash_of_the_prefix() {
        let key = Key::parse("runs/41/a/b").expect("legal");
        let kept = |text| kept_name(&key, &range(text).expect("legal")).to_string();
        assert_eq!(kept("runs"), "41/a/b");
        assert_eq!(kept("runs/4"), "41/a/b");
        assert_eq!(kept("runs/41/"), "a/b");
    }

    #[test]
    fn a_target_prefix_is_a_directory() {
        let under = |text| key_under(&range(text).expect("legal"), "a").expect("legal").to_string();
        assert_eq!(under("runs"), "runs/a");
        assert_eq!(under("runs/42"), "runs/42/a");
        assert_eq!(under("runs/42/"), "runs/42/a");
    }
}
