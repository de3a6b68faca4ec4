// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lies where in virtual time: objects, their segments, and the room of tiers.

mod recall;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use terrace_core::{
    Hint, Layout, Persistency, Placement, Placer, SegmentView, Slot, TierIndex, TierSet, TierView,
};

pub(super) use self::recall::Recall;
use super::TimedTier;
use super::device::{Device, Job, Work};
use super::recent::Recent;
use crate::read::Named;

/// No segment of a replay is another one's successor in its slot.
pub(super) const INCARNATION: u32 = 1;

/// The least that a segment of a layout has; the same as in a store.
const SEGMENT_BYTES_MIN: u64 = 4096;

pub(super) struct Tier {
    /// What a policy is shown, but for the bytes on their way.
    pub(super) view: TierView,
    pub(super) device: Device,
    /// What the machine has in memory of its files, if it keeps any.
    pub(super) memory: Option<Device>,
    /// Whether writes return when the machine has them.
    pub(super) takes_writes: bool,
    /// Whether its device is memory itself, as far as is known.
    pub(super) is_memory: bool,
    /// How much faster memory gives what was used a moment ago.
    pub(super) recent: Recent,
    /// Whether it takes whole objects only.
    pub(super) is_whole: bool,
    /// What migrations to it take beside their bytes, if that is known.
    switches: Option<Device>,
    /// The segments with a clean copy here.
    copies: BTreeSet<Slot>,
}

impl Tier {
    /// `keeps` says whether the machine keeps what was read and written.
    pub(super) fn new(tier: &TimedTier, keeps: bool) -> Self {
        let TimedTier { view, character, recent } = tier.clone();
        let (device, memory) = Device::of_tier(view.figures, character, keeps);
        let takes_writes = character.cached.is_some_and(|cached| cached.takes_writes);
        let switches = character.switch.map(Device::of_switches);
        let is_memory = character.cached.is_none();
        let (is_whole, copies) = (character.is_whole, BTreeSet::new());
        Self { view, device, memory, takes_writes, is_memory, recent, is_whole, switches, copies }
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        [Some(&self.device), self.memory.as_ref(), self.switches.as_ref()].into_iter().flatten()
    }

    fn devices_mut(&mut self) -> impl Iterator<Item = &mut Device> {
        [Some(&mut self.device), self.memory.as_mut(), self.switches.as_mut()].into_iter().flatten()
    }

    /// When the next of its jobs goes on or is over, if nothing else comes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.devices().filter_map(Device::next_ns).min()
    }

    /// Goes on to a point in time.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.devices_mut().for_each(|device| device.advance(now_ns));
    }

    /// A job that is over. To be called again until there is none.
    pub(super) fn end(&mut self) -> Option<Job> {
        self.devices_mut().find_map(Device::end)
    }

    /// Whether it is known what migrations to it take beside their bytes.
    pub(super) fn has_switches(&self) -> bool {
        self.switches.is_some()
    }

    /// Begins what a migration takes beside its bytes.
    pub(super) fn begin_switch(&mut self, job: Job, work: Work) {
        self.switches.as_mut().expect("it has them").begin(job, work);
    }

    /// Time for which applications kept it busy.
    pub(super) fn foreground_s(&self) -> f64 {
        self.device.foreground_s() + self.memory.as_ref().map_or(0.0, Device::foreground_s)
    }

    /// Takes room for a class of bytes, if no more than `limit_bytes` are taken then.
    fn has_room(&self, bytes: u64, limit_bytes: u64) -> bool {
        self.view.taken_bytes().checked_add(bytes).is_some_and(|sum| sum <= limit_bytes)
    }

    /// Bytes that lie there.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.view.used_bytes + self.view.copy_bytes
    }

    fn critical_bytes(&self) -> u64 {
        match self.view.figures.capacity_bytes {
            u64::MAX => u64::MAX,
            capacity => (self.view.watermarks.critical * capacity as f64) as u64,
        }
    }
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) object: u32,
    pub(super) start_bytes: u64,
    pub(super) size_bytes: u64,
    /// Where it ends and the next one begins.
    limit_bytes: u64,
    pub(super) tier: TierIndex,
    pub(super) copies: TierSet,
    pub(super) is_live: bool,
    /// The migration of it that waits or runs.
    pub(super) moving: Option<u64>,
}

#[derive(Debug)]
struct Object {
    named: Named,
    layout: Layout,
    /// Most objects have one, which is then found without another look into memory.
    segments: SmallVec<[Slot; 4]>,
}

/// A part of a request that concerns one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) slot: Slot,
    /// In the segment.
    pub(super) offset_bytes: u64,
    pub(super) bytes: u64,
}

/// Something that became of a segment, for the policy.
pub(super) enum Told {
    Created(Slot, SegmentView),
    Moved(Slot, TierIndex),
    Copied(Slot, TierIndex),
    Uncopied(Slot, TierIndex),
    Deleted(Slot),
}

pub(super) struct Store {
    pub(super) tiers: Vec<Tier>,
    pub(super) segments: Vec<Segment>,
    objects: Vec<Option<Object>>,
    pub(super) placer: Arc<dyn Placer>,
    persistency: Persistency,
    /// Reports since the call before.
    pub(super) told: Vec<Told>,
    /// Files that were deleted, and recalls, since the caller took them.
    pub(super) deleted: Vec<(Slot, TierIndex)>,
    pub(super) recalled: Vec<Recall>,
    pub(super) now_ns: u64,
}

impl Store {
    pub(super) fn new(tiers: Vec<Tier>, placer: Arc<dyn Placer>, persistency: Persistency) -> Self {
        Self {
            tiers,
            segments: Vec::new(),
            objects: Vec::new(),
            placer,
            persistency,
            told: Vec::new(),
            deleted: Vec::new(),
            recalled: Vec::new(),
            now_ns: 0,
        }
    }

    /// Has everything share so many processors, of which others use some now.
    pub(super) fn share_processors(&mut self, processors: f64, others: usize) {
        let of_tiers = self.tiers.iter().flat_map(Tier::devices).map(Device::processors);
        let used = others as f64 + of_tiers.sum::<f64>();
        let times = (used / processors).max(1.0);
        self.tiers.iter_mut().flat_map(Tier::devices_mut).for_each(|device| device.slow(times));
    }

    /// Whether a tier keeps what is written as it is promised.
    pub(super) fn keeps(&self, tier: TierIndex) -> bool {
        // The level `shared` is that of a copy on another tier, and of the log.
        self.tier(tier).view.persistency >= self.persistency.min(Persistency::Storage)
    }

    pub(super) fn tier(&self, tier: TierIndex) -> &Tier {
        &self.tiers[tier.index()]
    }

    pub(super) fn segment(&self, slot: Slot) -> &Segment {
        &self.segments[slot as usize]
    }

    /// The tier that serves reads of a segment: the most preferred that has it.
    pub(super) fn serving(&self, slot: Slot) -> TierIndex {
        let segment = self.segment(slot);
        let tiers = (0..segment.tier.0).map(TierIndex);
        let mut copies = tiers.filter(|tier| segment.copies.contains(*tier));
        copies.next().unwrap_or(segment.tier)
    }

    /// Has an object be there from the beginning, on `wanted` or the next tier with room.
    pub(super) fn present(&mut self, object: u32, named: Named, bytes: u64, wanted: TierIndex) {
        let tier = self.find_room(wanted, bytes, |_| true);
        self.insert(object, named, Layout::One);
        self.append(object, tier, 0, u64::MAX);
        let slot = self.last(object);
        self.grow(slot, bytes);
        if let Some(Told::Created(_, view)) = self.told.last_mut() {
            view.size_bytes = bytes;
        }
    }

    /// Makes an object, if there is none.
    pub(super) fn create(&mut self, object: u32, named: Named) {
        if self.object(object).is_some() {
            return;
        }
        let placement = Placement {
            key: &named.key,
            hint: Hint::default(),
            size_hint_bytes: None,
            segment: named.segment,
            start_bytes: 0,
        };
        let placed = self.placer.place(&placement);
        let tier = self.with_room(self.sane(placed.tier), 0);
        let layout = sane_layout(placed.layout);
        let limit_bytes = limit_of(&layout, 0);
        self.insert(object, named, layout);
        self.append(object, tier, 0, limit_bytes);
    }

    /// The parts of a read: what there is.
    pub(super) fn parts(&self, object: u32, offset_bytes: u64, bytes: u64, parts: &mut Vec<Part>) {
        let end_bytes = offset_bytes.saturating_add(bytes);
        let Some(object) = self.object(object) else { return };
        for slot in &object.segments {
            let segment = self.segment(*slot);
            let segment_end = segment.start_bytes.saturating_add(segment.size_bytes);
            let (from, to) = (offset_bytes.max(segment.start_bytes), end_bytes.min(segment_end));
            if from < to {
                let offset_bytes = from - segment.start_bytes;
                parts.push(Part { slot: *slot, offset_bytes, bytes: to - from });
            }
        }
    }

    /// Makes room for a write, and takes back the copies that it makes wrong; its parts.
    pub(super) fn write(
        &mut self,
        object: u32,
        offset_bytes: u64,
        bytes: u64,
        parts: &mut Vec<Part>,
    ) {
        let end_bytes = offset_bytes.saturating_add(bytes);
        self.extend(object, end_bytes);
        let from = parts.len();
        self.parts(object, offset_bytes, bytes, parts);
        for part in &parts[from..] {
            self.drop_copies(part.slot);
        }
    }

    /// Cuts an object, or makes it longer.
    pub(super) fn set_length(&mut self, object: u32, bytes: u64) {
        if self.object(object).is_none() {
            return;
        }
        loop {
            let slot = self.last(object);
            let segment = self.segment(slot);
            let kept = bytes.saturating_sub(segment.start_bytes).min(segment.size_bytes);
            let (cut_bytes, starts_behind) =
                (segment.size_bytes - kept, segment.start_bytes >= bytes);
            if cut_bytes > 0 {
                self.drop_copies(slot);
                self.shrink(slot, cut_bytes);
            }
            if !starts_behind || self.slots(object).len() == 1 {
                break;
            }
            let found = self.objects[object as usize].as_mut().expect("it was found above");
            found.segments.pop();
            self.end(slot);
        }
        self.extend(object, bytes);
    }

    /// Makes an object at least so long.
    fn extend(&mut self, object: u32, end_bytes: u64) {
        loop {
            let slot = self.last(object);
            let segment = self.segment(slot);
            let segment_end = segment.start_bytes.saturating_add(segment.size_bytes);
            if end_bytes <= segment_end {
                break;
            }
            let wanted_bytes = end_bytes.min(segment.limit_bytes) - segment_end;
            if wanted_bytes > 0 {
                let tier = segment.tier;
                let limit_bytes = match segment.size_bytes {
                    // Its first bytes are what is placed.
                    0 => self.tier(tier).critical_bytes(),
                    _ => self.tier(tier).view.figures.capacity_bytes,
                };
                if self.take_room(tier, wanted_bytes, limit_bytes) {
                    self.grow(slot, wanted_bytes);
                    continue;
                }
                let next = self.with_room(tier, wanted_bytes);
                if self.segment(slot).size_bytes == 0 && next != tier {
                    self.segments[slot as usize].tier = next;
                    self.told.push(Told::Moved(slot, next));
                    continue;
                }
                if next == tier {
                    // No tier has room: what a store would refuse goes on in the last one.
                    self.grow(slot, wanted_bytes);
                    continue;
                }
                // The rest of the object goes on elsewhere.
                self.segments[slot as usize].limit_bytes = segment_end;
                let limit_bytes = self.next_limit(object, segment_end);
                self.append(object, next, segment_end, limit_bytes);
                continue;
            }
            self.append_next(object, segment_end, end_bytes);
        }
    }

    /// Deletes an object.
    pub(super) fn delete(&mut self, object: u32) {
        let Some(found) = self.objects.get_mut(object as usize).and_then(Option::take) else {
            return;
        };
        for slot in found.segments {
            self.drop_copies(slot);
            let size_bytes = self.segment(slot).size_bytes;
            self.shrink(slot, size_bytes);
            self.end(slot);
        }
    }

    /// A segment without bytes or copies is gone.
    fn end(&mut self, slot: Slot) {
        self.deleted.push((slot, self.segment(slot).tier));
        self.segments[slot as usize].is_live = false;
        self.told.push(Told::Deleted(slot));
    }

    /// The segments of an object.
    pub(super) fn slots(&self, object: u32) -> &[Slot] {
        self.object(object).map_or(&[], |object| &object.segments)
    }

    /// Drops the clean copies of a segment.
    pub(super) fn drop_copies(&mut self, slot: Slot) {
        for index in 0..self.tiers.len() {
            self.drop_copy(slot, TierIndex(index as u8));
        }
    }

    /// Drops the clean copy on a tier; false where there is none.
    pub(super) fn drop_copy(&mut self, slot: Slot, tier: TierIndex) -> bool {
        let is_dropped = self.forget_copy(slot, tier);
        if is_dropped {
            self.deleted.push((slot, tier));
        }
        is_dropped
    }

    /// A file is no clean copy any more; false where there is none.
    fn forget_copy(&mut self, slot: Slot, tier: TierIndex) -> bool {
        let segment = &mut self.segments[slot as usize];
        if !segment.copies.contains(tier) {
            return false;
        }
        segment.copies = segment.copies.without(tier);
        let from = &mut self.tiers[tier.index()];
        from.view.copy_bytes -= segment.size_bytes;
        from.copies.remove(&slot);
        self.told.push(Told::Uncopied(slot, tier));
        true
    }

    /// The primary of a segment is on another tier from now on; where it was, a clean copy stays if
    /// `stays`.
    pub(super) fn switch(&mut self, slot: Slot, to: TierIndex, stays: bool) {
        self.forget_copy(slot, to);
        let segment = &mut self.segments[slot as usize];
        let (from, bytes) = (segment.tier, segment.size_bytes);
        segment.tier = to;
        self.tiers[from.index()].view.used_bytes -= bytes;
        self.tiers[to.index()].view.used_bytes += bytes;
        self.told.push(Told::Moved(slot, to));
        match stays {
            true => self.add_copy(slot, from),
            false => self.deleted.push((slot, from)),
        }
    }

    /// A segment has a clean copy on a tier from now on.
    pub(super) fn add_copy(&mut self, slot: Slot, tier: TierIndex) {
        let segment = &mut self.segments[slot as usize];
        segment.copies = segment.copies.with(tier);
        let to = &mut self.tiers[tier.index()];
        to.view.copy_bytes += segment.size_bytes;
        to.copies.insert(slot);
        self.told.push(Told::Copied(slot, tier));
    }

    /// Room on a tier, for which clean copies there go if need be.
    pub(super) fn take_room(&mut self, tier: TierIndex, bytes: u64, limit_bytes: u64) -> bool {
        if self.tier(tier).has_room(bytes, limit_bytes) {
            return true;
        }
        while let Some(slot) = self.tier(tier).copies.first().copied() {
            self.drop_copy(slot, tier);
            if self.tier(tier).has_room(bytes, limit_bytes) {
                return true;
            }
        }
        false
    }

    /// The limit up to which a migration may fill a tier.
    pub(super) fn limit_bytes(&self, tier: TierIndex, is_move: bool) -> u64 {
        match is_move {
            true => self.tier(tier).view.figures.capacity_bytes,
            false => self.tier(tier).critical_bytes(),
        }
    }

    /// Whether files of a tier are written in place; of any tier, where each takes whole objects only.
    fn is_written_in_place(&self, tier: TierIndex) -> bool {
        !self.tier(tier).is_whole || self.tiers.iter().all(|tier| tier.is_whole)
    }

    /// `wanted` or the next tier that is written and has room.
    fn with_room(&self, wanted: TierIndex, bytes: u64) -> TierIndex {
        self.find_room(wanted, bytes, |tier| self.is_written_in_place(tier))
    }

    /// `wanted` or the next of these with room: first below the critical fill, then below capacity.
    fn find_room(
        &self,
        wanted: TierIndex,
        bytes: u64,
        is_one: impl Fn(TierIndex) -> bool,
    ) -> TierIndex {
        let count = self.tiers.len() as u8;
        let all = || (wanted.0..count).chain((0..wanted.0).rev()).map(TierIndex);
        let able = || all().filter(|tier| self.keeps(*tier) && is_one(*tier));
        let has_room = |tier: &TierIndex| {
            let tier = self.tier(*tier);
            // Nothing fits on what is full.
            tier.has_room(bytes.max(1), tier.critical_bytes())
        };
        let fits = |tier: &TierIndex| {
            let tier = self.tier(*tier);
            tier.has_room(bytes.max(1), tier.view.figures.capacity_bytes)
        };
        let last = || (0..count).rev().map(TierIndex).find(|tier| is_one(*tier));
        let found = able().find(has_room).or_else(|| able().find(fits));
        found.or_else(last).unwrap_or(TierIndex(count - 1))
    }

    /// A tier that there is and that is written: in place of one of whole objects the next more preferred
    /// one, else the next less preferred one, as in a store.
    fn sane(&self, tier: TierIndex) -> TierIndex {
        let count = self.tiers.len() as u8;
        let tier = if tier.0 < count { tier } else { TierIndex(0) };
        let mut all = (0..=tier.0).rev().chain(tier.0..count).map(TierIndex);
        all.find(|tier| self.is_written_in_place(*tier)).unwrap_or(tier)
    }

    fn object(&self, object: u32) -> Option<&Object> {
        self.objects.get(object as usize)?.as_ref()
    }

    fn last(&self, object: u32) -> Slot {
        let object = self.object(object).expect("it was made before it is written");
        *object.segments.last().expect("it has had a segment since it was made")
    }

    fn insert(&mut self, object: u32, named: Named, layout: Layout) {
        let index = object as usize;
        if self.objects.len() <= index {
            self.objects.resize_with(index + 1, || None);
        }
        self.objects[index] = Some(Object { named, layout, segments: SmallVec::new() });
    }

    /// Where the segment that begins at `start_bytes` ends.
    fn next_limit(&self, object: u32, start_bytes: u64) -> u64 {
        let object = self.object(object).expect("it is being written");
        limit_of(&object.layout, start_bytes)
    }

    /// Appends the next segment of a layout, which the placer places.
    fn append_next(&mut self, object: u32, start_bytes: u64, end_bytes: u64) {
        let found = self.object(object).expect("it is being written");
        let placement = Placement {
            key: &found.named.key,
            hint: Hint::default(),
            size_hint_bytes: None,
            segment: found.named.segment + found.segments.len() as u32,
            start_bytes,
        };
        let wanted = self.sane(self.placer.place(&placement).tier);
        let limit_bytes = self.next_limit(object, start_bytes);
        let tier = self.with_room(wanted, end_bytes.min(limit_bytes) - start_bytes);
        self.append(object, tier, start_bytes, limit_bytes);
    }

    fn append(&mut self, number: u32, tier: TierIndex, start_bytes: u64, limit_bytes: u64) {
        let slot = self.segments.len() as Slot;
        let object = self.objects[number as usize].as_mut().expect("it was just put there");
        let segment = object.named.segment + object.segments.len() as u32;
        object.segments.push(slot);
        let view = SegmentView {
            key: object.named.key.clone(),
            segment,
            incarnation: INCARNATION,
            is_live: true,
            start_bytes,
            size_bytes: 0,
            tier,
            copies: TierSet::default(),
            opens: 0,
            is_moving: false,
            is_pinned: false,
            persistency: self.persistency,
            hint: Hint::default(),
            created_ns: self.now_ns,
            last_read_ns: 0,
            last_write_ns: 0,
            last_close_ns: 0,
        };
        self.segments.push(Segment {
            object: number,
            start_bytes,
            size_bytes: 0,
            limit_bytes,
            tier,
            copies: TierSet::default(),
            is_live: true,
            moving: None,
        });
        self.told.push(Told::Created(slot, view));
    }

    /// Makes a segment longer, whose clean copies then are none.
    fn grow(&mut self, slot: Slot, bytes: u64) {
        self.drop_copies(slot);
        let segment = &mut self.segments[slot as usize];
        segment.size_bytes += bytes;
        self.tiers[segment.tier.index()].view.used_bytes += bytes;
    }

    fn shrink(&mut self, slot: Slot, bytes: u64) {
        let segment = &mut self.segments[slot as usize];
        segment.size_bytes -= bytes;
        self.tiers[segment.tier.index()].view.used_bytes -= bytes;
    }
}

/// Where a segment of a layout that begins at `start_bytes` ends.
fn limit_of(layout: &Layout, start_bytes: u64) -> u64 {
    match layout {
        Layout::One => u64::MAX,
        Layout::Fixed { segment_bytes } => (start_bytes / segment_bytes + 1) * segment_bytes,
        Layout::Steps { starts_bytes } => {
            starts_bytes.iter().copied().find(|start| *start > start_bytes).unwrap_or(u64::MAX)
        }
    }
}

/// A layout that can be carried out, as a store makes it of whatever a policy asked for.
fn sane_layout(layout: Layout) -> Layout {
    match layout {
        Layout::Fixed { segment_bytes } if segment_bytes < SEGMENT_BYTES_MIN => Layout::One,
        Layout::Steps { starts_bytes } => {
            let ascending = starts_bytes.windows(2).all(|pair| pair[0] < pair[1]);
            let positive = starts_bytes.first().is_some_and(|start| *start > 0);
            if ascending && positive { Layout::Steps { starts_bytes } } else { Layout::One }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::{Figures, Key, Placed, Random};

    use super::super::device::Character;
    use super::*;

    /// New objects to the first tier, the second segment and all others to the last.
    #[derive(Debug)]
    struct Spread;

    impl Placer for Spread {
        fn place(&self, new: &Placement<'_>) -> Placed {
            let layout = Layout::Fixed { segment_bytes: 1 << 14 };
            Placed { tier: TierIndex(u8::from(new.segment > 0) * 2), layout }
        }
    }

    fn store() -> Store {
        let capacities = [60_000, 90_000, u64::MAX];
        let tiers = capacities.map(|capacity_bytes| {
            let figures = Figures { capacity_bytes, ..Figures::default() };
            let view = TierView::empty("tier", figures);
            let (character, recent) = (Character::default(), Recent::default());
            Tier::new(&TimedTier { view, character, recent }, false)
        });
        Store::new(tiers.into(), Arc::new(Spread), Persistency::None)
    }

    /// Whether the accounts of tiers are what lies there, and none holds more than it may.
    fn check(store: &Store, what: &str) {
        for (index, tier) in store.tiers.iter().enumerate() {
            let here = TierIndex(index as u8);
            let sum = |is_here: &dyn Fn(&Segment) -> bool| {
                let found = store.segments.iter().filter(|one| one.is_live && is_here(one));
                found.map(|one| one.size_bytes).sum::<u64>()
            };
            assert_eq!(tier.view.used_bytes, sum(&|one| one.tier == here), "{what}");
            assert_eq!(tier.view.copy_bytes, sum(&|one| one.copies.contains(here)), "{what}");
            assert!(tier.view.taken_bytes() <= tier.view.figures.capacity_bytes, "{what}");
        }
    }

    #[test]
    fn accounts_are_what_lies_on_the_tiers() {
        let mut random = Random::new(4);
        let mut store = store();
        let mut parts = Vec::new();
        for step in 0..20_000 {
            let object = random.below(12) as u32;
            let key = Key::new("test", &object.to_string()).expect("legal");
            let named = Named { key, segment: 0 };
            let act = random.below(12);
            match act {
                0 => store.delete(object),
                1 => store.set_length(object, random.below(40_000)),
                2..=5 => {
                    if let Some(slot) = random_slot(&store, object, &mut random) {
                        let tier = TierIndex(random.below(3) as u8);
                        let bytes = store.segment(slot).size_bytes;
                        let is_there = store.segment(slot).tier == tier;
                        let has_copy = store.segment(slot).copies.contains(tier);
                        let limit_bytes = store.limit_bytes(tier, true);
                        let fits = has_copy || store.take_room(tier, bytes, limit_bytes);
                        match act {
                            // Its copies may have gone to make room.
                            2 if fits && !is_there => {
                                store.switch(slot, tier, random.below(2) == 0)
                            }
                            3 => drop(store.drop_copy(slot, tier)),
                            _ if fits && !is_there && !has_copy => store.add_copy(slot, tier),
                            _ => {}
                        }
                    }
                }
                _ => {
                    store.create(object, named);
                    let (offset_bytes, bytes) = (random.below(40_000), 1 + random.below(20_000));
                    parts.clear();
                    store.write(object, offset_bytes, bytes, &mut parts);
                    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), bytes, "{step}");
                }
            }
            check(&store, &format!("step {step}, act {act}"));
            store.told.clear();
        }
    }

    fn random_slot(store: &Store, object: u32, random: &mut Random) -> Option<Slot> {
        let slots = store.slots(object);
        (!slots.is_empty()).then(|| slots[random.below(slots.len() as u64) as usize])
    }
}
