// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out of a connection.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use terrace_core::{Applied, Error, ErrorKind, Result};
use terrace_transport::{Outgoing, Transport};
use terrace_wire::{Header, Kind, send};

/// Frames are gathered up to this length before they are sent, as long as requests are at hand.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Payloads up to this length are copied behind their frame; longer ones are sent from where they
/// are.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// The way out of a connection, shared by everybody who answers on it.
pub(crate) struct Sending {
    transport: Arc<dyn Transport>,
    /// Frames that are not sent yet; its lock is held while something is sent, so that frames are
    /// never mixed.
    gathered: Mutex<Vec<u8>>,
}

impl Sending {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, gathered: Mutex::default() }
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

    /// Sends a last word, unless somebody is sending just now: nobody waits for that.
    pub(crate) fn farewell(&self) {
        if let Ok(mut gathered) = self.gathered.try_lock() {
            Header::new(Kind::Farewell, 0, b"", b"").write(b"", &mut gathered);
            // Who does not hear it sees the connection end.
            let _ = self.empty(&mut gathered, b"");
        }
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
        sent
    }
}
