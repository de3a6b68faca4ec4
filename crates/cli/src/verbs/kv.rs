// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace kv`.

use std::io::{self, Read};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use terrace_core::{Error, ErrorKind, KV_VALUE_BYTES_MAX, Key, Pair, Persistency};
use terrace_store::Store;

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::output::{Output, hex, is_terminal, show_name};

/// Pairs asked for at a time.
const PAGE_PAIRS: usize = 1000;

/// Read and write key-value pairs
///
/// Every store also keeps small values in its catalog. They are separate from objects: a pair and
/// an object may have the same key. Pairs do not migrate. A value has at most 16 MiB.
#[derive(Args, Debug)]
pub(crate) struct Kv {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a value
    ///
    /// Replaces the value that KEY has. Written all or nothing.
    #[command(after_long_help = "Examples:
  terrace kv put jobs/7 running         a short value
  terrace kv put jobs/7 - < state.json  from standard input")]
    Put {
        /// NAMESPACE/NAME, or NAME in the namespace `default`
        key: String,
        /// The value; `-` reads it from standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// What it survives: `none` nothing, `process` a crash of the process, `storage` a loss
        /// of power
        #[arg(long, value_name = "LEVEL", default_value = "process")]
        #[arg(value_parser = ["none", "process", "storage", "shared"])]
        persistency: String,
    },
    /// Print a value
    ///
    /// Prints the bytes of the value as they are; on a terminal a line break follows. Status 3
    /// where there is none.
    #[command(after_long_help = "Examples:
  terrace kv get jobs/7
  terrace kv get jobs/7 --json | jq -r .value")]
    Get {
        /// NAMESPACE/NAME, or NAME in the namespace `default`
        key: String,
    },
    /// List pairs in the order of their keys
    ///
    /// Prints one pair a line: the key, a tab, the value. Control characters are shown as \n, \t
    /// or \u{...}, and bytes that are no UTF-8 as U+FFFD; --json has the values as they are.
    #[command(after_long_help = "Examples:
  terrace kv scan jobs                  a namespace
  terrace kv scan jobs/2024-            those whose names begin alike
  terrace kv scan jobs --json | jq -r .key")]
    Scan {
        /// What to list: a namespace, or the names in it that begin with PREFIX
        #[arg(value_name = "NAMESPACE[/PREFIX]", default_value = address::NAMESPACE_DEFAULT)]
        range: String,
    },
    /// Remove pairs
    ///
    /// Status 3 where one does not exist, unless --force is given; the others are removed.
    #[command(after_long_help = "Examples:
  terrace kv rm jobs/7 jobs/8
  terrace kv rm -f jobs/9               no failure if it is gone already")]
    Rm {
        /// NAMESPACE/NAME, or NAME in the namespace `default`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        /// A pair that does not exist is no failure
        #[arg(short, long)]
        force: bool,
    },
}

impl Verb for Kv {
    const NAME: &'static str = "kv";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace kv put jobs/7 running
  terrace kv get jobs/7
  terrace kv scan jobs
  terrace kv rm jobs/7";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::Put { key, value, persistency } => put(context, &key, value, &persistency),
            Action::Get { key } => get(context, &key),
            Action::Scan { range } => scan(context, &range),
            Action::Rm { keys, force } => remove(context, &keys, force),
        }
    }
}

fn put(context: &Context, key: &str, value: String, persistency: &str) -> Result<()> {
    let key = address::key(key)?;
    let persistency: Persistency = persistency.parse()?;
    let value = if value == "-" { read_value()? } else { value.into_bytes() };
    context.with_store(|store| {
        Ok(store.kv_put(key.namespace(), key.name().as_bytes(), &value, persistency)?)
    })?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "key": key.as_str(), "size_bytes": value.len() }))?;
    }
    output.flush()
}

/// Reads standard input up to one byte more than a value may have: the store refuses that.
fn read_value() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let read = io::stdin().take(KV_VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value);
    read.map_err(|error| Error::from_io("read standard input", error))?;
    Ok(value)
}

fn get(context: &Context, key: &str) -> Result<()> {
    let key = address::key(key)?;
    let value = context.with_store_for_reading(|store| {
        let value = store.kv_get(key.namespace(), key.name().as_bytes())?;
        Ok(value.ok_or_else(|| missing("read the pair", &key))?)
    })?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&pair_json(key.namespace(), key.name().as_bytes(), &value))?;
    } else {
        output.bytes(&value)?;
        if is_terminal() {
            output.line("")?;
        }
    }
    output.flush()
}

fn scan(context: &Context, range: &str) -> Result<()> {
    let range = address::range(range)?;
    let mut output = Output::new();
    context.with_store_for_reading(|store| {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let pairs = store.kv_scan(
                &range.namespace,
                range.prefix.as_bytes(),
                after.as_deref(),
                PAGE_PAIRS,
            )?;
            for (name, value) in &pairs {
                if context.is_json {
                    output.json(&pair_json(&range.namespace, name, value))?;
                } else {
                    let (name, value) = (lossy(name), lossy(value));
                    output.line(format!("{}/{name}\t{value}", range.namespace))?;
                }
            }
            output.flush()?;
            after = match last_of_full(pairs) {
                Some(name) => Some(name),
                None => return Ok(()),
            };
        }
    })
}

/// The name at which a full page ends; `None` for the last page.
fn last_of_full(pairs: Vec<Pair>) -> Option<Vec<u8>> {
    let is_full = pairs.len() == PAGE_PAIRS;
    pairs.into_iter().next_back().filter(|_| is_full).map(|(name, _)| name)
}

fn remove(context: &Context, keys: &[String], is_forced: bool) -> Result<()> {
    let mut failures = Failures::new(context.is_json);
    let mut output = Output::new();
    context.with_store(|store| {
        for key in keys {
            let removed = remove_one(store, key, is_forced);
            if let Some(Some(key)) = failures.note(removed)?
                && context.is_json
            {
                output.json(&json!({ "key": key.as_str() }))?;
            }
        }
        Ok(())
    })?;
    output.flush()?;
    failures.finish()
}

/// Removes a pair; `None` where there was none and that is no failure.
fn remove_one(store: &Store, key: &str, is_forced: bool) -> Result<Option<Key>> {
    let key = address::key(key)?;
    let name = key.name().as_bytes();
    if store.kv_remove(key.namespace(), name, Persistency::Process)? {
        Ok(Some(key))
    } else if is_forced {
        Ok(None)
    } else {
        Err(missing("remove the pair", &key).into())
    }
}

fn missing(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, operation).with("key", key)
}

fn lossy(bytes: &[u8]) -> String {
    show_name(&String::from_utf8_lossy(bytes))
}

/// `key` and `value` where they are UTF-8, else `key_hex` and `value_hex`.
fn pair_json(namespace: &str, name: &[u8], value: &[u8]) -> Value {
    let mut pair = serde_json::Map::new();
    pair.insert("namespace".into(), namespace.into());
    match std::str::from_utf8(name) {
        Ok(name) => pair.insert("key".into(), format!("{namespace}/{name}").into()),
        Err(_) => pair.insert("name_hex".into(), hex(name).into()),
    };
    match std::str::from_utf8(value) {
        Ok(value) => pair.insert("value".into(), value.into()),
        Err(_) => pair.insert("value_hex".into(), hex(value).into()),
    };
    Value::Object(pair)
}
