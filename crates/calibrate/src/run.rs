// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the tiers of a store, one after the other, and writes what came of it into its configuration.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Clock, Error, ErrorKind, Persistency, Result, SystemClock};
use terrace_settings::amend::{Change, amend_file};
use terrace_settings::{Directory, Lock, Settings, TierSettings, tiers};
use terrace_stack::report::TierReport;
use terrace_store::{OpenOptions, Store};

use crate::figures::Calibrated;
use crate::tier::{How, measure_tier};
use crate::{OPERATION, ground, switches};

/// Of the time, at most, for what migrations take beside their bytes.
const SWITCHES_PERCENT: u32 = 5;

/// How tiers are measured.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Their names; all, where none is given.
    pub tiers: Vec<String>,
    /// How long all of them together may take, about.
    pub time: Duration,
    /// Whether it is looked for where writes become slow, for as long again.
    pub is_thorough: bool,
}

/// Measures tiers of the store in a directory, of which nothing else may be open meanwhile. Each is
/// passed to `measured` as it is done; `is_stopped` is asked often, and ends it. What it writes on the
/// tiers is gone afterwards.
///
/// # Errors
///
/// `NotFound` for a tier that there is not, `Busy` where the store is open, `NoSpace` where
/// a tier has no room for it, and those of opening a store.
pub fn calibrate(
    address: &str,
    options: &CalibrateOptions,
    is_stopped: &(dyn Fn() -> bool + Sync),
    measured: &mut dyn FnMut(&Calibrated),
) -> Result<Vec<Calibrated>> {
    let directory = Directory::at(address)?;
    let room = room(address)?;
    let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
    let chosen = choose(&settings, &options.tiers)?;
    let names: Vec<_> = settings.tiers.iter().map(|tier| tier.name.clone()).collect();
    let level = settings.persistency;
    let budget = options.time * SWITCHES_PERCENT / 100;
    let switched = switches::measure(address, (&names, &chosen), level, budget, is_stopped)?;
    let _lock = lock(&directory)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let opened = tiers::open(&settings, Access::Write, false, &clock)?;
    // What one left that was killed, on any tier.
    opened.iter().try_for_each(|tier| ground::clear(&*tier.backend))?;
    let each = options.time / chosen.len().max(1) as u32;
    let mut all = Vec::new();
    for (index, switch) in chosen.into_iter().zip(switched) {
        if is_stopped() {
            break;
        }
        let tier = &settings.tiers[index];
        let how = How {
            time: each,
            room_bytes: room[index],
            is_durable: settings.persistency >= Persistency::Storage,
            is_thorough: options.is_thorough,
        };
        let mut one = measure_tier(&tier.name, &*opened[index].backend, &*clock, &how, is_stopped)
            .map_err(|error| error.with("tier", &tier.name))?;
        if is_stopped() {
            break;
        }
        one.switch = switch;
        let prices = tier.figures.prices.named().into_iter();
        one.prices = prices.filter(|(_, price)| *price > 0.0).collect();
        measured(&one);
        all.push(one);
    }
    Ok(all)
}

/// Writes what was measured into the configuration of the store, and leaves the rest of it.
///
/// # Errors
///
/// `Busy` where the store is open, `Invalid` where the configuration cannot be changed,
/// `Io`.
pub fn write_calibration(address: &str, all: &[Calibrated]) -> Result<()> {
    let directory = Directory::at(address)?;
    let _lock = lock(&directory)?;
    for one in all {
        let figures = one.settings();
        amend_file(&directory.settings(), &Change::Figures(&one.tier, &figures))?;
    }
    Ok(())
}

/// The bytes that are left on each tier, as the store counts them.
fn room(address: &str) -> Result<Vec<u64>> {
    let options =
        OpenOptions { access: Access::Read, attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(address, options)?;
    let left = |tier: &TierReport| {
        let taken = tier.used_bytes
            + tier.reserved_bytes
            + tier.copy_bytes
            + tier.garbage_bytes
            + tier.kept_bytes;
        tier.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(taken))
    };
    Ok(store.admin().tiers()?.iter().map(left).collect())
}

/// The tiers of these names, by their place; all, where there is none.
fn choose(settings: &Settings, names: &[String]) -> Result<Vec<usize>> {
    let place = |name: &String| {
        let is_it = |tier: &TierSettings| tier.name == *name;
        settings.tiers.iter().position(is_it).ok_or_else(|| {
            let known: Vec<_> = settings.tiers.iter().map(|tier| tier.name.as_str()).collect();
            Error::new(ErrorKind::NotFound, OPERATION)
                .because(format!("the store has the tiers {}", known.join(", ")))
                .with("tier", name)
        })
    };
    match names {
        [] => Ok((0..settings.tiers.len()).collect()),
        names => names.iter().map(place).collect(),
    }
}

fn lock(directory: &Directory) -> Result<Lock> {
    Lock::try_take(directory, Access::Write, None)?.ok_or_else(|| {
        let reason =
            "another process has the store open, whose work and this would measure each other";
        Lock::busy(directory, OPERATION, reason)
    })
}
