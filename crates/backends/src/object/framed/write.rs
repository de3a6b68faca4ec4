// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An object that is being written, from front to back: each frame goes to the backend below once it is full.

use std::io::IoSlice;

use terrace_core::{Error, ErrorKind, Key, Object, Result};
use zstd::bulk::Compressor;

use super::Packing;
use super::format::{Index, Lengths};
use super::seal::{Part, Seal, new_salt};
use super::shape::{FRAME_BYTES, Shape};

const OPERATION: &str = "write an object";

/// Zeros that are written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(super) struct Writing {
    pub(super) object: Box<dyn Object>,
    shape: Shape,
    seal: Seal,
    compressor: Option<Compressor<'static>>,
    /// Plain bytes of the frame that is not full yet.
    waiting: Vec<u8>,
    /// A frame on its way, kept for its room.
    frame: Vec<u8>,
    lengths: Lengths,
    end_bytes: u64,
    stored_bytes: u64,
    /// The time that the object is to have.
    pub(super) modified_ns: Option<u64>,
}

impl Writing {
    pub(super) fn new(object: Box<dyn Object>, packing: &Packing, name: &Key) -> Result<Self> {
        let salt = match &packing.key {
            Some(_) => new_salt()?,
            None => Default::default(),
        };
        let shape = Shape::new(salt, packing.key.is_some());
        let compressor = packing.level.map(Compressor::new).transpose();
        Ok(Self {
            object,
            seal: Seal::new(&shape, packing.key.as_ref(), name),
            shape,
            compressor: compressor.map_err(|error| Error::from_io(OPERATION, error))?,
            waiting: Vec::new(),
            frame: Vec::new(),
            lengths: Lengths::default(),
            end_bytes: 0,
            stored_bytes: 0,
            modified_ns: None,
        })
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// Writes behind what was written; a gap reads as zeros.
    ///
    /// # Errors
    ///
    /// `Unsupported` in front of that; errors of the backend below.
    pub(super) fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        if offset_bytes < self.end_bytes {
            return Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .because("an object is written as a whole, from front to back")
                .with("offset_bytes", offset_bytes)
                .with("end_bytes", self.end_bytes));
        }
        self.grow(offset_bytes)?;
        self.push(data)
    }

    /// Writes zeros up to an end.
    pub(super) fn grow(&mut self, end_bytes: u64) -> Result<()> {
        while self.end_bytes < end_bytes {
            let count = (end_bytes - self.end_bytes).min(ZEROS.len() as u64) as usize;
            self.push(&ZEROS[..count])?;
        }
        Ok(())
    }

    fn push(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if self.waiting.len() == FRAME_BYTES {
                self.send()?;
            }
            let (head, tail) = data.split_at(data.len().min(FRAME_BYTES - self.waiting.len()));
            self.waiting.extend_from_slice(head);
            self.end_bytes += head.len() as u64;
            data = tail;
        }
        Ok(())
    }

    /// Writes the frame that waits. One that compression does not shorten is stored as it is.
    fn send(&mut self) -> Result<()> {
        self.frame.clear();
        let mut is_compressed = false;
        if let Some(compressor) = &mut self.compressor {
            self.frame.reserve(zstd::zstd_safe::compress_bound(self.waiting.len()));
            compressor
                .compress_to_buffer(&self.waiting, &mut self.frame)
                .map_err(|error| Error::from_io("compress a frame", error))?;
            is_compressed = self.frame.len() < self.waiting.len();
        }
        if !is_compressed {
            self.frame.clear();
            self.frame.extend_from_slice(&self.waiting);
        }
        let number = self.lengths.count();
        self.lengths.push(self.frame.len(), is_compressed);
        self.seal.close(Part::Frame(number), &mut self.frame, 0);
        self.waiting.clear();
        self.object.write_at(self.stored_bytes, &[IoSlice::new(&self.frame)])?;
        self.stored_bytes += self.frame.len() as u64;
        Ok(())
    }

    /// The object below, which is finished, and its index.
    pub(super) fn into_index(self) -> (Box<dyn Object>, Index) {
        let Self { object, shape, seal, lengths, end_bytes, .. } = self;
        (object, Index::of_lengths(end_bytes, &shape, seal, &lengths))
    }

    /// Writes what is left, index and trailer, and makes all of it durable.
    pub(super) fn finish(&mut self) -> Result<()> {
        if !self.waiting.is_empty() {
            self.send()?;
        }
        let end = self.lengths.finish(self.end_bytes, &self.shape, &self.seal);
        self.object.write_at(self.stored_bytes, &[IoSlice::new(&end)])?;
        self.stored_bytes += end.len() as u64;
        if let Some(modified_ns) = self.modified_ns {
            self.object.set_modified(modified_ns)?;
        }
        self.object.sync()
    }
}
