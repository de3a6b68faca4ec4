// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out of a connection.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Applied, Error, ErrorKind, Result};
use terrace_transport::{Outgoing, Transport};
use terrace_wire::{Header, Kind, LAST_WORD, send};

/// Frames are gathered up to this length before they are sent, as long as requests are at hand.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Payloads up to this length are copied behind their frame; longer ones are sent from where they
/// are.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// The shortest timeout of a socket: for sends that must not block.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The sending side of a connection, shared by all threads that answer on it.
pub(crate) struct Sending {
    transport: Arc<dyn Transport>,
    /// Frames that are not sent yet; its lock is held while something is sent, so that frames are
    /// never mixed.
    gathered: Mutex<Vec<u8>>,
    /// Whether something was not sent as a whole, or was done that gets no answer.
    is_cut: AtomicBool,
}

impl Sending {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, gathered: Mutex::default(), is_cut: AtomicBool::new(false) }
    }

    /// Sends a frame now, or with the next flush where `may_wait`.
    pub(crate) fn frame(
        &self,
        kind: Kind,
        id: u64,
        head: &[u8],
        payload: &[u8],
        may_wait: bool,
    ) -> Result<()> {
        let header = Header::new(kind, id, head, payload);
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        header.write(head, &mut gathered);
        if payload.len() <= COPIED_BYTES_MAX {
            gathered.extend_from_slice(payload);
            if may_wait && gathered.len() < GATHERED_BYTES_MAX {
                return Ok(());
            }
            return self.empty(&mut gathered, b"");
        }
        self.empty(&mut gathered, payload)
    }

    /// Sends a last word, unless another thread is sending just now, or the other side does not
    /// read: this does not block. The rest of it goes with the next frame.
    pub(crate) fn farewell(&self, stall_max: Duration) {
        let Ok(mut gathered) = self.gathered.try_lock() else { return };
        Header::new(Kind::Farewell, 0, b"", b"").write(b"", &mut gathered);
        // A peer that does not receive it sees the connection end.
        if self.transport.set_write_timeout(Some(AT_ONCE)).is_ok() {
            if let Ok(count) = self.transport.write_vectored(&[IoSlice::new(&gathered)]) {
                gathered.drain(..count);
            }
            let _ = self.transport.set_write_timeout(Some(stall_max));
        }
    }

    /// Sends, as the last of all, that nothing was carried out but what was answered; not where an
    /// answer was lost on this connection. Does not block.
    pub(crate) fn last_word(&self) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_cut.load(Ordering::Acquire) {
            return;
        }
        Header::new(Kind::Farewell, 0, LAST_WORD, b"").write(LAST_WORD, &mut gathered);
        // A peer that does not receive it knows less.
        let is_set = self.transport.set_write_timeout(Some(AT_ONCE));
        let _ = is_set.map(|()| self.empty(&mut gathered, b""));
    }

    /// Takes note that something may have been done that gets no answer: no last word follows.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// Sends frames as they are.
    pub(crate) fn frames(&self, frames: &[u8], may_wait: bool) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.extend_from_slice(frames);
        if may_wait && gathered.len() < GATHERED_BYTES_MAX {
            return Ok(());
        }
        self.empty(&mut gathered, b"")
    }

    /// Sends a frame without payload and descriptors with it.
    pub(crate) fn with_descriptors(
        &self,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        self.empty(&mut gathered, b"")?;
        self.transport.send_descriptors(frame, descriptors).map_err(|error| {
            self.cut();
            Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "send descriptors")
                .caused_by(error)
        })
    }

    /// Sends what was gathered.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match gathered.is_empty() {
            true => Ok(()),
            false => self.empty(&mut gathered, b""),
        }
    }

    fn empty(&self, gathered: &mut Vec<u8>, payload: &[u8]) -> Result<()> {
        let sent = send(&mut Outgoing(&*self.transport), gathered, &[payload]);
        gathered.clear();
        if gathered.capacity() > 2 * GATHERED_BYTES_MAX {
            gathered.shrink_to(0);
        }
        sent.inspect_err(|_| self.cut())
    }
}

#[cfg(test)]
mod tests {
    use terrace_transport::{Incoming, Socket};
    use terrace_wire::{FrameReader, Next};

    use super::*;

    #[test]
    fn a_farewell_waits_for_nobody_and_comes_whole() {
        let (near, far) = Socket::pair().expect("pair");
        let near = Arc::new(near);
        near.set_write_timeout(Some(Duration::from_millis(1))).expect("set");
        let sending = Sending::new(near.clone());
        let mut sent = 0;
        while sending.frame(Kind::Part, 7, b"", b"", false).is_ok() {
            sent += 1;
        }
        // The frame that did not fit went in part, as a busy moment may leave it.
        let mut reader = FrameReader::new(Incoming(&far));
        let hour = Duration::from_secs(3600);
        sending.farewell(hour);
        for _ in 0..sent {
            assert!(matches!(reader.next(0), Ok(Next::Frame(start)) if start.header.id == 7));
        }
        sending.flush().expect("there is room again");
        let last = reader.next(0);
        assert!(
            matches!(&last, Ok(Next::Frame(start)) if start.header.kind == Kind::Farewell),
            "{last:?}"
        );
    }
}
