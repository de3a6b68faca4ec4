// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of two ways of waiting is quicker.

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Asleep until something comes.
    Sleep,
    /// Awake, at first.
    Look,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Sleep => Self::Look,
            Self::Look => Self::Sleep,
        }
    }
}

/// So many messages are one block, waited for in the same way. Less than 10 ms where both sides are
/// quick.
const BLOCK_MESSAGES: u64 = 64;

/// The other way is tried for a block after so many at first, twice as many after each time in which
/// it turned out no better, and so many at most: it costs little, and a change is soon noticed.
const PAUSE_BLOCKS: u32 = 2;
const PAUSE_BLOCKS_MAX: u32 = 32;

/// After such a time no thread was waiting for an answer: the sample is not used.
const IDLE_NS: u64 = 10_000_000;

/// The unit of ratios, and how far from it a single one counts at most, either way.
const ONE: u64 = 1024;
const RATIO_MAX: u64 = 4 * ONE;

/// What a trial came to is so much of what is believed.
const WEIGHT: u64 = 4;

/// Looking takes a third to a half more processor time, and is worth it where it takes this part of
/// the time away at least: where a quarter more gets done.
const MARGIN: u64 = ONE / 5;

/// Takes the quicker way of waiting, and now and then the other one, to know which it is.
///
/// What counts is how many messages come in the same time, with all that happens between two of them:
/// how soon a wait ends does not tell what it took from others, whose turn it is next. What is asked
/// for differs from one moment to the next by more than the way of waiting. So a trial is compared
/// with the blocks before and after it only.
#[derive(Debug)]
pub(crate) struct Contest {
    usual: Way,
    /// That of this block; a trial where it is the other one.
    way: Way,
    /// Of this block.
    messages: u64,
    taken_ns: u64,
    /// Time for a message in the last block of the usual way, and in a trial since.
    usual_ns: Option<u64>,
    trial_ns: Option<u64>,
    /// Time of looking for each of sleeping, smoothed.
    ratio: Option<u64>,
    /// Blocks until the next trial, and until the one after that.
    left: u32,
    pause: u32,
}

impl Default for Contest {
    fn default() -> Self {
        Self {
            usual: Way::Look,
            way: Way::Look,
            messages: 0,
            taken_ns: 0,
            usual_ns: None,
            trial_ns: None,
            ratio: None,
            left: PAUSE_BLOCKS,
            pause: PAUSE_BLOCKS,
        }
    }
}

impl Contest {
    /// The way to wait now.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Notes that so many messages came within such a time.
    pub(crate) fn count(&mut self, messages: u64, taken_ns: u64) {
        if taken_ns >= IDLE_NS {
            return;
        }
        self.messages += messages;
        self.taken_ns += taken_ns;
        // A trial takes as much time as the usual way for a block, or loses.
        let taken_ns_max = match self.usual_ns {
            Some(message_ns) if self.way != self.usual => message_ns * BLOCK_MESSAGES,
            _ => u64::MAX,
        };
        let is_over = self.messages >= BLOCK_MESSAGES || self.taken_ns >= taken_ns_max;
        if is_over && self.messages > 0 {
            let message_ns = (self.taken_ns / self.messages).max(1);
            (self.messages, self.taken_ns) = (0, 0);
            self.end_block(message_ns);
        }
    }

    fn end_block(&mut self, message_ns: u64) {
        if self.way != self.usual {
            self.trial_ns = Some(message_ns);
            self.way = self.usual;
            return;
        }
        let before_ns = self.usual_ns.replace(message_ns).unwrap_or(message_ns);
        if let Some(trial_ns) = self.trial_ns.take() {
            self.judge(trial_ns, before_ns.midpoint(message_ns));
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.way = self.usual.other();
        }
    }

    /// Takes what a trial came to into account, beside the usual way.
    fn judge(&mut self, trial_ns: u64, usual_ns: u64) {
        let (look_ns, sleep_ns) = match self.usual {
            Way::Look => (usual_ns, trial_ns),
            Way::Sleep => (trial_ns, usual_ns),
        };
        let ratio =
            (look_ns.saturating_mul(ONE) / sleep_ns).clamp(ONE * ONE / RATIO_MAX, RATIO_MAX);
        let before = self.ratio.unwrap_or(ratio);
        let smoothed = (before * (WEIGHT - 1) + ratio) / WEIGHT;
        self.ratio = Some(smoothed);
        let quicker = quicker(smoothed);
        self.pause = match (quicker == self.usual, self::quicker(ratio) == self.usual) {
            (false, _) => PAUSE_BLOCKS,
            // If it was better this time, it is tried again sooner.
            (true, false) => (self.pause / 2).max(PAUSE_BLOCKS),
            (true, true) => (2 * self.pause).min(PAUSE_BLOCKS_MAX),
        };
        self.left = self.pause;
        if quicker != self.usual {
            self.usual_ns = None;
        }
        self.usual = quicker;
        self.way = quicker;
    }
}

/// Which way is quicker, where looking takes so much of the time of sleeping.
fn quicker(ratio: u64) -> Way {
    if ratio + MARGIN < ONE { Way::Look } else { Way::Sleep }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways of so many messages, which take so long each.
    fn ways(
        contest: &mut Contest,
        messages: usize,
        mut message_ns: impl FnMut(Way) -> u64,
    ) -> Vec<Way> {
        let one = |_| {
            let way = contest.way();
            contest.count(1, message_ns(way));
            way
        };
        (0..messages).map(one).collect()
    }

    fn looks(ways: &[Way]) -> f64 {
        ways.iter().filter(|&&way| way == Way::Look).count() as f64 / ways.len() as f64
    }

    fn times(sleep_ns: u64, look_ns: u64) -> impl Fn(Way) -> u64 {
        move |way| match way {
            Way::Sleep => sleep_ns,
            Way::Look => look_ns,
        }
    }

    #[test]
    fn the_quicker_way_is_taken_nearly_always() {
        let mut contest = Contest::default();
        ways(&mut contest, 20_000, times(80_000, 50_000));
        let share = looks(&ways(&mut contest, 20_000, times(80_000, 50_000)));
        assert!(share > 0.95 && share < 1.0, "{share}: the other way is still tried");
        let mut contest = Contest::default();
        ways(&mut contest, 20_000, times(50_000, 80_000));
        let share = looks(&ways(&mut contest, 20_000, times(50_000, 80_000)));
        assert!(share < 0.05 && share > 0.0, "{share}");
    }

    #[test]
    fn a_little_quicker_is_not_worth_the_processor_time() {
        for look_ns in [50_000, 42_000] {
            let mut contest = Contest::default();
            ways(&mut contest, 20_000, times(50_000, look_ns));
            let share = looks(&ways(&mut contest, 20_000, times(50_000, look_ns)));
            assert!(share < 0.05, "{share} at {look_ns} ns");
        }
    }

    #[test]
    fn a_change_is_noticed() {
        let mut contest = Contest::default();
        ways(&mut contest, 100_000, times(80_000, 50_000));
        let blocks = |count: usize| count * BLOCK_MESSAGES as usize;
        // Others came.
        ways(&mut contest, blocks(32 + 10), times(90_000, 600_000));
        assert_eq!(contest.usual, Way::Sleep);
        ways(&mut contest, 100_000, times(90_000, 600_000));
        // They ended: nothing is known before the next trial. The old estimate fades with a few
        // more.
        ways(&mut contest, blocks(32 + 70), times(90_000, 50_000));
        assert_eq!(contest.usual, Way::Look);
    }

    #[test]
    fn it_is_told_from_noise() {
        let mut contest = Contest::default();
        let mut state = 1_u64;
        // Each time is from half of it to one and a half, as is each block.
        let mut noise = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            50 + (state >> 33) % 100
        };
        let (mut count, mut block) = (0_u64, 100);
        let noisy = |way| {
            if count.is_multiple_of(BLOCK_MESSAGES) {
                block = noise();
            }
            count += 1;
            times(70_000, 50_000)(way) * noise() * block / 10_000
        };
        let share = looks(&ways(&mut contest, 200_000, noisy));
        assert!(share > 0.8, "{share}");
    }

    #[test]
    fn a_trial_costs_no_more_than_it_would_take() {
        let mut contest = Contest::default();
        let slow = times(50_000, 5_000_000);
        ways(&mut contest, 20_000, &slow);
        assert_eq!(contest.usual, Way::Sleep);
        let ways = ways(&mut contest, 20_000, &slow);
        let (trials, looks) = (20_000 / 33 / BLOCK_MESSAGES + 1, looks(&ways) * 20_000.0);
        assert!(looks > 0.0 && looks <= trials as f64, "{looks} in {trials} trials");
    }

    #[test]
    fn what_is_asked_for_makes_no_difference() {
        let mut contest = Contest::default();
        let mut count = 0_u64;
        // Other work every 500 messages, of which a message takes three times as long.
        let changing = |way| {
            count += 1;
            times(70_000, 50_000)(way) * if (count / 500).is_multiple_of(2) { 1 } else { 3 }
        };
        let share = looks(&ways(&mut contest, 200_000, changing));
        assert!(share > 0.8, "{share}");
    }

    #[test]
    fn time_in_which_nobody_asked_does_not_count() {
        let mut contest = Contest::default();
        let mut count = 0;
        // The thread that looks always has the rest behind it.
        let paused = |way| {
            count += 1;
            if way == Way::Look && count % 10 == 0 { IDLE_NS } else { times(80_000, 50_000)(way) }
        };
        let ways = ways(&mut contest, 20_000, paused);
        assert!(looks(&ways) > 0.9);
        // Several that came at once count as several.
        let mut contest = Contest::default();
        for _ in 0..10_000 {
            let messages = if contest.way() == Way::Sleep { 4 } else { 1 };
            contest.count(messages, 60_000);
        }
        assert_eq!(contest.usual, Way::Sleep);
    }
}
