// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading directories.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{Heard, Kind, Listed};
use terrace_fuse::{DirectoryBuffer, Entry, Opened, Reply};

use super::{Answering, Front, Result, answer, number_of};

/// Positions of `.` and `..`.
const THIS: u64 = 1;
const ABOVE: u64 = 2;

/// Entries that are fetched at once, with or without what is known of them.
const FETCHED: u32 = 512;

/// A directory whose attributes are newer than this is opened without asking for it once more: a walk of a
/// tree opens what it has just listed. Whether an older one is still there is asked, because the kernel
/// looks at its name anew where it is not.
const JUST_TOLD: Duration = Duration::from_millis(20);

/// Length of the shortest entry with what is known of it (`struct fuse_direntplus`).
const PLUS_BYTES_MIN: u32 = 160;

/// A directory that a program reads.
pub(super) struct Walk {
    directory: u64,
    /// Its node id.
    id: u64,
    /// The directory above; for programs that compare numbers.
    above: u64,
    ahead: Mutex<Ahead>,
    /// The losses that were reported through this handle.
    heard: Heard,
}

/// Entries that were fetched and not passed on yet.
struct Ahead {
    /// Behind which position they come.
    position: u64,
    entries: VecDeque<Listed>,
    /// How long ago they were asked for.
    age: Duration,
    has_nodes: bool,
    is_end: bool,
}

impl Front {
    pub(super) fn open_directory(&self, id: u64, reply: &mut Answering) -> Result<()> {
        let number = number_of(id);
        let (node, _) = self.known(number, JUST_TOLD.min(self.cached_for))?;
        if !node.kind.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.note_access(&node);
        if !reply.keep() {
            return Ok(());
        }
        if self.is_shared {
            self.dead.note_open(&node);
        }
        let (ahead, heard) = (Mutex::new(Ahead::none()), self.files.hear(number));
        let handle =
            self.walks.put(Walk { directory: number, id, above: node.parent, ahead, heard });
        reply.with(|reply| reply.opened(&Opened { handle, ..Opened::default() }))
    }

    pub(super) fn close_directory(&self, walk: &Walk) {
        if self.is_shared {
            self.dead.note_closed(walk.directory);
        }
    }

    pub(super) fn read_directory(
        &self,
        handle: u64,
        offset: u64,
        bytes: u32,
        with_nodes: bool,
        reply: &mut Answering,
    ) -> Result<()> {
        let walk = self.walks.get(handle).ok_or(Errno::BADF)?;
        let mut buffer = DirectoryBuffer::new(bytes);
        let mut position = offset;
        let mut has_room = true;
        for (name, here) in [(&b"."[..], THIS), (b"..", ABOVE)] {
            if has_room && position < here {
                let number = match here {
                    THIS => walk.directory,
                    _ => walk.above,
                };
                has_room = add_dot(&mut buffer, number, here, name, with_nodes);
                if has_room {
                    position = here;
                }
            }
        }
        // What was fetched and not passed on is kept; a panic leaves it short at worst.
        let mut ahead = walk.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            // A program that goes back to the beginning wants what is there now.
            *ahead = Ahead::none();
        }
        while has_room {
            if !ahead.goes_on_at(position, with_nodes) {
                // What is known of the others is not kept for a later request: to the kernel that would be
                // newer than what was written in between, and it would cut files to what they were.
                let max = if with_nodes { bytes / PLUS_BYTES_MIN + 1 } else { FETCHED };
                *ahead = self.fetch(walk.directory, position, with_nodes, max.min(FETCHED))?;
                // Each entry that is added is noted as sent to the kernel.
                if with_nodes && !reply.keep() {
                    *ahead = Ahead::none();
                    return Ok(());
                }
            }
            let Some(entry) = ahead.entries.front() else { break };
            has_room = self.add(&mut buffer, walk.id, entry, ahead.age, with_nodes);
            if has_room {
                position = entry.position;
                ahead.position = position;
                ahead.entries.pop_front();
            }
        }
        if with_nodes && !ahead.entries.is_empty() {
            *ahead = Ahead::none();
        }
        drop(ahead);
        reply.with(|reply: Reply| reply.directory(&buffer))
    }

    pub(super) fn sync_directory(&self, handle: u64, reply: &mut Answering) -> Result<()> {
        let walk = self.walks.get(handle).ok_or(Errno::BADF)?;
        self.files.sync_directory(&walk.heard)?;
        reply.with(Reply::empty)
    }

    fn fetch(&self, directory: u64, position: u64, with_nodes: bool, max: u32) -> Result<Ahead> {
        // What is there comes behind these two.
        let after = if position > ABOVE { position } else { 0 };
        // A list of names waits only for the server that has the names.
        let (entries, age) = self.files.list_at_once(directory, after, max, with_nodes)?;
        let is_end = entries.len() < max as usize;
        Ok(Ahead { position, entries: entries.into(), age, has_nodes: with_nodes, is_end })
    }

    fn add(
        &self,
        buffer: &mut DirectoryBuffer,
        parent: u64,
        entry: &Listed,
        age: Duration,
        with_nodes: bool,
    ) -> bool {
        match (&entry.node, with_nodes) {
            (Some(node), true) => {
                let timeout = self.believed_for(node.parent).saturating_sub(age);
                let mut answer = answer::entry(node, timeout, self.attributes_for(node, timeout));
                let is_shared_directory = self.is_shared && node.kind.is_directory();
                if is_shared_directory {
                    let id = self.aliases.list(parent, &entry.name, node.number);
                    let Some(id) = id else { return add_by_name(buffer, entry) };
                    answer.node = id;
                }
                let has_room = buffer.add_plus(&answer, entry.position, &entry.name);
                match has_room {
                    true => {
                        if self.is_shared && !is_shared_directory {
                            self.aliases.look_up_other(parent, &entry.name);
                        }
                        self.note_named(node);
                    }
                    false if is_shared_directory => _ = self.aliases.forget(answer.node, 1),
                    false => {}
                }
                has_room
            }
            // It was removed meanwhile, or is being written: a lookup reports which.
            (None, true) => add_by_name(buffer, entry),
            _ => buffer.add(entry.number, entry.position, entry.kind.bits(), &entry.name),
        }
    }
}

impl Ahead {
    /// Nothing was fetched yet.
    fn none() -> Self {
        let (entries, age) = (VecDeque::new(), Duration::ZERO);
        Self { position: 0, entries, age, has_nodes: false, is_end: false }
    }

    fn goes_on_at(&self, position: u64, with_nodes: bool) -> bool {
        // The kernel asks for nodes at the beginning, and for more of them only where they are used: with
        // or without, nothing comes behind the end.
        let has_these = match self.entries.is_empty() {
            true => self.is_end,
            false => self.has_nodes == with_nodes,
        };
        self.position == position && has_these
    }
}

fn add_dot(
    buffer: &mut DirectoryBuffer,
    number: u64,
    position: u64,
    name: &[u8],
    with_nodes: bool,
) -> bool {
    let mode = Kind::Directory.bits();
    if !with_nodes {
        return buffer.add(number, position, mode, name);
    }
    add_alone(buffer, number, position, name, mode)
}

/// Adds an entry of a listing without what is known of its node.
fn add_by_name(buffer: &mut DirectoryBuffer, entry: &Listed) -> bool {
    add_alone(buffer, entry.number, entry.position, &entry.name, entry.kind.bits())
}

/// Adds an entry without what is known of its node: number 0 there, which the kernel does not count.
fn add_alone(
    buffer: &mut DirectoryBuffer,
    number: u64,
    position: u64,
    name: &[u8],
    mode: u32,
) -> bool {
    let mut entry = Entry::default();
    entry.attributes.inode = number;
    entry.attributes.mode = mode;
    buffer.add_plus(&entry, position, name)
}
