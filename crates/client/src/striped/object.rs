// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open object whose bytes are on several servers.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Access, Begun, End, Error, ErrorKind, Key, Later, Object, Open, ReadDone, Result, Stat,
    WriteDone, check_extent, check_range,
};

use super::layout::Layout;
use super::parallel::at_once;
use super::piece::Piece;
use super::scatter::{Gathered, Scattered};
use super::{Shared, all, is_undone, is_unknown};
use crate::deadline;

pub(super) struct StripedObject {
    shared: Arc<Shared>,
    key: Key,
    pub(super) layout: Layout,
    /// Index of the server that has the head.
    pub(super) home: usize,
    how: Open,
    /// By number; each is opened by its first use. The head always is.
    pieces: Vec<Mutex<Option<Arc<dyn Object>>>>,
}

impl StripedObject {
    /// An object whose head is open, from its layout, whose servers are in the map.
    pub(super) fn new(
        shared: &Arc<Shared>,
        key: &Key,
        layout: Layout,
        home: usize,
        how: &Open,
        head: Arc<dyn Object>,
    ) -> Self {
        let count = layout.servers().len();
        let (shared, key) = (Arc::clone(shared), key.clone());
        let how = Open { size_hint_bytes: None, label: None, ..how.clone() };
        let pieces = (0..count).map(|_| Mutex::default()).collect();
        let object = Self { shared, key, layout, home, how, pieces };
        *object.slot(0) = Some(head);
        object
    }

    /// Takes over the pieces that were just made, all but the head.
    pub(super) fn fill_in(&self, pieces: Vec<Arc<dyn Object>>) {
        for (index, piece) in pieces.into_iter().enumerate() {
            *self.slot(index + 1) = Some(piece);
        }
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Option<Arc<dyn Object>>> {
        self.pieces[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, piece: usize) -> &super::Member {
        let index = match piece {
            0 => self.home,
            _ => self.shared.map.index(self.layout.servers()[piece]).expect("it was looked up"),
        };
        self.shared.member(index)
    }

    /// An open piece.
    fn piece(&self, index: usize) -> Result<Arc<dyn Object>> {
        // Opened under the lock: another thread that needs the piece would have to wait for it as
        // well.
        let mut slot = self.slot(index);
        if let Some(open) = &*slot {
            return Ok(Arc::clone(open));
        }
        let piece = Piece::of(&self.layout, index, &self.key);
        let opened = match self.server(index).backend.open(&piece.key(), &self.how) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.missing()),
            other => Arc::<dyn Object>::from(other?),
        };
        *slot = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Why a piece is missing: the object was deleted, or its server has lost it.
    fn missing(&self) -> Error {
        let head = self.server(0).backend.open(&self.key, &Open::read());
        let label = match head {
            Ok(head) => head.label(),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return error,
        };
        if label.is_some_and(|label| *label == *self.layout.encode()) {
            return Error::new(ErrorKind::Corrupt, "use an object")
                .because("a part of it is missing on its server");
        }
        Error::new(ErrorKind::NotFound, "use an object").because("the object was deleted")
    }

    /// Does something with some of the pieces at the same time; the results in their order.
    fn on<T: Send, I: Send>(
        &self,
        inputs: Vec<(usize, I)>,
        work: impl Fn(&dyn Object, usize, I) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let one = |index: usize, input: I| {
            let done = self.piece(index).and_then(|piece| work(&*piece, index, input));
            done.map_err(|error| {
                let error = self.server(index).blame(error);
                if index == 0 { error } else { error.with("part_of", &self.key) }
            })
        };
        let one = &one;
        all(at_once(inputs.into_iter().map(|(index, input)| move || one(index, input)).collect()))
    }

    fn on_all<T: Send>(
        &self,
        work: impl Fn(&dyn Object, usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let inputs = (0..self.pieces.len()).map(|index| (index, ())).collect();
        self.on(inputs, |piece, index, ()| work(piece, index))
    }

    /// The ranges of the pieces that a range of the object lies in; those that are empty are left
    /// out.
    fn ranges(&self, range: &Range<u64>) -> Vec<(usize, Range<u64>)> {
        let within =
            |piece| self.layout.below(piece, range.start)..self.layout.below(piece, range.end);
        let ranges = (0..self.pieces.len()).map(|piece| (piece, within(piece)));
        ranges.filter(|(_, range)| !range.is_empty()).collect()
    }

    /// The length: up to the last byte that a piece has. Missing bytes before it are zeros.
    pub(super) fn size(&self) -> Result<u64> {
        let end =
            |piece: &dyn Object, index| Ok(self.layout.end_of(index, piece.stat()?.size_bytes));
        Ok(self.on_all(end)?.into_iter().max().unwrap_or(0))
    }

    fn for_reading(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Denied, operation)
            .because("the object was opened for reading")
            .with("key", &self.key)
    }

    /// Changes some of the pieces at the same time.
    fn change<I: Send>(
        &self,
        inputs: Vec<(usize, I)>,
        work: impl Fn(&dyn Object, I) -> Result<()> + Sync,
    ) -> Result<(), Unchanged> {
        let is_partial = AtomicBool::new(false);
        let changed = self.on(inputs, |piece, _, input| {
            let changed = work(piece, input);
            if !changed.as_ref().is_err_and(is_undone) {
                is_partial.store(true, Ordering::Relaxed);
            }
            changed
        });
        // The threads that changed something have ended.
        let is_partial = is_partial.into_inner();
        changed.map(drop).map_err(|error| Unchanged { error, is_partial })
    }

    /// Writes what lies in each piece.
    fn write_pieces(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<(), Unchanged> {
        let scattered = Scattered::new(&self.layout, offset_bytes, data);
        self.change(scattered.into_pieces(), |piece, part| part.write(piece))
    }

    /// Reads at least a byte.
    fn read_pieces(
        &self,
        offset_bytes: u64,
        want_bytes: usize,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let mut gathered = Gathered::new(&self.layout, offset_bytes, buffers);
        self.on(gathered.waiting(), |piece, _, part| part.fill(piece))?;
        if gathered.is_complete() {
            return Ok(want_bytes);
        }
        // A piece ended before the range. What is missing are zeros where the object goes on: its
        // length is asked for first, or bytes that are written meanwhile would be taken for zeros.
        let size_bytes = self.size()?;
        self.on(gathered.waiting(), |piece, _, part| part.fill(piece))?;
        gathered.fill_with_zeros(&self.layout, size_bytes);
        let left_bytes = size_bytes.saturating_sub(offset_bytes);
        Ok(want_bytes.min(usize::try_from(left_bytes).unwrap_or(usize::MAX)))
    }

    fn set_len_of_pieces(&self, bytes: u64) -> Result<()> {
        // What makes it longer keeps what is reserved behind the ends of pieces.
        let grows = self.size()? < bytes;
        if !grows {
            // Before anything is cut: where this stops in the middle, the next append must not go where
            // the object ended before.
            self.forget_end()?;
        }
        let last = bytes.checked_sub(1).map_or(0, |last| self.layout.run_at(last).piece);
        // The end comes first: the object is never shorter than before and than wanted.
        let length = |piece| self.layout.below(piece, bytes);
        self.on(vec![(last, length(last))], |piece, _, bytes| piece.set_len(bytes))?;
        let others = (0..self.pieces.len()).filter(|piece| *piece != last);
        let cut = self.on(
            others.map(|piece| (piece, length(piece))).collect(),
            // One that ends there may have room behind its end to give back.
            |piece, _, bytes| match piece.stat()?.size_bytes {
                size if size > bytes || size == bytes && !grows => piece.set_len(bytes),
                _ => Ok(()),
            },
        );
        // What others append where it grows keeps its place; after a cut they may have appended meanwhile.
        let forget_end = || if grows { Ok(()) } else { self.forget_end() };
        cut.and_then(|_| forget_end()).map_err(Error::in_part)
    }

    /// Whether the object is there and may be changed, as the head says.
    fn check_change(&self) -> Result<()> {
        self.on(vec![(0, ())], |head, _, ()| head.write_at(0, &[])).map(drop)
    }
}

/// Why not all of a change was carried out.
struct Unchanged {
    /// Of one piece.
    error: Error,
    /// Whether any piece may have its part.
    is_partial: bool,
}

impl Unchanged {
    /// The error for all of it.
    fn tell(self) -> Error {
        if self.is_partial { self.error.in_part() } else { self.error }
    }
}

impl Object for StripedObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want_bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want_bytes as u64)?;
        if want_bytes == 0 {
            return self.on(vec![(0, ())], |head, _, ()| head.read_at(0, &mut [])).map(|_| 0);
        }
        deadline::share(|| self.read_pieces(offset_bytes, want_bytes, buffers))
    }

    /// Of one piece, which is open already.
    fn later(&self) -> Option<&dyn Later> {
        Some(self)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes: u64 = data.iter().map(|part| part.len() as u64).sum();
        check_extent(offset_bytes, length_bytes)?;
        if length_bytes == 0 {
            return self.check_change();
        }
        deadline::share(|| self.write_pieces(offset_bytes, data)).map_err(Unchanged::tell)
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let length_bytes: u64 = data.iter().map(|part| part.len() as u64).sum();
        if length_bytes == 0 {
            self.check_change()?;
            return self.size();
        }
        if self.how.access == Access::Read {
            return Err(self.for_reading("append to an object"));
        }
        deadline::share(|| {
            let place = deadline::keep_rest(|| self.reserve_end(length_bytes))?;
            match deadline::keep_rest(|| self.write_pieces(place.start_bytes, data)) {
                Ok(()) => Ok(place.start_bytes),
                Err(unchanged) => {
                    // What may still be on its way must not come to lie over the bytes of another
                    // append. What is written already may be written over.
                    if !is_unknown(&unchanged.error) {
                        self.release_end(&place);
                    }
                    Err(unchanged.tell())
                }
            }
        })
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        deadline::share(|| self.set_len_of_pieces(bytes))
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        if range.is_empty() {
            return self.check_change();
        }
        let allocate = |piece: &dyn Object, range| piece.allocate(range, end);
        let allocated = deadline::share(|| self.change(self.ranges(&range), allocate));
        allocated.map_err(Unchanged::tell)
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        if range.is_empty() {
            return self.check_change();
        }
        let punch = |piece: &dyn Object, range| piece.punch(range);
        let punched = deadline::share(|| self.change(self.ranges(&range), punch));
        punched.map_err(Unchanged::tell)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let layout = &self.layout;
        let one = |piece: &dyn Object, index| piece.next_data(layout.below(index, offset_bytes));
        let found = deadline::share(|| self.on_all(one))?;
        let starts = found.iter().enumerate().filter_map(|(index, range)| {
            range.as_ref().map(|range| layout.offset_of(index, range.start))
        });
        let Some(start) = starts.min() else { return Ok(None) };
        // Goes on over the following stripes as long as their pieces have data there.
        let mut end = start;
        loop {
            let run = layout.run_at(end);
            let at = layout.below(run.piece, end);
            let data = found[run.piece].as_ref().filter(|data| data.contains(&at));
            let Some(data) = data else { break };
            let length_bytes = run.length_bytes.min(data.end - at);
            end += length_bytes;
            if length_bytes < run.length_bytes {
                break;
            }
        }
        Ok(Some(start..end))
    }

    fn stat(&self) -> Result<Stat> {
        let stats = deadline::share(|| self.on_all(|piece, _| piece.stat()))?;
        let ends = stats.iter().enumerate();
        let ends = ends.map(|(index, stat)| self.layout.end_of(index, stat.size_bytes));
        Ok(Stat {
            size_bytes: ends.max().unwrap_or(0),
            allocated_bytes: stats.iter().map(|stat| stat.allocated_bytes).sum(),
            created_ns: stats[0].created_ns,
            modified_ns: stats.iter().map(|stat| stat.modified_ns).max().unwrap_or(0),
            is_labelled: false,
            is_held: false,
        })
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        let all = (0..self.pieces.len()).map(|index| (index, ())).collect();
        let change = || self.change(all, |piece, ()| piece.set_modified(wall_ns));
        deadline::share(change).map_err(Unchanged::tell)
    }

    fn sync(&self) -> Result<()> {
        deadline::share(|| self.on_all(|piece, _| piece.sync())).map(drop)
    }
}

impl Later for StripedObject {
    fn read_later(
        &self,
        offset_bytes: u64,
        bytes: usize,
        done: &mut dyn FnMut() -> ReadDone,
    ) -> Option<Begun> {
        check_extent(offset_bytes, bytes as u64).ok()?;
        let run = self.layout.run_at(offset_bytes);
        if run.length_bytes < bytes as u64 {
            return None;
        }
        let piece = self.slot(run.piece).clone()?;
        let start_bytes = self.layout.below(run.piece, offset_bytes);
        piece.later()?.read_later(start_bytes, bytes, &mut || {
            let done = done();
            Box::new(move |read: Option<Result<&[u8]>>| {
                // What a piece does not have are zeros, or behind the end of the object.
                let is_whole =
                    |read: &Result<&[u8]>| !matches!(read, Ok(read) if read.len() < bytes);
                done(read.filter(is_whole));
            })
        })
    }

    /// To one piece, which is open already.
    fn write_later(
        &self,
        offset_bytes: u64,
        data: &Arc<[u8]>,
        done: &mut dyn FnMut() -> WriteDone,
    ) -> Option<Begun> {
        check_extent(offset_bytes, data.len() as u64).ok()?;
        let run = self.layout.run_at(offset_bytes);
        if data.is_empty() || run.length_bytes < data.len() as u64 {
            return None;
        }
        let piece = self.slot(run.piece).clone()?;
        piece.later()?.write_later(self.layout.below(run.piece, offset_bytes), data, done)
    }
}

impl StripedObject {
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}
