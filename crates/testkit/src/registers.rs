// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values under names in any store, what threads do to them at random, and what they were answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use terrace_core::{
    Applied, Backend, BackendExt, Create, Error, ErrorKind, Hint, Key, Kv, ObjectExt, Op, Open,
    Random, Reply, Request, Result, Semantics,
};

use crate::history::{Action, Answer, Event};
use crate::versions::{content, version_of};

/// Length of every value.
const VALUE_BYTES: usize = 256;

/// Something that holds values under names.
pub trait Registers: Sync {
    /// Does this to a name. Errors: those of the store, other than that there is or is not one.
    fn act(&self, name: u64, action: Action) -> Result<Answer>;
}

/// As objects, one operation a batch, with these semantics.
pub struct Objects<'a>(pub &'a dyn Backend, pub Semantics);

/// As objects that are replaced as a whole, with these semantics, of which every value has another
/// length.
pub struct Puts<'a>(pub &'a dyn Backend, pub Semantics);

/// As pairs.
pub struct Pairs<'a>(pub &'a dyn Kv);

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
        let key = &Key::new("registers", &name.to_string())?;
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
        self.0.execute(&mut operations, &self.1);
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

impl Registers for Puts<'_> {
    fn act(&self, name: u64, action: Action) -> Result<Answer> {
        let Self(backend, semantics) = self;
        let key = Key::new("puts", &name.to_string())?;
        let put = |create, tag| {
            let how = Open { create, ..Open::default() }.with_semantics(*semantics);
            let draft = backend.draft(&key, &how)?;
            let data = content(u32::try_from(tag).expect("there are not that many"));
            // Each of these is seen by itself where the draft is not hidden.
            let (first, second) = data.split_at(data.len() / 2);
            draft.object().write(0, first)?;
            draft.object().write(first.len() as u64, second)?;
            draft.publish().map(|_| Answer::Done)
        };
        let acted = match action {
            Action::Create(tag) => put(Create::New, tag),
            Action::Write(tag) => put(Create::Never, tag),
            Action::Delete => backend.delete(&key).map(|()| Answer::Done),
            Action::Read => {
                backend.read_all(&key).map(|found| Answer::Found(version_of(&found).into()))
            }
        };
        match acted {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Answer::Missing),
            Err(error) if error.kind() == ErrorKind::Exists => Ok(Answer::Exists),
            // Published twice: an answer that no order explains.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(match action {
                Action::Create(_) => Answer::Missing,
                _ => Answer::Exists,
            }),
            acted => acted,
        }
    }
}

impl Registers for Pairs<'_> {
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

/// Whether it is unknown if a change was made that failed for a fault of the network.
///
/// # Panics
///
/// For errors that no fault of a network explains.
pub fn is_unknown(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable { applied } => applied == Applied::Unknown,
        ErrorKind::Busy => false,
        _ => panic!("{}", error.chain()),
    }
}

/// Events of all threads, by name.
#[derive(Debug, Default)]
pub struct Histories {
    moment: AtomicU64,
    tag: AtomicU64,
    events: Mutex<Vec<(u64, Event)>>,
}

impl Histories {
    /// Does something random to one of so many names.
    pub fn step(&self, registers: &dyn Registers, names: u64, random: &mut Random) {
        let tag = self.new_tag();
        let action = match random.below(10) {
            0..=2 => Action::Create(tag),
            3..=5 => Action::Write(tag),
            6 => Action::Delete,
            _ => Action::Read,
        };
        self.act(registers, random.below(names), action);
    }

    /// A number that no value has had.
    pub fn new_tag(&self) -> u64 {
        self.tag.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Does this and notes what was answered.
    pub fn act(&self, registers: &dyn Registers, name: u64, action: Action) {
        let start = self.moment.fetch_add(1, Ordering::SeqCst);
        let answered = registers.act(name, action);
        let end = self.moment.fetch_add(1, Ordering::SeqCst);
        let answer = match answered {
            Ok(answer) => Some(answer),
            Err(error) if is_unknown(&error) => None,
            // The answer is that it was not done: if it was, its value belongs to no write.
            Err(_) => return,
        };
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((name, Event { start, end, action, answer }));
    }

    /// What happened to a name.
    pub fn of(&self, name: u64) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|(of, _)| *of == name).map(|(_, event)| *event).collect()
    }

    /// How many events there are, and how many of them have no answer.
    pub fn count(&self) -> (usize, usize) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = events.iter().filter(|(_, event)| event.answer.is_none());
        (events.len(), unknown.count())
    }
}
