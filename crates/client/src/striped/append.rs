// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the next append to an object goes, for all its clients: two pairs in the store of its home.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use terrace_core::{Error, ErrorKind, Kv, KvRange, Result, Ticket, Txn};

use super::layout::Layout;
use super::object::StripedObject;
use super::places::{Asked, Places};
use super::{Shared, is_unknown};

/// What the keys of these pairs begin with: no namespace of an application begins like this.
const PREFIX: &str = "\u{10ffff}\u{10ffff}end\0";

/// Behind the key of an end: the places that were taken last.
const TAKEN: u8 = b't';

/// So often an append asks for its place, where no server answers whether it has one, or keeps it:
/// each time the home was started anew meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// Most places that are remembered to be given back.
const ABANDONED_MAX: usize = 64;

fn row(object_id: u128) -> Vec<u8> {
    [PREFIX.as_bytes(), &object_id.to_be_bytes()].concat()
}

fn taken_row(row: &[u8]) -> Vec<u8> {
    [row, &[TAKEN]].concat()
}

fn read(txn: &mut dyn Txn, row: &[u8]) -> Result<Places> {
    // One question for both.
    let pairs = txn.scan(&KvRange::prefix(row), 2)?;
    let value =
        |wanted: &[u8]| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| &value[..]);
    Ok(Places::read(value(row), value(&taken_row(row))))
}

fn write(txn: &mut dyn Txn, row: &[u8], places: &Places) -> Result<()> {
    txn.put(row, &places.end())?;
    txn.put(&taken_row(row), &places.taken())
}

/// Places that will not be written to, by object and the append that asked for them, and that could
/// not be given back.
#[derive(Default)]
pub(super) struct Abandoned(Mutex<VecDeque<(u128, Asked)>>);

impl Abandoned {
    fn all(&self) -> MutexGuard<'_, VecDeque<(u128, Asked)>> {
        // They come and go one by one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, object_id: u128, asked: Asked) {
        let mut all = self.all();
        if all.len() == ABANDONED_MAX {
            all.pop_front();
        }
        all.push_back((object_id, asked));
    }

    fn of(&self, object_id: u128) -> Vec<Asked> {
        let all = self.all();
        all.iter().filter(|(object, _)| *object == object_id).map(|(_, asked)| *asked).collect()
    }

    fn remove(&self, these: &[Asked]) {
        if !these.is_empty() {
            self.all().retain(|(_, asked)| !these.contains(asked));
        }
    }
}

/// The next bytes at the end of an object, until they are written.
pub(super) struct Place {
    asked: Asked,
    pub(super) start_bytes: u64,
}

impl StripedObject {
    fn kv(&self) -> Option<&dyn Kv> {
        self.shared().member(self.home).kv.as_deref()
    }

    /// Takes the next bytes at the end for an append. Appends that run at the same time, here or
    /// elsewhere, get others, also after the home lost its power. Where the answer of the home is lost
    /// it is asked again, and says the same.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the home has no pairs.
    pub(super) fn reserve_end(&self, length_bytes: u64) -> Result<Place> {
        const OPERATION: &str = "append to an object";
        let member = self.shared().member(self.home);
        let Some(kv) = self.kv() else {
            let error = Error::new(ErrorKind::Unsupported, OPERATION)
                .because("it is on several servers, and its home keeps no pairs");
            return Err(member.blame(error));
        };
        let object_id = self.layout.object_id();
        let size_bytes = self.size()?;
        let asked = Asked { token: self.shared().new_id(), size_bytes };
        let (mut attempt, mut may_have_one) = (1, false);
        loop {
            // An append that asks again sees whether the object was cut meanwhile.
            let reserved = match attempt {
                1 => self.reserve(kv, &asked, size_bytes, length_bytes),
                _ => self.size().and_then(|size| self.reserve(kv, &asked, size, length_bytes)),
            };
            // Before anything is written there: where the home lost the place with its power, others
            // would get the same bytes.
            let (error, is_unknown) = match reserved {
                Ok((start_bytes, ticket)) => match kv.wait(ticket) {
                    Ok(()) => return Ok(Place { asked, start_bytes }),
                    Err(error) => (error, true),
                },
                Err(error) => {
                    let is_unknown = is_unknown(&error);
                    (error, is_unknown)
                }
            };
            may_have_one |= is_unknown;
            if is_unknown && attempt < ATTEMPTS_MAX {
                attempt += 1;
                continue;
            }
            if may_have_one {
                self.shared().abandoned.add(object_id, asked);
            }
            return Err(member.blame(error));
        }
    }

    /// Takes a place in an object that is so long, or finds the one that it has; it is kept from when the
    /// ticket was waited for.
    fn reserve(
        &self,
        kv: &dyn Kv,
        asked: &Asked,
        size_bytes: u64,
        length_bytes: u64,
    ) -> Result<(u64, Ticket)> {
        let (row, abandoned) = (row(self.layout.object_id()), &self.shared().abandoned);
        let to_give_back = abandoned.of(self.layout.object_id());
        let tokens: Vec<_> = to_give_back.iter().map(|asked| asked.token).collect();
        let (mut start_bytes, mut gives_back) = (0, false);
        let ticket = kv.transact(&mut |txn| {
            let mut places = read(txn, &row)?;
            places.check(asked, &to_give_back, size_bytes);
            let found = places.find(asked.token);
            gives_back = found.is_none();
            if let Some(found) = found {
                start_bytes = found;
                // Once more, so that it can be waited for.
                return write(txn, &row, &places);
            }
            places.give_back(&tokens);
            start_bytes = places.take(asked.token, size_bytes, length_bytes)?;
            write(txn, &row, &places)
        })?;
        if gives_back {
            abandoned.remove(&to_give_back);
        }
        Ok((start_bytes, ticket))
    }

    /// Gives back what a failed append took, unless others have appended behind it. Where the home
    /// cannot be reached, the next append from here does.
    pub(super) fn release_end(&self, place: &Place) {
        let Some(kv) = self.kv() else { return };
        let row = row(self.layout.object_id());
        let released = kv.transact(&mut |txn| {
            let mut places = read(txn, &row)?;
            if places.give_back(&[place.asked.token]) { write(txn, &row, &places) } else { Ok(()) }
        });
        if released.is_err() {
            self.shared().abandoned.add(self.layout.object_id(), place.asked);
        }
    }

    /// The next append goes where the object ends.
    pub(super) fn forget_end(&self) -> Result<()> {
        self.shared().remove_end(self.home, &self.layout)
    }
}

impl Shared {
    /// Removes the pairs of an object that was deleted. Those that stay are never read: its number is
    /// not used again.
    pub(super) fn forget_end(&self, home: usize, layout: &Layout) {
        let _ = self.remove_end(home, layout);
    }

    fn remove_end(&self, home: usize, layout: &Layout) -> Result<()> {
        let member = self.member(home);
        let Some(kv) = &member.kv else { return Ok(()) };
        let row = row(layout.object_id());
        let remove = |txn: &mut dyn Txn| {
            txn.delete(&row)?;
            txn.delete(&taken_row(&row))
        };
        let removed = match kv.scan(&KvRange::prefix(&row), 1) {
            // Most objects are never appended to.
            Ok(pairs) if pairs.is_empty() => return Ok(()),
            Ok(_) => kv.transact(&mut |txn| remove(txn)).map(drop),
            Err(error) => Err(error),
        };
        removed.map_err(|error| member.blame(error))
    }
}
