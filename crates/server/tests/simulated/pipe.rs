// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a simulated connection.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time that a reader really waits before it looks at the simulated time again.
const LOOK: Duration = Duration::from_millis(2);

/// Bytes on their way in one direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Frames that are late, and how often a reader has to look in vain before they come.
    late: VecDeque<(u32, Vec<u8>)>,
    is_closed: bool,
}

impl Pipe {
    /// Bytes that come after so many looks, and behind all before them.
    pub(crate) fn push(&self, bytes: &[u8], looks: u32) {
        let mut state = self.state();
        if looks == 0 && state.late.is_empty() {
            state.bytes.extend(bytes);
        } else {
            state.late.push_back((looks, bytes.to_vec()));
        }
        self.changed.notify_all();
    }

    /// Nothing comes after what is on its way.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Takes what has come; `WouldBlock` after one look in vain.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.state();
        let is_empty = |state: &mut State| state.bytes.is_empty() && !state.is_over();
        let waited = self.changed.wait_timeout_while(state, LOOK, is_empty);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.bytes.is_empty() {
            if state.is_over() {
                return Ok(0);
            }
            state.look();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(state.bytes.len());
        for (place, byte) in buffer.iter_mut().zip(state.bytes.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }

    pub(crate) fn is_readable(&self) -> bool {
        let state = self.state();
        !state.bytes.is_empty() || state.is_over()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.is_closed && self.bytes.is_empty() && self.late.is_empty()
    }

    /// Time passes for what is late.
    fn look(&mut self) {
        while let Some((looks, bytes)) = self.late.front_mut() {
            if *looks > 0 {
                *looks -= 1;
                return;
            }
            self.bytes.extend(bytes.drain(..));
            self.late.pop_front();
        }
    }
}
