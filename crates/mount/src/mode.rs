// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of two modes an open file is in, until everybody has closed it.
//!
//! All opens of a node that the kernel passes through share one file of a tier, and cannot be taken
//! back. So the mode is chosen with the first open and stays until the last close.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{Access, HeldGrowth, Object};
use terrace_fs::{File, Node};
use terrace_fuse::{BackingId, Passthrough};

/// So many locks stand between the first open and the last close.
const STRIPES: usize = 64;

/// How the opens of each node are served.
pub(crate) struct Modes {
    /// `None` where all is served.
    passthrough: Option<Passthrough>,
    /// File systems of tiers of which it can pass through nothing.
    refused: Vec<u64>,
    open: [Mutex<Stripe>; STRIPES],
}

/// Some of the nodes.
#[derive(Default)]
struct Stripe {
    in_use: HashMap<u64, InUse>,
    /// Of which the kernel may have kept bytes while others changed them past it: `sendfile` and
    /// `splice` go through its cache also where nothing else does. Until they are served next: that the
    /// kernel has forgotten one may be reported when it has it again.
    stale: HashSet<u64>,
}

/// A node that is open.
struct InUse {
    opens: u64,
    mode: Mode,
    /// Whether the kernel passes it through, and programs may store through mappings of it.
    may_be_mapped: bool,
}

enum Mode {
    Served,
    Passed {
        backing: Arc<BackingId>,
        /// Handles that hold the tier's file where it is: for reading, and for writing.
        holders: Vec<(Access, Arc<dyn Object>)>,
    },
}

/// Changes of a file that leave the attributes in the kernel's cache valid and old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnoticed {
    Nothing,
    /// Of the room that it takes on its tier.
    Room,
    /// Of times and room, by stores through mappings of the tier's file.
    Stores,
}

/// How one open of a node is answered.
pub(crate) enum Chosen {
    /// The kernel asks, and keeps what it read; what it has is of no use where it `is_stale`.
    Served { is_stale: bool },
    /// The kernel reads and writes this.
    Passed(Arc<BackingId>),
    /// The kernel asks, and keeps nothing: others read and write past it. It maps this.
    Direct(Arc<BackingId>),
    /// Not at all: the kernel passes it through for others, and may not for this one.
    Refused,
}

/// What a program that opens a file means to do.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    /// Write at the end alone.
    pub(crate) appends: bool,
}

impl Wish {
    /// Whether the kernel would not do by itself what it has to do.
    fn needs_us(self, access: Access) -> bool {
        // What it opens of the tier appends for ever, even if the program takes that back with
        // fcntl(2).
        access == Access::Write && self.appends
    }
}

impl Modes {
    pub(crate) fn new(passthrough: Option<Passthrough>, refused: Vec<u64>) -> Self {
        Self { passthrough, refused, open: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Whether files are passed through unless something speaks against it.
    pub(crate) fn prefers_passthrough(&self) -> bool {
        self.passthrough.is_some()
    }

    /// Chooses how an open of a file, for writes as `wish` has them, is answered. To be ended with
    /// [`Modes::close`], unless it is refused.
    pub(crate) fn open(&self, node: &Node, file: &File, wish: Wish) -> Chosen {
        let needs_us = wish.needs_us(file.access()) || self.may_outgrow(node, file);
        let may_pass = !needs_us && node.marks.is_movable != Some(true);
        // A mapping of a closed file still reads and writes the tier's file: a new open has to
        // see that, and must not write over it from what the kernel would cache.
        let is_to_pass = may_pass || self.is_mapped(node, file);
        let mut stripe = self.stripe(node.number);
        let Stripe { in_use: open, stale } = &mut *stripe;
        if let Some(in_use) = open.get_mut(&node.number) {
            in_use.opens += 1;
            let Mode::Passed { backing, holders } = &mut in_use.mode else {
                return Chosen::Served { is_stale: false };
            };
            let is_held =
                holders.iter().any(|(held, _)| *held == Access::Write || *held == file.access());
            if !is_held {
                match hold(file) {
                    Some((_, object)) => holders.push((file.access(), object)),
                    None => {
                        in_use.opens -= 1;
                        return Chosen::Refused;
                    }
                }
            }
            let backing = Arc::clone(backing);
            return match needs_us {
                true => {
                    stale.insert(node.number);
                    Chosen::Direct(backing)
                }
                false => Chosen::Passed(backing),
            };
        }
        let mode = match is_to_pass {
            true => self.pass(node, file),
            false => Mode::Served,
        };
        let chosen = match &mode {
            Mode::Served => Chosen::Served { is_stale: stale.remove(&node.number) },
            Mode::Passed { backing, .. } if needs_us => {
                stale.insert(node.number);
                Chosen::Direct(Arc::clone(backing))
            }
            Mode::Passed { backing, .. } => Chosen::Passed(Arc::clone(backing)),
        };
        open.insert(node.number, InUse { opens: 1, mode, may_be_mapped: false });
        chosen
    }

    /// Ends an open. After the last one the tier's file is not held here.
    pub(crate) fn close(&self, number: u64) {
        let mut stripe = self.stripe(number);
        let open = &mut stripe.in_use;
        let Some(in_use) = open.get_mut(&number) else { return };
        in_use.opens -= 1;
        if in_use.opens == 0 {
            open.remove(&number);
        }
    }

    /// How an open file is served, for the attribute `state`.
    pub(crate) fn is_passed(&self, number: u64) -> Option<bool> {
        let stripe = self.stripe(number);
        let in_use = stripe.in_use.get(&number);
        in_use.map(|in_use| matches!(in_use.mode, Mode::Passed { .. }))
    }

    /// Notes that programs may store through mappings of an open file from now on, if the kernel passes it
    /// through. Whether that was not so before.
    pub(crate) fn note_mappings(&self, number: u64) -> bool {
        let mut stripe = self.stripe(number);
        let Some(in_use) = stripe.in_use.get_mut(&number) else { return false };
        let is_passed = matches!(in_use.mode, Mode::Passed { .. });
        is_passed && !std::mem::replace(&mut in_use.may_be_mapped, true)
    }

    /// What the kernel may not notice of a file as it is returned.
    pub(crate) fn unnoticed(&self, node: &Node) -> Unnoticed {
        if self.passthrough.is_none() || !node.is_written {
            return Unnoticed::Nothing;
        }
        let stripe = self.stripe(node.number);
        match stripe.in_use.get(&node.number) {
            Some(InUse { mode: Mode::Served, .. }) => Unnoticed::Nothing,
            Some(InUse { may_be_mapped: false, .. }) => Unnoticed::Room,
            // A mapping may be left of a file that no program has open.
            Some(InUse { may_be_mapped: true, .. }) | None => Unnoticed::Stores,
        }
    }

    /// Whether a file without an open handle may still be changed past the daemon.
    fn is_mapped(&self, node: &Node, file: &File) -> bool {
        let is_held = |object: Arc<dyn Object>| object.stat().is_ok_and(|stat| stat.is_held);
        let may_be = self.passthrough.is_some() && node.is_written;
        may_be && file.object().is_some_and(is_held)
    }

    /// Whether a program that writes the file past the daemon could make it longer than its tier may
    /// become, or get `ENOSPC` while other tiers have room. The kernel does not ask before it grows.
    fn may_outgrow(&self, node: &Node, file: &File) -> bool {
        if self.passthrough.is_none() || file.access() == Access::Read {
            return false;
        }
        match file.object().map(|object| object.held_growth()) {
            // A file that is with the metadata has nothing to pass through.
            None | Some(Ok(HeldGrowth::Full)) => false,
            Some(Ok(HeldGrowth::OneFile)) => node.marks.is_movable != Some(false),
            Some(Ok(HeldGrowth::Unbounded)) => true,
            Some(Err(error)) => {
                tracing::debug!(file = node.number, %error, "cannot ask for the room of a tier");
                true
            }
        }
    }

    fn pass(&self, node: &Node, file: &File) -> Mode {
        let Some(passthrough) = &self.passthrough else { return Mode::Served };
        if self.is_refused(file) {
            return Mode::Served;
        }
        let Some((descriptor, object)) = hold(file) else { return Mode::Served };
        match passthrough.open(descriptor.as_fd()) {
            Ok(backing) => {
                Mode::Passed { backing: Arc::new(backing), holders: vec![(file.access(), object)] }
            }
            Err(error) => {
                tracing::debug!(file = node.number, %error, "cannot pass a file through");
                Mode::Served
            }
        }
    }

    /// Whether a file is where the kernel can pass through nothing. It is not held to find that out: what
    /// is held stays where it is until it is closed.
    fn is_refused(&self, file: &File) -> bool {
        let is_there = |object: Arc<dyn Object>| {
            let lease = object.lease_file().ok().flatten()?;
            let device = rustix::fs::fstat(&lease.file).ok()?.st_dev;
            Some(self.refused.contains(&device))
        };
        !self.refused.is_empty() && file.object().and_then(is_there).unwrap_or(false)
    }

    fn stripe(&self, number: u64) -> MutexGuard<'_, Stripe> {
        let stripe = &self.open[number as usize % STRIPES];
        // Entries are replaced as wholes.
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tier's file, and the handle that holds it where it is.
fn hold(file: &File) -> Option<(std::fs::File, Arc<dyn Object>)> {
    let object = file.object()?;
    match object.hold_file(file.access()) {
        Ok(descriptor) => Some((descriptor?, object)),
        Err(error) => {
            tracing::debug!(file = file.number(), %error, "cannot hold a file of a tier");
            None
        }
    }
}
