// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders in which segments may be read one after the other, and the streams that read along them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use terrace_core::{Key, SegmentView, Slot, View};

use crate::mechanism::saved::{Name, Names};

/// Readers of one order that are kept apart; the one that was not seen for longest gives way.
const STREAMS_MAX: usize = 32;

/// Longest stride, in segments of the order.
const REACH: usize = 16;

/// Steps of the same stride after which a stream counts as one.
const PROVEN: u32 = 2;

/// A segment's place by name, in which numbers count as numbers: `step-9` is before `step-10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByName(Key, u32);

impl ByName {
    pub(super) fn of(segment: &SegmentView) -> Self {
        Self(segment.key.clone(), segment.segment)
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (self.0.as_str(), other.0.as_str());
        // Names such as `1` and `01` are the same as numbers.
        let by_text = || own.cmp(others).then(self.1.cmp(&other.1));
        compare(own.as_bytes(), others.as_bytes()).then_with(by_text)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let (Some(first), Some(second)) = (a.first(), b.first()) else {
            return a.len().cmp(&b.len());
        };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (number, others) = (digits(&mut a), digits(&mut b));
            let order = number.len().cmp(&others.len()).then(number.cmp(others));
            if order != Ordering::Equal {
                return order;
            }
            continue;
        }
        if first != second {
            return first.cmp(second);
        }
        (a, b) = (&a[1..], &b[1..]);
    }
}

/// Takes the digits at the beginning, without zeros before the first other one.
fn digits<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    &number[zeros..]
}

/// All segments in an order, and the streams of readers along it.
#[derive(Debug)]
pub(super) struct Sequence<P> {
    slots: BTreeMap<P, Slot>,
    /// By slot.
    places: Vec<Option<P>>,
    /// The one that was seen last is the last.
    streams: Vec<Stream>,
}

/// Reads that follow each other at the same stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    last: Slot,
    /// Segments from one read to the next, backwards if negative; 0 before the second.
    stride: i32,
    /// How often it was this.
    runs: u32,
    last_ns: u64,
    interval_ns: u64,
}

/// A stream as it is saved: with its age, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedStream {
    pub(super) last: Name,
    stride: i32,
    runs: u32,
    age_ns: u64,
    interval_ns: u64,
}

impl<P> Default for Sequence<P> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), places: Vec::new(), streams: Vec::new() }
    }
}

impl<P: Ord + Clone> Sequence<P> {
    /// Takes in a segment.
    pub(super) fn put(&mut self, slot: Slot, place: P) {
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        if let Some(before) = self.slots.insert(place.clone(), slot) {
            self.places[before as usize] = None;
        }
        self.places[index] = Some(place);
    }

    /// Forgets a segment that is gone.
    pub(super) fn remove(&mut self, slot: Slot) {
        let place = self.places.get_mut(slot as usize).and_then(Option::take);
        if let Some(place) = place {
            self.slots.remove(&place);
            self.streams.retain(|stream| stream.last != slot);
        }
    }

    /// A segment is read: finds the stream that it continues, or may continue, or begins one. Returns
    /// it if it has proven itself.
    pub(super) fn touch(&mut self, slot: Slot, now_ns: u64) -> Option<Stream> {
        let fresh = Stream { last: slot, stride: 0, runs: 0, last_ns: now_ns, interval_ns: 0 };
        let strides = self.strides_to(slot);
        let stride_of = |stream: &Stream| {
            strides.iter().find(|(from, _)| *from == stream.last).map(|(_, stride)| *stride)
        };
        let continues = |stream: &Stream| stride_of(stream) == Some(stream.stride);
        let continued = self.streams.iter().rposition(continues);
        let nearest = || {
            let open = self.streams.iter().enumerate().rev().filter(|(_, it)| it.runs < PROVEN);
            let may = open.filter_map(|(index, it)| Some((stride_of(it)?.abs(), index)));
            may.min_by_key(|(distance, _)| *distance).map(|(_, index)| index)
        };
        let stream = match continued.or_else(nearest) {
            None => fresh,
            Some(index) => {
                let before = self.streams.remove(index);
                let stride = stride_of(&before).unwrap_or(0);
                let pause_ns = now_ns.saturating_sub(before.last_ns);
                let runs = if stride == before.stride { before.runs.saturating_add(1) } else { 1 };
                let interval_ns = match runs {
                    1 => pause_ns,
                    _ => (before.interval_ns / 4).saturating_mul(3).saturating_add(pause_ns / 4),
                };
                Stream { stride, runs, interval_ns, ..fresh }
            }
        };
        if self.streams.len() == STREAMS_MAX {
            self.streams.remove(0);
        }
        self.streams.push(stream);
        (stream.runs >= PROVEN).then_some(stream)
    }

    /// What a stream is going to read next, and when.
    pub(super) fn ahead(&self, stream: &Stream) -> impl Iterator<Item = (Slot, u64)> {
        let step = stream.stride.unsigned_abs() as usize;
        let (forwards, backwards) = match stream.stride > 0 {
            true => (Some(self.after(stream.last)), None),
            false => (None, Some(self.before(stream.last))),
        };
        let slots = forwards.into_iter().flatten().chain(backwards.into_iter().flatten());
        let Stream { last_ns, interval_ns, .. } = *stream;
        let next = slots.skip(step.saturating_sub(1)).step_by(step.max(1));
        next.zip(1..).map(move |(slot, steps)| {
            (slot, last_ns.saturating_add(interval_ns.saturating_mul(steps)))
        })
    }

    /// From which segments one stride of which length leads to this one.
    fn strides_to(&self, slot: Slot) -> Vec<(Slot, i32)> {
        let forwards = self.before(slot).zip(1..).take(REACH);
        let backwards = self.after(slot).zip((i32::MIN..0).rev()).take(REACH);
        forwards.chain(backwards).collect()
    }

    fn after(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let place = self.places.get(slot as usize).and_then(Option::as_ref);
        let range = place.map(|place| self.slots.range((Bound::Excluded(place), Bound::Unbounded)));
        range.into_iter().flatten().map(|(_, slot)| *slot)
    }

    fn before(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let place = self.places.get(slot as usize).and_then(Option::as_ref);
        let range = place.map(|place| self.slots.range(..place).rev());
        range.into_iter().flatten().map(|(_, slot)| *slot)
    }

    pub(super) fn save(&self, view: &View) -> Vec<SavedStream> {
        let saved = |stream: &Stream| SavedStream {
            last: Name::of(&view.segments[stream.last as usize]),
            stride: stream.stride,
            runs: stream.runs,
            age_ns: view.now_ns.saturating_sub(stream.last_ns),
            interval_ns: stream.interval_ns,
        };
        self.streams.iter().map(saved).collect()
    }

    pub(super) fn restore(&mut self, view: &View, names: &Names<'_>, saved: &[SavedStream]) {
        let stream = |saved: &SavedStream| {
            Some(Stream {
                last: names.slot(&saved.last)?,
                stride: saved.stride,
                runs: saved.runs,
                last_ns: view.now_ns.saturating_sub(saved.age_ns),
                interval_ns: saved.interval_ns,
            })
        };
        self.streams = saved.iter().take(STREAMS_MAX).filter_map(stream).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(count: u32) -> Sequence<u32> {
        let mut sequence = Sequence::default();
        (0..count).for_each(|slot| sequence.put(slot, slot));
        sequence
    }

    fn slots(sequence: &Sequence<u32>, stream: &Stream) -> Vec<Slot> {
        sequence.ahead(stream).map(|(slot, _)| slot).take(3).collect()
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let place = |text| ByName(Key::parse(text).expect("legal"), 0);
        let mut names = ["a/s-10.h5", "a/s-9.h5", "b/1", "a/s-009.h5", "a/s", "a/s-10.h4", "a/s-9"];
        names.sort_by_key(|name| place(name));
        let sorted = ["a/s", "a/s-9", "a/s-009.h5", "a/s-9.h5", "a/s-10.h4", "a/s-10.h5", "b/1"];
        assert_eq!(names, sorted);
    }

    #[test]
    fn a_stride_that_comes_twice_is_followed_forwards_and_backwards() {
        let mut sequence = sequence(40);
        assert_eq!(sequence.touch(3, 100), None);
        assert_eq!(sequence.touch(6, 200), None);
        let stream = sequence.touch(9, 300).expect("the second step of three");
        assert_eq!(slots(&sequence, &stream), [12, 15, 18]);
        assert_eq!(sequence.ahead(&stream).next(), Some((12, 400)));
        for slot in [39, 37] {
            assert_eq!(sequence.touch(slot, 400), None);
        }
        let stream = sequence.touch(35, 500).expect("two back, twice");
        assert_eq!(slots(&sequence, &stream), [33, 31, 29]);
    }

    #[test]
    fn interleaved_readers_are_told_apart() {
        let mut sequence = sequence(400);
        let mut found = Vec::new();
        for step in 0..4 {
            for reader in [0, 100, 200] {
                found.push(sequence.touch(reader + step, 0).map(|it| slots(&sequence, &it)[0]));
            }
        }
        let expected = [[None; 3], [None; 3], [3, 103, 203].map(Some), [4, 104, 204].map(Some)];
        assert_eq!(found, expected.concat());
    }

    #[test]
    fn what_is_gone_is_stepped_over() {
        let mut sequence = sequence(20);
        sequence.remove(4);
        let _ = [1, 2].map(|slot| sequence.touch(slot, 0));
        let stream = sequence.touch(3, 0).expect("a sequence");
        assert_eq!(slots(&sequence, &stream), [5, 6, 7]);
        sequence.remove(3);
        assert_eq!(sequence.touch(5, 0), None, "the stream has ended with it");
    }

    #[test]
    fn the_stream_that_was_not_seen_for_longest_gives_way() {
        let mut sequence = sequence(2000);
        (0..STREAMS_MAX as u32 + 1).for_each(|reader| {
            sequence.touch(reader * 50, 0);
        });
        assert_eq!(sequence.streams.len(), STREAMS_MAX);
        assert_eq!(sequence.streams[0].last, 50);
    }
}
