// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How each segment is used: what to expect of it next.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, Slot, View};

use super::gate::Demand;
use super::roster::Roster;
use super::saved::{Name, Names};

/// Weight of the newest observation in a moving average, once there are as many as its inverse;
/// until then it is the plain mean. With 1/16 the average of random intervals strays by 18 %,
/// which the gate's factor of 1.5 takes for chance.
const NEWEST: f32 = 1.0 / 16.0;

/// A pause of this many usual intervals is chance: it is the longest to expect among 3000 random
/// ones (the logarithm of 3000). A longer one says that the habit has changed.
const PAUSE_MAX: f32 = 8.0;

/// What is known of one segment since it was last left alone for a whole horizon.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Habit {
    last_ns: u64,
    read_end_bytes: u64,
    write_end_bytes: u64,
    accesses: u32,
    reuses: f32,
    interval_ns: f32,
    access_bytes: f32,
    write_share: f32,
}

impl Habit {
    /// Accesses to expect within the horizon: as many again as have come back to bytes that had
    /// been read (or written) already, but no more than their usual interval leaves time for, and
    /// none if it was left alone for a horizon.
    ///
    /// Reading on in a segment is no sign that it will be read again: an object that is read once
    /// from its header to its end promises nothing.
    fn expected_accesses(&self, now_ns: u64, horizon_ns: u64) -> f64 {
        let pause_ns = now_ns.saturating_sub(self.last_ns);
        if pause_ns > horizon_ns {
            return 0.0;
        }
        let interval_ns = self.interval_ns.max(pause_ns as f32 / PAUSE_MAX).max(1.0);
        f64::from(self.reuses).min(horizon_ns as f64 / f64::from(interval_ns))
    }

    /// What to expect within the horizon, for the gate.
    pub(crate) fn demand(&self, now_ns: u64, horizon_ns: u64) -> Demand {
        Demand {
            accesses: self.expected_accesses(now_ns, horizon_ns),
            access_bytes: self.access_bytes as u64,
            write_share: f64::from(self.write_share),
        }
    }
}

/// Segments whose habits are known; each takes about 100 bytes. The half that was left alone for
/// longest is forgotten where there are more.
const HABITS_MAX: usize = 1 << 17;

/// The habits of the segments that are used, by slot. Only looked up, never walked in order.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    of: HashMap<Slot, Habit>,
}

/// A habit as it is saved: `last_ns` is how long ago, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedHabit(Name, Habit);

impl SavedHabit {
    /// The segment whose habit it is.
    pub(crate) fn name(&self) -> &Name {
        &self.0
    }
}

impl Habits {
    /// All habits, to be saved.
    pub(crate) fn save(&self, view: &View, roster: &Roster) -> Vec<SavedHabit> {
        let mut slots: Vec<_> = self.of.keys().copied().collect();
        slots.sort_unstable();
        let saved = |slot: Slot| {
            let mut habit = self.of(slot);
            habit.last_ns = view.now_ns.saturating_sub(habit.last_ns);
            Some(SavedHabit(Name::of(roster.segment(view, slot)?), habit))
        };
        slots.into_iter().filter_map(saved).collect()
    }

    /// Takes over habits; those of segments that are gone are forgotten.
    pub(crate) fn restore(&mut self, view: &View, names: &Names<'_>, saved: &[SavedHabit]) {
        for SavedHabit(name, habit) in saved.iter().take(HABITS_MAX) {
            let Some(slot) = names.slot(name) else { continue };
            let last_ns = view.now_ns.saturating_sub(habit.last_ns);
            self.of.insert(slot, Habit { last_ns, ..*habit });
        }
    }

    /// Takes note of a read or write of a segment of `size_bytes`; returns how many accesses there
    /// were without a pause of a horizon between them.
    pub(crate) fn access(&mut self, event: &Event, size_bytes: u64, horizon_ns: u64) -> u32 {
        if self.of.len() >= HABITS_MAX && !self.of.contains_key(&event.slot) {
            self.forget_half();
        }
        let habit = self.of.entry(event.slot).or_default();
        let count = event.count.max(1);
        let pause_ns = event.time_ns.saturating_sub(habit.last_ns);
        if pause_ns > horizon_ns {
            *habit = Habit::default();
        }
        // The first access begins no interval, so there is one less of them.
        if habit.accesses > 0 {
            mix(&mut habit.interval_ns, pause_ns as f32 / count as f32, count, habit.accesses);
        }
        habit.last_ns = event.time_ns;
        habit.accesses = habit.accesses.saturating_add(count);

        let is_write = event.kind == EventKind::Write;
        let access_bytes = event.length_bytes as f32 / count as f32;
        mix(&mut habit.access_bytes, access_bytes, count, habit.accesses);
        mix(&mut habit.write_share, f32::from(is_write), count, habit.accesses);

        let reached = match is_write {
            true => &mut habit.write_end_bytes,
            false => &mut habit.read_end_bytes,
        };
        // Several accesses that a full ring summed up may go round more than once.
        let end_bytes = event.offset_bytes.saturating_add(event.length_bytes).min(size_bytes);
        let fresh_bytes = end_bytes.saturating_sub(*reached).min(event.length_bytes);
        *reached = end_bytes.max(*reached);
        if event.length_bytes > 0 {
            let fresh = fresh_bytes as f32 / event.length_bytes as f32;
            habit.reuses += count as f32 * (1.0 - fresh);
        }
        habit.accesses
    }

    /// What is known of a slot.
    pub(crate) fn of(&self, slot: Slot) -> Habit {
        self.of.get(&slot).copied().unwrap_or_default()
    }

    /// Forgets a slot, for its next user.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.of.remove(&slot);
    }

    fn forget_half(&mut self) {
        let mut times: Vec<_> = self.of.values().map(|habit| habit.last_ns).collect();
        let middle = times.len() / 2;
        let (_, median_ns, _) = times.select_nth_unstable(middle);
        let median_ns = *median_ns;
        self.of.retain(|_, habit| habit.last_ns > median_ns);
    }
}

/// Takes the newest `count` of `all` observations into their average.
pub(crate) fn mix(average: &mut f32, newest: f32, count: u32, all: u32) {
    let weight = count as f32 * NEWEST.max(1.0 / all as f32);
    *average += weight.min(1.0) * (newest - *average);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HORIZON_NS: u64 = 1_000_000;

    fn read(time_ns: u64, offset_bytes: u64, length_bytes: u64) -> Event {
        Event { offset_bytes, length_bytes, ..Event::new(EventKind::Read, 0, 0, time_ns) }
    }

    #[test]
    fn reading_on_promises_nothing_and_reading_again_does() {
        let mut habits = Habits::default();
        let expected = |habits: &Habits| habits.of(0).expected_accesses(4, HORIZON_NS);
        habits.access(&read(1, 0, 10), 100, HORIZON_NS);
        assert_eq!(habits.access(&read(2, 10, 90), 100, HORIZON_NS), 2);
        assert_eq!(expected(&habits), 0.0);
        habits.access(&read(3, 0, 100), 100, HORIZON_NS);
        assert_eq!(expected(&habits), 1.0);
        habits.access(&read(4, 0, 100), 100, HORIZON_NS);
        assert_eq!(expected(&habits), 2.0);
    }

    #[test]
    fn a_read_after_the_write_is_the_first_read() {
        let mut habits = Habits::default();
        let write = Event { kind: EventKind::Write, ..read(1, 0, 100) };
        habits.access(&write, 100, HORIZON_NS);
        habits.access(&read(2, 0, 100), 100, HORIZON_NS);
        assert_eq!(habits.of(0).expected_accesses(2, HORIZON_NS), 0.0);
    }

    #[test]
    fn a_pause_of_a_horizon_starts_anew() {
        let mut habits = Habits::default();
        habits.access(&read(1, 0, 100), 100, HORIZON_NS);
        habits.access(&read(2, 0, 100), 100, HORIZON_NS);
        let expected = |habits: &Habits, now_ns| habits.of(0).expected_accesses(now_ns, HORIZON_NS);
        assert_eq!(expected(&habits, 3), 1.0);
        assert_eq!(expected(&habits, HORIZON_NS + 3), 0.0);
        assert_eq!(habits.access(&read(HORIZON_NS + 3, 0, 100), 100, HORIZON_NS), 1);
        assert_eq!(expected(&habits, HORIZON_NS + 3), 0.0);
    }

    #[test]
    fn a_long_pause_lowers_what_is_expected() {
        let mut habits = Habits::default();
        for round in 1..=100 {
            habits.access(&read(round * HORIZON_NS / 100, 0, 100), 100, HORIZON_NS);
        }
        let expected = |pause| habits.of(0).expected_accesses(HORIZON_NS + pause, HORIZON_NS);
        assert!((98.0..=100.0).contains(&expected(HORIZON_NS / 20)));
        assert!((9.0..=17.0).contains(&expected(HORIZON_NS / 2)));
    }

    #[test]
    fn a_slow_rhythm_expects_few_accesses() {
        let mut habits = Habits::default();
        for round in 1..50 {
            habits.access(&read(round * HORIZON_NS / 2, 0, 100), 100, HORIZON_NS);
        }
        let expected = habits.of(0).expected_accesses(25 * HORIZON_NS, HORIZON_NS);
        assert!((1.9..2.1).contains(&expected), "{expected}");
    }

    #[test]
    fn of_too_many_those_left_alone_for_longest_are_forgotten() {
        let mut habits = Habits::default();
        for slot in 0..=HABITS_MAX as Slot {
            let time_ns = u64::from(slot);
            habits.access(&Event { slot, ..read(time_ns, 0, 10) }, 10, u64::MAX);
        }
        assert!(habits.of.len() <= HABITS_MAX / 2 + 1, "{}", habits.of.len());
        let last = HABITS_MAX as Slot;
        assert_eq!([0, last - 1, last].map(|slot| habits.of(slot).accesses), [0, 1, 1]);
    }

    #[test]
    fn summed_up_accesses_count_as_many() {
        let mut habits = Habits::default();
        let event = Event { count: 4, ..read(1, 0, 400) };
        assert_eq!(habits.access(&event, 100, HORIZON_NS), 4);
        let habit = habits.of(0);
        assert_eq!((habit.access_bytes, habit.reuses), (100.0, 3.0));
    }
}
