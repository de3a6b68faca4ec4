// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes that listings have brought: a lookup of what was listed a moment ago needs no call of the source.

use std::collections::HashMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::lock;
use crate::nodes::Known;

/// Names in a generation. Two are in memory at most: some 25 MB with names of usual length.
const GENERATION_MAX: usize = 32 * 1024;

/// What was listed last. When a generation is full the one before is dropped.
#[derive(Default)]
pub(super) struct Listed {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    current: HashMap<PathBuf, Known>,
    previous: HashMap<PathBuf, Known>,
}

impl Listed {
    pub(super) fn add(&self, path: PathBuf, known: Known) {
        let mut generations = lock(&self.generations);
        generations.previous.remove(&path);
        if generations.current.len() >= GENERATION_MAX {
            generations.previous = mem::take(&mut generations.current);
        }
        generations.current.insert(path, known);
    }

    /// What a path named when it was listed; the caller knows how old that may be.
    pub(super) fn find(&self, path: &Path) -> Option<Known> {
        let generations = lock(&self.generations);
        let found = generations.current.get(path).or_else(|| generations.previous.get(path));
        found.cloned()
    }

    /// Forgets a path that was found in another state.
    pub(super) fn remove(&self, path: &Path) {
        let mut generations = lock(&self.generations);
        generations.current.remove(path);
        generations.previous.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;

    #[test]
    fn what_was_listed_last_is_found_in_bounded_memory() {
        let meta = Meta::of(&rustix::fs::stat("/").expect("root"));
        let known = |looked_ns| Known {
            meta: meta.clone(),
            looked_ns,
            is_recalled: false,
            is_refuted: false,
        };
        let path = |number: usize| PathBuf::from(number.to_string());
        let listed = Listed::default();
        for number in 0..=2 * GENERATION_MAX {
            listed.add(path(number), known(number as u64));
        }
        assert!(listed.find(&path(0)).is_none());
        for number in [GENERATION_MAX, 2 * GENERATION_MAX] {
            let found = listed.find(&path(number)).expect("it was listed");
            assert_eq!(found.looked_ns, number as u64);
        }
        listed.add(path(GENERATION_MAX), known(7));
        assert_eq!(listed.find(&path(GENERATION_MAX)).expect("again").looked_ns, 7);
        listed.remove(&path(GENERATION_MAX));
        assert!(listed.find(&path(GENERATION_MAX)).is_none());
        let generations = lock(&listed.generations);
        assert!(generations.current.len() + generations.previous.len() <= 2 * GENERATION_MAX);
    }
}
