// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the command line names objects and places.

use std::path::PathBuf;

use terrace_core::{Error, Key};

use crate::failure::Result;

/// The namespace of a key that names none.
pub(crate) const NAMESPACE_DEFAULT: &str = "default";

/// Reads a key: `namespace/name`, or `name` in the namespace `default`.
pub(crate) fn key(text: &str) -> Result<Key> {
    let key = match text.contains('/') {
        true => Key::parse(text),
        false => Key::new(NAMESPACE_DEFAULT, text),
    };
    Ok(key?)
}

/// Objects whose names begin alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Their namespace.
    pub(crate) namespace: String,
    /// What their names begin with; empty for all.
    pub(crate) prefix: String,
}

/// Reads `NAMESPACE` or `NAMESPACE/PREFIX`.
pub(crate) fn range(text: &str) -> Result<Range> {
    let (namespace, prefix) = text.split_once('/').unwrap_or((text, ""));
    // A key with some name is legal exactly where its namespace is; so is one with the prefix.
    let name = if prefix.is_empty() { "any" } else { prefix };
    Key::new(namespace, name)?;
    Ok(Range { namespace: namespace.into(), prefix: prefix.into() })
}

/// Reads `COLLECTION/ITEM`.
pub(crate) fn item(text: &str) -> Result<(String, String)> {
    match text.split_once('/') {
        Some((collection, name)) => Ok((collection.into(), name.into())),
        None => Err(Error::invalid("name an item", "an item has the form COLLECTION/ITEM")
            .with("item", format!("{text:?}"))
            .into()),
    }
}

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `:KEY`: in the store; the text after the colon.
    Stored(String),
    /// Anything else: a local file or directory.
    Local(PathBuf),
    /// `-`: standard input or output.
    Stream,
}

/// Reads one side of a copy.
pub(crate) fn place(text: &str) -> Place {
    match text.strip_prefix(':') {
        Some(stored) => Place::Stored(stored.into()),
        None if text == "-" => Place::Stream,
        None => Place::Local(text.into()),
    }
}

/// Reads `NAME=VALUE`.
pub(crate) fn assignment(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(Error::invalid("read a parameter", "the form NAME=VALUE is expected")
            .with("parameter", format!("{text:?}"))
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_slash_is_in_the_default_namespace() {
        assert_eq!(key("report").expect("legal").as_str(), "default/report");
        assert_eq!(key("run/a/b").expect("legal").as_str(), "run/a/b");
        assert!(key("").is_err());
        assert!(key("run/").is_err());
    }

    #[test]
    fn a_range_is_a_namespace_or_a_prefix_in_it() {
        let of = |text| range(text).map(|range| (range.namespace, range.prefix)).expect("legal");
        assert_eq!(of("run"), ("run".into(), String::new()));
        assert_eq!(of("run/"), ("run".into(), String::new()));
        assert_eq!(of("run/2024/a"), ("run".into(), "2024/a".into()));
        assert!(range("/x").is_err());
        assert!(range("").is_err());
    }

    #[test]
    fn a_colon_means_the_store() {
        assert_eq!(place(":run/a"), Place::Stored("run/a".into()));
        assert_eq!(place("./:a"), Place::Local("./:a".into()));
        assert_eq!(place("-"), Place::Stream);
    }
}
