// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy sees: an owned snapshot of the tiers and of every segment.

use crate::{Event, EventKind, Hint, Key, Persistency, Random, Slot, TierIndex, TierSet};

/// What a tier can do and what it costs, as configured or calibrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// What it may hold.
    pub capacity_bytes: u64,
    /// Time from a request to its first byte.
    pub latency_ns: u64,
    /// Bytes per second of one large read.
    pub read_bytes_per_s: f64,
    /// Bytes per second of one large write.
    pub write_bytes_per_s: f64,
    /// Requests that it serves at once without slowing each other.
    pub parallelism: u32,
    /// Power when nothing happens.
    pub idle_w: f64,
    /// Power when busy.
    pub active_w: f64,
    /// What its provider charges.
    pub prices: Prices,
}

/// What the provider of a tier charges, in a currency of the user's choice; 0 for what costs nothing.
///
/// A GB is 10^9 bytes. Deletions have no price.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of 1000 requests that write or list.
    pub per_1000_write_requests: f64,
    /// Of 1000 requests that read.
    pub per_1000_read_requests: f64,
    /// Of a GB that is stored for [`Prices::MONTH_S`].
    pub per_gb_month: f64,
    /// Of a GB that is read from the tier.
    pub per_gb_read: f64,
}

impl Prices {
    /// Seconds of a month of storage: 730 hours, a twelfth of a year.
    pub const MONTH_S: f64 = 730.0 * 3600.0;

    /// Bytes of a GB.
    const GB_BYTES: f64 = 1e9;

    /// Whether nothing has a price.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }

    /// Each by the name of its setting.
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("price_per_1000_write_requests", self.per_1000_write_requests),
            ("price_per_1000_read_requests", self.per_1000_read_requests),
            ("price_per_gb_month", self.per_gb_month),
            ("price_per_gb_read", self.per_gb_read),
        ]
    }

    /// The price of so many requests that write.
    pub fn writes(&self, requests: f64) -> f64 {
        requests / 1000.0 * self.per_1000_write_requests
    }

    /// The price of so many requests that read, and of the bytes that they read.
    pub fn reads(&self, requests: f64, bytes: f64) -> f64 {
        requests / 1000.0 * self.per_1000_read_requests + bytes / Self::GB_BYTES * self.per_gb_read
    }

    /// The price of storing: bytes times seconds.
    pub fn storing(&self, byte_s: f64) -> f64 {
        byte_s / Self::GB_BYTES / Self::MONTH_S * self.per_gb_month
    }
}

impl Default for Figures {
    /// Unbounded, immediate and free: a tier without figures.
    fn default() -> Self {
        Self {
            capacity_bytes: u64::MAX,
            latency_ns: 0,
            read_bytes_per_s: f64::INFINITY,
            write_bytes_per_s: f64::INFINITY,
            parallelism: 1,
            idle_w: 0.0,
            active_w: 0.0,
            prices: Prices::default(),
        }
    }
}

impl Figures {
    /// Seconds that one read of `bytes` takes on an idle tier.
    pub fn read_s(&self, bytes: u64) -> f64 {
        self.latency_ns as f64 * 1e-9 + bytes as f64 / self.read_bytes_per_s
    }

    /// Seconds that one write of `bytes` takes on an idle tier.
    pub fn write_s(&self, bytes: u64) -> f64 {
        self.latency_ns as f64 * 1e-9 + bytes as f64 / self.write_bytes_per_s
    }
}

/// Fill levels as fractions of capacity, `0 < low <= high <= critical <= 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Where demotion may stop.
    pub low: f64,
    /// Where a policy should begin to make room.
    pub high: f64,
    /// Where the stack itself spills new data and drops clean copies.
    pub critical: f64,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self { low: 0.7, high: 0.9, critical: 0.97 }
    }
}

/// A tier as a policy sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct TierView {
    /// Its name in the configuration.
    pub name: String,
    /// What it can do.
    pub figures: Figures,
    /// Its fill levels.
    pub watermarks: Watermarks,
    /// The strongest level it gives.
    pub persistency: Persistency,
    /// Bytes of primaries.
    pub used_bytes: u64,
    /// Bytes promised to growing objects and running migrations.
    pub reserved_bytes: u64,
    /// Bytes of clean copies.
    pub copy_bytes: u64,
    /// Bytes that are superseded and not yet deleted.
    pub garbage_bytes: u64,
    /// Bytes of the migrations to this tier that wait or run.
    pub incoming_bytes: u64,
    /// Bytes of the migrations from this tier that wait or run.
    pub outgoing_bytes: u64,
    /// Share of the last interval in which applications kept the tier busy, 0 to 1.
    pub utilisation: f64,
    /// Whether the tier takes new data.
    pub is_writable: bool,
}

impl TierView {
    /// A writable tier that holds nothing and keeps what it gets.
    pub fn empty(name: &str, figures: Figures) -> Self {
        Self {
            name: name.into(),
            figures,
            watermarks: Watermarks::default(),
            persistency: Persistency::Storage,
            used_bytes: 0,
            reserved_bytes: 0,
            copy_bytes: 0,
            garbage_bytes: 0,
            incoming_bytes: 0,
            outgoing_bytes: 0,
            utilisation: 0.0,
            is_writable: true,
        }
    }

    /// Everything that takes room now.
    pub fn taken_bytes(&self) -> u64 {
        self.used_bytes + self.reserved_bytes + self.copy_bytes + self.garbage_bytes
    }

    /// Room that is left below capacity.
    pub fn free_bytes(&self) -> u64 {
        self.figures.capacity_bytes.saturating_sub(self.taken_bytes())
    }

    /// Share of capacity that is taken.
    pub fn fill(&self) -> f64 {
        self.taken_bytes() as f64 / self.figures.capacity_bytes as f64
    }
}

/// A segment as a policy sees it. Most objects have one.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentView {
    /// The object it belongs to.
    pub key: Key,
    /// Its index in the object.
    pub segment: u32,
    /// Tells this user of the slot from earlier ones.
    pub incarnation: u32,
    /// False once it was deleted; the slot may then be used again.
    pub is_live: bool,
    /// Where it begins in its object.
    pub start_bytes: u64,
    /// Its length.
    pub size_bytes: u64,
    /// The tier of its primary.
    pub tier: TierIndex,
    /// The tiers with clean copies.
    pub copies: TierSet,
    /// Open handles.
    pub opens: u32,
    /// Whether a migration of it waits or runs.
    pub is_moving: bool,
    /// Whether a person forbade to move it.
    pub is_pinned: bool,
    /// The level it was promised: its primary stays on tiers that give it.
    pub persistency: Persistency,
    /// Advice given at create.
    pub hint: Hint,
    /// When it was created, monotonic.
    pub created_ns: u64,
    /// When it was last read, monotonic; 0 for never since the store was opened.
    pub last_read_ns: u64,
    /// When it was last written, monotonic; 0 for never since the store was opened.
    pub last_write_ns: u64,
    /// When its last handle was closed, monotonic.
    pub last_close_ns: u64,
}

impl SegmentView {
    /// When it was last touched.
    pub fn last_access_ns(&self) -> u64 {
        self.created_ns.max(self.last_read_ns).max(self.last_write_ns)
    }
}

/// What a policy sees. It changes only between calls.
#[derive(Clone, Debug)]
pub struct View {
    /// Monotonic time of the call.
    pub now_ns: u64,
    /// In order of preference; at least one.
    pub tiers: Vec<TierView>,
    /// By slot. Slots are dense; a dead one has `is_live == false` until it is used again.
    pub segments: Vec<SegmentView>,
    /// Seeded by the stack: the only chance a policy may use.
    pub random: Random,
}

impl View {
    /// A view of these tiers without segments.
    pub fn new(tiers: Vec<TierView>, seed: u64) -> Self {
        Self { now_ns: 0, tiers, segments: Vec::new(), random: Random::new(seed) }
    }

    /// Puts a segment into its slot.
    ///
    /// # Panics
    ///
    /// Where the slot leaves a gap: slots are dense.
    pub fn insert(&mut self, slot: Slot, segment: SegmentView) {
        let index = slot as usize;
        assert!(index <= self.segments.len(), "slots are dense");
        if index == self.segments.len() {
            self.segments.push(segment);
        } else {
            self.segments[index] = segment;
        }
    }

    /// The live segment in a slot, if it is still the one that was meant.
    pub fn segment(&self, slot: Slot, incarnation: u32) -> Option<&SegmentView> {
        self.segments
            .get(slot as usize)
            .filter(|segment| segment.is_live && segment.incarnation == incarnation)
    }

    /// All live segments with their slots.
    pub fn live(&self) -> impl Iterator<Item = (Slot, &SegmentView)> {
        self.segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.is_live)
            .map(|(index, segment)| (index as Slot, segment))
    }

    /// Applies what an event says about its segment. `Create` and `Present` have no effect: the
    /// segment is [inserted](View::insert) before the event is shown.
    pub fn apply(&mut self, event: &Event) {
        let Some(segment) = self.segments.get_mut(event.slot as usize) else { return };
        if !segment.is_live || segment.incarnation != event.incarnation {
            return;
        }
        match event.kind {
            EventKind::Create
            | EventKind::Present
            | EventKind::Timer
            | EventKind::Stat
            | EventKind::Sync => {}
            EventKind::Open => segment.opens = segment.opens.saturating_add(event.count),
            EventKind::Close => {
                segment.opens = segment.opens.saturating_sub(event.count);
                segment.last_close_ns = event.time_ns;
            }
            EventKind::Read => segment.last_read_ns = event.time_ns,
            EventKind::Write => {
                segment.last_write_ns = event.time_ns;
                let end_bytes = event.offset_bytes.saturating_add(event.length_bytes);
                segment.size_bytes = segment.size_bytes.max(end_bytes);
            }
            EventKind::SetLen => {
                segment.last_write_ns = event.time_ns;
                segment.size_bytes = event.length_bytes;
            }
            EventKind::Delete => segment.is_live = false,
            EventKind::Queued => segment.is_moving = true,
            EventKind::Moved => segment.tier = event.tier,
            EventKind::Copied => segment.copies = segment.copies.with(event.tier),
            EventKind::Uncopied => segment.copies = segment.copies.without(event.tier),
            EventKind::Receipt => segment.is_moving = false,
            EventKind::Pin => segment.is_pinned = true,
            EventKind::Unpin => segment.is_pinned = false,
        }
    }
}
