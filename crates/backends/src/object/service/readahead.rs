// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readahead: a reader that goes on where it ended gets larger ranges, fetched before it asks.
//!
//! Objects never change, so what was fetched stays right. Memory is bounded by the number of streams
//! and of their windows.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::Result;

use super::requests::lock;

/// First and longest window; with many streams at once the longest is shorter.
const WINDOW_BYTES_MIN: u64 = 512 << 10;
const WINDOW_BYTES_MAX: u64 = 4 << 20;
const WINDOW_BYTES_MAX_OF_MANY: u64 = 1 << 20;

/// From so many streams on they are many.
const MANY: usize = 16;

/// Streams that are followed at once, the ones used last.
const STREAMS_MAX: usize = 64;

/// Windows behind the one that is read.
const AHEAD: usize = 2;

/// A read of so many bytes is as good as readahead by itself.
pub(super) const LARGE_BYTES: u64 = 4 << 20;

/// The readers of a service.
#[derive(Default)]
pub(super) struct Readahead {
    /// The one used last at the end.
    streams: Mutex<Vec<Stream>>,
}

struct Stream {
    path: Path,
    /// Where it goes on.
    next: u64,
    window_bytes: u64,
    windows: VecDeque<Window>,
}

#[derive(Clone)]
struct Window {
    range: Range<u64>,
    slot: Arc<Slot>,
}

/// The bytes of a window; `None` where they could not be read.
#[derive(Default)]
struct Slot {
    bytes: Mutex<Option<Option<Bytes>>>,
    filled: Condvar,
}

impl Slot {
    fn fill(&self, bytes: Option<Bytes>) {
        *lock(&self.bytes) = Some(bytes);
        self.filled.notify_all();
    }

    /// Waits for the request, which ends by its deadline.
    fn wait(&self) -> Option<Bytes> {
        let bytes = lock(&self.bytes);
        let is_empty = |bytes: &mut Option<Option<Bytes>>| bytes.is_none();
        let bytes = self.filled.wait_while(bytes, is_empty).unwrap_or_else(PoisonError::into_inner);
        bytes.clone().expect("it was filled")
    }
}

/// Fills its slot whatever becomes of the request.
struct Filler(Arc<Slot>);

impl Drop for Filler {
    fn drop(&mut self) {
        let mut bytes = lock(&self.0.bytes);
        if bytes.is_none() {
            *bytes = Some(None);
            self.0.filled.notify_all();
        }
    }
}

impl Readahead {
    /// The bytes of a range of an object of `size_bytes` from windows, where the reader is a stream;
    /// `None` where the range is to be read by itself. `fetch` begins to read a range, `spawn` runs it.
    pub(super) fn read<F>(
        &self,
        path: &Path,
        size_bytes: u64,
        range: Range<u64>,
        fetch: impl Fn(Range<u64>) -> F,
        spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    ) -> Option<Vec<(Range<u64>, Bytes)>>
    where
        F: Future<Output = Result<Bytes>> + Send + 'static,
    {
        let mut streams = lock(&self.streams);
        let is_it = |stream: &Stream| stream.path == *path && stream.follows(range.start);
        let Some(at) = streams.iter().position(is_it) else {
            if streams.len() >= STREAMS_MAX {
                streams.remove(0);
            }
            let next = range.end;
            let (path, window_bytes) = (path.clone(), WINDOW_BYTES_MIN);
            streams.push(Stream { path, next, window_bytes, windows: VecDeque::new() });
            return None;
        };
        let mut stream = streams.remove(at);
        let most = match streams.len() >= MANY {
            true => WINDOW_BYTES_MAX_OF_MANY,
            false => WINDOW_BYTES_MAX,
        };
        for window in stream.advance(&range, size_bytes, most) {
            let request = fetch(window.range.clone());
            let filler = Filler(Arc::clone(&window.slot));
            spawn(Box::pin(async move {
                let bytes = request.await.ok();
                filler.0.fill(bytes);
            }));
        }
        let wanted: Vec<_> = stream
            .windows
            .iter()
            .filter(|window| overlaps(&window.range, &range))
            .cloned()
            .collect();
        if range.end >= size_bytes {
            // It has come to the end.
            drop(stream);
        } else {
            streams.push(stream);
        }
        drop(streams);
        let filled = wanted.into_iter().map(|window| Some((window.range, window.slot.wait()?)));
        let filled: Option<Vec<_>> = filled.collect();
        if filled.is_none() {
            // Read by itself the range gives the error, or its bytes.
            lock(&self.streams).retain(|stream| stream.path != *path);
        }
        filled
    }

    /// Forgets what was fetched of an object.
    pub(super) fn forget(&self, path: &Path) {
        lock(&self.streams).retain(|stream| stream.path != *path);
    }
}

impl Stream {
    /// Whether a read that begins there belongs to it.
    fn follows(&self, offset_bytes: u64) -> bool {
        let is_inside = self.windows.iter().any(|window| window.range.contains(&offset_bytes));
        offset_bytes == self.next || is_inside
    }

    /// Makes the windows up to those ahead of a range, and lets go of those behind it; returns the new
    /// ones.
    fn advance(&mut self, range: &Range<u64>, size_bytes: u64, most: u64) -> Vec<Window> {
        // The one before stays: reads of several threads of one reader are in no strict order.
        while self.windows.len() > 1 && self.windows[1].range.end <= range.start {
            self.windows.pop_front();
        }
        let mut new = Vec::new();
        let is_covered = self.windows.front().is_some_and(|first| first.range.start <= range.start);
        if !is_covered {
            self.windows.clear();
        }
        loop {
            let end = self.windows.back().map_or(range.start, |last| last.range.end);
            let ahead =
                self.windows.iter().filter(|window| window.range.start >= range.end).count();
            if end >= size_bytes || end >= range.end && ahead >= AHEAD {
                break;
            }
            let window = Window {
                range: end..(end + self.window_bytes).min(size_bytes),
                slot: Arc::default(),
            };
            self.window_bytes = (self.window_bytes * 2).min(most);
            self.windows.push_back(window.clone());
            new.push(window);
        }
        self.next = self.next.max(range.end);
        new
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads like a file that is read in pieces; the ranges that were fetched, in order.
    fn read_through(size_bytes: u64, pieces: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let readahead = Readahead::default();
        let fetched = Mutex::new(Vec::new());
        let path = Path::from("object");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("threads");
        let byte = |at: u64| (at % 251) as u8;
        for piece in pieces {
            let fetch = |range: Range<u64>| {
                lock(&fetched).push(range.clone());
                async move { Ok(range.map(byte).collect::<Vec<_>>().into()) }
            };
            let spawn = |future| runtime.block_on(future);
            match readahead.read(&path, size_bytes, piece.clone(), fetch, spawn) {
                None => lock(&fetched).push(piece),
                Some(windows) => {
                    let mut bytes = Vec::new();
                    for (range, window) in windows {
                        let inside = piece.start.max(range.start)..piece.end.min(range.end);
                        let at = (inside.start - range.start) as usize;
                        let count = (inside.end - inside.start) as usize;
                        bytes.extend_from_slice(&window[at..at + count]);
                    }
                    assert_eq!(bytes, piece.map(byte).collect::<Vec<_>>());
                }
            }
        }
        lock(&fetched).clone()
    }

    #[test]
    fn a_reader_from_front_to_back_fetches_each_byte_once() {
        const SIZE: u64 = 9 << 20;
        const PIECE: u64 = 128 << 10;
        let pieces = (0..SIZE / PIECE).map(|piece| piece * PIECE..(piece + 1) * PIECE);
        let fetched = read_through(SIZE, pieces);
        let mut end = 0;
        for range in &fetched {
            assert_eq!(range.start, end, "{fetched:?}");
            end = range.end;
        }
        assert_eq!(end, SIZE);
        assert!(fetched.len() <= 7, "{fetched:?}");
    }

    #[test]
    fn a_reader_that_jumps_fetches_what_it_asks_for() {
        let pieces = [5 << 20, 1 << 20, 7 << 20, 3 << 20].map(|at: u64| at..at + 4096);
        assert_eq!(read_through(9 << 20, pieces.clone().into_iter()), pieces);
    }

    #[test]
    fn streams_are_bounded_in_number() {
        let readahead = Readahead::default();
        for number in 0..3 * STREAMS_MAX {
            let path = Path::from(format!("object{number}"));
            let fetch = |_| async { Ok(Bytes::new()) };
            assert!(readahead.read(&path, 1 << 30, 0..4096, fetch, |_| {}).is_none());
        }
        assert_eq!(lock(&readahead.streams).len(), STREAMS_MAX);
    }

    #[test]
    fn a_window_that_fails_is_read_by_itself() {
        let readahead = Readahead::default();
        let path = Path::from("object");
        let fetch =
            |_| async { Err(terrace_core::Error::new(terrace_core::ErrorKind::Io, "read")) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("threads");
        let read = |range| readahead.read(&path, 1 << 20, range, fetch, |it| runtime.block_on(it));
        assert!(read(0..4096).is_none());
        assert!(read(4096..8192).is_none());
        assert!(lock(&readahead.streams).is_empty());
    }
}
