// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the files in the tiers, as small as can be: a store has millions of them.

use terrace_core::{Backend, Cursor, Key, Result, TierIndex};

use crate::catalog::record::{Place, SEGMENT_NAMESPACE};

/// Threads that look at many files: mostly they wait for the medium.
const THREADS: usize = 8;

/// What a file's name and its tier tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileName {
    pub(crate) object_id: u64,
    pub(crate) segment: u32,
    pub(crate) tier: TierIndex,
    pub(crate) file: u64,
}

impl FileName {
    pub(crate) fn of(object_id: u64, segment: u32, place: &Place) -> Self {
        Self { object_id, segment, tier: place.tier, file: place.file }
    }

    /// The name as [`Place::key`] writes it, or nothing.
    pub(crate) fn parse(tier: TierIndex, key: &Key) -> Option<Self> {
        let mut parts = key.name().split('.');
        let object_id = u64::from_str_radix(parts.next()?, 16).ok()?;
        let segment = parts.next()?.parse().ok()?;
        let file = u64::from_str_radix(parts.next()?, 16).ok()?;
        let name = Self { object_id, segment, tier, file };
        (name.key() == *key).then_some(name)
    }

    pub(crate) fn key(&self) -> Key {
        self.place(0, 0).key(self.object_id, self.segment)
    }

    pub(crate) fn place(&self, generation: u64, epoch: u64) -> Place {
        Place { tier: self.tier, file: self.file, generation, epoch }
    }
}

/// Calls `each` for the name of every segment's file on a tier, and `foreign` for every other
/// file among them.
pub(crate) fn list(
    tier: TierIndex,
    backend: &dyn Backend,
    each: &mut dyn FnMut(FileName),
    foreign: &mut dyn FnMut(Key),
) -> Result<()> {
    /// A tier reads a directory again for each page that begins in it, and of ten million files
    /// one has 40 000. Names of a page take a few MB.
    const PAGE_KEYS: usize = 1 << 16;
    let mut cursor = Cursor::start();
    loop {
        let page = backend.list(SEGMENT_NAMESPACE, "", &cursor, PAGE_KEYS)?;
        for key in page.keys {
            match FileName::parse(tier, &key) {
                Some(name) => each(name),
                None => foreign(key),
            }
        }
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(()),
        }
    }
}

/// What `look` says of each file, in the order of `names`; several are looked at at once.
pub(crate) fn look_at<T: Send>(names: &[FileName], look: impl Fn(&FileName) -> T + Sync) -> Vec<T> {
    let share = names.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        let look = &look;
        let lookers: Vec<_> = names
            .chunks(share)
            .map(|names| scope.spawn(move || names.iter().map(look).collect::<Vec<_>>()))
            .collect();
        let found = lookers.into_iter().flat_map(|looker| {
            looker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        found.collect()
    })
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
