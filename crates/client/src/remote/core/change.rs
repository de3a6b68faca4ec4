// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous changes: each is carried out once, also where the connection breaks.

use std::sync::{Arc, Mutex};
use std::thread;

use terrace_core::{Applied, Begun, Error, ErrorKind, Result, Semantics};
use terrace_wire::{Operation, Outcome};

use super::super::later::Ended;
use super::super::line::lost;
use super::super::request::{Answer, Message};
use super::{Core, Id, lock};

/// A change of an open object, which is kept until it is answered.
#[derive(Clone)]
pub(in crate::remote) struct Change {
    pub(in crate::remote) operation: Operation,
    pub(in crate::remote) data: Arc<[u8]>,
    pub(in crate::remote) semantics: Semantics,
}

impl Change {
    fn message<'a>(&self, data: &'a [&'a [u8]]) -> Message<'a> {
        Message::request(std::slice::from_ref(&self.operation), data, &self.semantics)
    }
}

/// Completes a change with its result; with none where it was not carried out.
pub(in crate::remote) type ChangeDone = Box<dyn FnOnce(Option<Result<Outcome>>) + Send>;

/// One that is asked for.
struct Asking {
    number: u64,
    /// The only life of the session in which it is.
    life: u64,
    change: Change,
}

impl Core {
    /// Asks for a change as [`Core::ask_later`] asks for a read, in a life of the session. The
    /// thread that receives the answer calls `done`. Where the connection broke a thread of its own
    /// does: it asks again under the same number, so that the change is carried out at most once.
    pub(in crate::remote) fn change_later(
        self: &Arc<Self>,
        change: &Change,
        life: u64,
        done: &mut dyn FnMut() -> ChangeDone,
    ) -> Option<Begun> {
        let data = [&*change.data];
        let message = change.message(&data);
        if !message.is_shared() {
            return None;
        }
        let line = self.current_line().filter(|line| line.life == life)?;
        let numbers = {
            let mut ids = lock(&self.ids);
            if ids.is_full() {
                return None;
            }
            (ids.next(true), ids.acknowledged())
        };
        let begun = line.begin_later(&message, numbers, self.deadline_ns(), &mut || {
            let (core, done) = (Arc::downgrade(self), done());
            let asking = Asking { number: numbers.0, life, change: change.clone() };
            Box::new(move |ended| match core.upgrade() {
                Some(core) => core.end_change(asking, ended, done),
                None => done(Some(Err(lost("its client is gone".into())))),
            })
        });
        let Some(is_first) = begun else {
            self.end(numbers.0);
            return None;
        };
        Some(match is_first {
            true => Begun::Answering(Box::new(move || line.answer_later())),
            false => Begun::Sent,
        })
    }

    /// Notes the result of an asynchronous change, and completes it.
    fn end_change(self: Arc<Self>, asking: Asking, ended: Ended, done: ChangeDone) {
        let number = asking.number;
        match ended {
            Ended::Told(told) => {
                if let Ok(answer) = &told {
                    lock(&self.ids).note_answer(number, answer.frame_bytes());
                }
                self.end(number);
                let told = told.map_err(|error| error.with("server", &self.target));
                done(Some(told.and_then(Answer::one).map(|(outcome, _)| outcome)));
            }
            Ended::Broke(Applied::No) => {
                self.end(number);
                done(None);
            }
            Ended::Broke(Applied::Unknown) => {
                // Kept for where there is no thread to be had.
                let kept = Arc::new(Mutex::new(Some(done)));
                let (core, given) = (Arc::clone(&self), Arc::clone(&kept));
                let again = move || {
                    terrace_affinity::roam();
                    let changed = core.change_again(&asking);
                    if let Some(done) = lock(&given).take() {
                        done(Some(changed));
                    }
                };
                let started = thread::Builder::new().name("ask-again".into()).spawn(again);
                if let Err(error) = started {
                    self.end(number);
                    let reason = format!("it cannot be asked again: {error}");
                    let error = lost(reason).with("server", &self.target);
                    if let Some(done) = lock(&kept).take() {
                        done(Some(Err(error)));
                    }
                }
            }
        }
    }

    /// Asks again for a change that a broken connection left without an answer.
    fn change_again(&self, Asking { number, life, change }: &Asking) -> Result<Outcome> {
        let _end = Id { core: self, number: *number };
        let data = [&*change.data];
        // In another life the result is not known any more.
        let message = change.message(&data).only_in(Some(*life));
        let asked = self.exchange_as(*number, self.deadline_ns(), &message, None, &mut |_| true);
        // Whatever this try ended with, the one before may be on its way still.
        let unknown = Applied::Unknown;
        let asked = asked.map_err(|error| match error.kind() {
            ErrorKind::Unreachable { applied } if applied == unknown => error,
            _ => Error::new(ErrorKind::Unreachable { applied: unknown }, "ask the server")
                .with("server", &self.target)
                .caused_by(error),
        });
        asked.and_then(Answer::one).map(|(outcome, _)| outcome)
    }
}
