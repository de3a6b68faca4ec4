// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value engines, by name.

mod changing;
mod fjall;
mod group_sync;
mod journal;
mod lmdb;
mod memory;
mod spare;
mod sync_mark;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use terrace_core::{Error, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, KvRange, Result, Ticket};

pub use self::fjall::Fjall;
pub use self::lmdb::Lmdb;
pub use self::memory::Memory;

/// An engine that [`open_kv`] knows.
#[derive(Debug)]
pub struct Engine {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// A file that its directory always has; `None` where it keeps nothing.
    pub file: Option<&'static str>,
    open: fn(&Path) -> Result<Arc<dyn Kv>>,
}

/// Every engine of this crate. The behaviour suite runs on each.
pub const ENGINES: &[Engine] = &[
    Engine {
        name: "fjall",
        summary: "log-structured tree in a directory: cheap writes, grouped syncs",
        file: Some("version"),
        open: fjall::open,
    },
    Engine {
        name: "lmdb",
        summary: "B-tree in a mapped file behind a journal: cheap reads, grouped syncs",
        file: Some("data.mdb"),
        open: lmdb::open,
    },
    Engine {
        name: "memory",
        summary: "main memory: gone with the process",
        file: None,
        open: memory::open,
    },
];

/// Opens the engine called `engine` in the directory `path`, which is made where it is missing.
///
/// # Errors
///
/// `Invalid` (no such engine, or the pairs of another one are there), `Busy` (another process has
/// it open), `Corrupt` (damaged files), `Denied`, `NoSpace`, `Io`.
pub fn open_kv(engine: &str, path: &Path) -> Result<Arc<dyn Kv>> {
    const OPERATION: &str = "open a key-value engine";
    let Some(entry) = ENGINES.iter().find(|entry| entry.name == engine) else {
        let names: Vec<_> = ENGINES.iter().map(|entry| entry.name).collect();
        let reason = format!("there is no such engine; known are {}", names.join(", "));
        return Err(Error::invalid(OPERATION, reason).with("engine", engine));
    };
    // It would begin anew beside them.
    let is_there = |other: &&Engine| other.file.is_some_and(|file| path.join(file).exists());
    let mut others = ENGINES.iter().filter(|other| other.name != engine);
    if let Some(other) = others.find(is_there).filter(|_| entry.file.is_some()) {
        let reason = format!("the directory has the pairs of the engine {}", other.name);
        return Err(Error::invalid(OPERATION, reason)
            .with("engine", engine)
            .with("path", path.display()));
    }
    (entry.open)(path)
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The bounds of a range for an ordered map; `None` where no key can lie between them.
fn bounds(range: &KvRange) -> Option<Bounds<'_>> {
    use Bound::{Excluded, Included, Unbounded};
    let start = range.start.as_ref().map(Vec::as_slice);
    let end = range.end.as_ref().map(Vec::as_slice);
    let is_empty = match (start, end) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
    };
    (!is_empty).then_some((start, end))
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KV_KEY_BYTES_MAX {
        return Err(Error::invalid("use a key", "its length is out of bounds")
            .with("key_bytes", key.len())
            .with("key_bytes_max", KV_KEY_BYTES_MAX));
    }
    Ok(())
}

fn check_value(key: &[u8], value: &[u8]) -> Result<()> {
    if value.len() > KV_VALUE_BYTES_MAX {
        return Err(Error::invalid("write a value", "it is too long")
            .with("key", key.escape_ascii())
            .with("value_bytes", value.len())
            .with("value_bytes_max", KV_VALUE_BYTES_MAX));
    }
    Ok(())
}

/// Why an engine takes no commits any more.
const FAILED: &str = "an earlier write failed, as on a full disk, and nothing is changed since: give \
                      the disk room, and start the process that has the store open again";

/// Refuses to wait for a commit that was never made: it would never become durable.
fn check_ticket(ticket: Ticket, committed: u64) -> Result<()> {
    if ticket.0 > committed {
        return Err(Error::invalid("wait for a commit", "no commit has this ticket")
            .with("ticket", ticket.0)
            .with("last_ticket", committed));
    }
    Ok(())
}
