// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers that come and go while the store is open: the stack, and `terrace.toml` with it.

use std::sync::{Arc, PoisonError};

use terrace_core::{Clock, Result, SystemClock};
use terrace_recovery::checkpoint;
use terrace_settings::amend::{self, Change};
use terrace_settings::{Made, Settings, policy, tiers};
use terrace_stack::{Tactics, Tier};

use super::owned::Owned;

impl Owned {
    /// Adds the tier of a `[[tier]]` section. The configuration has it first: what a crash leaves
    /// is completed by the next opening. False where the tier is used from that opening on.
    pub(super) fn add_tier(&self, section: &str, before: Option<&str>) -> Result<bool> {
        const OPERATION: &str = "add a tier";
        self.check_writable(OPERATION)?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.directory.settings();
        let old = amend::read(&file)?;
        let origin = file.display().to_string();
        let new = amend::amend(&old, &origin, &Change::AddTier(section, before))?;
        let had = Settings::parse(&old, &origin)?;
        let settings = Settings::parse(&new, &origin)?.resolved(self.directory.path())?;
        let is_new = |tier: &&terrace_settings::TierSettings| {
            had.tiers.iter().all(|known| known.name != tier.name)
        };
        let added = settings.tiers.iter().find(is_new).expect("the configuration has one more");
        let mut made = Made::default();
        if let Some(path) = &added.path {
            made.new_directory(path).map_err(|error| error.with("tier", &added.name))?;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let tier = tiers::open_further(added, &settings, &clock)?;
        let mut known = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<Tier> = known.iter().cloned().chain([tier.clone()]).collect();
        let tactics = self.tactics(&settings, &all)?;
        amend::replace(&file, &old, &new)?;
        if self.stack.has_fixed_tiers() {
            made.keep();
            return Ok(false);
        }
        // The tier needs a policy that was made for it: the one of the file.
        self.forget_guest();
        match self.stack.add_tier(tier, tactics) {
            Err(error) if self.stack.tier(&added.name).is_err() => {
                // As it was before; what cannot be put back is reported with the reason.
                match amend::replace(&file, &new, &old) {
                    Ok(()) => Err(error),
                    Err(failed) => Err(failed.caused_by(error)),
                }
            }
            added => {
                made.keep();
                *known = all;
                added.map(|()| true)
            }
        }
    }

    /// Removes a tier that holds nothing, from the store and then from the configuration: after a
    /// crash in between it is a tier that holds nothing, once more.
    pub(super) fn remove_tier(&self, name: &str) -> Result<()> {
        self.check_writable("remove a tier")?;
        let _turn = self.amending.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.directory.settings();
        let old = amend::read(&file)?;
        // Before anything is changed: a configuration that cannot be amended keeps its tier.
        let change = Change::RemoveTier(name);
        let new = amend::amend(&old, &file.display().to_string(), &change)?;
        let index = self.stack.tier(name)?.index();
        let settings = Settings::parse(&old, &file.display().to_string())?;
        let place = checkpoint::of_tier(&settings.resolved(self.directory.path())?, name);
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        self.stack.remove_tier(name)?;
        if let Some(far) = self.far().filter(|far| far.tier() == name) {
            far.leave(self);
        }
        if let Some(tier) = self.tiers.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index)
        {
            // Its place stays taken, for policies that are made from now on.
            tier.offline = Some("it was removed from the store".into());
        }
        amend::replace(&file, &old, &new)?;
        if let Some(place) = place {
            checkpoint::leave(self, &place);
        }
        Ok(())
    }

    /// The policy of a configuration over these tiers, called as the one that runs.
    pub(super) fn tactics(&self, settings: &Settings, tiers: &[Tier]) -> Result<Option<Tactics>> {
        let Some(configured) = &settings.policy else { return Ok(None) };
        let mut tactics = policy::tactics(configured, tiers)?;
        if let Some(now) = self.policy() {
            tactics.is_dry_run = now.is_dry_run;
        }
        Ok(Some(tactics))
    }
}
