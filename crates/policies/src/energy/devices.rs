// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the tiers below the buffer stand by, as far as that follows from their use.

use serde::{Deserialize, Serialize};
use terrace_core::{TierIndex, TierSet, TierView, View};

/// What standing by saves and costs, beside the tier's own idle power.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standby {
    pub(super) standby_w: f64,
    pub(super) down_j: f64,
    pub(super) up_j: f64,
    /// Both ways.
    pub(super) transition_s: f64,
    /// Idle power of tiers of which none is configured.
    pub(super) idle_w: f64,
}

impl Standby {
    /// Watts that a tier draws less while it stands by.
    pub(super) fn saved_w(&self, tier: &TierView) -> f64 {
        let idle_w = if tier.figures.idle_w > 0.0 { tier.figures.idle_w } else { self.idle_w };
        (idle_w - self.standby_w).max(0.0)
    }

    /// Joules of going to standby and back beyond what standing by so long draws.
    pub(super) fn transition_j(&self) -> f64 {
        (self.down_j + self.up_j - self.standby_w * self.transition_s).max(0.0)
    }

    /// How long a tier has to rest for standing by to pay; `None` where it never does.
    pub(super) fn break_even_ns(&self, tier: &TierView) -> Option<u64> {
        let saved_w = self.saved_w(tier);
        (saved_w > 0.0).then(|| (self.transition_j() / saved_w * 1e9) as u64)
    }
}

/// When tiers were used last.
#[derive(Debug, Default)]
pub(super) struct Devices {
    used_ns: Vec<Option<u64>>,
    wake_ups: Vec<u64>,
}

/// As it is saved: with ages, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedDevice {
    tier: String,
    age_ns: Option<u64>,
    wake_ups: u64,
}

impl Devices {
    /// A tier was used at a time; where it stood by, this has woken it.
    pub(super) fn note(&mut self, view: &View, standby: &Standby, tier: TierIndex, at_ns: u64) {
        let Some(figures) = view.tiers.get(tier.index()) else { return };
        self.grow(view);
        let is_awake = self.was_awake(standby, figures, tier, at_ns);
        self.wake_ups[tier.index()] += u64::from(!is_awake);
        let used_ns = &mut self.used_ns[tier.index()];
        *used_ns = Some(used_ns.unwrap_or(0).max(at_ns));
    }

    /// The tiers below the buffer that do not stand by.
    pub(super) fn awake(&self, view: &View, standby: &Standby, buffer: TierIndex) -> TierSet {
        let tiers = view.tiers.iter().enumerate().skip(buffer.index() + 1);
        tiers.fold(TierSet::default(), |awake, (index, tier)| {
            let index = TierIndex(index as u8);
            match self.was_awake(standby, tier, index, view.now_ns) {
                true => awake.with(index),
                false => awake,
            }
        })
    }

    /// How often each tier was woken.
    pub(super) fn wake_ups(&self, tier: usize) -> u64 {
        self.wake_ups.get(tier).copied().unwrap_or(0)
    }

    fn was_awake(&self, standby: &Standby, it: &TierView, tier: TierIndex, at_ns: u64) -> bool {
        let Some(break_even_ns) = standby.break_even_ns(it) else { return true };
        let used_ns = self.used_ns.get(tier.index()).copied().flatten();
        used_ns.is_some_and(|used_ns| at_ns.saturating_sub(used_ns) < break_even_ns)
    }

    fn grow(&mut self, view: &View) {
        let count = view.tiers.len().max(self.used_ns.len());
        self.used_ns.resize(count, None);
        self.wake_ups.resize(count, 0);
    }

    pub(super) fn save(&self, view: &View) -> Vec<SavedDevice> {
        let tiers = view.tiers.iter().enumerate();
        let saved = |(index, tier): (usize, &TierView)| {
            let used_ns = self.used_ns.get(index).copied().flatten();
            SavedDevice {
                tier: tier.name.clone(),
                age_ns: used_ns.map(|used_ns| view.now_ns.saturating_sub(used_ns)),
                wake_ups: self.wake_ups(index),
            }
        };
        tiers.map(saved).collect()
    }

    pub(super) fn restore(&mut self, view: &View, saved: &[SavedDevice]) {
        self.grow(view);
        for saved in saved {
            let Some(tier) = view.tiers.iter().position(|tier| tier.name == saved.tier) else {
                continue;
            };
            self.used_ns[tier] = saved.age_ns.map(|age_ns| view.now_ns.saturating_sub(age_ns));
            self.wake_ups[tier] = saved.wake_ups;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{SECOND_NS, tiers};

    /// The disk of the default parameters.
    const DISK: Standby =
        Standby { standby_w: 2.5, down_j: 13.0, up_j: 135.0, transition_s: 12.4, idle_w: 10.2 };

    #[test]
    fn the_break_even_time_is_that_of_the_formula() {
        let mut tier = tiers(&[1000]).remove(0);
        // (13 + 135 - 2.5 * 12.4) / (10.2 - 2.5)
        let seconds = DISK.break_even_ns(&tier).expect("it pays") as f64 * 1e-9;
        assert!((seconds - 15.1948).abs() < 1e-3, "{seconds}");
        tier.figures.idle_w = 4.0;
        let seconds = DISK.break_even_ns(&tier).expect("it pays") as f64 * 1e-9;
        assert!((seconds - 78.0).abs() < 1e-6, "{seconds}");
        tier.figures.idle_w = 2.5;
        assert_eq!(DISK.break_even_ns(&tier), None, "nothing is saved");
    }

    #[test]
    fn a_tier_is_awake_for_the_break_even_time_after_each_use() {
        let mut view = View::new(tiers(&[1000, 1000, 1000]), 0);
        let mut devices = Devices::default();
        let mut awake = |second: u64, is_used: bool| {
            view.now_ns = second * SECOND_NS;
            if is_used {
                devices.note(&view, &DISK, TierIndex(1), view.now_ns);
            }
            (devices.awake(&view, &DISK, TierIndex(0)).0, devices.wake_ups(1))
        };
        assert_eq!(awake(100, false), (0, 0));
        assert_eq!(awake(101, true), (2, 1));
        assert_eq!(awake(115, true), (2, 1));
        assert_eq!(awake(130, false), (2, 1));
        assert_eq!(awake(131, false), (0, 1));
        assert_eq!(awake(132, true), (2, 2));
    }
}
