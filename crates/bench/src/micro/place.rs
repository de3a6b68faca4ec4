// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack with what lies below it beside it, both empty and in one directory.

use std::sync::Arc;

use terrace_backends::kv::open_kv;
use terrace_backends::{BACKENDS, Place as BackendPlace, open_backend};
use terrace_core::{Backend, Error, ErrorKind, Kv, Persistency, Result};
use terrace_stack::{Parts, Stack, Tactics, Tier};

use super::{Bounds, Place};
use crate::place::{Scratch, policy_of};

/// Most objects or pairs that one side makes in a block.
const OBJECTS_MAX: usize = 100_000;

/// Most bytes of them.
const BYTES_MAX: u64 = 1 << 30;

/// Both sides.
pub(crate) struct Sides {
    /// The bare backend.
    pub(crate) raw: Arc<dyn Backend>,
    /// The bare engine.
    pub(crate) engine: Arc<dyn Kv>,
    pub(crate) stack: Stack,
    /// Removed last.
    scratch: Scratch,
}

impl Sides {
    /// A stack of two tiers with the policy lru, for objects of `level`.
    pub(crate) fn new(place: &Place, level: Persistency) -> Result<Self> {
        let scratch = Scratch::new(&place.directory)?;
        let tiers = ["tier0", "tier1"]
            .map(|name| Ok(Tier::new(name, backend(&scratch, &place.backend, name)?)));
        let tiers = tiers.into_iter().collect::<Result<Vec<_>>>()?;
        let count = tiers.len();
        let catalog = open_kv(&place.engine, &scratch.inside("catalog")?)?;
        let mut parts = Parts::new(tiers, catalog);
        parts.tactics = Some(Tactics::new("lru", policy_of("lru", count)?));
        parts.settings.persistency = level;
        Stack::create(&parts)?;
        let stack = Stack::open(parts)?;
        let raw = backend(&scratch, &place.backend, "raw")?;
        let engine = open_kv(&place.engine, &scratch.inside("engine")?)?;
        let given = stack.capability().persistency;
        if level > given {
            return Err(Error::new(ErrorKind::Unsupported, "run the benchmark")
                .because("the backend or the engine does not give this level")
                .with("level", level)
                .with("strongest", given)
                .with("backend", &place.backend)
                .with("engine", &place.engine));
        }
        Ok(Self { raw, engine, stack, scratch })
    }

    /// What each side may leave behind, so that no file system is filled.
    pub(crate) fn bounds(&self) -> Result<Bounds> {
        bounds_of(self.scratch.free_bytes()?, &self.scratch.path().display().to_string())
    }
}

/// What each of two sides may leave behind where there is so much room.
pub(crate) fn bounds_of(free_bytes: u64, place: &str) -> Result<Bounds> {
    // Both sides, what is there throughout and what comes and goes: at most half of the room.
    let share = free_bytes / 8;
    if share == 0 {
        return Err(Error::new(ErrorKind::NoSpace, "run the benchmark").with("place", place));
    }
    Ok(Bounds { objects: OBJECTS_MAX, bytes: share.min(BYTES_MAX) })
}

fn backend(scratch: &Scratch, kind: &str, name: &str) -> Result<Arc<dyn Backend>> {
    let needs_path = BACKENDS.iter().any(|entry| entry.name == kind && entry.needs_path);
    let path = if needs_path { Some(scratch.inside(name)?) } else { None };
    open_backend(
        kind,
        &BackendPlace { path: path.as_deref(), capacity_bytes: u64::MAX, read_only: false },
    )
}
