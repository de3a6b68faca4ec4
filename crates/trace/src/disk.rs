// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that writes the files, so that no other thread ever waits for the trace's disk.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};

use crate::block::{FILE_MAGIC, Kind, NO_TIME, PREFIX_BYTES, Prefix, seal};
use crate::codec::Encoder;
use crate::directory::Directory;
use crate::index::{self, Row};
use crate::record::Head;

/// Bytes that may wait for the disk: at 15 bytes a record, half a second of two million a second.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What the thread is to do.
pub(crate) enum Order {
    /// Begin a file.
    Begin(Box<Head>),
    /// Append a block to it.
    Block(Vec<u8>),
    /// End it.
    End,
}

/// How far the files are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) deleted_files: u64,
    /// Why nothing is written any more.
    pub(crate) failure: Option<String>,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    waiting_bytes: usize,
    is_working: bool,
    is_ending: bool,
    /// The thread has ended, and the directory is free for others.
    is_over: bool,
    progress: Progress,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's end.
pub(crate) struct Disk {
    desk: Arc<Desk>,
}

impl Disk {
    /// Starts the thread over a directory that is this writer's alone.
    pub(crate) fn start(directory: Directory, max_bytes: u64, file_bytes: u64) -> Result<Self> {
        let desk = Arc::new(Desk::default());
        let mut files = Files { directory, max_bytes, file_bytes, now: None };
        desk.state().progress = files.progress();
        let shared = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("terrace-trace".into())
            .spawn(move || {
                work(&shared, &mut files);
                drop(files);
                shared.state().is_over = true;
                shared.changed.notify_all();
            })
            .map_err(|error| Error::from_io("start the trace's thread", error))?;
        Ok(Self { desk })
    }

    /// Hands over a block, or several that belong together. False where too much waits for the
    /// disk already, and still does after `longest`.
    pub(crate) fn blocks(&self, blocks: Vec<Vec<u8>>, longest: Duration) -> bool {
        let bytes: usize = blocks.iter().map(Vec::len).sum();
        let is_full = |state: &mut State| {
            state.progress.failure.is_none() && state.waiting_bytes + bytes > WAITING_BYTES_MAX
        };
        let mut state = self.desk.state();
        if is_full(&mut state) {
            if longest.is_zero() {
                return false;
            }
            let waited = self.desk.changed.wait_timeout_while(state, longest, is_full);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return false;
            }
            state = after;
        }
        if state.progress.failure.is_some() {
            return false;
        }
        state.waiting_bytes += bytes;
        state.orders.extend(blocks.into_iter().map(Order::Block));
        drop(state);
        self.desk.changed.notify_all();
        true
    }

    /// Hands over an order that has no bytes to wait for.
    pub(crate) fn order(&self, order: Order) {
        let mut state = self.desk.state();
        if state.progress.failure.is_none() {
            state.orders.push_back(order);
        }
        drop(state);
        self.desk.changed.notify_all();
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        self.desk.state().progress.clone()
    }

    /// Waits until everything that was handed over is written; false where it took longer.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_working || !state.orders.is_empty();
        let waited = self.desk.changed.wait_timeout_while(self.desk.state(), longest, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Disk {
    /// Waits until everything is written and others can use the directory, but not longer than
    /// `longest`.
    pub(crate) fn end(&self, longest: Duration) {
        let mut state = self.desk.state();
        state.is_ending = true;
        self.desk.changed.notify_all();
        let is_busy = |state: &mut State| !state.is_over;
        drop(self.desk.changed.wait_timeout_while(state, longest, is_busy));
    }
}

impl Drop for Disk {
    /// The thread ends once it has written what it was handed, which this does not wait for.
    fn drop(&mut self) {
        self.desk.state().is_ending = true;
        self.desk.changed.notify_all();
    }
}

fn work(desk: &Desk, files: &mut Files) {
    let mut state = desk.state();
    loop {
        let Some(order) = state.orders.pop_front() else {
            if state.is_ending {
                return;
            }
            state = desk.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.is_working = true;
        drop(state);
        let bytes = if let Order::Block(block) = &order { block.len() } else { 0 };
        let done = files.obey(order);
        state = desk.state();
        state.is_working = false;
        state.waiting_bytes -= bytes;
        state.progress = files.progress();
        if let Err(error) = done {
            state.progress.failure = Some(error.chain());
            state.orders.clear();
            state.waiting_bytes = 0;
        }
        desk.changed.notify_all();
        if state.progress.failure.is_some() {
            return;
        }
    }
}

/// The files of a recording.
struct Files {
    directory: Directory,
    max_bytes: u64,
    /// What a file may have; room for as much is made before it is begun.
    file_bytes: u64,
    now: Option<Now>,
}

/// The file that is being written.
struct Now {
    file: File,
    path: PathBuf,
    bytes: u64,
    rows: Vec<Row>,
}

impl Files {
    fn obey(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Begin(head) => self.begin(*head),
            Order::Block(block) => self.block(&block),
            Order::End => self.end(),
        }
    }

    fn begin(&mut self, mut head: Head) -> Result<()> {
        self.end()?;
        let room_bytes = self.max_bytes.saturating_sub(self.file_bytes);
        self.directory.delete_oldest(room_bytes)?;
        head.deleted_files = self.directory.deleted_files;
        head.deleted_records = self.directory.deleted_records;
        head.number = self.directory.next_number();
        let path = self.directory.path_of(head.number);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| failed("begin a file of the trace", &path, error))?;
        self.directory.begun(head.number);
        self.now = Some(Now { file, path, bytes: 0, rows: Vec::new() });
        self.append(&FILE_MAGIC)?;
        let mut content = Encoder::default();
        content.raw(&[0; PREFIX_BYTES]).head(&head);
        seal(&mut content.bytes, Kind::Head, 0, NO_TIME);
        self.block(&content.bytes)
    }

    fn block(&mut self, block: &[u8]) -> Result<()> {
        let prefix = block.first_chunk().and_then(Prefix::read);
        let prefix = prefix.expect("the writer hands over sealed blocks");
        if let Some(now) = &mut self.now {
            now.rows.push(Row { offset_bytes: now.bytes, prefix });
        }
        self.append(block)
    }

    fn end(&mut self) -> Result<()> {
        let Some(now) = &mut self.now else { return Ok(()) };
        let tail = index::tail(&now.rows, now.bytes);
        let records = index::records(&now.rows);
        self.append(&tail)?;
        self.directory.ended(records);
        self.now = None;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let now = self.now.as_mut().expect("a file is begun before it is written");
        let written = now.file.write_all(bytes);
        written.map_err(|error| failed("write the trace", &now.path, error))?;
        now.bytes += bytes.len() as u64;
        self.directory.grown(bytes.len() as u64);
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress {
            files: self.directory.file_count(),
            bytes: self.directory.bytes(),
            deleted_files: self.directory.deleted_files,
            failure: None,
        }
    }
}

fn failed(operation: &'static str, path: &std::path::Path, error: std::io::Error) -> Error {
    let error = Error::from_io(operation, error).with("file", path.display());
    match error.kind() {
        // Only the trace is meant, not a tier.
        ErrorKind::NoSpace => error.because("its disk is full"),
        _ => error,
    }
}
