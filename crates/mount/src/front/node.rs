// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of nodes.

use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{Changes, Node, Time, When};
use terrace_fuse::{Entry, FileSystemStatus, Reply, SetAttr, SetTime, StatxAnswer};

use super::io::Asker;
use super::{Answering, Front, Result, answer};

/// After so long a read changes when something was last read, whatever else happened (as Linux's
/// `relatime`).
const ACCESS_TIME_SECONDS_MAX: i64 = 24 * 60 * 60;

/// The unit in which capacities are told.
const FRAGMENT_BYTES: u32 = 4096;

impl Front {
    pub(super) fn lookup(&self, directory: u64, name: &[u8], reply: &mut Answering) -> Result<()> {
        let believed_for = self.believed_for(directory);
        let was_behind = !self.behind.is_empty();
        let mut found = self.files.lookup_recent(directory, name, believed_for);
        if let Ok((node, _)) = &found
            && was_behind
            && self.caching.is_written(node.number)
        {
            // What was told of it may be of before.
            self.behind.settle(node.number);
            found = self.files.lookup_recent(directory, name, believed_for);
        }
        match found {
            Ok((node, age)) => {
                let timeout = believed_for.saturating_sub(age);
                reply.with(|reply| reply.entry(&self.entry_for(&node, timeout)))
            }
            Err(failure) if failure.errno() == Errno::NOENT && !self.is_shared => {
                reply.with(|reply| reply.entry(&Entry::negative(self.cached_for)))
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn attributes(&self, number: u64, reply: &mut Answering) -> Result<()> {
        let (node, timeout) = self.known(number, self.cached_for)?;
        reply.with(|reply| reply.attributes(&self.told(&node), timeout))
    }

    pub(super) fn statx(&self, number: u64, reply: &mut Answering) -> Result<()> {
        let (node, timeout) = self.known(number, self.cached_for)?;
        let created = Some(answer::timestamp(node.created));
        reply.with(|reply| {
            let attributes = self.told(&node);
            reply.statx(&StatxAnswer { attributes, created, timeout });
        })
    }

    /// A node as it was told less than `age_max` ago, or else is now, and for how long the kernel may believe
    /// that.
    pub(super) fn known(&self, number: u64, age_max: Duration) -> Result<(Node, Duration)> {
        let recent = self.files.metadata().recent(number, age_max);
        let recent = recent.map(|(node, age)| {
            let left = self.believed_for(node.parent).saturating_sub(age);
            (node, left)
        });
        if let Some(recent) = recent.filter(|(_, left)| !left.is_zero()) {
            return Ok(recent);
        }
        let node = self.files.node(number)?;
        let timeout = self.attributes_for(&node, self.believed_for(node.parent));
        Ok((node, timeout))
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

    /// Notes that something is read, as often as `relatime` asks for it.
    pub(super) fn note_access(&self, node: &Node) {
        if !self.keeps_access_times {
            return;
        }
        let age = node.changed.seconds.max(node.modified.seconds) - node.accessed.seconds;
        let is_newer = node.accessed > node.modified && node.accessed > node.changed;
        if is_newer && age > -ACCESS_TIME_SECONDS_MAX {
            return;
        }
        // That it cannot be noted is no reason to fail the read.
        let _ = self.files.note_read(node);
        // Alone the kernel believes for ever what it was told, and does not tell of what it reads
        // from its cache.
        if !self.is_shared {
            self.forget_attributes(node.number);
        }
    }

    /// Has the kernel ask for the attributes of a node when it needs them next.
    pub(super) fn forget_attributes(&self, number: u64) {
        // It waits for no page, and so for nobody, with an offset below zero.
        if let Err(error) = self.notifier.inval_inode(number, -1, 0) {
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
