// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files and their names, by one process.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use terrace_core::{Clock, Result, SystemClock};
use terrace_measure::check_stop;

use super::{Block, Unit, Work};
use crate::mount::steps;

/// Files that are made or removed in a block.
const FILES: u64 = 512;

/// One of the rows; returns how many operations it was.
type Act = fn(&Path, u64) -> Result<u64>;

pub(super) struct Names<'a> {
    row: &'static str,
    act: Act,
    /// Calls in a block.
    calls: u64,
    directories: Vec<PathBuf>,
    stop: &'a AtomicBool,
}

impl<'a> Names<'a> {
    /// Makes what the row has all the time.
    pub(super) fn new(
        row: &'static str,
        directories: Vec<PathBuf>,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let (act, calls): (Act, u64) = match row {
            "create-1k" => (|at, number| steps::create_small(at, number).map(|()| 1), FILES),
            // Each file once, so that no cache answers for a file that was asked for before.
            "stat" => (|at, number| steps::stat(at, number).map(|()| 1), steps::SMALL_FILES),
            "read-1k" => (|at, number| steps::read(at, number).map(|()| 1), steps::SMALL_FILES),
            "remove" => (|at, number| steps::remove(at, number).map(|()| 1), FILES),
            "ls-lr" => (|at, _| steps::list(at), 1),
            _ => unreachable!("the command line has checked the names"),
        };
        for directory in &directories {
            check_stop(stop)?;
            match row {
                "stat" | "read-1k" => steps::small(directory, steps::SMALL_FILES)?,
                "ls-lr" => steps::tree(directory)?,
                _ => {}
            }
        }
        Ok(Self { row, act, calls, directories, stop })
    }
}

impl Work for Names<'_> {
    fn unit(&self) -> Unit {
        Unit::OPERATIONS
    }

    fn processes(&self) -> usize {
        1
    }

    fn reads_what_was_written(&self) -> bool {
        false
    }

    fn prepare(&mut self, place: usize) -> Result<()> {
        match self.row {
            "create-1k" => steps::clear(&self.directories[place], self.calls),
            "remove" => steps::small(&self.directories[place], self.calls),
            _ => Ok(()),
        }
    }

    fn run(&mut self, place: usize) -> Result<Block> {
        let directory = &self.directories[place];
        let clock = SystemClock::default();
        let mut operations = 0;
        for number in 0..self.calls {
            operations += (self.act)(directory, number)?;
            check_stop(self.stop)?;
        }
        Ok(Block { operations, passed_ns: clock.now_ns(), ..Block::default() })
    }
}
