// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file that several processes use at the same time, each other pieces of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use terrace_core::Result;
use terrace_measure::team::{Team, odd};

use super::member::stamp;
use super::order::{Answer, Order, Part, Pieces};
use super::{Block, Unit, Work};
use crate::mount::steps::failed;

const LARGE: usize = 1 << 20;
const SMALL: usize = 4 << 10;

/// Small pieces that all processes together use in a block.
const SMALL_PIECES: u64 = 4096;

pub(super) struct Shared<'a, 'b> {
    pieces: Pieces,
    /// Of all processes in a block.
    count: u64,
    paths: Vec<PathBuf>,
    team: &'a mut Team<'b>,
    /// Where the next block in each directory goes on.
    first: Vec<u64>,
}

impl<'a, 'b> Shared<'a, 'b> {
    /// Makes the file in every directory.
    pub(super) fn new(
        how: &str,
        directories: &[PathBuf],
        size_bytes: u64,
        team: &'a mut Team<'b>,
    ) -> Result<Self> {
        let is_random = how.starts_with("rand");
        let bytes = if is_random { SMALL } else { LARGE };
        let pieces = Pieces { bytes, size_bytes, is_random, is_write: how.contains("write") };
        let all = if is_random { pieces.count().min(SMALL_PIECES) } else { pieces.count() };
        let processes = team.processes() as u64;
        let paths: Vec<_> = directories.iter().map(|directory| directory.join("shared")).collect();
        for path in &paths {
            fill(path, size_bytes)?;
        }
        let first = vec![0; paths.len()];
        Ok(Self { pieces, count: all / processes * processes, paths, team, first })
    }
}

/// Makes a file of this length.
fn fill(path: &Path, size_bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(failed)?;
    let mut piece = vec![7; LARGE];
    for place in (0..size_bytes).step_by(LARGE) {
        stamp(&mut piece, place);
        file.write_all_at(&piece, place).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

impl Work for Shared<'_, '_> {
    fn unit(&self) -> Unit {
        match self.pieces.is_random {
            true => Unit::OPERATIONS,
            false => Unit { name: "MB/s", worth: LARGE as f64 / 1e6 },
        }
    }

    fn processes(&self) -> usize {
        self.team.processes()
    }

    fn reads_what_was_written(&self) -> bool {
        !self.pieces.is_write
    }

    fn prepare(&mut self, _place: usize) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, place: usize) -> Result<Block> {
        let (first, step) = (self.first[place], self.team.processes() as u64);
        let part = |process: usize| {
            let first = first + process as u64;
            let path = self.paths[place].clone();
            Order::Open(Part { path, pieces: self.pieces, first, step, count: self.count / step })
        };
        let _: Vec<Answer> = self.team.order(part)?;
        let (mut started_ns, mut ended_ns) = (u64::MAX, 0);
        for answer in self.team.order(|_| Order::Go)? {
            let Answer::Done { started_ns: from, ended_ns: to } = answer else {
                return Err(odd("nothing was done"));
            };
            (started_ns, ended_ns) = (started_ns.min(from), ended_ns.max(to));
        }
        self.first[place] += self.count;
        let passed_ns = ended_ns.saturating_sub(started_ns);
        Ok(Block { operations: self.count, passed_ns, ..Block::default() })
    }
}
