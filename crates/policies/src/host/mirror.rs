// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The view as C structs. Segments are kept from call to call and follow the events, so that a call
//! costs by the events of its batch and not by the segments of the store.

use std::ffi::c_void;

use terrace_core::{
    Event, EventKind, Key, Prices, Random, SLOT_NONE, SegmentView, Slot, TierView, View,
};
use terrace_policy_abi as abi;

use crate::mechanism::boundary::{persistency, temperature};

/// The segments of a [`View`], as far as events have shown them.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    segments: Vec<abi::Segment>,
    /// Owns what `segments[slot].key` points to.
    keys: Vec<Key>,
}

impl Mirror {
    /// Follows what an event says about its segment; false for a slot that the view does not have.
    pub(super) fn follow(&mut self, view: &View, event: &Event) -> bool {
        let slot = event.slot;
        if slot == SLOT_NONE {
            return true;
        }
        let is_done = self.segments.get_mut(slot as usize).is_some_and(|known| apply(known, event));
        is_done || self.refresh(view, slot)
    }

    /// Takes over a segment as the view has it.
    fn refresh(&mut self, view: &View, slot: Slot) -> bool {
        let index = slot as usize;
        let Some(segment) = view.segments.get(index) else { return false };
        while self.segments.len() <= index {
            let new = &view.segments[self.segments.len()];
            self.keys.push(new.key.clone());
            self.segments.push(c_segment(new, c_key(&new.key)));
        }
        let old = &self.segments[index];
        let mut key = (old.key, old.namespace_length);
        // A key is looked at only when it is another: that would fetch its text into the cache.
        if old.key.bytes != segment.key.as_str().as_ptr() {
            self.keys[index] = segment.key.clone();
            key = c_key(&self.keys[index]);
        }
        self.segments[index] = c_segment(segment, key);
        true
    }

    /// The view of one call: valid as long as everything that it is made from.
    pub(super) fn view(&self, view: &View, tiers: &Tiers, random: &mut Random) -> abi::View {
        abi::View {
            struct_bytes: size_of::<abi::View>() as u32,
            tier_count: tiers.tiers.len() as u32,
            now_ns: view.now_ns,
            tiers: tiers.tiers.as_ptr(),
            segments: self.segments.as_ptr(),
            segment_count: self.segments.len(),
            random: random_u64,
            host: (&raw mut *random).cast::<c_void>(),
            prices: tiers.prices.as_ptr(),
        }
    }
}

/// What [`View::apply`] does to a segment, for the events of which there are many: that saves
/// fetching the view's own into the cache. False for others.
fn apply(known: &mut abi::Segment, event: &Event) -> bool {
    // What a full ring summed up changes the view beyond what it says.
    if event.count != 1 || known.incarnation != event.incarnation || known.is_live == 0 {
        return false;
    }
    match event.kind {
        EventKind::Read => known.last_read_ns = event.time_ns,
        EventKind::Write => {
            known.last_write_ns = event.time_ns;
            let end_bytes = event.offset_bytes.saturating_add(event.length_bytes);
            known.size_bytes = known.size_bytes.max(end_bytes);
        }
        EventKind::Stat | EventKind::Sync => {}
        _ => return false,
    }
    true
}

unsafe extern "C" fn random_u64(view: *const abi::View) -> u64 {
    // SAFETY: `Mirror::view` put the generator there, which only this call uses.
    let random = unsafe { &mut *(*view).host.cast::<Random>() };
    random.next_u64()
}

/// The tiers of a view and their prices.
pub(super) struct Tiers {
    tiers: Vec<abi::Tier>,
    prices: Vec<abi::Prices>,
}

/// The tiers of a view; names point into it.
pub(super) fn tiers(view: &View) -> Tiers {
    Tiers {
        tiers: view.tiers.iter().map(c_tier).collect(),
        prices: view.tiers.iter().map(|tier| c_prices(tier.figures.prices)).collect(),
    }
}

fn c_prices(prices: Prices) -> abi::Prices {
    abi::Prices {
        per_1000_write_requests: prices.per_1000_write_requests,
        per_1000_read_requests: prices.per_1000_read_requests,
        per_gb_month: prices.per_gb_month,
        per_gb_read: prices.per_gb_read,
        reserved: [0.0; 4],
    }
}

fn c_tier(tier: &TierView) -> abi::Tier {
    abi::Tier {
        name: abi::Text::new(&tier.name),
        capacity_bytes: tier.figures.capacity_bytes,
        latency_ns: tier.figures.latency_ns,
        read_bytes_per_s: tier.figures.read_bytes_per_s,
        write_bytes_per_s: tier.figures.write_bytes_per_s,
        idle_w: tier.figures.idle_w,
        active_w: tier.figures.active_w,
        low: tier.watermarks.low,
        high: tier.watermarks.high,
        critical: tier.watermarks.critical,
        used_bytes: tier.used_bytes,
        reserved_bytes: tier.reserved_bytes,
        copy_bytes: tier.copy_bytes,
        garbage_bytes: tier.garbage_bytes,
        incoming_bytes: tier.incoming_bytes,
        outgoing_bytes: tier.outgoing_bytes,
        utilisation: tier.utilisation,
        parallelism: tier.figures.parallelism,
        persistency: persistency(tier.persistency),
        is_writable: tier.is_writable.into(),
        reserved: [0; 2],
    }
}

/// A key and the length of its namespace.
fn c_key(key: &Key) -> (abi::Text, u32) {
    (abi::Text::new(key.as_str()), key.namespace().len() as u32)
}

fn c_segment(segment: &SegmentView, (key, namespace_length): (abi::Text, u32)) -> abi::Segment {
    abi::Segment {
        key,
        namespace_length,
        segment: segment.segment,
        start_bytes: segment.start_bytes,
        size_bytes: segment.size_bytes,
        created_ns: segment.created_ns,
        last_read_ns: segment.last_read_ns,
        last_write_ns: segment.last_write_ns,
        last_close_ns: segment.last_close_ns,
        incarnation: segment.incarnation,
        copies: segment.copies.0,
        opens: segment.opens,
        tier: segment.tier.0,
        persistency: persistency(segment.persistency),
        temperature: temperature(segment.hint.temperature),
        is_live: segment.is_live.into(),
        is_moving: segment.is_moving.into(),
        is_pinned: segment.is_pinned.into(),
        reserved: [0; 6],
    }
}
