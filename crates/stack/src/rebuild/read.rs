// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files are on the tiers, and what they say.

use terrace_core::{Cursor, Error, Identity, Key, Result, Stat, TierIndex};

use crate::open::keeps_identity;
use crate::record::{Place, SEGMENT_NAMESPACE};
use crate::report::Problem;
use crate::{Parts, Tier};

/// Threads that read marks and lengths: mostly they wait for the medium.
const THREADS: usize = 8;

/// What a file's name tells. Small: there is one of each file of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName {
    pub(super) object_id: u64,
    pub(super) segment: u32,
    pub(super) tier: TierIndex,
    pub(super) file: u64,
}

impl FileName {
    /// The name as [`Place::key`] writes it, or nothing.
    fn parse(tier: TierIndex, key: &Key) -> Option<Self> {
        let mut parts = key.name().split('.');
        let object_id = u64::from_str_radix(parts.next()?, 16).ok()?;
        let segment = parts.next()?.parse().ok()?;
        let file = u64::from_str_radix(parts.next()?, 16).ok()?;
        let name = Self { object_id, segment, tier, file };
        (name.key() == *key).then_some(name)
    }

    pub(super) fn key(&self) -> Key {
        self.place(0, 0).key(self.object_id, self.segment)
    }

    pub(super) fn place(&self, generation: u64, epoch: u64) -> Place {
        Place { tier: self.tier, file: self.file, generation, epoch }
    }
}

/// A file with what it says of itself.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) name: FileName,
    pub(super) stat: Result<Stat, Error>,
    pub(super) identity: Result<Option<Identity>, Error>,
}

/// The names of all files, in order of the objects. Others' files are reported.
pub(super) fn list_all(parts: &Parts, problems: &mut Vec<Problem>) -> Result<Vec<FileName>> {
    const PAGE_KEYS: usize = 1000;
    let mut names = Vec::new();
    for (index, tier) in parts.tiers.iter().enumerate().filter(|(_, tier)| keeps_identity(tier)) {
        let mut cursor = Cursor::start();
        loop {
            let page = tier.backend.list(SEGMENT_NAMESPACE, "", &cursor, PAGE_KEYS)?;
            for key in &page.keys {
                match FileName::parse(TierIndex(index as u8), key) {
                    Some(name) => names.push(name),
                    None => problems.push(Problem {
                        kind: "unknown-file".into(),
                        place: tier.name.clone(),
                        detail: format!("{key} is not the name of a segment; it was left alone"),
                    }),
                }
            }
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads lengths and marks, in the order of `names`.
pub(super) fn read_files(tiers: &[Tier], names: &[FileName]) -> Vec<FoundFile> {
    let share = names.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        let readers: Vec<_> = names
            .chunks(share)
            .map(|names| scope.spawn(|| names.iter().map(|name| read(tiers, *name)).collect()))
            .collect();
        let found = readers.into_iter().flat_map(|reader| -> Vec<FoundFile> {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        found.collect()
    })
}

fn read(tiers: &[Tier], name: FileName) -> FoundFile {
    let backend = &tiers[name.tier.index()].backend;
    let key = name.key();
    FoundFile { name, stat: backend.stat(&key), identity: backend.identity(&key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_stack_writes_are_taken() {
        let parse = |name| {
            FileName::parse(TierIndex(1), &Key::new(SEGMENT_NAMESPACE, name).expect("legal"))
        };
        let name = parse("00000000000000ff.3.1a").expect("own");
        assert_eq!((name.object_id, name.segment, name.file), (255, 3, 26));
        for foreign in [
            "ff.3.1a",
            "00000000000000ff.3",
            "00000000000000ff.03.1a",
            "00000000000000ff.3.01a",
            "00000000000000ff.3.1A",
            "00000000000000ff..1a",
            "00000000000000ff.3.1a.",
            "+0000000000000ff.3.1a",
            "backup",
        ] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }
}
