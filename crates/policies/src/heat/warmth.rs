// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How warm segments are.

/// What was read and written of a segment, in whole segments, each halved with every half-life that
/// has passed since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// As it was at `at_ns`: what it is now is only computed where it is asked for.
    pub(crate) at: f64,
    pub(crate) at_ns: u64,
}

impl Heat {
    /// What is left of it.
    pub(crate) fn now(&self, now_ns: u64, half_life_ns: u64) -> f64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at * (-(passed_ns as f64) / half_life_ns as f64).exp2()
    }

    /// Adds heat at a time; one before the last counts as the last.
    pub(crate) fn add(&mut self, more: f64, now_ns: u64, half_life_ns: u64) {
        let now_ns = now_ns.max(self.at_ns);
        *self = Self { at: self.now(now_ns, half_life_ns) + more, at_ns: now_ns };
    }

    /// Its place among others: as all halve at the same time, the order of heats is that of
    /// log2(heat) + time / half-life, whatever the time is.
    pub(super) fn rank(&self, half_life_ns: u64) -> f64 {
        self.at.log2() + self.at_ns as f64 / half_life_ns as f64
    }

    /// What is left now of a heat that was this so long ago: a clock that started anew may not reach
    /// back so far.
    pub(crate) fn aged(at: f64, age_ns: u64, now_ns: u64, half_life_ns: u64) -> Self {
        match now_ns.checked_sub(age_ns) {
            Some(at_ns) => Self { at, at_ns },
            None => {
                let left = Self { at, at_ns: 0 }.now(age_ns, half_life_ns);
                Self { at: left, at_ns: now_ns }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE_NS: u64 = 1000;

    #[test]
    fn heat_halves_in_a_half_life_before_more_is_added() {
        let mut heat = Heat::default();
        heat.add(1.0, 500, HALF_LIFE_NS);
        assert_eq!(heat.now(1500, HALF_LIFE_NS), 0.5);
        heat.add(0.25, 2500, HALF_LIFE_NS);
        assert_eq!(heat, Heat { at: 0.5, at_ns: 2500 });
        assert_eq!(heat.now(4500, HALF_LIFE_NS), 0.125);
    }

    #[test]
    fn an_event_from_the_past_is_taken_as_of_now() {
        let mut heat = Heat { at: 1.0, at_ns: 1000 };
        heat.add(1.0, 0, HALF_LIFE_NS);
        assert_eq!(heat, Heat { at: 2.0, at_ns: 1000 });
    }

    #[test]
    fn the_order_of_ranks_is_that_of_heats_at_any_time() {
        let mut random = terrace_core::Random::new(3);
        let mut heats = vec![Heat::default(); 50];
        for step in 0..2000 {
            heats[random.below(50) as usize].add(random.unit(), step * 10, HALF_LIFE_NS);
        }
        heats.sort_by(|a, b| a.rank(HALF_LIFE_NS).total_cmp(&b.rank(HALF_LIFE_NS)));
        for now_ns in [20_000, 23_456, 27_000] {
            let now = |heat: &Heat| heat.now(now_ns, HALF_LIFE_NS);
            assert!(heats.is_sorted_by(|a, b| now(a) <= now(b)));
        }
    }
}
