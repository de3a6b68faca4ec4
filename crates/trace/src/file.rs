// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file of a trace, block by block.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

use crate::block::{BLOCK_MAGIC, FILE_MAGIC, Kind, PREFIX_BYTES, Prefix};
use crate::codec::Decoder;
use crate::index::{self, Known, TRAILER_BYTES};
use crate::record::Head;

/// Bytes that are looked through at a time for a block behind damage.
const SEARCH_BYTES: usize = 128 << 10;

/// Looks at what may be a block, in one file, before the rest of it is given up.
const CANDIDATES_MAX: u32 = 10_000;

/// Whether a file that begins so is part of a trace, of this version or another.
pub fn is_file(start: &[u8]) -> bool {
    start.starts_with(&FILE_MAGIC[..7])
}

/// A file that is read.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: File,
    pub(crate) path: PathBuf,
    /// Where the next block is.
    pub(crate) at: u64,
    candidates: u32,
}

/// What is at an offset.
#[derive(Debug)]
pub(crate) enum Found {
    Block(Prefix, Vec<u8>),
    /// A block that is not what it was when it was written.
    Damaged,
    /// The file ends, after so many bytes that are the beginning of a block.
    End(u64),
}

impl Blocks {
    /// Opens a file; `None` where it does not begin as one of a trace of this version.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let failed = |error| failed("open a file of the trace", path, error);
        let file = File::open(path).map_err(failed)?;
        let mut magic = [0; FILE_MAGIC.len()];
        let count = read_at(&file, 0, &mut magic).map_err(failed)?;
        let blocks = Self { file, path: path.into(), at: magic.len() as u64, candidates: 0 };
        if count < magic.len() && FILE_MAGIC.starts_with(&magic[..count]) {
            // It was begun an instant ago.
            return Ok(Some(blocks));
        }
        if magic[..7] == FILE_MAGIC[..7] && magic != FILE_MAGIC {
            return Err(Error::new(ErrorKind::Unsupported, "open a file of the trace")
                .because("it was written by another version of terrace")
                .with("version", magic[7])
                .with("file", path.display()));
        }
        Ok((magic == FILE_MAGIC).then_some(blocks))
    }

    /// The block at [`Blocks::at`]; goes on to the next one where it is whole.
    pub(crate) fn next(&mut self) -> Result<Found> {
        let found = self.look(self.at)?;
        if let Found::Block(prefix, _) = &found {
            self.at += (PREFIX_BYTES + prefix.content_bytes) as u64;
        }
        Ok(found)
    }

    /// The prefix at [`Blocks::at`] without its content, unchecked.
    pub(crate) fn peek(&self) -> Result<Option<Prefix>> {
        let mut prefix = [0; PREFIX_BYTES];
        let count = self.read(self.at, &mut prefix)?;
        Ok((count == PREFIX_BYTES).then(|| Prefix::read(&prefix)).flatten())
    }

    /// Goes on behind a block that was looked at with [`Blocks::peek`].
    pub(crate) fn skip(&mut self, prefix: &Prefix) {
        self.at += (PREFIX_BYTES + prefix.content_bytes) as u64;
    }

    /// Goes on at the next whole block behind damage; returns the bytes in between. At the end of
    /// the file where there is none.
    pub(crate) fn resume(&mut self) -> Result<u64> {
        let start = self.at;
        let mut at = start + 1;
        let mut window = vec![0; SEARCH_BYTES];
        loop {
            let count = self.read(at, &mut window)?;
            let searched = &window[..count];
            let hits = searched.windows(BLOCK_MAGIC.len()).enumerate();
            for (offset, _) in hits.filter(|(_, bytes)| *bytes == BLOCK_MAGIC) {
                let offset = at + offset as u64;
                self.candidates += 1;
                let is_whole = matches!(self.look(offset)?, Found::Block(..));
                if is_whole || self.candidates > CANDIDATES_MAX {
                    self.at = if is_whole { offset } else { self.length()? };
                    return Ok(self.at - start);
                }
            }
            if count < SEARCH_BYTES {
                self.at = at + count as u64;
                return Ok(self.at - start);
            }
            // A magic may lie across the border.
            at += (SEARCH_BYTES - BLOCK_MAGIC.len() + 1) as u64;
        }
    }

    /// The number of records and the blocks, where the file was ended and its index is whole.
    pub(crate) fn index(&self) -> Option<(u64, Vec<Known>)> {
        let at = self.length().ok()?.checked_sub(TRAILER_BYTES as u64)?;
        let mut trailer = [0; TRAILER_BYTES];
        if self.read(at, &mut trailer).ok()? < TRAILER_BYTES {
            return None;
        }
        match self.look(index::trailer(&trailer)?).ok()? {
            Found::Block(prefix, content) if prefix.kind == Kind::Index => {
                index::read(&content).ok()
            }
            _ => None,
        }
    }

    pub(crate) fn length(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|error| failed("read the trace", &self.path, error))?.len())
    }

    fn look(&self, at: u64) -> Result<Found> {
        let mut bytes = [0; PREFIX_BYTES];
        let count = self.read(at, &mut bytes)?;
        if count < PREFIX_BYTES {
            let is_begun = bytes[..count.min(4)] == BLOCK_MAGIC[..count.min(4)];
            return Ok(if is_begun { Found::End(count as u64) } else { Found::Damaged });
        }
        // Its length is at most that of a block, so that damage allocates no more.
        let Some(prefix) = Prefix::read(&bytes) else { return Ok(Found::Damaged) };
        let mut content = vec![0; prefix.content_bytes];
        let count = self.read(at + PREFIX_BYTES as u64, &mut content)?;
        if count < content.len() {
            return Ok(Found::End((PREFIX_BYTES + count) as u64));
        }
        let is_whole = prefix.fits(&bytes, &content);
        Ok(if is_whole { Found::Block(prefix, content) } else { Found::Damaged })
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = read_at(&self.file, at, buffer);
        read.map_err(|error| failed("read the trace", &self.path, error))
    }
}

/// What a file says of itself; `None` where that cannot be read.
pub(crate) fn head(path: &Path) -> Option<Head> {
    let mut blocks = Blocks::open(path).ok()??;
    match blocks.next().ok()? {
        Found::Block(prefix, content) if prefix.kind == Kind::Head => read_head(&content),
        _ => None,
    }
}

/// Reads the content of a head.
pub(crate) fn read_head(content: &[u8]) -> Option<Head> {
    let mut decoder = Decoder::new(content);
    let head = decoder.head().ok()?;
    decoder.finish().ok().map(|()| head)
}

/// Records in a file that was ended.
pub(crate) fn record_count(path: &Path) -> Option<u64> {
    Blocks::open(path).ok()??.index().map(|(records, _)| records)
}

fn read_at(file: &File, at: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], at.saturating_add(count as u64)) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn failed(operation: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::from_io(operation, error).with("file", path.display())
}
