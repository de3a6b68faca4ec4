// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lets the tiers below the buffer rest: what is written is gathered and copied down in batches, and
//! what would wake them again and again comes up.

mod devices;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use terrace_core::{
    Actions, Event, EventKind, Outcome, Parameter, Placer, Policy, Result, Slot, TierIndex,
    TierSet, View,
};

use crate::elevator::settings::Lifted;
use crate::elevator::{self, Comer, Elevator};
use crate::mechanism::habits::{Habits, SavedHabit};
use crate::mechanism::parameters::Chosen;
use crate::mechanism::saved::{self, Name, Names};
use devices::{Devices, SavedDevice};
use settings::EnergySettings;

/// Candidates for promotion at a time; those that find no place come back with their next read.
const CANDIDATES_MAX: usize = 1024;

/// Makes the policy; `docs/policies/energy.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(EnergySettings::default(), view, parameters)?;
    Ok(Box::new(Energy {
        elevator: Elevator::new(settings, view),
        devices: Devices::default(),
        habits: Habits::default(),
        candidates: BTreeSet::new(),
        is_draining: false,
    }))
}

struct Energy {
    elevator: Elevator<EnergySettings>,
    devices: Devices,
    /// Of what was read from lower tiers.
    habits: Habits,
    candidates: BTreeSet<Slot>,
    /// Whether a batch is being copied, for which tiers may be woken.
    is_draining: bool,
}

#[derive(Serialize, Deserialize)]
struct State {
    elevator: elevator::State,
    devices: Vec<SavedDevice>,
    habits: Vec<SavedHabit>,
    candidates: Vec<Name>,
    is_draining: bool,
}

impl Policy for Energy {
    fn placer(&self) -> Arc<dyn Placer> {
        self.elevator.placer()
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.elevator.observe(view, events);
        let settings = self.elevator.settings();
        let (standby, buffer) = (settings.standby(), settings.lift().buffer);
        let horizon_ns = settings.horizon_ns;
        for event in events {
            let is_used = match event.kind {
                EventKind::Read | EventKind::Write => true,
                // A segment that has a copy moves without a byte, and wakes no device.
                EventKind::Receipt => event.outcome == Outcome::Done && event.length_bytes > 0,
                _ => false,
            };
            if is_used && event.tier > buffer {
                self.devices.note(view, &standby, event.tier, event.time_ns);
            }
            let Some(segment) = view.segment(event.slot, event.incarnation) else {
                self.forget(event.slot);
                continue;
            };
            match event.kind {
                EventKind::Create => self.forget(event.slot),
                EventKind::Read if event.tier > buffer => {
                    let accesses = self.habits.access(event, segment.size_bytes, horizon_ns);
                    if accesses >= 2 && self.candidates.len() < CANDIDATES_MAX {
                        self.candidates.insert(event.slot);
                    }
                }
                _ => {}
            }
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let settings = self.elevator.settings();
        let (standby, buffer) = (settings.standby(), settings.lift().buffer);
        for (index, tier) in view.tiers.iter().enumerate().skip(buffer.index() + 1) {
            if tier.outgoing_bytes > 0 {
                self.devices.note(view, &standby, TierIndex(index as u8), view.now_ns);
            }
        }
        let due_bytes = self.elevator.due_bytes(view);
        let tier = &view.tiers[buffer.index()];
        let batch_bytes = settings.batch * tier.figures.capacity_bytes as f64;
        let is_full =
            tier.used_bytes + tier.reserved_bytes > settings.lift().levels.high_bytes(tier);
        // One that has begun goes on to the end: the device is awake, and is to rest for long.
        self.is_draining =
            due_bytes > 0 && (self.is_draining || due_bytes as f64 >= batch_bytes || is_full);
        let may_copy_to = match self.is_draining {
            true => TierSet(u32::MAX),
            false => self.devices.awake(view, &standby, buffer),
        };
        let candidates = std::mem::take(&mut self.candidates).into_iter();
        let comers = candidates.filter_map(|slot| self.judge(view, slot)).collect();
        let waiting = self.elevator.plan_round(view, actions, may_copy_to, comers);
        self.candidates = waiting.into_iter().collect();
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        if kind != "status" {
            return self.elevator.message(view, kind, body);
        }
        let settings = self.elevator.settings();
        let (standby, buffer) = (settings.standby(), settings.lift().buffer);
        let awake = self.devices.awake(view, &standby, buffer);
        let lower = view.tiers.iter().enumerate().skip(buffer.index() + 1);
        let lower = lower.map(|(index, tier)| {
            json!({
                "tier": tier.name,
                "is_awake": awake.contains(TierIndex(index as u8)),
                "wake_ups": self.devices.wake_ups(index),
                "break_even_s": standby.break_even_ns(tier).map(|ns| ns as f64 * 1e-9),
            })
        });
        let mut status = self.elevator.status(view);
        status["is_draining"] = self.is_draining.into();
        status["lower"] = lower.collect();
        Ok(saved::reply(&status))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.elevator.parameters()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.elevator.set_parameter(name, value)
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let roster = self.elevator.roster();
        let candidates = self.candidates.iter();
        let candidates = candidates.filter_map(|slot| roster.segment(view, *slot));
        let state = State {
            elevator: self.elevator.to_state(view),
            devices: self.devices.save(view),
            habits: self.habits.save(view, roster),
            candidates: candidates.map(Name::of).collect(),
            is_draining: self.is_draining,
        };
        saved::write(&state, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        self.elevator.take_over(view, &state.elevator);
        self.devices.restore(view, &state.devices);
        let named = state.habits.iter().map(SavedHabit::name).chain(&state.candidates);
        let names = Names::new(view, named);
        self.habits.restore(view, &names, &state.habits);
        self.candidates = state.candidates.iter().filter_map(|name| names.slot(name)).collect();
        self.is_draining = state.is_draining;
        Ok(())
    }
}

impl Energy {
    fn forget(&mut self, slot: Slot) {
        self.habits.forget(slot);
        self.candidates.remove(&slot);
    }

    /// A promotion of the segment, if it saves more energy than it takes.
    fn judge(&self, view: &View, slot: Slot) -> Option<Comer> {
        let settings = self.elevator.settings();
        let segment = self.elevator.roster().segment(view, slot)?;
        let source = &view.tiers[segment.tier.index()];
        let target = &view.tiers[settings.lift().buffer.index()];
        let standby = settings.standby();
        let horizon_s = settings.horizon_ns as f64 * 1e-9;
        let reads = self.habits.of(slot).demand(view.now_ns, settings.horizon_ns).accesses;
        if reads <= 0.0 {
            return None;
        }
        // A read costs no more than a wake-up, and no more than staying awake until the next one.
        let saved_j = (reads * standby.transition_j()).min(horizon_s * standby.saved_w(source));
        let busy_w = |figures: &terrace_core::Figures| (figures.active_w - figures.idle_w).max(0.0);
        let (from, to) = (&source.figures, &target.figures);
        let cost_j = busy_w(from) * from.read_s(segment.size_bytes)
            + busy_w(to) * to.write_s(segment.size_bytes);
        (saved_j > settings.factor * cost_j).then(|| Comer {
            slot,
            pause_ns: (settings.horizon_ns as f64 / reads) as u64,
            reason: format!(
                "{reads:.1} more reads expected would draw {saved_j:.1} J, moving draws {cost_j:.1} J"
            ),
        })
    }
}
