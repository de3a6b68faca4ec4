// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which paths lead to nodes: people know no numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use terrace_core::Kv;

use super::walk::{Walk, number_of};
use crate::entries::Bucket;
use crate::failure::Result;
use crate::node::ROOT;
use crate::pairs;
use crate::tree::check_name;

/// Names of one node that are kept until one of them turns out to be below the root.
const NAMES_KEPT_MAX: usize = 16;

/// How a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reached {
    /// A path from the root that leads there; `None` where none does. Bytes that are no UTF-8 are
    /// shown as U+FFFD.
    pub path: Option<String>,
    /// Names that it has.
    pub names: u64,
}

/// The number of the node whose object a place is about, which begins with the object's key.
pub fn number_in_place(namespace: &str, place: &str) -> Option<u64> {
    let name = place.strip_prefix(namespace)?.strip_prefix('/')?;
    number_of(name.split(' ').next()?)
}

/// How nodes are reached, in one pass over all entries; there are some 40 bytes of memory for each
/// directory meanwhile. What is changed meanwhile may be reported as before or after.
///
/// # Errors
///
/// What the pairs say.
pub fn paths(kv: &dyn Kv, wanted: &BTreeSet<u64>) -> Result<BTreeMap<u64, Reached>> {
    let mut names: BTreeMap<u64, Names> =
        wanted.iter().map(|number| (*number, Names::default())).collect();
    let mut above = Above { kv, entries: HashMap::new() };
    let mut walk = Walk::new(kv, pairs::ENTRY);
    while let Some(directory) = walk.number(&mut 0)? {
        let Some((key, value)) = walk.take(directory)? else { continue };
        let (Some(hash), Ok(bucket)) = (pairs::hash_of(&key), Bucket::decode(&value)) else {
            continue;
        };
        for entry in bucket.0.into_iter().filter(|entry| check_name(&entry.name).is_ok()) {
            if entry.kind.is_directory() {
                above.entries.entry(entry.number).or_insert((directory, hash));
            }
            if let Some(names) = names.get_mut(&entry.number) {
                names.count += 1;
                if names.kept.len() < NAMES_KEPT_MAX {
                    names.kept.push((directory, entry.name));
                }
            }
        }
    }
    let reached = |(number, names): (u64, Names)| Ok((number, above.reach(number, names)?));
    names.into_iter().map(reached).collect()
}

/// Names that lead to a node.
#[derive(Default)]
struct Names {
    count: u64,
    /// The first, each with its directory.
    kept: Vec<(u64, Vec<u8>)>,
}

/// Where directories are: for each the one with its entry, and the hash of its name there.
struct Above<'a> {
    kv: &'a dyn Kv,
    entries: HashMap<u64, (u64, u64)>,
}

impl Above<'_> {
    fn reach(&self, number: u64, names: Names) -> Result<Reached> {
        if number == ROOT {
            return Ok(Reached { path: Some("/".into()), names: 1 });
        }
        for (directory, name) in names.kept {
            if let Some(path) = self.path(directory, name)? {
                return Ok(Reached { path: Some(path), names: names.count });
            }
        }
        Ok(Reached { path: None, names: names.count })
    }

    /// The path of a name in a directory, where that is below the root.
    fn path(&self, directory: u64, name: Vec<u8>) -> Result<Option<String>> {
        let (mut parts, mut number) = (vec![name], directory);
        // Directories may be in each other: a way up has no more steps than there are.
        for _ in 0..=self.entries.len() {
            if number == ROOT {
                parts.push(Vec::new());
                parts.reverse();
                return Ok(Some(String::from_utf8_lossy(&parts.join(&b'/')).into_owned()));
            }
            let Some((parent, hash)) = self.entries.get(&number) else { break };
            let Some(bytes) = self.kv.get(&pairs::entry(*parent, *hash))? else { break };
            let bucket = Bucket::decode(&bytes).unwrap_or_default();
            let leads = bucket.0.into_iter().find(|entry| entry.number == number);
            let Some(entry) = leads else { break };
            parts.push(entry.name);
            number = *parent;
        }
        Ok(None)
    }
}
