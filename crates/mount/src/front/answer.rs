// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes in the words of the kernel.

use std::time::Duration;

use terrace_fs::{INLINE_BYTES_LIMIT, Kind, Node, Place, Time};
use terrace_fuse::{Attributes, Entry, Timestamp};

/// What `st_blocks` counts.
const BLOCK_BYTES: u64 = 512;

pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanos }
}

pub(super) fn attributes(node: &Node) -> Attributes {
    let allocated_bytes = match node.place {
        Place::Inline if node.kind == Kind::File => match node.allocated_bytes {
            // Older versions did not note it.
            0 => node.size.min(INLINE_BYTES_LIMIT.into()),
            kept_bytes => node.size.min(kept_bytes),
        },
        Place::Inline if !node.kind.is_directory() => node.size,
        _ => node.allocated_bytes,
    };
    Attributes {
        inode: node.number,
        mode: node.mode(),
        links: node.links,
        uid: node.user,
        gid: node.group,
        device: node.device,
        size_bytes: node.size,
        blocks: allocated_bytes.div_ceil(BLOCK_BYTES),
        block_bytes: 0,
        accessed: timestamp(node.accessed),
        modified: timestamp(node.modified),
        changed: timestamp(node.changed),
    }
}

pub(super) fn entry(node: &Node, named_for: Duration, known_for: Duration) -> Entry {
    Entry {
        node: node.number,
        // Numbers are never given again.
        generation: 0,
        attributes: attributes(node),
        entry_timeout: named_for,
        attributes_timeout: known_for,
    }
}
