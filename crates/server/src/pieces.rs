// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The payload of a request, piece by piece.

use std::sync::Arc;

use terrace_core::{Buffer, Error, Result};
use terrace_transport::{Incoming, Transport};
use terrace_wire::{FrameReader, Header, Kind, Next, PIECE_BYTES_MAX};

/// Reads the frames of a connection.
pub(crate) type Reader = FrameReader<Incoming<Arc<dyn Transport>>>;

/// The payload of a request, as it comes.
pub(crate) struct Pieces<'a> {
    pub(crate) reader: &'a mut Reader,
    /// The header whose payload was not read yet.
    pub(crate) next: Option<Header>,
    pub(crate) left_bytes: usize,
}

impl Pieces<'_> {
    /// Reads the next piece into the front of `buffer`; returns its length, 0 at the end.
    pub(crate) fn piece(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.left_bytes == 0 && self.next.is_none() {
            return Ok(0);
        }
        let header = match self.next.take() {
            Some(header) => header,
            None => match self.reader.next(0)? {
                Next::Frame(start) if start.header.kind == Kind::Part => start.header,
                _ => {
                    return Err(Error::invalid(
                        "serve a request",
                        "the rest of its payload is missing",
                    ));
                }
            },
        };
        let count = header.payload_bytes as usize;
        if count > self.left_bytes {
            return Err(Error::invalid("serve a request", "its payload is too long"));
        }
        self.reader.payload(&header, &mut buffer[..count])?;
        self.left_bytes -= count;
        Ok(count)
    }

    /// Reads all of it into the buffer, which then is as long.
    pub(crate) fn whole(&mut self, payload: &mut Buffer) -> Result<()> {
        payload.resize(self.left_bytes);
        let mut done = 0;
        while self.left_bytes > 0 || self.next.is_some() {
            let count = self.piece(&mut payload[done..])?;
            if count == 0 && self.left_bytes > 0 && done > 0 {
                return Err(Error::invalid("serve a request", "a piece of its payload is empty"));
            }
            done += count;
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut piece = vec![0; self.left_bytes.min(PIECE_BYTES_MAX)];
        while self.left_bytes > 0 || self.next.is_some() {
            self.piece(&mut piece)?;
        }
        Ok(())
    }
}
