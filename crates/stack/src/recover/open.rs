// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making and opening a stack: what is checked before anything is changed.

use std::collections::HashSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use terrace_core::{
    Access, Clock, Error, ErrorKind, Persistency, Placed, Placement, Placer, Random, Result,
    TierIndex, Writes,
};

use crate::catalog::format::{self, FORMAT_VERSION};
use crate::catalog::header::{Header, TierEntry};
use crate::catalog::log::Opening;
use crate::catalog::map::Catalog;
use crate::catalog::record::TierNumbers;
use crate::memory::entries::Entries;
use crate::memory::guard::Parking;
use crate::memory::usage::Usages;
use crate::recover::crash;
use crate::recover::superblock::{self, Stage, is_free, superblock};
use crate::room::quota;
use crate::shared::Shared;
use crate::shared::desk::Desk;
use crate::shared::drains::Drains;
use crate::shared::drops::Drops;
use crate::shared::moves::Mover;
use crate::shared::placing::{Attendant, Published};
use crate::shared::scrubbing::Scrubbing;
use crate::tiers::account::Class;
use crate::tiers::list::{TierState, Tiers, cuts_objects};
use crate::tiers::offline::Offline;
use crate::tiers::parts::{Parts, Tier};
use crate::watch::posting::Posting;
use crate::watch::ring::Mailbox;
use crate::watch::slots::Slots;

/// Numbers reserved at every opening, so that the first creates need no durable commit.
const NUMBERS_AT_OPEN: u64 = 1 << 20;

/// Places everything on the first tier, until the policy has published its own placer.
#[derive(Debug)]
struct First;

impl Placer for First {
    fn place(&self, _: &Placement<'_>) -> Placed {
        Placed::on(TierIndex(0))
    }
}

/// An id for a new store.
pub(crate) fn new_store_id(clock: &dyn Clock) -> u128 {
    let mut random = Random::new(clock.wall_ns() ^ clock.now_ns().rotate_left(32));
    // The hasher's keys come from the operating system and make ids of two stores differ.
    let salt = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new()).finish();
    u128::from(random.next_u64()) << 64 | u128::from(salt)
}

/// Makes a new store with this id.
pub(crate) fn create(parts: &Parts, store_id: u128) -> Result<()> {
    check_parts(parts)?;
    if Catalog::header_of(&*parts.catalog)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, "make a store")
            .because("the catalog belongs to a store already")
            .with("catalog", parts.catalog.target()));
    }
    for tier in &parts.tiers {
        if !keeps_identity(tier) {
            continue;
        }
        if let Some(found) = tier.backend.superblock()?.filter(|found| !is_free(found)) {
            return Err(Error::new(ErrorKind::Exists, "make a store")
                .because("the tier belongs to a store already")
                .with("tier", &tier.name)
                .with("target", tier.backend.target())
                .with("store", format!("{:032x}", found.store_id)));
        }
    }
    for tier in parts.tiers.iter().filter(|tier| keeps_identity(tier)) {
        tier.backend.set_superblock(&superblock(store_id, &tier.name, 0, Stage::Open))?;
    }
    let tiers = parts.tiers.iter().enumerate();
    let header = Header {
        format: FORMAT_VERSION,
        store_id,
        epoch: 0,
        is_clean: true,
        settled_epoch: 0,
        is_rebooted: false,
        boot: 0,
        opened_ns: parts.clock.wall_ns(),
        next_number: 1,
        tiers: tiers.map(|(index, tier)| TierEntry::new(index as u8, &tier.name, 0)).collect(),
    };
    Catalog::create(&*parts.catalog, &header)
}

pub(crate) fn keeps_identity(tier: &Tier) -> bool {
    let capability = tier.backend.capability();
    tier.offline.is_none() && capability.identity && capability.persistency > Persistency::None
}

/// Checks of the parts alone.
pub(crate) fn check_parts(parts: &Parts) -> Result<()> {
    let wrong = |reason: &str| Err(Error::invalid("open a store", reason));
    if parts.tiers.is_empty() || parts.tiers.len() > TierIndex::COUNT_MAX {
        return wrong("a store has 1 to 32 tiers");
    }
    let mut names = HashSet::new();
    for tier in &parts.tiers {
        if !names.insert(&tier.name) {
            return wrong(&format!("two tiers have the name {}", tier.name));
        }
        let capability = tier.backend.capability();
        let is_durable = capability.persistency > Persistency::None;
        if tier.offline.is_none() && is_durable && !capability.identity {
            return Err(Error::new(ErrorKind::Unsupported, "open a store")
                .because("the tier's file system keeps no extended attributes (user.*)")
                .with("tier", &tier.name)
                .with("target", tier.backend.target()));
        }
    }
    if parts.tiers.iter().all(|tier| tier.backend.capability().writes == Writes::Whole) {
        return wrong(
            "each of its tiers takes whole objects only; a tier that can be written in place is \
             expected before them, such as a directory",
        );
    }
    for tier in parts.tiers.iter().filter(|tier| tier.offline.is_none()) {
        check_keeping(tier)?;
    }
    let offline = parts.tiers.iter().find(|tier| tier.offline.is_some());
    match offline {
        Some(tier) if parts.settings.access == Access::Write && !parts.settings.degraded => {
            Err(Error::new(ErrorKind::Io, "open a store")
                .because(tier.offline.clone().unwrap_or_default())
                .with("tier", &tier.name))
        }
        _ => Ok(()),
    }
}

/// Refuses to keep what is superseded where files are changed in place: there is no file of the value of before.
pub(crate) fn check_keeping(tier: &Tier) -> Result<()> {
    match tier.keep_deleted {
        Some(_) if tier.backend.capability().writes == Writes::InPlace => {
            Err(Error::new(ErrorKind::Unsupported, "keep deleted objects on a tier")
                .because(
                    "its files are changed in place, so that earlier values of them do not exist; \
                     a tier that takes whole objects is expected, such as a bucket",
                )
                .with("tier", &tier.name))
        }
        _ => Ok(()),
    }
}

/// Opens a store; `Shared` without its threads, and notes for people.
pub(crate) fn open(parts: &mut Parts) -> Result<(Arc<Shared>, Vec<String>)> {
    check_parts(parts)?;
    let header = Catalog::header_of(&*parts.catalog)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "open a store")
            .because("the catalog has no store in it")
            .with("catalog", parts.catalog.target())
    })?;
    let mut notes = Vec::new();
    check_tiers(parts, &header, &mut notes)?;
    let entries = match_tiers(parts, &header)?;
    let is_writing = parts.settings.access == Access::Write;
    let epoch = if is_writing { header.epoch + 1 } else { header.epoch };
    let shared = assemble(parts, &header, &entries, epoch);
    let is_clean = header.is_clean;
    if is_writing {
        if header.format < FORMAT_VERSION {
            notes.push(format!(
                "the store was upgraded from format {} to {FORMAT_VERSION}; terrace before {} \
                 opens it no longer",
                header.format,
                format::release(FORMAT_VERSION),
            ));
        }
        begin_epoch(&shared, &header, entries.clone())?;
    }
    if is_writing {
        shared.update_keeping();
    }
    if is_clean {
        for (state, entry) in shared.tiers.iter().zip(&entries) {
            state.account.found(Class::Used, entry.used_bytes);
            state.account.found(Class::Copy, entry.copy_bytes);
            state.account.found(Class::Garbage, entry.garbage_bytes);
            state.segments.store(entry.segments, std::sync::atomic::Ordering::Relaxed);
        }
        let has_volatile = shared.tiers.iter().any(TierState::is_volatile);
        if has_volatile && is_writing {
            crash::forget_volatile(&shared, &mut notes)?;
        } else {
            quota::load_usage(&shared, header.epoch)?;
            if is_writing {
                crash::collect_garbage(&shared)?;
            }
        }
    } else if is_writing {
        for entry in header.tiers.iter().filter(|entry| entry.epoch < header.epoch) {
            notes.push(format!("the tier {} was missing when the store was last open", entry.name));
        }
        crash::recover(&shared, &header, &mut notes)?;
    } else {
        notes.push("the store was not closed; it is shown as it is, without recovery".into());
        crash::count_only(&shared)?;
    }
    quota::load_limits(&shared)?;
    if !is_writing {
        shared.show_kept(is_clean)?;
    }
    if is_writing {
        shared.load_kept()?;
        let adopted = crate::recover::survivors::adopt(&shared)?;
        if adopted > 0 {
            notes.push(format!(
                "{adopted} objects may still be written by programs of before, and stay where \
                 they are until those have closed them"
            ));
        }
        let lost = crate::room::reserve::load(&shared, !is_clean)?;
        if lost > 0 {
            notes.push(format!(
                "{lost} objects lost room behind their ends that was promised to them: their tiers \
                 have none any more"
            ));
        }
    }
    Ok((shared, notes))
}

/// Compares every tier with its superblock: nothing was changed when this fails.
fn check_tiers(parts: &mut Parts, header: &Header, notes: &mut Vec<String>) -> Result<()> {
    for tier in &mut parts.tiers {
        if !keeps_identity(tier) {
            continue;
        }
        if let Err(error) = superblock::check(tier, header) {
            let is_missing = matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound)
                || is_empty(tier, header).unwrap_or(true);
            let may_miss = parts.settings.degraded && is_missing;
            if parts.settings.access == Access::Write && !may_miss {
                return Err(error);
            }
            notes.push(error.chain());
            tier.offline = Some(error.chain());
            // What is there is not what the catalog means.
            let target = tier.backend.target().into();
            let object_bytes_max = tier.backend.capability().object_bytes_max;
            let offline = Offline::new(target, error.chain());
            tier.backend = Arc::new(offline.with_object_bytes_max(object_bytes_max));
        }
    }
    Ok(())
}

/// Whether there is nothing where a known tier was: its disk is not mounted there.
fn is_empty(tier: &Tier, header: &Header) -> Result<bool> {
    let is_known = header.tiers.iter().any(|entry| entry.name == tier.name);
    Ok(is_known && tier.backend.superblock()?.is_none())
}

/// The catalog's entries of the configured tiers, in their order; new ones for new tiers.
fn match_tiers(parts: &Parts, header: &Header) -> Result<Vec<TierEntry>> {
    for entry in &header.tiers {
        let is_configured = parts.tiers.iter().any(|tier| tier.name == entry.name);
        if !is_configured && (entry.holds_anything() || !header.is_clean) {
            let reason = if !header.is_clean {
                "the configuration drops a tier, and the store was not closed: put it back, open \
                 the store once, then drop it"
            } else if entry.segments + entry.used_bytes + entry.copy_bytes > 0 {
                "the configuration drops a tier that still holds objects; put it back and migrate \
                 them away first"
            } else {
                "the configuration drops a tier that keeps deleted objects; put it back, then \
                 `terrace tiers remove` deletes them with it"
            };
            return Err(Error::invalid("open a store", reason)
                .with("tier", &entry.name)
                .with("used_bytes", entry.used_bytes)
                .with("deleted_bytes", entry.garbage_bytes)
                .with("segments", entry.segments));
        }
    }
    let mut entries = Vec::new();
    for tier in &parts.tiers {
        match header.tiers.iter().find(|entry| entry.name == tier.name) {
            Some(entry) => entries.push(entry.clone()),
            None => {
                if tier.offline.is_some() && parts.settings.access == Access::Write {
                    return Err(Error::new(ErrorKind::Io, "open a store")
                        .because("a tier that is new to the store is missing")
                        .with("tier", &tier.name));
                }
                let used: Vec<_> = entries.iter().map(|entry: &TierEntry| entry.number).collect();
                let number = header.new_tier_number(&used);
                entries.push(TierEntry::new(number, &tier.name, header.epoch));
            }
        }
    }
    Ok(entries)
}

/// Marks the store as open: superblocks first, then the header, then superblocks that say that the
/// header does, all durably.
fn begin_epoch(shared: &Shared, header: &Header, mut entries: Vec<TierEntry>) -> Result<()> {
    superblock::write_all(shared, Stage::Opening, "open.superblock")?;
    shared.failpoints.hit("open.superblocks")?;
    for (entry, tier) in entries.iter_mut().zip(shared.tiers.iter()) {
        if tier.is_online() {
            entry.epoch = shared.epoch;
        }
    }
    shared.catalog.change_header(|next| {
        next.format = FORMAT_VERSION;
        next.epoch = shared.epoch;
        next.is_rebooted = !next.is_clean && (next.is_rebooted || next.boot != shared.boot);
        next.is_clean = false;
        next.boot = shared.boot;
        next.opened_ns = shared.clock.wall_ns();
        next.next_number += NUMBERS_AT_OPEN;
        next.tiers = entries;
    })?;
    shared.catalog.allow_numbers(header.next_number + NUMBERS_AT_OPEN);
    shared.failpoints.hit("open.header")?;
    superblock::write_all(shared, Stage::Open, "open.confirmed")
}

fn assemble(parts: &mut Parts, header: &Header, entries: &[TierEntry], epoch: u64) -> Arc<Shared> {
    let targets: Vec<_> = parts.tiers.iter().map(|tier| tier.backend.target()).collect();
    let target = format!("stack:{}", targets.join("+"));
    let states = parts.tiers.iter().zip(entries);
    let states = states.map(|(tier, entry)| TierState::new(tier, entry.is_draining));
    let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
    // Objects of a bare store are of one segment.
    let is_bare = parts.tiers.len() == 1
        && parts.tactics.is_none()
        && parts.recording.is_none()
        && !parts.tiers.iter().any(|tier| cuts_objects(&tier.backend.capability()));
    Arc::new(Shared {
        target,
        store_id: header.store_id,
        epoch,
        // One that was not closed, or a copy from before its close, is the end of no log.
        previous_opening: match header.is_clean {
            true => Opening { epoch: header.epoch, opened_ns: header.opened_ns },
            false => Opening::default(),
        },
        boot: boot_number(&parts.settings.boot_id),
        tiers: Tiers::new(states),
        catalog: Catalog::new(
            Arc::clone(&parts.catalog),
            header.clone(),
            TierNumbers::new(&numbers),
        ),
        entries: Entries::new(parts.settings.entries_max),
        settings: parts.settings.clone(),
        clock: Arc::clone(&parts.clock),
        failpoints: parts.failpoints.clone(),
        is_bare,
        is_unrecovered: !header.is_clean && parts.settings.access == Access::Read,
        recording: std::sync::Mutex::default(),
        parking: Parking::default(),
        leases: Arc::default(),
        written: Default::default(),
        promises: Default::default(),
        drafts: Default::default(),
        turns: crate::shared::turns::Turns::default(),
        slots: Slots::default(),
        usages: Usages::default(),
        scrubbing: Scrubbing::default(),
        mailbox: Mailbox::default(),
        posting: Posting::default(),
        placer: ArcSwap::from_pointee(Published::new(Arc::new(First), &Arc::default())),
        attendant: Attendant::default(),
        desk: Desk::default(),
        mover: Mover::default(),
        benefits: Default::default(),
        drops: Drops::default(),
        drains: Drains::default(),
        watches: Arc::default(),
        fill: Default::default(),
        unflushed: std::sync::Mutex::default(),
        unsettled: std::sync::Mutex::default(),
        idle: std::sync::Mutex::default(),
        far: std::sync::RwLock::default(),
        fenced: std::sync::OnceLock::new(),
        retained: std::sync::Mutex::default(),
        syncing: std::sync::Mutex::default(),
        is_closing: AtomicBool::new(false),
        is_broken: AtomicBool::new(false),
        has_failed_sync: AtomicBool::new(false),
        opened_clock_ns: parts.clock.now_ns(),
        utilisation_since: std::sync::Mutex::new((parts.clock.now_ns(), Vec::new())),
    })
}

/// A number for a boot's name; CRCs of the text and of its reverse are enough to tell boots apart.
pub(crate) fn boot_number(boot_id: &str) -> u64 {
    let reverse: Vec<u8> = boot_id.bytes().rev().collect();
    u64::from(crc32c::crc32c(boot_id.as_bytes())) << 32 | u64::from(crc32c::crc32c(&reverse))
}
