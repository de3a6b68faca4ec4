// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The migration gate: whether a promotion is worth what it costs.
//!
//! `docs/policies/gate.md` has the formulas with their units.

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, SegmentView, TierIndex, TierView, View};

/// Share of a move's cost that counts even when the tiers are idle: the next request may come while
/// it runs, and the bytes wear the device all the same.
const IDLE_WEIGHT: f64 = 0.25;

/// Weight of the newest interval in the estimate of concurrency.
const NEWEST: f64 = 0.3;

/// What a person may change about the gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The saving must exceed this many times the cost.
    pub(crate) factor: f64,
    /// How far ahead savings count.
    pub(crate) horizon_ns: u64,
    /// Seconds that a price of 1 weighs; 0 leaves prices out.
    pub(crate) price_weight: f64,
}

/// Seconds on both sides of a promotion; prices are among them by their weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judgement {
    pub(crate) expected_accesses: f64,
    pub(crate) saving_s: f64,
    pub(crate) cost_s: f64,
}

impl Judgement {
    pub(crate) fn passes(&self, terms: &Terms) -> bool {
        self.saving_s > terms.factor * self.cost_s
    }
}

/// What to expect of a segment within the horizon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// How often it will be read or written.
    pub(crate) accesses: f64,
    /// The usual length of an access.
    pub(crate) access_bytes: u64,
    /// Which share of the accesses writes.
    pub(crate) write_share: f64,
}

impl Demand {
    /// Bytes that will be read or written.
    pub(crate) fn bytes(&self) -> f64 {
        self.accesses * self.access_bytes as f64
    }
}

/// What has to leave so that a segment can come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim<'a> {
    pub(crate) segment: &'a SegmentView,
    pub(crate) demand: Demand,
}

/// Knows how many requests are under way at once, and judges.
#[derive(Debug)]
pub(crate) struct Gate {
    concurrency: f64,
    latency_ns: u64,
    since_ns: u64,
}

/// A gate as it is saved: with the time that has passed, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedGate {
    /// The bits of the number, which JSON would round.
    concurrency_bits: u64,
    latency_ns: u64,
    passed_ns: u64,
}

impl Gate {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { concurrency: 1.0, latency_ns: 0, since_ns: now_ns }
    }

    /// What it knows.
    pub(crate) fn save(&self, now_ns: u64) -> SavedGate {
        SavedGate {
            concurrency_bits: self.concurrency.to_bits(),
            latency_ns: self.latency_ns,
            passed_ns: now_ns.saturating_sub(self.since_ns),
        }
    }

    /// Takes over what a gate knew.
    pub(crate) fn restore(&mut self, now_ns: u64, saved: &SavedGate) {
        *self = Self {
            concurrency: f64::from_bits(saved.concurrency_bits).max(1.0),
            latency_ns: saved.latency_ns,
            since_ns: now_ns.saturating_sub(saved.passed_ns),
        };
    }

    /// Takes note of how long applications waited.
    pub(crate) fn observe(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::Read | EventKind::Write) {
            self.latency_ns = self.latency_ns.saturating_add(event.latency_ns);
        }
    }

    /// Ends an interval: the mean number of requests under way is the time that all of them took
    /// together over the time that passed (Little 1961).
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        // An interval without requests says nothing about how they come.
        if passed_ns > 0 && self.latency_ns > 0 {
            let newest = self.latency_ns as f64 / passed_ns as f64;
            self.concurrency += NEWEST * (newest.max(1.0) - self.concurrency);
        }
        self.latency_ns = 0;
        self.since_ns = now_ns;
    }

    /// Weighs the promotion of a segment to `to`, where `victim` has to make room for it.
    pub(crate) fn judge(
        &self,
        view: &View,
        segment: &SegmentView,
        demand: &Demand,
        to: TierIndex,
        victim: Option<Victim<'_>>,
        terms: &Terms,
    ) -> Judgement {
        let (source, target) = (&view.tiers[segment.tier.index()], &view.tiers[to.index()]);
        let weight = terms.price_weight;
        let saving_s = demand.accesses * self.difference_s(demand, source, target, weight);
        let copying_s = match segment.copies.contains(to) {
            true => 0.0,
            false => copy_s(source, target, segment.size_bytes, weight),
        };
        // What the target then stores beyond what it does now.
        let added_bytes = match victim {
            _ if segment.copies.contains(to) => 0,
            Some(victim) => segment.size_bytes.saturating_sub(victim.segment.size_bytes),
            None => segment.size_bytes,
        };
        let horizon_s = terms.horizon_ns as f64 * 1e-9;
        let storing = target.figures.prices.storing(added_bytes as f64 * horizon_s);
        let displaced_s =
            victim.map_or(0.0, |victim| self.displaced_s(view, segment, target, &victim, weight));
        let cost_s = copying_s + displaced_s + weight * storing;
        Judgement { expected_accesses: demand.accesses, saving_s, cost_s }
    }

    /// Seconds that one access is longer on `slow` than on `fast`; negative where it is shorter.
    fn difference_s(&self, demand: &Demand, slow: &TierView, fast: &TierView, weight: f64) -> f64 {
        self.access_s(demand, slow, weight) - self.access_s(demand, fast, weight)
    }

    /// Seconds of one access of the usual length. Requests beyond what a tier serves at once share
    /// it, so a tier with more parallelism can be the better one for many large reads.
    fn access_s(&self, demand: &Demand, tier: &TierView, weight: f64) -> f64 {
        let (bytes, write_share) = (demand.access_bytes, demand.write_share);
        let alone_s = (1.0 - write_share) * tier.figures.read_s(bytes)
            + write_share * tier.figures.write_s(bytes);
        let sharing = self.concurrency / f64::from(tier.figures.parallelism.max(1));
        let prices = &tier.figures.prices;
        let price = (1.0 - write_share) * prices.reads(1.0, bytes as f64)
            + write_share * prices.writes(1.0);
        alone_s * sharing.max(1.0) + weight * price
    }

    /// The cost of taking from the tier below what the victim would have saved, and of moving it,
    /// for as many of its bytes as the new segment needs.
    fn displaced_s(
        &self,
        view: &View,
        segment: &SegmentView,
        target: &TierView,
        victim: &Victim<'_>,
        weight: f64,
    ) -> f64 {
        let below = victim.segment.tier.below();
        let Some(lower) = view.tiers.get(below.index()) else { return 0.0 };
        let longer_s = self.difference_s(&victim.demand, lower, target, weight).max(0.0);
        let lost_s = victim.demand.accesses * longer_s;
        let copying_s = match victim.segment.copies.contains(below) {
            true => 0.0,
            false => copy_s(target, lower, victim.segment.size_bytes, weight),
        };
        let share = segment.size_bytes as f64 / victim.segment.size_bytes.max(1) as f64;
        share * (lost_s + copying_s)
    }
}

/// Seconds of both tiers that copying takes from applications, and its price by its weight.
fn copy_s(source: &TierView, target: &TierView, bytes: u64, price_weight: f64) -> f64 {
    let weight = |tier: &TierView| tier.utilisation.clamp(IDLE_WEIGHT, 1.0);
    let (from, to) = (&source.figures, &target.figures);
    weight(source) * from.read_s(bytes)
        + weight(target) * to.write_s(bytes)
        + price_weight * (from.prices.reads(1.0, bytes as f64) + to.prices.writes(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{self, segment};
    use crate::mechanism::habits::Habits;
    use terrace_core::{Figures, Prices, TierSet};

    const MB: u64 = 1_000_000;
    const TERMS: Terms = Terms { factor: 1.5, horizon_ns: 600_000_000_000, price_weight: 0.0 };

    /// A fast tier (0.1 ms, 1 GB/s) over a slow one (10 ms, 100 MB/s), both fully busy.
    fn view() -> View {
        let mut tiers = harness::tiers(&[100 * MB, 1000 * MB]);
        for (tier, latency_ns, bytes_per_s) in [(0, 100_000, 1e9), (1, 10_000_000, 1e8)] {
            let figures = &mut tiers[tier].figures;
            figures.latency_ns = latency_ns;
            (figures.read_bytes_per_s, figures.write_bytes_per_s) = (bytes_per_s, bytes_per_s);
            tiers[tier].utilisation = 1.0;
        }
        View { now_ns: 20_000_000_000, ..View::new(tiers, 0) }
    }

    /// Reads of the whole segment once a second.
    fn read_times(times: u64, bytes: u64) -> Demand {
        let mut habits = Habits::default();
        for second in 1..=times {
            let event = Event::new(EventKind::Read, 0, 0, second * 1_000_000_000);
            let event = Event { length_bytes: bytes, ..event };
            habits.access(&event, bytes, TERMS.horizon_ns);
        }
        habits.of(0).demand(view().now_ns, TERMS.horizon_ns)
    }

    fn judge(view: &View, times: u64, victim: Option<Victim<'_>>) -> Judgement {
        let candidate = segment("n/a", 10 * MB, TierIndex(1));
        let demand = read_times(times, 10 * MB);
        Gate::new(0).judge(view, &candidate, &demand, TierIndex(0), victim, &TERMS)
    }

    #[test]
    fn the_formula_is_the_documented_one() {
        let judgement = judge(&view(), 4, None);
        // Three reads came back. One takes 110 ms below and 10.1 ms above.
        assert!((judgement.saving_s - 3.0 * (0.110 - 0.0101)).abs() < 1e-9);
        assert!((judgement.cost_s - (0.110 + 0.0101)).abs() < 1e-9);
        assert!(judgement.passes(&TERMS));
        assert!(!judge(&view(), 2, None).passes(&TERMS), "one read saved does not pay a move");
    }

    #[test]
    fn an_idle_pair_of_tiers_makes_moves_cheaper() {
        let mut idle = view();
        idle.tiers.iter_mut().for_each(|tier| tier.utilisation = 0.0);
        let ratio = judge(&view(), 4, None).cost_s / judge(&idle, 4, None).cost_s;
        assert!((ratio - 1.0 / IDLE_WEIGHT).abs() < 1e-9);
    }

    #[test]
    fn a_victim_that_is_as_hot_closes_the_gate() {
        let view = view();
        let resident = segment("n/b", 10 * MB, TierIndex(0));
        let cold = Victim { segment: &resident, demand: Demand::default() };
        let hot = Victim { segment: &resident, demand: read_times(20, 10 * MB) };
        assert!(judge(&view, 20, Some(cold)).passes(&TERMS));
        assert!(!judge(&view, 20, Some(hot)).passes(&TERMS));
    }

    #[test]
    fn a_victim_with_a_clean_copy_below_costs_no_copying() {
        let view = view();
        let mut resident = segment("n/b", 10 * MB, TierIndex(0));
        let cost = |resident: &SegmentView| {
            judge(&view, 4, Some(Victim { segment: resident, demand: Demand::default() })).cost_s
        };
        let copied = cost(&resident);
        resident.copies = TierSet::default().with(TierIndex(1));
        assert!((copied - cost(&resident) - 0.1201).abs() < 1e-9);
    }

    #[test]
    fn prices_count_by_their_weight() {
        let mut view = view();
        view.tiers[1].figures.prices = Prices {
            per_1000_write_requests: 5.0,
            per_1000_read_requests: 2.0,
            per_gb_month: 3.0,
            per_gb_read: 0.1,
        };
        view.tiers[0].figures.prices = Prices { per_gb_month: 2.0, ..Prices::default() };
        let candidate = segment("n/a", 10 * MB, TierIndex(1));
        let demand = read_times(2, 10 * MB);
        let judge = |price_weight: f64| {
            let terms = Terms { price_weight, ..TERMS };
            let gate = Gate::new(0);
            gate.judge(&view, &candidate, &demand, TierIndex(0), None, &terms)
        };
        let (without, with) = (judge(0.0), judge(100.0));
        // One read came back, which costs 0.002 and for 10 MB 0.001; the move reads once, too, and then
        // 10 MB are stored for 600 s.
        let read = 0.002 + 0.001;
        let stored = 2.0 * 0.01 * 600.0 / (730.0 * 3600.0);
        assert!((with.saving_s - without.saving_s - 100.0 * read).abs() < 1e-9, "{with:?}");
        assert!((with.cost_s - without.cost_s - 100.0 * (read + stored)).abs() < 1e-9, "{with:?}");
        // A tier that is no faster, and whose requests cost nothing.
        view.tiers[0].figures = Figures { prices: Prices::default(), ..view.tiers[1].figures };
        let demand = read_times(4, 10 * MB);
        let judge = |price_weight: f64| {
            let terms = Terms { price_weight, ..TERMS };
            let gate = Gate::new(0);
            gate.judge(&view, &candidate, &demand, TierIndex(0), None, &terms).passes(&terms)
        };
        assert!(!judge(0.0) && judge(1000.0));
    }

    #[test]
    fn storing_costs_what_is_added_to_the_target() {
        let mut view = view();
        view.tiers[0].figures.prices = Prices { per_gb_month: 2.0, ..Prices::default() };
        let charged = |copies: TierSet, victim_bytes: Option<u64>| {
            let candidate = SegmentView { copies, ..segment("n/a", 10 * MB, TierIndex(1)) };
            let resident = victim_bytes.map(|bytes| segment("n/b", bytes, TierIndex(0)));
            let victim = resident.as_ref();
            let victim = victim.map(|segment| Victim { segment, demand: Demand::default() });
            let cost_s = |price_weight: f64| {
                let terms = Terms { price_weight, ..TERMS };
                let demand = read_times(2, 10 * MB);
                Gate::new(0).judge(&view, &candidate, &demand, TierIndex(0), victim, &terms).cost_s
            };
            cost_s(1e6) - cost_s(0.0)
        };
        let stored = |bytes: u64| 1e6 * 2.0 * bytes as f64 * 1e-9 * 600.0 / (730.0 * 3600.0);
        let is = |value: f64, bytes| (value - stored(bytes)).abs() < 1e-9;
        assert!(is(charged(TierSet::default(), None), 10 * MB));
        assert!(is(charged(TierSet::default(), Some(4 * MB)), 6 * MB));
        assert!(is(charged(TierSet::default(), Some(20 * MB)), 0));
        assert!(is(charged(TierSet::default().with(TierIndex(0)), None), 0));
    }

    #[test]
    fn many_large_reads_at_once_stay_on_the_wider_tier() {
        let mut view = view();
        view.tiers[0].figures.parallelism = 1;
        view.tiers[1].figures.parallelism = 64;
        let mut gate = Gate::new(0);
        let (candidate, demand) = (segment("n/a", 10 * MB, TierIndex(1)), read_times(20, 10 * MB));
        let judge =
            |gate: &Gate| gate.judge(&view, &candidate, &demand, TierIndex(0), None, &TERMS);
        assert!(judge(&gate).passes(&TERMS));
        // 64 requests under way all the time.
        for second in 1..30 {
            let latency_ns = 64_000_000_000;
            gate.observe(&Event { latency_ns, ..Event::new(EventKind::Read, 0, 0, 0) });
            gate.tick(second * 1_000_000_000);
        }
        assert!(judge(&gate).saving_s < 0.0);
    }
}
