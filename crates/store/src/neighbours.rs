// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that were listed together: who reads one of them soon reads the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use terrace_fs::{Kind, Listed, Place, Reply, Request};

/// Files that are remembered, in all directories.
const FILES_MAX: usize = 1 << 14;

/// About what is told of a file beside its bytes.
const NODE_BYTES: u64 = 120;

/// Such files.
#[derive(Default)]
pub(crate) struct Neighbours {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The directory in which each was listed last.
    directories: HashMap<u64, u64>,
    /// Those of each directory that were not taken yet, each with its length, in the order of the listing.
    left: HashMap<u64, VecDeque<(u64, u64)>>,
    /// How many these are.
    count: usize,
}

impl Neighbours {
    /// Takes note of what was listed.
    pub(crate) fn note(&self, request: &Request<'_>, reply: Option<&Reply>) {
        let (Request::List { directory, after, .. }, Some(Reply::Listing(entries))) =
            (request, reply)
        else {
            return;
        };
        let small: VecDeque<_> = entries.iter().filter_map(small).collect();
        if small.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.directories.len().max(state.count) + small.len() > FILES_MAX {
            *state = State::default();
        }
        let State { directories, left, count } = &mut *state;
        directories.extend(small.iter().map(|(number, _)| (*number, *directory)));
        *count += small.len();
        match left.entry(*directory).or_default() {
            // From the beginning.
            left if *after == 0 => {
                *count -= left.len();
                *left = small;
            }
            left => left.extend(small),
        }
    }

    /// A file and others that were listed with it and not taken since, of about so many bytes; none
    /// without others.
    pub(crate) fn take(&self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        let mut state = self.state();
        let State { directories, left, count } = &mut *state;
        let Some(directory) = directories.get(&number) else { return Vec::new() };
        let Some(listed) = left.get_mut(directory) else { return Vec::new() };
        let mut taken = vec![number];
        let mut room = bytes_max;
        while taken.len() < max
            && let Some((other, size)) = listed.front()
        {
            // Also one that never has room is not in the way of those behind it.
            let bytes = (size + NODE_BYTES).min(bytes_max);
            let Some(left) = room.checked_sub(bytes) else { break };
            room = left;
            if *other != number {
                taken.push(*other);
            }
            listed.pop_front();
            *count -= 1;
        }
        if listed.is_empty() {
            left.remove(directory);
        }
        if taken.len() > 1 { taken } else { Vec::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in one of the maps alone is not taken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file whose bytes are with the metadata, and its length.
fn small(entry: &Listed) -> Option<(u64, u64)> {
    let node = entry.node.as_ref()?;
    let is_small = entry.kind == Kind::File && node.place == Place::Inline && node.size > 0;
    is_small.then_some((entry.number, node.size))
}

#[cfg(test)]
mod tests {
    use terrace_fs::Node;

    use super::*;

    const DIRECTORY: u64 = 7;
    const LONG: u64 = 1 << 20;

    fn file(number: u64) -> Listed {
        let node = Some(Node { number, size: 1, place: Place::Inline, ..Node::default() });
        Listed { name: b"f".to_vec(), position: number, number, kind: Kind::File, node }
    }

    fn list(neighbours: &Neighbours, directory: u64, after: u64, entries: Vec<Listed>) {
        let request = Request::List { directory, after, max: 1000, with_nodes: true };
        neighbours.note(&request, Some(&Reply::Listing(entries)));
    }

    #[test]
    fn those_of_a_directory_are_taken_once_in_their_order() {
        let neighbours = Neighbours::default();
        list(&neighbours, DIRECTORY, 0, (10..14).map(file).collect());
        list(&neighbours, DIRECTORY, 13, (14..17).map(file).collect());
        list(&neighbours, DIRECTORY + 1, 0, (20..24).map(file).collect());
        assert_eq!(neighbours.take(11, 3, LONG), [11, 10, 12], "the one that is asked for first");
        assert_eq!(neighbours.take(10, 9, LONG), [10, 13, 14, 15, 16]);
        assert!(neighbours.take(10, 9, LONG).is_empty() && neighbours.take(99, 9, LONG).is_empty());
        list(&neighbours, DIRECTORY, 0, (10..13).map(file).collect());
        assert_eq!(neighbours.take(16, 9, 2 * NODE_BYTES + 2), [16, 10, 11], "listed again");
        assert_eq!(neighbours.take(16, 9, 2 * NODE_BYTES + 2), [16, 12], "where there is room");
    }

    #[test]
    fn what_has_no_bytes_with_the_metadata_is_none() {
        let neighbours = Neighbours::default();
        let with = |change: &dyn Fn(&mut Listed)| {
            let mut entry = file(12);
            change(&mut entry);
            entry
        };
        let entries = vec![
            file(10),
            with(&|it| it.node = None),
            with(&|it| it.kind = Kind::Symlink),
            with(&|it| it.node.as_mut().expect("it has one").place = Place::Object),
            with(&|it| it.node.as_mut().expect("it has one").size = 0),
        ];
        list(&neighbours, DIRECTORY, 0, entries);
        assert!(neighbours.take(10, 9, LONG).is_empty());
    }

    #[test]
    fn they_are_bounded() {
        let neighbours = Neighbours::default();
        for directory in 0..100 {
            let first = directory * 1000 + 1000;
            list(&neighbours, directory, 0, (first..first + 1000).map(file).collect());
        }
        let count = |neighbours: &Neighbours| {
            let state = neighbours.state();
            let left: usize = state.left.values().map(VecDeque::len).sum();
            assert_eq!(left, state.count);
            assert!(state.directories.len().max(left) <= FILES_MAX);
            state.left.len()
        };
        count(&neighbours);
        assert!(!neighbours.take(100_000, 9, LONG).is_empty());
        // Again and again from somewhere else, and nothing that is small.
        for _ in 0..100 {
            list(&neighbours, DIRECTORY, 5, (10..1010).map(file).collect());
        }
        let before = count(&neighbours);
        list(&neighbours, DIRECTORY + 1, 0, Vec::new());
        assert_eq!(count(&neighbours), before);
    }
}
