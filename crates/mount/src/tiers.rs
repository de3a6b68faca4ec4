// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tiers of a mounted store, and migrations of files between them.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Access, ErrorKind, Key};
use terrace_fs::{Failure, Files, Node, Place};
use terrace_store::{Explanation, MoveKind, MoveTicket, Store};

type Result<T, E = Failure> = std::result::Result<T, E>;

/// Longest wait for a migration of a file to the tier that it is pinned to, or for one to be given up.
const PIN_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is tried to bring a file to a tier, where others have it moved, too.
const PIN_TRIES_MAX: u32 = 16;

/// Where the tiers of a mounted file system can be seen and steered.
pub struct Tiers {
    store: Store,
    address: String,
}

impl Tiers {
    /// The tiers of a store that others reach by `address`.
    pub fn new(store: &Store, address: &str) -> Self {
        Self { store: store.clone(), address: address.into() }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Has all of a file on a tier. What moves it elsewhere at the time is given up: a pin counts from when
    /// it is asked for.
    pub(crate) fn bring(&self, key: &Key, tier: &str) -> Result<()> {
        let mut refused = None;
        for _ in 0..PIN_TRIES_MAX {
            let explanation = self.store.admin().explain(key)?;
            if self.end_moves(&explanation, tier)? {
                // That was in the way.
                refused = None;
                continue;
            }
            if is_on(&explanation, tier) {
                return Ok(());
            }
            // Nothing moves it, so something else is in the way.
            if let Some(failure) = refused.take() {
                return Err(failure);
            }
            self.store.admin().unpin(key)?;
            match self.move_and_wait(key, tier) {
                Err(failure) if failure.errno() == Errno::BUSY => refused = Some(failure),
                moved => moved?,
            }
        }
        Err(refused.unwrap_or(Errno::BUSY.into()))
    }

    /// Waits for the migrations of a file, and gives up those that do not lead to a tier; whether there were
    /// any.
    fn end_moves(&self, explanation: &Explanation, tier: &str) -> Result<bool> {
        let mut were_any = false;
        for segment in &explanation.segments {
            let Some(moving) = &segment.moving else { continue };
            let leads_there = is_there(&moving.to, tier);
            if leads_there.is_none() {
                continue;
            }
            were_any = true;
            let ticket = MoveTicket(moving.id);
            if leads_there == Some(false) {
                // One that is unknown has ended.
                unless_unknown(self.store.admin().cancel(ticket))?;
            }
            if let Some(None) = unless_unknown(self.store.admin().wait(ticket, PIN_TIME_MAX))? {
                return Err(Errno::BUSY.into());
            }
        }
        Ok(were_any)
    }

    fn move_and_wait(&self, key: &Key, tier: &str) -> Result<()> {
        let reason = "pinned there by its attribute";
        for ticket in self.store.admin().migrate(key, tier, MoveKind::Move, 0, reason)? {
            let report = self.store.admin().wait(ticket, PIN_TIME_MAX)?;
            let outcome = report.and_then(|report| report.outcome);
            match outcome.as_deref() {
                Some("done") => {}
                Some("no-space") => return Err(Errno::NOSPC.into()),
                _ => return Err(Errno::BUSY.into()),
            }
        }
        Ok(())
    }
}

/// Asks for the migrations of a file's segments.
pub(crate) fn migrate_file(
    files: &Arc<Files>,
    store: &Store,
    node: &Node,
    tier: &str,
) -> Result<Vec<MoveTicket>> {
    let key = with_object(files, node)?;
    Ok(store.admin().migrate(&key, tier, MoveKind::Move, 0, "asked for by its attribute")?)
}

/// The key of a file's object; a small file gets one.
pub(crate) fn with_object(files: &Arc<Files>, node: &Node) -> Result<Key> {
    if node.place == Place::Inline {
        let (_, file) = files.open(node.number, Access::Write)?;
        file.give_object()?;
        file.close()?;
    }
    files.key(node.number)
}

/// Whether a tier is meant by a name.
pub(crate) fn is_called(tier: &str, name: &str) -> bool {
    tier == name || tier.rsplit_once('/').is_some_and(|(_, tier)| tier == name)
}

/// Whether a file is where it is to be.
fn is_on(explanation: &Explanation, tier: &str) -> bool {
    let there = explanation.segments.iter().filter_map(|segment| is_there(&segment.tier, tier));
    there.reduce(|all, one| all && one).unwrap_or(false)
}

/// Whether what is on a tier is on the one that is meant; `None` where it is not concerned. Over
/// several servers `SERVER/TIER` concerns the part on that server, and `TIER` all parts.
fn is_there(on: &str, meant: &str) -> Option<bool> {
    match (on.rsplit_once('/'), meant.rsplit_once('/')) {
        (Some((server, _)), Some((wanted, _))) if server != wanted => None,
        _ => Some(is_called(on, meant)),
    }
}

/// The answer about a migration; `None` where it is unknown.
fn unless_unknown<T>(said: terrace_core::Result<T>) -> Result<Option<T>> {
    match said {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        said => Ok(Some(said?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_that_of_one_server_or_of_all() {
        assert!(is_called("slow", "slow"));
        assert!(is_called("node1:7420/slow", "slow"));
        assert!(is_called("node1:7420/slow", "node1:7420/slow"));
        for wrong in ["", "ow", "node2:7420/slow", "/slow"] {
            assert!(!is_called("node1:7420/slow", wrong), "{wrong}");
        }
    }

    #[test]
    fn a_tier_of_one_server_concerns_the_part_there() {
        for (on, meant, expected) in [
            ("slow", "slow", Some(true)),
            ("fast", "slow", Some(false)),
            ("a/slow", "slow", Some(true)),
            ("a/fast", "slow", Some(false)),
            ("a/slow", "a/slow", Some(true)),
            ("a/fast", "a/slow", Some(false)),
            ("b/fast", "a/slow", None),
        ] {
            assert_eq!(is_there(on, meant), expected, "{meant} of {on}");
        }
    }
}
