// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of nodes.

use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Changes, Node, Time, When};
use terrace_fuse::{Entry, FileSystemStatus, Reply, Request, SetAttr, SetTime, StatxAnswer};

use super::io::Asker;
use super::{Answering, Front, Result, answer, number_of};

/// After this time a read changes the access time, whatever else happened (`relatime_need_update` in Linux's
/// fs/inode.c).
const ACCESS_TIME_SECONDS_MAX: i64 = 24 * 60 * 60;

/// The unit of capacities in `statfs`.
const FRAGMENT_BYTES: u32 = 4096;

impl Front {
    pub(super) fn lookup(
        &self,
        request: &Request<'_>,
        name: &[u8],
        reply: &mut Answering,
    ) -> Result<()> {
        let directory = number_of(request.node);
        let believed_for = self.believed_for(directory);
        let was_behind = !self.behind.is_empty();
        let mut found = self.files.lookup_recent(directory, name, believed_for);
        if let Ok((node, _)) = &found
            && was_behind
            && self.caching.is_written(node.number)
        {
            // The cached attributes may be older.
            self.behind.settle(node.number);
            found = self.files.lookup_recent(directory, name, believed_for);
        }
        match found {
            Ok((node, age)) => {
                let timeout = believed_for.saturating_sub(age);
                reply.with(|reply| {
                    let mut entry = self.entry_for(&node, timeout);
                    let (thread, parent) = (request.pid, request.node);
                    if self.is_shared && node.kind.is_directory() {
                        let spot = (parent, name);
                        entry.node = self.aliases.look_up(thread, spot, node.number, timeout);
                        for id in self.aliases.several(node.number) {
                            entry.attributes_timeout = Duration::ZERO;
                            self.forget_attributes(id);
                        }
                    } else if self.is_shared {
                        self.aliases.look_up_other(parent, name);
                    }
                    reply.entry(&entry);
                })
            }
            Err(failure) if failure.errno() == Errno::NOENT && !self.is_shared => {
                reply.with(|reply| reply.entry(&Entry::negative(self.cached_for)))
            }
            Err(failure) => {
                if failure.errno() == Errno::NOENT && reply.keep() {
                    self.aliases.look_up_other(request.node, name);
                }
                Err(failure)
            }
        }
    }

    pub(super) fn attributes(&self, number: u64, reply: &mut Answering) -> Result<()> {
        let (node, timeout) = self.looked_at(number)?;
        reply.with(|reply| reply.attributes(&self.told(&node), timeout))
    }

    pub(super) fn statx(&self, number: u64, reply: &mut Answering) -> Result<()> {
        let (node, timeout) = self.looked_at(number)?;
        let created = Some(answer::timestamp(node.created));
        reply.with(|reply| {
            let attributes = self.told(&node);
            reply.statx(&StatxAnswer { attributes, created, timeout });
        })
    }

    /// A node with its attribute timeout, after a pending read of it is flushed: the program that has read it
    /// may be the one that looks.
    fn looked_at(&self, number: u64) -> Result<(Node, Duration)> {
        if self.is_shared && self.files.is_read_pending(number) {
            // The kernel requests attributes of a directory also before it looks up names there, which is not
            // worth a round trip. With a timeout of zero it requests them again for a program that looks.
            let recent = self.files.metadata().recent(number, self.cached_for);
            if let Some((node, _)) = recent.filter(|(node, _)| node.kind.is_directory()) {
                return Ok((node, Duration::ZERO));
            }
            // Without it the access time is older; all other attributes are right.
            let _ = self.files.flush_read(number);
        }
        self.known(number, self.cached_for)
    }

    /// A node with attributes that are less than `age_max` old, or else as of now, and for how long the kernel may
    /// cache them.
    pub(super) fn known(&self, number: u64, age_max: Duration) -> Result<(Node, Duration)> {
        let recent = self.files.metadata().recent(number, age_max);
        let recent = recent.map(|(node, age)| {
            let left = self.believed_for(node.parent).saturating_sub(age);
            (node, left)
        });
        if let Some((node, left)) = recent.filter(|(_, left)| !left.is_zero()) {
            let timeout = self.attributes_for(&node, left);
            return Ok((node, timeout));
        }
        let node = match self.files.node(number) {
            Err(failure) if failure.errno() == Errno::STALE => {
                let node = self.removed_directory(number).ok_or(failure)?;
                return Ok((node, Duration::ZERO));
            }
            found => found?,
        };
        let timeout = self.attributes_for(&node, self.believed_for(node.parent));
        Ok((node, timeout))
    }

    /// The attributes of a directory that is open here and was removed by another client.
    pub(super) fn removed_directory(&self, number: u64) -> Option<Node> {
        self.dead.open_one(number, || self.files.removed_directory(number).ok())
    }

    pub(super) fn set_attributes(
        &self,
        number: u64,
        changes: &SetAttr,
        stranger: Option<Asker>,
        reply: &mut Answering,
    ) -> Result<()> {
        let when = |time: SetTime| match time {
            SetTime::Now => When::Now,
            SetTime::At(time) => When::At(Time { seconds: time.seconds, nanos: time.nanoseconds }),
        };
        let changes = Changes {
            permissions: changes.mode.map(|mode| mode & 0o7777),
            user: changes.uid,
            group: changes.gid,
            size: changes.size_bytes,
            accessed: changes.accessed.map(when),
            modified: changes.modified.map(when),
            clears_set_id: changes.kills_suid_sgid || changes.is_empty(),
            ..Changes::default()
        };
        let mut node = self.files.change(number, changes)?;
        if let Some(asker) = stranger {
            let taken = self.files.take_idle_set_group(&node, |group| asker.is_in(group))?;
            node = taken.unwrap_or(node);
        }
        let timeout = self.attributes_for(&node, self.cached_for);
        reply.with(|reply| reply.attributes(&self.told(&node), timeout))
    }

    pub(super) fn read_link(&self, number: u64, reply: &mut Answering) -> Result<()> {
        let target = self.files.target(number)?;
        reply.with(|reply| reply.data(&target))
    }

    /// Notes that a node is read, as often as `relatime` asks for it. Whether it was noted.
    pub(super) fn note_access(&self, node: &Node) -> bool {
        let keeps = match node.kind.is_directory() {
            true => self.keeps_directory_access_times,
            false => self.keeps_access_times,
        };
        if !keeps || !is_access_to_note(node, Time::from_ns(self.clock.wall_ns())) {
            return false;
        }
        // That it cannot be noted is no reason to fail the read.
        let _ = self.files.note_read(node);
        // With exclusive use the kernel caches attributes for ever, and does not report what it reads
        // from its cache.
        if !self.is_shared {
            self.forget_attributes(node.number);
        }
        true
    }

    /// Has the kernel ask for the attributes of a node when it needs them next.
    pub(super) fn forget_attributes(&self, id: u64) {
        // It waits for no page, and so for no other program, with an offset below zero.
        if let Err(error) = self.notifier.inval_inode(id, -1, 0) {
            tracing::debug!(%error, "cannot tell the kernel that attributes changed");
        }
    }

    pub(super) fn status(&self, reply: &mut Answering) -> Result<()> {
        let space = self.files.space()?;
        let unit = u64::from(FRAGMENT_BYTES);
        // Programs count with signs.
        let capacity_bytes = space.capacity_bytes.min(i64::MAX as u64);
        let blocks = capacity_bytes / unit;
        let free = capacity_bytes.saturating_sub(space.used_bytes) / unit;
        let status = FileSystemStatus {
            blocks,
            blocks_free: free,
            blocks_available: free,
            // There is no bound but room.
            files: 0,
            files_free: 0,
            block_bytes: 1 << 17,
            fragment_bytes: FRAGMENT_BYTES,
            name_bytes_max: terrace_fs::NAME_BYTES_MAX as u32,
        };
        reply.with(|reply: Reply| reply.file_system_status(&status))
    }
}

/// Whether a read changes the access time: if that is not later than the last change, or is a day old.
fn is_access_to_note(node: &Node, now: Time) -> bool {
    let is_changed_since = node.accessed <= node.modified || node.accessed <= node.changed;
    is_changed_since || now.seconds - node.accessed.seconds >= ACCESS_TIME_SECONDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_count_after_a_change_and_a_day() {
        let at = |seconds| Time { seconds, nanos: 0 };
        let day = ACCESS_TIME_SECONDS_MAX;
        let node = |accessed, modified, changed| Node {
            accessed: at(accessed),
            modified: at(modified),
            changed: at(changed),
            ..Node::default()
        };
        for (node, now, is_noted) in [
            (node(10, 9, 9), 11, false),
            (node(10, 10, 9), 11, true),
            (node(10, 9, 10), 11, true),
            (node(10, 9, 9), 9 + day, false),
            (node(10, 9, 9), 10 + day, true),
            // Read a moment ago, and long after the last change.
            (node(10 + 5 * day, 9, 9), 11 + 5 * day, false),
        ] {
            assert_eq!(is_access_to_note(&node, at(now)), is_noted, "{node:?} {now}");
        }
    }
}
