// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One event in about a dozen bytes: differences to the one before in the same block.

use terrace_core::{Event, EventKind, Outcome, TierIndex};

use crate::codec::{Decoder, Wrong, fold_sign, put_number, unfold_sign};
use crate::record::{Access, Waits};

/// Most bytes of one access: its head, eleven numbers and three bytes.
pub(crate) const ACCESS_BYTES_MAX: usize = 4 + 11 * crate::codec::NUMBER_BYTES_MAX;

/// The low bits of the first byte of an entry, which say what it is.
const KIND_MASK: u8 = 0x1f;
/// Up to here they are the number of a kind of event …
const NUMBERED_MAX: u8 = EventKind::Unpin as u8;
/// … and so are those that came later than the entries behind it.
const STAT: u8 = 0x16;
const SYNC: u8 = 0x17;

/// The low bits for a kind of event.
#[inline]
fn code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Stat => STAT,
        EventKind::Sync => SYNC,
        numbered => numbered as u8,
    }
}

/// The kind of event that an entry with this first byte is; `None` for one that is something else.
fn kind_of(head: u8) -> Option<EventKind> {
    match head & KIND_MASK {
        STAT => Some(EventKind::Stat),
        SYNC => Some(EventKind::Sync),
        number @ 1..=NUMBERED_MAX => Some(EventKind::ALL[usize::from(number) - 1]),
        _ => None,
    }
}

/// Whether an entry with this first byte is an event.
pub(crate) fn is_access(head: u8) -> bool {
    kind_of(head).is_some()
}

/// The slot and incarnation of the access before.
const SAME_SEGMENT: u8 = 0x20;
/// The tier of the access before.
const SAME_TIER: u8 = 0x40;
/// A byte follows that says what else does.
const HAS_MORE: u8 = 0x80;

const HAS_COUNT: u8 = 1;
const HAS_GUARD_WAIT: u8 = 2;
const HAS_STACK_TIME: u8 = 4;
const HAS_OUTCOME: u8 = 8;

/// What the next access of a block is encoded against.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    time_ns: u64,
    slot: u32,
    incarnation: u32,
    tier: u8,
    /// Where the access ended: a sequential one begins there.
    end_bytes: u64,
    length_bytes: u64,
    latency_ns: u64,
}

impl Before {
    fn becomes(&mut self, event: &Event) {
        *self = Self {
            time_ns: event.time_ns,
            slot: event.slot,
            incarnation: event.incarnation,
            tier: event.tier.0,
            end_bytes: event.offset_bytes.wrapping_add(event.length_bytes),
            length_bytes: event.length_bytes,
            latency_ns: event.latency_ns,
        };
    }

    /// Writes an access at `at` and returns where it ends: at most [`ACCESS_BYTES_MAX`] further.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &mut [u8], at: usize, access: &Access) -> usize {
        let Access { event, waits } = access;
        let mut more = 0;
        more |= if event.count == 1 { 0 } else { HAS_COUNT };
        more |= if waits.guard_ns == 0 { 0 } else { HAS_GUARD_WAIT };
        more |= if waits.stack_ns == 0 { 0 } else { HAS_STACK_TIME };
        more |= if event.outcome == Outcome::Done { 0 } else { HAS_OUTCOME };
        let is_same = event.slot == self.slot && event.incarnation == self.incarnation;
        let mut head = code(event.kind);
        head |= if is_same { SAME_SEGMENT } else { 0 };
        head |= if event.tier.0 == self.tier { SAME_TIER } else { 0 };
        head |= if more == 0 { 0 } else { HAS_MORE };
        bytes[at] = head;
        let mut at = at + 1;
        if more != 0 {
            bytes[at] = more;
            at += 1;
        }
        at = put_number(bytes, at, fold_sign(self.time_ns, event.time_ns));
        if !is_same {
            at = put_number(bytes, at, fold_sign(u64::from(self.slot), u64::from(event.slot)));
            at = put_number(bytes, at, u64::from(event.incarnation));
        }
        if event.tier.0 != self.tier {
            bytes[at] = event.tier.0;
            at += 1;
        }
        at = put_number(bytes, at, fold_sign(self.end_bytes, event.offset_bytes));
        at = put_number(bytes, at, fold_sign(self.length_bytes, event.length_bytes));
        at = put_number(bytes, at, fold_sign(self.latency_ns, event.latency_ns));
        if more & HAS_COUNT != 0 {
            at = put_number(bytes, at, u64::from(event.count));
        }
        if more & HAS_GUARD_WAIT != 0 {
            at = put_number(bytes, at, waits.guard_ns);
        }
        if more & HAS_STACK_TIME != 0 {
            at = put_number(bytes, at, waits.stack_ns);
        }
        if more & HAS_OUTCOME != 0 {
            bytes[at] = event.outcome as u8;
            at += 1;
        }
        self.becomes(event);
        at
    }

    /// Reads the access whose first byte is `head`.
    pub(crate) fn get(&mut self, head: u8, bytes: &mut Decoder<'_>) -> Result<Access, Wrong> {
        let kind = kind_of(head).ok_or(Wrong("there is no such kind of event"))?;
        let more = if head & HAS_MORE == 0 { 0 } else { bytes.u8()? };
        if more & !(HAS_COUNT | HAS_GUARD_WAIT | HAS_STACK_TIME | HAS_OUTCOME) != 0 {
            return Err(Wrong("an event has an unknown part"));
        }
        let time_ns = unfold_sign(self.time_ns, bytes.number()?);
        let (slot, incarnation) = if head & SAME_SEGMENT != 0 {
            (self.slot, self.incarnation)
        } else {
            let slot = unfold_sign(u64::from(self.slot), bytes.number()?);
            let slot = u32::try_from(slot).map_err(|_| Wrong("a slot is too large"))?;
            (slot, bytes.number_u32()?)
        };
        let tier = if head & SAME_TIER != 0 { self.tier } else { bytes.u8()? };
        if usize::from(tier) >= TierIndex::COUNT_MAX {
            return Err(Wrong("a tier is too large"));
        }
        let offset_bytes = unfold_sign(self.end_bytes, bytes.number()?);
        let length_bytes = unfold_sign(self.length_bytes, bytes.number()?);
        let latency_ns = unfold_sign(self.latency_ns, bytes.number()?);
        let count = if more & HAS_COUNT == 0 { 1 } else { bytes.number_u32()? };
        let guard_ns = if more & HAS_GUARD_WAIT == 0 { 0 } else { bytes.number()? };
        let stack_ns = if more & HAS_STACK_TIME == 0 { 0 } else { bytes.number()? };
        let outcome = if more & HAS_OUTCOME == 0 { 0 } else { bytes.u8()? };
        let outcome = Outcome::ALL.get(usize::from(outcome));
        let event = Event {
            kind,
            slot,
            incarnation,
            tier: TierIndex(tier),
            count,
            time_ns,
            offset_bytes,
            length_bytes,
            latency_ns,
            outcome: *outcome.ok_or(Wrong("there is no such outcome"))?,
        };
        self.becomes(&event);
        Ok(Access { event, waits: Waits { guard_ns, stack_ns } })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use terrace_core::Random;

    /// Numbers of every length.
    pub(crate) fn any_number(random: &mut Random) -> u64 {
        random.next_u64() >> random.below(64)
    }

    pub(crate) fn any_access(random: &mut Random) -> Access {
        let slot = random.below(5) as u32;
        let slot = if random.chance(0.1) { u32::MAX - slot } else { slot };
        let event = Event {
            kind: EventKind::ALL[random.below(EventKind::ALL.len() as u64) as usize],
            slot,
            incarnation: random.below(3) as u32,
            tier: TierIndex(random.below(3) as u8 * 15),
            count: if random.chance(0.8) { 1 } else { any_number(random) as u32 },
            time_ns: any_number(random),
            offset_bytes: any_number(random),
            length_bytes: any_number(random),
            latency_ns: any_number(random),
            outcome: Outcome::ALL[random.below(12) as usize],
        };
        let wait_ns = |random: &mut Random| {
            if random.chance(0.5) { 0 } else { any_number(random) }
        };
        let waits = Waits { guard_ns: wait_ns(random), stack_ns: wait_ns(random) };
        Access { event, waits }
    }

    #[test]
    fn accesses_come_back() {
        let mut random = Random::new(1);
        let accesses: Vec<_> = (0..2000).map(|_| any_access(&mut random)).collect();
        let mut bytes = vec![0; accesses.len() * ACCESS_BYTES_MAX];
        let (mut before, mut at) = (Before::default(), 0);
        for access in &accesses {
            let end = before.put(&mut bytes, at, access);
            assert!(end - at <= ACCESS_BYTES_MAX);
            at = end;
        }
        let (mut before, mut decoder) = (Before::default(), Decoder::new(&bytes[..at]));
        for access in &accesses {
            let head = decoder.u8().expect("there is another one");
            assert_eq!(before.get(head, &mut decoder).as_ref(), Ok(access));
        }
        assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn a_usual_access_is_small() {
        let mut bytes = vec![0; ACCESS_BYTES_MAX];
        let mut before = Before::default();
        let mut event = Event::new(EventKind::Read, 70, 0, 1_000_000_000);
        (event.length_bytes, event.latency_ns) = (4096, 500);
        let waits = Waits::default();
        before.put(&mut bytes, 0, &Access { event, waits });
        event.time_ns += 600;
        event.offset_bytes = 9 << 20;
        event.latency_ns = 530;
        assert!(before.put(&mut bytes, 0, &Access { event, waits }) <= 9);
    }
}
