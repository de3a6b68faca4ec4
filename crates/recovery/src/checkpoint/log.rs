// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a log behind a checkpoint, while they are written.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use terrace_core::{Error, Result};
use terrace_settings::sync_directory;
use terrace_stack::{
    BackupMoment, LOG_END_BYTES, LOG_HEAD_BYTES, LogPiece, LogPoint, Opening, log_head,
    push_log_commit, push_log_end, read_log_end, read_log_head,
};

use super::place::{Place, check_room};

/// Records are written together until they have so many bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// What is written to the log now.
#[derive(Debug)]
pub(crate) struct LogWriter {
    store_id: u128,
    /// Where the next file is made.
    pub(crate) place: Option<Place>,
    open: Option<OpenLog>,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    path: PathBuf,
    directory: PathBuf,
    point: LogPoint,
    /// Whole records.
    bytes: u64,
    is_unsynced: bool,
}

impl LogWriter {
    pub(crate) fn new(store_id: u128) -> Self {
        Self { store_id, place: None, open: None }
    }

    /// Bytes of the file that is written.
    pub(crate) fn bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.bytes)
    }

    /// Goes on where the log behind a checkpoint ended with the end of the opening `previous`.
    /// Returns the point; `None` where it did not.
    pub(crate) fn go_on(
        &mut self,
        place: &Place,
        moment: &BackupMoment,
        previous: Opening,
    ) -> Option<LogPoint> {
        let log = moment.point.log;
        let (begin, path) = place.logs().into_iter().rfind(|(point, _)| point.log == log)?;
        let mut file = OpenOptions::new().read(true).append(true).open(&path).ok()?;
        let mut head = [0; LOG_HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let bytes = file.seek(SeekFrom::End(0)).ok()?;
        file.seek(SeekFrom::End(-(LOG_END_BYTES as i64))).ok()?;
        let mut end = [0; LOG_END_BYTES];
        file.read_exact(&mut end).ok()?;
        let (sequence, ended) = read_log_end(&end)?;
        let is_ours = read_log_head(&head) == Some((self.store_id, begin));
        if !is_ours || ended != previous || moment.store_id != self.store_id {
            return None;
        }
        let point = LogPoint { log, sequence };
        let directory = place.directory().into();
        self.place = Some(place.clone());
        self.open = Some(OpenLog { file, path, directory, point, bytes, is_unsynced: false });
        Some(point)
    }

    /// Writes what came. After an error nothing more must be: see [`LogWriter::cut`].
    pub(crate) fn write(&mut self, pieces: Vec<LogPiece>) -> Result<()> {
        let mut buffer = Vec::new();
        for piece in pieces {
            match piece {
                LogPiece::Begin(point) => {
                    self.append(&mut buffer)?;
                    self.sync()?;
                    self.begin(point)?;
                }
                LogPiece::Commit(record) => {
                    let Some(open) = &mut self.open else { continue };
                    open.point.sequence += 1;
                    push_log_commit(&mut buffer, open.point.sequence, &record);
                    if buffer.len() >= BUFFER_BYTES {
                        self.append(&mut buffer)?;
                    }
                }
            }
        }
        self.append(&mut buffer)
    }

    fn begin(&mut self, point: LogPoint) -> Result<()> {
        self.open = None;
        let Some(place) = &self.place else { return Ok(()) };
        let (path, directory) = (place.log(point), PathBuf::from(place.directory()));
        let failed = |error| Error::from_io(OPERATION, error).with("file", path.display());
        let mut file = Place::create(&path).map_err(failed)?;
        let head = log_head(self.store_id, point);
        file.write_all(&head).and_then(|()| file.sync_all()).map_err(failed)?;
        sync_directory(&directory)?;
        let bytes = head.len() as u64;
        self.open = Some(OpenLog { file, path, directory, point, bytes, is_unsynced: false });
        Ok(())
    }

    fn append(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| !buffer.is_empty()) else { return Ok(()) };
        check_room(&open.directory, buffer.len() as u64)?;
        open.file
            .write_all(buffer)
            .map_err(|error| Error::from_io(OPERATION, error).with("file", open.path.display()))?;
        open.bytes += buffer.len() as u64;
        open.is_unsynced = true;
        buffer.clear();
        Ok(())
    }

    /// Makes everything durable that was written.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|open| open.is_unsynced) else { return Ok(()) };
        open.file
            .sync_data()
            .map_err(|error| Error::from_io(OPERATION, error).with("file", open.path.display()))?;
        open.is_unsynced = false;
        Ok(())
    }

    /// Notes that the store was closed and the log says everything.
    pub(crate) fn end(&mut self, opening: Opening) -> Result<()> {
        // First, so that the end is never there without what it is the end of.
        self.sync()?;
        let Some(open) = &self.open else { return Ok(()) };
        let mut buffer = Vec::new();
        push_log_end(&mut buffer, open.point.sequence, opening);
        self.append(&mut buffer)?;
        self.open = None;
        Ok(())
    }

    /// Writes no more: what is there stays, without the part of a record at its end.
    pub(crate) fn cut(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = open.file.set_len(open.bytes);
        }
    }
}

const OPERATION: &str = "write the log of the catalog";
