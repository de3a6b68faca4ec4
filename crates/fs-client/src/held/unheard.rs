// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens that got no answer: whoever wanted them was told that they failed, and the server may have
//! carried them out.

use std::collections::VecDeque;

use terrace_fs::{Closed, Request};

/// Most opens that are remembered: each took its program as long as the server may take to answer.
/// With more the first is forgotten; if it was carried out, it counts until the life ends.
const OPENS_MAX: usize = 1024;

/// An open that got no answer.
pub(super) struct Unheard<U> {
    /// Of the session, in which it was asked for.
    pub(super) life: u64,
    /// What was asked for.
    pub(super) request: Request<'static>,
    /// What it is asked for again with.
    pub(super) unanswered: U,
}

/// Opens that nobody wants any more.
pub(super) struct UnheardOpens<U> {
    unheard: VecDeque<Unheard<U>>,
    /// Those that the server has by now carried out for certain, each with the life.
    carried_out: Vec<(u64, Closed)>,
}

impl<U> Default for UnheardOpens<U> {
    fn default() -> Self {
        Self { unheard: VecDeque::new(), carried_out: Vec::new() }
    }
}

impl<U> UnheardOpens<U> {
    /// Remembers one.
    pub(super) fn add(&mut self, unheard: Unheard<U>) {
        if self.unheard.len() >= OPENS_MAX {
            self.unheard.pop_front();
        }
        self.unheard.push_back(unheard);
    }

    /// One that was asked for in this life of the session; the server has forgotten those of others.
    pub(super) fn take(&mut self, life: u64) -> Option<Unheard<U>> {
        self.unheard.retain(|one| one.life == life);
        self.unheard.pop_front()
    }

    /// Notes what is open in a life, where nobody wants it.
    pub(super) fn note_carried_out(&mut self, life: u64, closed: impl IntoIterator<Item = Closed>) {
        self.carried_out.extend(closed.into_iter().map(|closed| (life, closed)));
    }

    /// What is to be closed in this life of the session, with whatever else is.
    pub(super) fn take_carried_out(&mut self, life: u64) -> Vec<Closed> {
        let carried_out = std::mem::take(&mut self.carried_out);
        carried_out.into_iter().filter(|(of, _)| *of == life).map(|(_, closed)| closed).collect()
    }
}

#[cfg(test)]
mod tests {
    use terrace_fs::Left;

    use super::*;

    fn unheard(life: u64, number: u64) -> Unheard<u64> {
        let request = Request::Open { number, is_for_writing: false };
        Unheard { life, request, unanswered: number }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut opens = UnheardOpens::default();
        let added = OPENS_MAX as u64 + 5;
        (0..added).for_each(|number| opens.add(unheard(1, number)));
        let numbers = std::iter::from_fn(|| opens.take(1)).map(|one| one.unanswered);
        assert!(numbers.eq(5..added), "the first are forgotten");
    }

    #[test]
    fn what_a_former_life_was_asked_is_forgotten_with_it() {
        let mut opens = UnheardOpens::default();
        opens.add(unheard(1, 7));
        opens.add(unheard(2, 8));
        assert_eq!(opens.take(2).map(|one| one.unanswered), Some(8));
        assert!(opens.take(1).is_none());
        let closed = |number| Closed { number, is_for_writing: false, left: Left::Unknown };
        opens.note_carried_out(1, [closed(7)]);
        opens.note_carried_out(2, [closed(8)]);
        let numbers: Vec<_> = opens.take_carried_out(2).iter().map(|one| one.number).collect();
        assert_eq!(numbers, [8]);
        assert!(opens.take_carried_out(1).is_empty());
    }
}
