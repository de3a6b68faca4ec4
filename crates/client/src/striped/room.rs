// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The room of all servers, also while some of them do not answer.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use terrace_core::{Applied, Error, ErrorKind, Result, Space};

use super::{Map, Member, Shared, all};
use crate::deadline;

/// After so long without an answer of anybody, servers of which something is known are not waited
/// for any more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Namespaces with remembered answers of the servers: one for each mount.
const NAMESPACES_MAX: usize = 64;

/// Asks the server of an index for room.
pub type AskSpace = Arc<dyn Fn(usize) -> Result<Space> + Send + Sync>;

/// Nothing known of any server yet.
pub(super) fn of(map: &Map) -> Vec<Arc<Room>> {
    map.members().iter().map(|_| Arc::default()).collect()
}

/// What is known of the room of one server.
#[derive(Debug, Default)]
pub(super) struct Room(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The last answer.
    last: Option<Space>,
    /// Whether it did not answer the last time. It is waited for then as if something was known.
    is_away: bool,
    /// Threads that ask it.
    asking: usize,
    /// Whether no thread waits for these any more: the server is not asked again before one of them has ended.
    is_late: bool,
}

/// The threads that ask a server, until it answers or the deadline is over.
struct Asking(Arc<Room>);

/// The answer of a server, by its index.
type Answer = (usize, Result<Space>);

impl Shared {
    /// The sum of the answers of all servers. One that does not answer counts with its last answer, and as
    /// nothing where it never answered.
    ///
    /// # Errors
    ///
    /// What one of them says; `Unreachable` where nothing is known of any.
    pub(super) fn space(&self) -> Result<Space> {
        let backends = self.map.members().iter().map(|member| Arc::clone(&member.backend));
        let backends: Vec<_> = backends.collect();
        self.space_by(&self.rooms, &(Arc::new(move |index: usize| backends[index].space()) as _))
    }

    /// The same of what `ask` says of a namespace.
    pub(super) fn space_of(&self, namespace: &str, ask: AskSpace) -> Result<Space> {
        let mut known = self.namespace_rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NAMESPACES_MAX && !known.contains_key(namespace) {
            known.clear();
        }
        let rooms = known.entry(namespace.into()).or_insert_with(|| of(&self.map)).clone();
        drop(known);
        self.space_by(&rooms, &ask)
    }

    fn space_by(&self, rooms: &[Arc<Room>], ask: &AskSpace) -> Result<Space> {
        let answers = self.hear_rooms(rooms, ask);
        let members = self.map.members().iter().zip(rooms).zip(answers);
        let spaces = members.map(|((member, room), answer)| {
            answer.unwrap_or_else(|| Err(silent())).or_else(|error| room.instead(error, member))
        });
        let spaces: Vec<_> = spaces.collect();
        let is_known = spaces.iter().any(Result::is_ok);
        let counts = |space: &Result<Space>| !is_known || !space.as_ref().is_err_and(is_away);
        let spaces = all(spaces.into_iter().filter(counts).collect())?;
        let sum = |part: fn(&Space) -> u64| spaces.iter().map(part).fold(0, u64::saturating_add);
        Ok(Space {
            capacity_bytes: sum(|space| space.capacity_bytes),
            used_bytes: sum(|space| space.used_bytes),
            file_system: None,
        })
    }

    /// Asks all servers that are not known to be silent; `None` where no thread waits for the answers.
    fn hear_rooms(&self, rooms: &[Arc<Room>], ask: &AskSpace) -> Vec<Option<Result<Space>>> {
        let mut answers: Vec<Option<Result<Space>>> = rooms.iter().map(|_| None).collect();
        let (sender, receiver) = channel();
        let mut asked: Vec<usize> = rooms
            .iter()
            .enumerate()
            .filter(|(index, room)| room.ask(*index, ask, &sender))
            .map(|(index, _)| index)
            .collect();
        drop(sender);
        while !asked.is_empty() {
            let may_go_on = asked.iter().all(|index| rooms[*index].is_known());
            let heard = match may_go_on {
                true => receiver.recv_timeout(PATIENCE),
                false => receiver.recv().map_err(RecvTimeoutError::from),
            };
            let Ok((index, answer)) = heard else { break };
            asked.retain(|other| *other != index);
            answers[index] = Some(answer);
        }
        asked.iter().for_each(|index| rooms[*index].give_up());
        answers
    }
}

impl Room {
    /// Has a thread ask its server, unless others do in vain; whether it does.
    fn ask(self: &Arc<Self>, index: usize, ask: &AskSpace, sender: &Sender<Answer>) -> bool {
        let mut known = self.known();
        if known.is_late {
            return false;
        }
        known.asking += 1;
        drop(known);
        let asking = Asking(Arc::clone(self));
        let (ask, sender) = (Arc::clone(ask), sender.clone());
        let carried = deadline::carried();
        let ask = move || {
            terrace_affinity::roam();
            let (answer, _) = carried.resume(|| ask(index));
            asking.0.note(&answer);
            drop(asking);
            // The receiver was dropped where it took too long.
            let _ = sender.send((index, answer));
        };
        // Without a thread it is as if the server did not answer.
        thread::Builder::new().spawn(ask).is_ok()
    }

    fn note(&self, answer: &Result<Space>) {
        let mut known = self.known();
        known.is_away = answer.as_ref().is_err_and(is_away);
        known.last = answer.as_ref().ok().copied().or(known.last);
    }

    /// Whether it need not be waited for.
    fn is_known(&self) -> bool {
        let known = self.known();
        known.last.is_some() || known.is_away
    }

    /// Takes the server for silent until one of the threads that ask it has ended.
    fn give_up(&self) {
        let mut known = self.known();
        known.is_late = known.asking > 0;
    }

    /// What counts in place of an answer.
    fn instead(&self, error: Error, member: &Member) -> Result<Space> {
        match self.known().last {
            Some(last) if is_away(&error) => Ok(last),
            _ => Err(member.blame(error)),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // It is never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut known = self.0.known();
        known.asking -= 1;
        known.is_late = false;
    }
}

/// Whether a server did not answer.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { .. })
}

fn silent() -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::No }, "ask the server for its room")
        .because("it did not answer before")
}
