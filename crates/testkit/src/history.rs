// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what several threads saw of one object could have happened one after the other.

use std::collections::HashSet;

/// What was asked of an object whose values are numbers, each written at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To create it with this value.
    Create(u64),
    /// To replace the value of one that exists.
    Write(u64),
    /// To remove it.
    Delete,
    /// To read it.
    Read,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is done.
    Done,
    /// It holds this value.
    Found(u64),
    /// There is no such object.
    Missing,
    /// There is one already.
    Exists,
}

/// Something that was asked and perhaps answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// A moment before it was asked; all events of a history share one count of moments.
    pub start: u64,
    /// A moment after it was answered.
    pub end: u64,
    /// What was asked.
    pub action: Action,
    /// The answer; `None` where it is unknown whether it was done, or will be.
    pub answer: Option<Answer>,
}

/// Looks for an order in which the events of one object, one after the other, give the answers that
/// were given, each at some moment between its start and its end: whether the history is
/// linearizable (Herlihy and Wing 1990). Events without an answer may have happened at any moment
/// after their start, or never. The object does not exist at first.
///
/// Searches as Wing and Gong (1993) do and remembers, like Lowe (2017), what it has looked at.
pub fn is_linearizable(events: &[Event]) -> bool {
    let found: HashSet<_> = events.iter().filter_map(|event| event.answer).collect();
    // A write without an answer that no read saw changes nothing of the other answers, so an order
    // without it is as good.
    let matters = |event: &&Event| match (event.answer, event.action) {
        (None, Action::Write(value)) => found.contains(&Answer::Found(value)),
        (None, action) => action != Action::Read,
        _ => true,
    };
    let mut events: Vec<Event> = events.iter().filter(matters).copied().collect();
    events.sort_by_key(|event| event.start);
    Search { done: vec![0; events.len().div_ceil(64)], events, seen: HashSet::new() }.search()
}

struct Search {
    /// In the order of their starts.
    events: Vec<Event>,
    /// A bit for each event that has its place in the order.
    done: Vec<u64>,
    seen: HashSet<(Vec<u64>, Option<u64>)>,
}

/// A place in the order: which event, and the value before it.
struct Step {
    index: usize,
    before: Option<u64>,
}

impl Search {
    fn search(&mut self) -> bool {
        let mut steps: Vec<Step> = Vec::new();
        let mut value = None;
        // Where the search for the next event goes on.
        let mut from = 0;
        loop {
            if self.is_complete() {
                return true;
            }
            match self.next(value, from) {
                Some((index, after)) => {
                    self.flip(index);
                    if self.seen.insert((self.done.clone(), after)) {
                        steps.push(Step { index, before: value });
                        (value, from) = (after, 0);
                    } else {
                        self.flip(index);
                        from = index + 1;
                    }
                }
                None => {
                    let Some(step) = steps.pop() else { return false };
                    self.flip(step.index);
                    (value, from) = (step.before, step.index + 1);
                }
            }
        }
    }

    /// The next event from `from` on that may come now, and the value after it.
    fn next(&self, value: Option<u64>, from: usize) -> Option<(usize, Option<u64>)> {
        let left = |index: &usize| !self.is_done(*index);
        let answered = (0..self.events.len())
            .filter(left)
            .filter(|index| self.events[*index].answer.is_some());
        // What began after another had ended comes after it.
        let end = answered.map(|index| self.events[index].end).min()?;
        (from..self.events.len())
            .filter(left)
            .take_while(|index| self.events[*index].start <= end)
            .find_map(|index| Some((index, after(&self.events[index], value)?)))
    }

    fn is_complete(&self) -> bool {
        (0..self.events.len())
            .all(|index| self.is_done(index) || self.events[index].answer.is_none())
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] >> (index % 64) & 1 == 1
    }

    fn flip(&mut self, index: usize) {
        self.done[index / 64] ^= 1 << (index % 64);
    }
}

/// The value after an event; `None` where its answer does not fit the value before.
fn after(event: &Event, value: Option<u64>) -> Option<Option<u64>> {
    let changed = match (event.action, value) {
        (Action::Create(new), None) | (Action::Write(new), Some(_)) => Some(Some(new)),
        (Action::Delete, Some(_)) => Some(None),
        _ => None,
    };
    match event.answer {
        // What failed without an answer is the same as what never happened.
        None => changed,
        Some(Answer::Done) => changed,
        Some(Answer::Found(found)) => {
            (event.action == Action::Read && value == Some(found)).then_some(value)
        }
        Some(Answer::Missing) => {
            let may_miss = !matches!(event.action, Action::Create(_));
            (may_miss && value.is_none()).then_some(value)
        }
        Some(Answer::Exists) => {
            (matches!(event.action, Action::Create(_)) && value.is_some()).then_some(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(start: u64, end: u64, action: Action, answer: impl Into<Option<Answer>>) -> Event {
        Event { start, end, action, answer: answer.into() }
    }

    use Action::{Create, Delete, Read, Write};
    use Answer::{Done, Exists, Found, Missing};

    #[test]
    fn one_after_the_other_is_linearizable() {
        assert!(is_linearizable(&[]));
        assert!(is_linearizable(&[
            event(1, 2, Read, Missing),
            event(3, 4, Create(1), Done),
            event(5, 6, Create(2), Exists),
            event(7, 8, Read, Found(1)),
            event(9, 10, Write(3), Done),
            event(11, 12, Read, Found(3)),
            event(13, 14, Delete, Done),
            event(15, 16, Delete, Missing),
            event(17, 18, Write(4), Missing),
            event(19, 20, Read, Missing),
        ]));
    }

    #[test]
    fn an_old_value_after_a_new_one_is_not() {
        let begin = [event(1, 2, Create(1), Done), event(3, 4, Write(2), Done)];
        assert!(is_linearizable(&[begin[0], begin[1], event(5, 6, Read, Found(2))]));
        assert!(!is_linearizable(&[begin[0], begin[1], event(5, 6, Read, Found(1))]));
        assert!(!is_linearizable(&[begin[0], begin[1], event(5, 6, Read, Missing)]));
        assert!(!is_linearizable(&[begin[0], begin[1], event(5, 6, Read, Found(9))]));
    }

    #[test]
    fn what_overlaps_may_come_in_any_order_but_only_in_one() {
        let begin = event(1, 2, Create(1), Done);
        let write = event(3, 10, Write(2), Done);
        let (early, late) = (event(4, 5, Read, Found(1)), event(6, 7, Read, Found(2)));
        assert!(is_linearizable(&[begin, write, early, late]));
        let (early, late) = (event(4, 5, Read, Found(2)), event(6, 7, Read, Found(1)));
        assert!(!is_linearizable(&[begin, write, early, late]), "it came and went");
        let two = [event(3, 10, Create(5), Done), event(3, 10, Create(6), Done)];
        assert!(!is_linearizable(&two), "only one of them can have been new");
    }

    #[test]
    fn what_was_not_answered_may_happen_late_or_never_but_not_twice() {
        let begin = event(1, 2, Create(1), Done);
        let unknown = event(3, 4, Write(2), None);
        let read = |at, answer| event(at, at, Read, answer);
        assert!(is_linearizable(&[begin, unknown, read(5, Found(1)), read(6, Found(1))]));
        assert!(is_linearizable(&[begin, unknown, read(5, Found(1)), read(6, Found(2))]));
        assert!(!is_linearizable(&[begin, unknown, read(5, Found(2)), read(6, Found(1))]));
        let other = event(7, 8, Write(3), Done);
        let twice = [begin, unknown, read(5, Found(2)), other, read(9, Found(2))];
        assert!(!is_linearizable(&twice));
        let before = [begin, read(2, Found(2)), unknown];
        assert!(!is_linearizable(&before), "seen before it was asked for");
    }

    #[test]
    fn long_histories_of_many_threads_are_searched_in_reasonable_time() {
        let mut events = vec![event(0, 0, Create(0), Done)];
        for round in 1..200_u64 {
            for thread in 0..4 {
                let (start, value) = (round * 100 + thread, round * 4 + thread);
                events.push(event(start, start + 90, Write(value), Done));
            }
            events.push(event(round * 100 + 95, round * 100 + 96, Read, Found(round * 4 + 2)));
            if round % 20 == 0 {
                events.push(event(round * 100, round * 100 + 1, Write(10_000 + round), None));
            }
        }
        assert!(is_linearizable(&events));
        events.push(event(30_000, 30_001, Read, Found(4)));
        assert!(!is_linearizable(&events));
    }
}
