// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of objects, and how long each is written to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use terrace_core::Key;

use crate::mechanism::glob::Glob;
use crate::mechanism::window::Window;

/// Classes at a time; objects of further ones share the first, which has no name.
const CLASSES_MAX: usize = 256;

/// Samples from which on a deduced timeout counts.
pub(super) const SAMPLES_NEEDED: usize = 20;

/// The share of segments that a timeout shall be long enough for.
const QUANTILE: f64 = 0.95;

/// Room above the quantile.
const MARGIN: f64 = 1.2;

/// A class by its place among all.
pub(super) type ClassIndex = usize;

/// Objects that are thought to be written alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    pub(super) name: String,
    /// Nanoseconds from create to last write.
    samples: Window,
    deduced: Option<Deduced>,
}

/// A timeout from experience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Deduced {
    pub(super) timeout_ns: u64,
    /// When the first one took over from the default.
    pub(super) since_ns: u64,
}

impl Class {
    fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Learns from a closed segment.
    pub(super) fn learn(&mut self, sample_ns: u64, now_ns: u64) {
        self.samples.add(sample_ns);
        if self.samples.count() < SAMPLES_NEEDED {
            return;
        }
        let slowest_ns = self.samples.quantile(QUANTILE).expect("there are samples");
        let since_ns = self.deduced.map_or(now_ns, |deduced| deduced.since_ns);
        self.deduced = Some(Deduced { timeout_ns: (slowest_ns as f64 * MARGIN) as u64, since_ns });
    }

    pub(super) fn deduced(&self) -> Option<Deduced> {
        self.deduced
    }

    pub(super) fn sample_count(&self) -> usize {
        self.samples.count()
    }
}

/// All classes.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    all: Vec<Class>,
    by_name: BTreeMap<String, ClassIndex>,
}

/// A class as it is saved.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedClass {
    name: String,
    samples_ns: Vec<u64>,
}

impl Default for Classes {
    fn default() -> Self {
        Self { all: vec![Class::named("")], by_name: BTreeMap::new() }
    }
}

impl Classes {
    /// The class of a key: the first glob that matches, else everything up to the last `/`.
    pub(super) fn find(&mut self, globs: &[Glob], key: &Key) -> ClassIndex {
        let text = key.as_str();
        if let Some(glob) = globs.iter().find(|glob| glob.is_match(text)) {
            return self.find_name(&glob.to_string());
        }
        let (directory, _) = text.rsplit_once('/').expect("a key has a '/' behind its namespace");
        self.find_name(directory)
    }

    fn find_name(&mut self, name: &str) -> ClassIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        if self.all.len() == CLASSES_MAX {
            return 0;
        }
        self.all.push(Class::named(name));
        self.by_name.insert(name.into(), self.all.len() - 1);
        self.all.len() - 1
    }

    pub(super) fn get(&self, index: ClassIndex) -> &Class {
        &self.all[index]
    }

    pub(super) fn get_mut(&mut self, index: ClassIndex) -> &mut Class {
        &mut self.all[index]
    }

    /// All classes in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Class> {
        self.all.iter()
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn save(&self) -> Vec<SavedClass> {
        let saved = |class: &Class| SavedClass {
            name: class.name.clone(),
            samples_ns: class.samples.samples().collect(),
        };
        self.all.iter().filter(|class| class.sample_count() > 0).map(saved).collect()
    }

    /// Learns from saved samples as if they were new.
    pub(super) fn restore(&mut self, saved: &[SavedClass], now_ns: u64) {
        for class in saved {
            let index = if class.name.is_empty() { 0 } else { self.find_name(&class.name) };
            for sample_ns in &class.samples_ns {
                self.all[index].learn(*sample_ns, now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("legal")
    }

    #[test]
    fn a_key_is_classed_by_glob_else_by_directory() {
        let mut classes = Classes::default();
        let globs = [Glob::new("*.log")];
        let mut name = |text| {
            let index = classes.find(&globs, &key(text));
            classes.get(index).name.clone()
        };
        assert_eq!(name("run/a/b.log"), "*.log");
        assert_eq!(name("run/a/b"), "run/a");
        assert_eq!(name("run/b"), "run");
    }

    #[test]
    fn too_many_classes_share_one() {
        let mut classes = Classes::default();
        for index in 0..2 * CLASSES_MAX {
            classes.find(&[], &key(&format!("n/{index}/a")));
        }
        assert_eq!(classes.count(), CLASSES_MAX);
        assert_eq!(classes.find(&[], &key("n/511/a")), 0);
        assert_eq!(classes.find(&[], &key("n/0/b")), 1);
    }

    #[test]
    fn the_deduced_timeout_is_a_fifth_above_the_quantile() {
        let mut class = Class::default();
        for sample_ns in 1..SAMPLES_NEEDED as u64 {
            class.learn(sample_ns * 1000, sample_ns);
            assert_eq!(class.deduced(), None);
        }
        class.learn(20_000, 20);
        assert_eq!(class.deduced(), Some(Deduced { timeout_ns: 22_800, since_ns: 20 }));
        class.learn(20_000, 21);
        assert_eq!(
            class.deduced().map(|deduced| deduced.since_ns),
            Some(20),
            "it stays since then"
        );
    }
}
