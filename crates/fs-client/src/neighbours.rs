// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that were listed together, or written here one after the other: who reads one of them
//! soon reads the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use terrace_fs::{Kind, Listed, Node, Place, Reply, Request};

/// Files that are remembered, in all directories: so many of each kind.
const FILES_MAX: usize = 1 << 14;

/// About what is told of a file beside its bytes.
const NODE_BYTES: u64 = 120;

/// Such files.
#[derive(Default)]
pub(crate) struct Neighbours {
    state: Mutex<State>,
}

/// Both apart: who writes much is not to forget what it listed.
#[derive(Default)]
struct State {
    listed: Known,
    written: Known,
}

#[derive(Default)]
struct Known {
    files: HashMap<u64, File>,
    /// Those of each directory that were not taken yet: in the order of the listing, or of their first
    /// writes.
    left: HashMap<u64, VecDeque<u64>>,
    /// How many these are.
    count: usize,
}

/// A file, as it was known last.
struct File {
    directory: u64,
    size: u64,
}

impl Neighbours {
    /// Takes note of what was listed, written or removed.
    pub(crate) fn note(&self, request: &Request<'_>, reply: Option<&Reply>) {
        match (request, reply) {
            (Request::List { directory, after, .. }, Some(Reply::Listing(entries))) => {
                self.note_listed(*directory, *after == 0, entries);
            }
            (_, Some(Reply::ListedAhead(listed))) => {
                for one in listed {
                    self.note_listed(one.directory.number, true, &one.entries);
                }
            }
            (Request::Write { .. }, Some(Reply::Node(node))) => self.note_written(node),
            (_, Some(Reply::Gone { number, .. })) => {
                let mut state = self.state();
                state.listed.files.remove(number);
                state.written.files.remove(number);
            }
            _ => {}
        }
    }

    fn note_listed(&self, directory: u64, is_whole: bool, entries: &[Listed]) {
        let of_entry = |entry: &Listed| entry.node.as_ref().and_then(small);
        let small: Vec<_> = entries.iter().filter_map(of_entry).collect();
        if small.is_empty() {
            return;
        }
        let mut state = self.state();
        let listed = &mut state.listed;
        listed.make_room(small.len());
        if is_whole {
            listed.count -= listed.left.remove(&directory).map_or(0, |left| left.len());
        }
        for (number, size) in small {
            listed.add(number, File { directory, size });
        }
    }

    fn note_written(&self, node: &Node) {
        let mut state = self.state();
        let written = &mut state.written;
        let Some((number, size)) = small(node) else {
            written.files.remove(&node.number);
            return;
        };
        match written.files.get_mut(&number) {
            // It is written in pieces.
            Some(file) if file.directory == node.parent => file.size = size,
            _ => {
                written.make_room(1);
                written.add(number, File { directory: node.parent, size });
            }
        }
    }

    /// A file and others of its directory that were listed, or else written, and not taken since, of about
    /// so many bytes; none without others.
    pub(crate) fn take(&self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        let mut state = self.state();
        let listed = state.listed.take(number, max, bytes_max);
        if listed.is_empty() { state.written.take(number, max, bytes_max) } else { listed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in one of the maps alone is not taken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Makes room for so many more files.
    fn make_room(&mut self, files: usize) {
        if self.files.len().max(self.count) + files > FILES_MAX {
            *self = Self::default();
        }
    }

    fn add(&mut self, number: u64, file: File) {
        self.left.entry(file.directory).or_default().push_back(number);
        self.files.insert(number, file);
        self.count += 1;
    }

    fn take(&mut self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        let Some(directory) = self.files.get(&number).map(|file| file.directory) else {
            return Vec::new();
        };
        let Some(left) = self.left.get_mut(&directory) else { return Vec::new() };
        let mut taken = vec![number];
        let mut room = bytes_max;
        while taken.len() < max
            && let Some(other) = left.front()
        {
            // What is not known any more is gone, or elsewhere; what came back is there twice.
            let file = self.files.get(other).filter(|file| file.directory == directory);
            if let Some(file) = file.filter(|_| !taken.contains(other)) {
                // Also one that never has room is not in the way of those behind it.
                let bytes = (file.size + NODE_BYTES).min(bytes_max);
                let Some(rest) = room.checked_sub(bytes) else { break };
                room = rest;
                taken.push(*other);
            }
            left.pop_front();
            self.count -= 1;
        }
        if left.is_empty() {
            self.left.remove(&directory);
        }
        if taken.len() > 1 { taken } else { Vec::new() }
    }
}

/// A file that has a name, and its bytes with the metadata, and its length.
fn small(node: &Node) -> Option<(u64, u64)> {
    let is_inline = node.kind == Kind::File && node.place == Place::Inline;
    let is_small = is_inline && node.size > 0 && node.links > 0;
    is_small.then_some((node.number, node.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: u64 = 7;
    const LONG: u64 = 1 << 20;

    fn file(number: u64) -> Listed {
        let node = Some(Node { number, size: 1, links: 1, ..Node::default() });
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

    fn write(neighbours: &Neighbours, node: &Node) {
        let request = Request::Write {
            number: node.number,
            offset: 0,
            data: b"byte",
            at_end: false,
            clears_set_id: false,
        };
        neighbours.note(&request, Some(&Reply::Node(node.clone())));
    }

    #[test]
    fn those_that_were_written_are_taken_where_none_that_was_listed_is_left() {
        let neighbours = Neighbours::default();
        list(&neighbours, DIRECTORY, 0, (10..12).map(file).collect());
        let written = |number| Node { parent: DIRECTORY, ..file(number).node.expect("it has one") };
        for number in [31, 30, 31, 10] {
            write(&neighbours, &written(number));
        }
        write(&neighbours, &Node { parent: DIRECTORY + 1, ..written(40) });
        write(&neighbours, &Node { size: 0, ..written(41) });
        write(&neighbours, &Node { links: 0, ..written(42) });
        assert_eq!(neighbours.take(10, 9, LONG), [10, 11], "as they were listed");
        assert_eq!(neighbours.take(10, 9, LONG), [10, 31, 30]);
        write(&neighbours, &written(31));
        assert!(neighbours.take(30, 9, LONG).is_empty(), "it was taken, and is not new");
        assert!(neighbours.take(40, 9, LONG).is_empty(), "it is alone there");
        (50..53).for_each(|number| write(&neighbours, &written(number)));
        let remove = Request::Remove { directory: DIRECTORY, name: b"f", is_directory: false };
        let directory = Some(Node::default());
        let gone = Reply::Gone { number: 51, has_garbage: false, directory, is_delegated: false };
        neighbours.note(&remove, Some(&gone));
        assert_eq!(neighbours.take(50, 9, LONG), [50, 52]);
        (60..63).for_each(|number| write(&neighbours, &written(number)));
        write(&neighbours, &Node { size: 1000, ..written(61) });
        assert_eq!(neighbours.take(60, 9, 1000), [60, 61], "it has grown since");
        (70..74).for_each(|number| write(&neighbours, &written(number)));
        // One that came back, one that went elsewhere, and one that lost its bytes.
        let gone =
            Reply::Gone { number: 71, has_garbage: false, directory: None, is_delegated: false };
        neighbours.note(&remove, Some(&gone));
        write(&neighbours, &written(71));
        write(&neighbours, &Node { parent: DIRECTORY + 1, ..written(72) });
        write(&neighbours, &Node { size: 0, ..written(73) });
        assert_eq!(neighbours.take(70, 9, LONG), [70, 62, 71]);
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
            with(&|it| it.node.as_mut().expect("it has one").kind = Kind::Symlink),
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
            for known in [&state.listed, &state.written] {
                let left: usize = known.left.values().map(VecDeque::len).sum();
                assert_eq!(left, known.count);
                assert!(known.files.len().max(left) <= FILES_MAX);
            }
            state.listed.left.len()
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
        for number in 0..2 * FILES_MAX as u64 {
            write(&neighbours, &file(number).node.expect("it has one"));
        }
        assert_eq!(count(&neighbours), before, "what was listed is still known");
    }
}
