// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of the form `--name value`, for the two programs.

use std::collections::BTreeMap;
use std::str::FromStr;

use terrace_store::{Error, Result, Store};

use crate::{InFiles, InStore, Place};

/// What was given on the command line.
#[derive(Debug, Default)]
pub struct Arguments {
    values: BTreeMap<String, String>,
}

impl Arguments {
    /// Reads `words`, which may only use these `names`; `Ok(None)` where help was asked for.
    ///
    /// # Errors
    ///
    /// `Invalid` for anything else.
    pub fn parse(names: &[&str], words: impl IntoIterator<Item = String>) -> Result<Option<Self>> {
        let mut values = BTreeMap::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            let name = word.strip_prefix("--").filter(|name| names.contains(name));
            let name = name.ok_or_else(|| wrong("it is unknown, see --help", &word))?;
            let value = words.next().ok_or_else(|| wrong("it lacks its value", &word))?;
            values.insert(name.to_owned(), value);
        }
        Ok(Some(Self { values }))
    }

    /// The value of `--name`, or `default` where it was not given.
    ///
    /// # Errors
    ///
    /// `Invalid` where it cannot be read.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.values.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                wrong("its value cannot be read, see --help", name).with("value", text)
            }),
        }
    }

    /// The value of `--store`, or of `TERRACE_STORE` where it was not given.
    fn store(&self) -> Result<String> {
        let given = self.values.get("store").cloned();
        given.or_else(|| std::env::var("TERRACE_STORE").ok()).ok_or_else(|| {
            Error::invalid("find the checkpoints", "--store, --files or TERRACE_STORE is needed")
        })
    }

    /// Does something with where the checkpoints are: the directory of `--files`, or `--namespace`
    /// of the store.
    ///
    /// # Errors
    ///
    /// `Invalid` where none or both are given, and what `act`, opening and closing can meet.
    pub fn with_place<T>(&self, act: impl FnOnce(&dyn Place) -> Result<T>) -> Result<T> {
        let namespace = self.get("namespace", "partdiff".to_owned())?;
        let Some(directory) = self.values.get("files") else {
            let store = Store::open(&self.store()?)?;
            let found = act(&InStore::new(&store, &namespace))?;
            return store.close().map(|()| found);
        };
        if let Some(name) = ["store", "namespace"].iter().find(|it| self.values.contains_key(**it))
        {
            return Err(wrong("it goes with a store, not with --files", name));
        }
        act(&InFiles::new(directory))
    }
}

fn wrong(reason: &str, word: &str) -> Error {
    Error::invalid("read the arguments", reason).with("argument", word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Arguments>> {
        Arguments::parse(&["grid", "store"], words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn values_are_read_and_defaults_kept() {
        let arguments = parse(&["--grid", "64"]).expect("legal").expect("no help");
        assert_eq!(arguments.get("grid", 256).expect("a number"), 64);
        assert_eq!(arguments.get("interval", 5).expect("the default"), 5);
        assert!(parse(&["--grid", "64", "--help"]).expect("legal").is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, name) in [(&["--gird", "1"][..], "--gird"), (&["--store"], "--store")] {
            let error = parse(words).expect_err("wrong").to_string();
            assert!(error.contains(name), "{error}");
        }
        let arguments = parse(&["--grid", "many"]).expect("legal").expect("no help");
        assert!(arguments.get("grid", 256).expect_err("no number").to_string().contains("many"));
    }
}
