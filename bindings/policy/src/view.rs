// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host shows during a call, without its pointers.
#![allow(unsafe_code, reason = "reads what the host points to")]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Deref;
use std::{fmt, slice};

use terrace_policy_abi::{self as abi, Prices, action};

/// The text behind a pointer from the host.
///
/// # Safety
///
/// `text` comes from the host, in a call that lasts for `'a`.
pub(crate) unsafe fn text<'a>(text: abi::Text) -> &'a str {
    // SAFETY: as the caller vouches; the host's texts are UTF-8.
    unsafe { str::from_utf8_unchecked(list(text.bytes, text.length)) }
}

/// The array behind a pointer from the host, which may be NULL for an empty one.
///
/// # Safety
///
/// Both come from the host, in a call that lasts for `'a`.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller vouches.
    unsafe { slice::from_raw_parts(first, count) }
}

/// What is where.
#[derive(Debug)]
pub struct View<'a> {
    /// Read field by field: an older host has no bytes for the last ones.
    raw: *const abi::View,
    call: PhantomData<&'a abi::View>,
}

impl<'a> View<'a> {
    /// # Safety
    ///
    /// `raw` comes from the host, in a call that lasts for `'a`.
    pub(crate) unsafe fn new(raw: *const abi::View) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Monotonic time of the call.
    pub fn now_ns(&self) -> u64 {
        // SAFETY: from the host, as `new` was promised.
        unsafe { (*self.raw).now_ns }
    }

    /// In order of preference; at least one.
    pub fn tiers(&self) -> &'a [Tier] {
        // SAFETY: from the host, as `new` was promised; `Tier` has the layout of what it wraps.
        unsafe { list((*self.raw).tiers.cast(), (*self.raw).tier_count as usize) }
    }

    /// What the providers of the tiers charge, in the order of the tiers; empty where the host is of
    /// 0.1.0, which knows no prices.
    pub fn prices(&self) -> &'a [Prices] {
        const END_BYTES: usize = offset_of!(abi::View, prices) + size_of::<*const Prices>();
        // SAFETY: from the host, as `new` was promised; every host has the size of its struct there.
        let struct_bytes = unsafe { (*self.raw).struct_bytes as usize };
        if struct_bytes < END_BYTES {
            return &[];
        }
        // SAFETY: from the host, as `new` was promised, which has this field.
        unsafe { list((*self.raw).prices, (*self.raw).tier_count as usize) }
    }

    /// By slot, dead ones included.
    pub fn segments(&self) -> &'a [Segment] {
        // SAFETY: from the host, as `new` was promised; `Segment` has the layout of what it wraps.
        unsafe { list((*self.raw).segments.cast(), (*self.raw).segment_count) }
    }

    /// The live segment in a slot, if it is still the one that was meant.
    pub fn find(&self, slot: u32, incarnation: u32) -> Option<&'a Segment> {
        let segment = self.segments().get(slot as usize)?;
        (segment.is_live != 0 && segment.incarnation == incarnation).then_some(segment)
    }

    /// 64 random bits, from a seed that replay repeats.
    pub fn random(&self) -> u64 {
        // SAFETY: the host gives this function for this view.
        unsafe { ((*self.raw).random)(self.raw) }
    }
}

/// A tier; its fields are those of `terrace_tier`.
#[repr(transparent)]
pub struct Tier(abi::Tier);

impl Tier {
    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        // SAFETY: tiers exist only in the views of the host.
        unsafe { text(self.0.name) }
    }

    /// Everything that takes room now.
    pub fn taken_bytes(&self) -> u64 {
        self.used_bytes + self.reserved_bytes + self.copy_bytes + self.garbage_bytes
    }

    /// What will be taken when all queued migrations have ended and garbage is gone.
    pub fn expected_bytes(&self) -> u64 {
        (self.used_bytes + self.copy_bytes + self.incoming_bytes)
            .saturating_sub(self.outgoing_bytes)
    }
}

impl Deref for Tier {
    type Target = abi::Tier;

    fn deref(&self) -> &abi::Tier {
        &self.0
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A segment; its fields are those of `terrace_segment`.
#[repr(transparent)]
pub struct Segment(abi::Segment);

impl Segment {
    /// `namespace/name` of its object.
    pub fn key(&self) -> &str {
        // SAFETY: segments exist only in the views of the host.
        unsafe { text(self.0.key) }
    }

    /// When it was last touched.
    pub fn last_access_ns(&self) -> u64 {
        self.created_ns.max(self.last_read_ns).max(self.last_write_ns)
    }
}

impl Deref for Segment {
    type Target = abi::Segment;

    fn deref(&self) -> &abi::Segment {
        &self.0
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What is known of a new segment; its fields are those of `terrace_placement`.
pub struct Placement<'a> {
    raw: &'a abi::Placement,
}

impl Placement<'_> {
    /// # Safety
    ///
    /// `raw` comes from the host, in a call that lasts as long as the result.
    pub(crate) unsafe fn new(raw: *const abi::Placement) -> Self {
        // SAFETY: as the caller vouches.
        Self { raw: unsafe { &*raw } }
    }

    /// `namespace/name` of its object.
    pub fn key(&self) -> &str {
        // SAFETY: from the host, as `new` was promised.
        unsafe { text(self.raw.key) }
    }
}

impl Deref for Placement<'_> {
    type Target = abi::Placement;

    fn deref(&self) -> &abi::Placement {
        self.raw
    }
}

impl fmt::Debug for Placement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What to do to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WishKind {
    /// Move the primary; a clean copy there becomes it.
    Move = action::MOVE,
    /// The same, and keep the old location as a clean copy.
    Promote = action::PROMOTE,
    /// Make a clean copy.
    Copy = action::COPY,
    /// Drop the clean copy.
    DropCopy = action::DROP_COPY,
    /// Cancel the migration that waits or runs.
    Cancel = action::CANCEL,
}

/// One wish, with its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish<'a> {
    /// What to do.
    pub kind: WishKind,
    /// The segment.
    pub slot: u32,
    /// The user of the slot that is meant.
    pub incarnation: u32,
    /// Where; ignored for `Cancel`.
    pub tier: u32,
    /// Higher first; 0 is the usual.
    pub priority: i32,
    /// Seconds that it should save; 0 where it frees room.
    pub benefit_s: f64,
    /// For people: `terrace explain` shows it.
    pub reason: &'a str,
}

impl<'a> Wish<'a> {
    /// A wish of the usual priority for the segment that a view shows in this slot.
    pub fn new(kind: WishKind, slot: u32, segment: &Segment, tier: u32, reason: &'a str) -> Self {
        let incarnation = segment.incarnation;
        Self { kind, slot, incarnation, tier, priority: 0, benefit_s: 0.0, reason }
    }
}

/// The list that a policy fills, within a budget.
#[derive(Debug)]
pub struct Actions<'a> {
    raw: &'a mut abi::Actions,
}

impl Actions<'_> {
    /// # Safety
    ///
    /// `raw` comes from the host, in a call that lasts as long as the result.
    pub(crate) unsafe fn new(raw: *mut abi::Actions) -> Self {
        // SAFETY: as the caller vouches.
        Self { raw: unsafe { &mut *raw } }
    }

    /// Takes a wish; false when the budget does not allow it, which is the sign to stop.
    #[must_use]
    pub fn push(&mut self, wish: Wish<'_>) -> bool {
        let action = abi::Action {
            struct_bytes: size_of::<abi::Action>() as u32,
            kind: wish.kind as u32,
            slot: wish.slot,
            incarnation: wish.incarnation,
            tier: wish.tier,
            priority: wish.priority,
            benefit_s: wish.benefit_s,
            reason: abi::Text::new(wish.reason),
        };
        // SAFETY: the host gives this function for these actions.
        unsafe { (self.raw.push)(self.raw, &action) == abi::status::OK }
    }

    /// Bytes that may still be moved in this round.
    pub fn bytes_left(&self) -> u64 {
        self.raw.bytes_left
    }

    /// Actions that may still be asked for in this round.
    pub fn count_left(&self) -> u32 {
        self.raw.count_left
    }
}
