// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace comes to: how much, for how many, how soon again.

use std::collections::BTreeMap;

use terrace_core::Result;

use crate::objects::Objects;
use crate::read::Trace;
use crate::request::{Operation, Request};

/// Windows that the time of a trace is cut into.
const WINDOWS: u64 = 20;

/// What a trace comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Requests, and the lengths of what they are for.
    pub all: Sum,
    /// Those that read.
    pub reads: Sum,
    /// Those that write.
    pub writes: Sum,
    /// The objects, with the sizes that they had last.
    pub objects: Sum,
    /// Times of the first and the last request.
    pub span_ns: Option<(u64, u64)>,
    /// Requests for what was asked for before, by how many other objects were meanwhile: a key is the
    /// end of a range that begins at half of it. 1 stands for none.
    pub distances: BTreeMap<u64, u64>,
    /// The same by the sizes of those objects and of the object itself.
    pub distances_bytes: BTreeMap<u64, u64>,
    /// Parts of the span, all equally long.
    pub windows: Vec<Window>,
}

/// How many, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A part of the time of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When it begins.
    pub from_ns: u64,
    /// Requests in it.
    pub requests: u64,
    /// Different objects that they are for: the working set.
    pub working_set: Sum,
    /// Objects that were not asked for before.
    pub new_objects: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Profile {
    /// Reads a trace twice: `open` opens it.
    ///
    /// # Errors
    ///
    /// Those of reading; `Unsupported` for more objects than 32 bits count.
    pub fn of(open: &dyn Fn() -> Result<Trace>, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let mut span: Option<(u64, u64)> = None;
        each(&mut open()?, &mut |request| {
            let (first, last) = span.unwrap_or((request.time_ns, request.time_ns));
            span = Some((first.min(request.time_ns), last.max(request.time_ns)));
            Ok(())
        })?;
        let mut profiler = Profiler::new(span);
        let mut count = 0;
        each(&mut open()?, &mut |request| {
            count += 1;
            if count == 1024 {
                progress(count);
                count = 0;
            }
            profiler.add(request)
        })?;
        Ok(profiler.finish())
    }

    /// The smallest range end below which so large a part of the repeated requests is.
    pub fn distance(&self, part: f64) -> Option<u64> {
        quantile(&self.distances, part)
    }

    /// The same in bytes.
    pub fn distance_bytes(&self, part: f64) -> Option<u64> {
        quantile(&self.distances_bytes, part)
    }
}

fn quantile(ranges: &BTreeMap<u64, u64>, part: f64) -> Option<u64> {
    let wanted = (ranges.values().sum::<u64>() as f64 * part).ceil() as u64;
    let mut passed = 0;
    ranges.iter().find_map(|(end, count)| {
        passed += count;
        (passed >= wanted).then_some(*end)
    })
}

fn each(trace: &mut Trace, take: &mut dyn FnMut(&Request) -> Result<()>) -> Result<()> {
    let mut requests = Vec::new();
    loop {
        trace.read(&mut requests)?;
        if requests.is_empty() {
            return Ok(());
        }
        requests.iter().try_for_each(&mut *take)?;
    }
}

struct Profiler {
    profile: Profile,
    window_ns: u64,
    objects: Objects,
    numbers: Vec<u32>,
    known: Vec<Known>,
    stack: Stack,
}

/// What is known of an object.
#[derive(Clone, Copy)]
struct Known {
    /// Where it is on the stack.
    place: usize,
    bytes: u64,
    /// The window in which it was asked for last.
    window: u64,
}

impl Profiler {
    fn new(span_ns: Option<(u64, u64)>) -> Self {
        let (first, last) = span_ns.unwrap_or((0, 0));
        let window_ns = (last - first) / WINDOWS + 1;
        let count = if span_ns.is_some() { (last - first) / window_ns + 1 } else { 0 };
        let from = |index| Window { from_ns: first + index * window_ns, ..Window::default() };
        let windows = (0..count).map(from).collect();
        Self {
            profile: Profile { span_ns, windows, ..Profile::default() },
            window_ns,
            objects: Objects::default(),
            numbers: Vec::new(),
            known: Vec::new(),
            stack: Stack::default(),
        }
    }

    fn add(&mut self, request: &Request) -> Result<()> {
        let profile = &mut self.profile;
        profile.all.add(request.length_bytes);
        match request.operation {
            Operation::Read => profile.reads.add(request.length_bytes),
            Operation::Write => profile.writes.add(request.length_bytes),
            _ => {}
        }
        let first_ns = profile.span_ns.map_or(0, |(first, _)| first);
        let index = request.time_ns.saturating_sub(first_ns) / self.window_ns;
        let index = index.min(profile.windows.len().saturating_sub(1) as u64);
        // A trace that has grown since its span was found ends with that.
        let Some(window) = profile.windows.get_mut(index as usize) else { return Ok(()) };
        window.requests += 1;
        self.numbers.clear();
        self.objects.numbers(std::iter::once(request.object), &mut self.numbers)?;
        let number = self.numbers[0] as usize;
        let bytes = request.size_bytes;
        if let Some(known) = self.known.get(number).copied() {
            let above = self.stack.above(known.place);
            *profile.distances.entry(end_of_range(above.count)).or_default() += 1;
            let distance_bytes = end_of_range(above.bytes.saturating_add(bytes));
            *profile.distances_bytes.entry(distance_bytes).or_default() += 1;
            self.stack.remove(known.place, known.bytes);
            if known.window != index {
                window.working_set.add(bytes);
            }
        } else {
            self.known.push(Known { place: 0, bytes, window: index });
            window.new_objects += 1;
            window.working_set.add(bytes);
        }
        if self.stack.is_full() {
            self.stack.rebuild(&mut self.known, number);
        }
        let place = self.stack.push(bytes);
        self.known[number] = Known { place, bytes, window: index };
        Ok(())
    }

    fn finish(mut self) -> Profile {
        self.known.iter().for_each(|known| self.profile.objects.add(known.bytes));
        self.profile
    }
}

/// The end of the range, from half of a power of two to it, that a number is in; 1 for 0.
fn end_of_range(number: u64) -> u64 {
    number.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Objects in the order in which they were asked for last, with sums over those that are above any
/// place: a binary indexed tree (Fenwick 1994).
#[derive(Default)]
struct Stack {
    /// Sums over the places from 1; a place that an object left counts for nothing.
    tree: Vec<Sum>,
    /// The place that was given last.
    top: usize,
    all: Sum,
}

impl Stack {
    fn is_full(&self) -> bool {
        self.top + 1 >= self.tree.len()
    }

    /// All that is above a place.
    fn above(&self, place: usize) -> Sum {
        let (mut at, mut below) = (place, Sum::default());
        while at > 0 {
            below.count += self.tree[at].count;
            below.bytes = below.bytes.wrapping_add(self.tree[at].bytes);
            at &= at - 1;
        }
        let bytes = self.all.bytes.wrapping_sub(below.bytes);
        Sum { count: self.all.count - below.count, bytes }
    }

    fn push(&mut self, bytes: u64) -> usize {
        self.top += 1;
        self.all.count += 1;
        self.all.bytes = self.all.bytes.wrapping_add(bytes);
        let mut at = self.top;
        while at < self.tree.len() {
            self.tree[at].count += 1;
            self.tree[at].bytes = self.tree[at].bytes.wrapping_add(bytes);
            at += at & at.wrapping_neg();
        }
        self.top
    }

    fn remove(&mut self, place: usize, bytes: u64) {
        self.all.count -= 1;
        self.all.bytes = self.all.bytes.wrapping_sub(bytes);
        let mut at = place;
        while at < self.tree.len() {
            self.tree[at].count -= 1;
            self.tree[at].bytes = self.tree[at].bytes.wrapping_sub(bytes);
            at += at & at.wrapping_neg();
        }
    }

    /// Gives all objects but one new places without gaps, and room for as many more.
    fn rebuild(&mut self, known: &mut [Known], but: usize) {
        let mut order: Vec<usize> = (0..known.len()).filter(|number| *number != but).collect();
        order.sort_unstable_by_key(|number| known[*number].place);
        let room = (2 * known.len()).next_power_of_two().max(1024);
        *self = Self { tree: vec![Sum::default(); room], ..Self::default() };
        for number in order {
            known[number].place = self.push(known[number].bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use terrace_core::Random;

    use super::*;
    use crate::read::Options;

    #[test]
    fn distances_are_those_of_a_plain_stack() {
        let mut random = Random::new(5);
        let requests: Vec<(u64, u64)> = (0..6000)
            .map(|_| {
                let object = (400.0 * random.unit().powi(2)) as u64;
                (object, 1 + object * 37 % 50)
            })
            .collect();
        let mut stack: Vec<(u64, u64)> = Vec::new();
        let (mut counts, mut bytes) = (BTreeMap::new(), BTreeMap::new());
        for request in &requests {
            if let Some(at) = stack.iter().position(|other| other.0 == request.0) {
                let above: u64 = stack[at..].iter().map(|(_, bytes)| bytes).sum();
                *counts.entry(end_of_range((stack.len() - at - 1) as u64)).or_default() += 1;
                *bytes.entry(end_of_range(above)).or_default() += 1;
                stack.remove(at);
            }
            stack.push(*request);
        }
        let text: Vec<String> =
            requests.iter().map(|(object, bytes)| format!("{object},{bytes}\n")).collect();
        let text = format!("id,size\n{}", text.concat());
        let open = || {
            let stream = Box::new(Cursor::new(text.clone().into_bytes()));
            Trace::from_stream(stream, "test", &Options::default())
        };
        let profile = Profile::of(&open, &mut |_| {}).unwrap();
        assert_eq!((profile.distances, profile.distances_bytes), (counts, bytes));
        assert_eq!(profile.objects.count, stack.len() as u64);
        assert_eq!(profile.all.count, 6000);
        assert_eq!(profile.windows.len(), 20);
        assert_eq!(profile.windows.iter().map(|window| window.requests).sum::<u64>(), 6000);
        let new: u64 = profile.windows.iter().map(|window| window.new_objects).sum();
        assert_eq!(new, profile.objects.count);
    }
}
