// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients do at random, and what they were answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use terrace_client::{Remote, RemoteKv};
use terrace_core::{
    Applied, Atomicity, Backend, Error, ErrorKind, Hint, Key, Kv, Op, Persistency, Random, Reply,
    Request, Result, Semantics,
};
use terrace_testkit::history::{Action, Answer, Event};

/// Length of every value.
const VALUE_BYTES: usize = 256;

/// Whole values are asked for.
pub(crate) const WHOLE: Semantics = Semantics {
    atomicity: Atomicity::Operation,
    persistency: Persistency::None,
    ..Semantics::DEFAULT
};

/// Something that holds values under names.
pub(crate) trait Registers: Sync {
    fn act(&self, name: u64, action: Action) -> Result<Answer>;
}

/// As objects, one operation a batch.
pub(crate) struct Objects<'a>(pub(crate) &'a Remote);

/// As pairs.
pub(crate) struct Pairs(pub(crate) RemoteKv);

fn value(tag: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(VALUE_BYTES / 8)
}

/// The number in a value.
///
/// # Panics
///
/// Where it is of two values.
fn tag(value: &[u8]) -> u64 {
    assert_eq!(value.len(), VALUE_BYTES, "a part of a value");
    let tag = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert!(value == self::value(tag), "two values at once: {value:?}");
    tag
}

impl Registers for Objects<'_> {
    fn act(&self, name: u64, action: Action) -> Result<Answer> {
        let key = &Key::new("simulated", &name.to_string())?;
        let mut buffer = [0; VALUE_BYTES + 1];
        let data = match action {
            Action::Create(tag) | Action::Write(tag) => value(tag),
            Action::Delete | Action::Read => Vec::new(),
        };
        let request = match action {
            Action::Create(_) => Request::Create { key, data: &data, hint: Hint::default() },
            Action::Write(_) => Request::Write { key, offset_bytes: 0, data: &data },
            Action::Delete => Request::Delete { key },
            Action::Read => Request::Read { key, offset_bytes: 0, buffer: &mut buffer },
        };
        let mut operations = [Op::new(request)];
        self.0.execute(&mut operations, &WHOLE);
        let [operation] = operations;
        match operation.outcome.expect("every operation ends") {
            Ok(Reply::Count(count)) => Ok(Answer::Found(tag(&buffer[..count]))),
            Ok(_) => Ok(Answer::Done),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(Answer::Missing),
                ErrorKind::Exists => Ok(Answer::Exists),
                _ => Err(error),
            },
        }
    }
}

impl Registers for Pairs {
    fn act(&self, name: u64, action: Action) -> Result<Answer> {
        let key = name.to_le_bytes();
        if action == Action::Read {
            let value = self.0.get(&key)?;
            return Ok(value.map_or(Answer::Missing, |value| Answer::Found(tag(&value))));
        }
        let mut answer = Answer::Done;
        self.0.transact(&mut |txn| {
            let is_there = txn.get(&key)?.is_some();
            answer = match (action, is_there) {
                (Action::Create(_), true) => Answer::Exists,
                (Action::Write(_) | Action::Delete, false) => Answer::Missing,
                _ => Answer::Done,
            };
            match action {
                _ if answer != Answer::Done => Ok(()),
                Action::Create(tag) | Action::Write(tag) => txn.put(&key, &value(tag)),
                _ => txn.delete(&key),
            }
        })?;
        Ok(answer)
    }
}

/// Whether nobody knows if a change was made. `None` where it was not made.
///
/// # Panics
///
/// For errors that no fault of a network explains.
pub(crate) fn is_unknown(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable { applied } => applied == Applied::Unknown,
        ErrorKind::Busy => false,
        _ => panic!("{}", error.chain()),
    }
}

/// Events of all threads, by name.
#[derive(Default)]
pub(crate) struct Histories {
    moment: AtomicU64,
    tag: AtomicU64,
    events: Mutex<Vec<(u64, Event)>>,
}

impl Histories {
    /// Does something random to one of so many names.
    pub(crate) fn step(&self, registers: &dyn Registers, names: u64, random: &mut Random) {
        let tag = self.tag.fetch_add(1, Ordering::SeqCst) + 1;
        let action = match random.below(10) {
            0..=2 => Action::Create(tag),
            3..=5 => Action::Write(tag),
            6 => Action::Delete,
            _ => Action::Read,
        };
        self.act(registers, random.below(names), action);
    }

    /// Does this and notes what was answered.
    pub(crate) fn act(&self, registers: &dyn Registers, name: u64, action: Action) {
        let start = self.moment.fetch_add(1, Ordering::SeqCst);
        let answered = registers.act(name, action);
        let end = self.moment.fetch_add(1, Ordering::SeqCst);
        let answer = match answered {
            Ok(answer) => Some(answer),
            Err(error) if is_unknown(&error) => None,
            // It was not done, or so it says: if it was, its value is nobody's.
            Err(_) => return,
        };
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((name, Event { start, end, action, answer }));
    }

    /// What happened to a name.
    pub(crate) fn of(&self, name: u64) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|(of, _)| *of == name).map(|(_, event)| *event).collect()
    }

    /// How many events have no answer.
    pub(crate) fn unknown(&self) -> usize {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|(_, event)| event.answer.is_none()).count()
    }
}
