// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that neither read nor write: they make and end objects, open and close them.

use terrace_core::{Event, EventKind, Result};

use super::Run;
use super::UNAWAITED;
use super::mover::Effects;
use super::store::INCARNATION;
use crate::request::{Operation, Request};

impl Run<'_> {
    /// What takes no time: makes, opens, closes, cuts, looks at, syncs or deletes an object.
    pub(super) fn live(&mut self, object: u32, request: &Request) -> Result<()> {
        let now_ns = self.store.now_ns;
        match request.operation {
            Operation::Create => self.store.create(object, self.population.named(object)?),
            Operation::SetLength => {
                self.recall(object, request.length_bytes..request.length_bytes, UNAWAITED);
                self.store.set_length(object, request.length_bytes);
            }
            Operation::Delete => {
                let mut effects = Effects::default();
                for index in 0..self.store.slots(object).len() {
                    let slot = self.store.slots(object)[index];
                    self.mover.cancel(&mut self.store, slot, &mut effects);
                }
                self.store.delete(object);
                self.carry_out(effects);
            }
            Operation::Open => self.bill.opened(object),
            Operation::Close => self.bill.closed(object, self.store.slots(object)),
            Operation::Stat => self.bill.stat(&self.store, object),
            _ => {}
        }
        self.mind.tell(&mut self.store.told, now_ns);
        let kind = match request.operation {
            Operation::Open => EventKind::Open,
            Operation::Close => EventKind::Close,
            Operation::SetLength => EventKind::SetLen,
            Operation::Stat => EventKind::Stat,
            Operation::Sync => EventKind::Sync,
            _ => return Ok(()),
        };
        if !self.mind.interest().takes(kind) {
            return Ok(());
        }
        for slot in self.store.slots(object) {
            let segment = self.store.segment(*slot);
            self.mind.note(Event {
                tier: segment.tier,
                length_bytes: if kind == EventKind::SetLen { segment.size_bytes } else { 0 },
                ..Event::new(kind, *slot, INCARNATION, now_ns)
            });
        }
        Ok(())
    }
}
