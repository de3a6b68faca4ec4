// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A workload shaped like a code with an adaptive mesh: every time step it hands a burst of blocks
//! of uneven sizes to threads that write them while it computes on, and in the end it reads a part
//! of them back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use hdrhistogram::Histogram;
use serde::Serialize;
use terrace_console::progress::Progress;
use terrace_core::{
    Backend, Clock, Error, ErrorKind, Key, ObjectExt, Open, Persistency, Random, Result, Semantics,
    SystemClock,
};
use terrace_measure::sides::{Side, latencies};
use terrace_measure::{Bound, check_stop, cpu_ns};

use super::micro::place::Sides;
use super::micro::row::{Row, row};
use super::micro::{Keys, Kind, Place, Shape};

/// Least and most bytes of a block of the mesh.
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 33_000..=50_000;

/// What blocks are cut from, so that handing one over copies nothing and it can be checked.
const MESH_BYTES: usize = 4 << 20;

/// One in so many blocks is read back.
const READ_PART: usize = 4;

/// How much is written, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time steps of a repetition.
    pub steps: usize,
    /// Blocks that each hands over.
    pub blocks: usize,
    /// Computing before each burst, in seconds.
    pub computing_s: f64,
    /// Threads that write, and later read.
    pub writers: usize,
    /// Blocks that wait for a writer before the computation has to.
    pub queue: usize,
    /// What a written block survives.
    pub level: Persistency,
    /// Of each side.
    pub repetitions: usize,
    /// Where the store is made.
    pub place: Place,
}

/// What was measured: a row as of any case, and what the computation noticed.
#[derive(Clone, Debug, Serialize)]
pub struct AmrRow {
    #[serde(flatten)]
    pub(crate) row: Row,
    /// Blocks that may wait for a writer.
    pub(crate) queue: usize,
    /// How long the computation waited for room in the queue, for each time step; median of the
    /// repetitions and its 95 % bound. Nothing for reads, for which it does not wait.
    pub(crate) waited_ms_per_step: Option<Bound>,
    pub(crate) raw_waited_ms_per_step: Option<Bound>,
}

/// Runs it on both sides in turns.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<AmrRow>> {
    let sides = Sides::new(&settings.place, settings.level)?;
    let count = settings.steps * settings.blocks;
    let (most_bytes, room_bytes) = ((count * BLOCK_BYTES.end()) as u64, sides.bounds()?.bytes);
    if most_bytes > room_bytes {
        return Err(Error::new(ErrorKind::NoSpace, "run the benchmark")
            .because("the blocks of a repetition may take too much room")
            .with("blocks_bytes", most_bytes)
            .with("bytes_max", room_bytes));
    }
    let mesh = Mesh::new(count)?;
    let mut progress = Progress::items("bench amr", Some(2 * settings.repetitions as u64));
    let mut measured = [Figures::new(), Figures::new()];
    let backends: [&dyn Backend; 2] = [&*sides.raw, &sides.stack];
    // The first of either side is not counted.
    for repetition in 0..=settings.repetitions {
        for turn in 0..2 {
            let index = (repetition + turn) % 2;
            let simulation = Simulation { settings, mesh: &mesh, backend: backends[index] };
            let mut unused = Figures::new();
            let figures = if repetition == 0 { &mut unused } else { &mut measured[index] };
            simulation.repeat(repetition, figures)?;
            check_stop(stop)?;
            progress.advance(u64::from(repetition > 0));
        }
    }
    sides.stack.close()?;
    Ok(rows(settings, &mesh, measured))
}

fn rows(settings: &Settings, mesh: &Mesh, [raw, stack]: [Figures; 2]) -> Vec<AmrRow> {
    let shape = Shape {
        size_bytes: (mesh.bytes() / mesh.blocks.len() as u64) as usize,
        batch: 1,
        threads: settings.writers,
        semantics: Semantics::at_level(settings.level),
        keys: Keys::Uniform,
    };
    let row_of = |case, sides: [Side; 2]| row(Kind::Object, case, &shape, &settings.place, &sides);
    let write = AmrRow {
        queue: settings.queue,
        waited_ms_per_step: Some(Bound::of(&stack.waited_ms_per_step)),
        raw_waited_ms_per_step: Some(Bound::of(&raw.waited_ms_per_step)),
        row: row_of("amr-write", [raw.writes, stack.writes]),
    };
    let read = AmrRow {
        queue: settings.queue,
        waited_ms_per_step: None,
        raw_waited_ms_per_step: None,
        row: row_of("amr-read", [raw.reads, stack.reads]),
    };
    vec![write, read]
}

/// What the repetitions of one side gave.
struct Figures {
    writes: Side,
    reads: Side,
    waited_ms_per_step: Vec<f64>,
}

impl Figures {
    fn new() -> Self {
        Self { writes: Side::new(), reads: Side::new(), waited_ms_per_step: Vec::new() }
    }
}

/// The blocks that a repetition writes.
struct Mesh {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
}

struct Block {
    key: Key,
    start: usize,
    size_bytes: usize,
}

impl Mesh {
    fn new(count: usize) -> Result<Self> {
        let mut random = Random::new(11);
        let mut bytes = vec![0; MESH_BYTES];
        random.fill(&mut bytes);
        let span = (BLOCK_BYTES.end() - BLOCK_BYTES.start() + 1) as u64;
        let mut block = |number: usize| {
            let size_bytes = BLOCK_BYTES.start() + random.below(span) as usize;
            let start = random.below((MESH_BYTES - size_bytes) as u64) as usize;
            let key = Key::new("amr", &format!("block-{number:07}"))?;
            Ok(Block { key, start, size_bytes })
        };
        let blocks = (0..count).map(&mut block).collect::<Result<_>>()?;
        Ok(Self { bytes, blocks })
    }

    fn data(&self, block: &Block) -> &[u8] {
        &self.bytes[block.start..][..block.size_bytes]
    }

    fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.size_bytes as u64).sum()
    }
}

/// One side.
struct Simulation<'a> {
    settings: &'a Settings,
    mesh: &'a Mesh,
    backend: &'a dyn Backend,
}

impl Simulation<'_> {
    /// Writes all blocks, reads a part of them and deletes them.
    fn repeat(&self, repetition: usize, figures: &mut Figures) -> Result<()> {
        let (clock, cpu) = (SystemClock::default(), cpu_ns());
        let (waited_ns, latencies_ns) = self.write()?;
        let (passed_ns, cpu) = (clock.now_ns(), cpu_ns() - cpu);
        figures.writes.add(self.mesh.blocks.len() as u64, passed_ns, cpu, &latencies_ns);
        let steps = self.settings.steps as f64;
        figures.waited_ms_per_step.push(waited_ns as f64 / 1e6 / steps);

        let mut random = Random::new(repetition as u64);
        let mut part: Vec<&Block> = self.mesh.blocks.iter().collect();
        for first in 0..part.len() {
            let left = (part.len() - first) as u64;
            part.swap(first, first + random.below(left) as usize);
        }
        part.truncate(part.len().div_ceil(READ_PART));
        let (clock, cpu) = (SystemClock::default(), cpu_ns());
        let latencies_ns = self.read(&part)?;
        let (passed_ns, cpu) = (clock.now_ns(), cpu_ns() - cpu);
        figures.reads.add(part.len() as u64, passed_ns, cpu, &latencies_ns);
        self.mesh.blocks.iter().try_for_each(|block| self.backend.delete(&block.key))
    }

    /// Computes and hands over, step by step, until all is written; returns how long the
    /// computation waited for room in the queue, and the time of each write.
    fn write(&self) -> Result<(u64, Histogram<u64>)> {
        let (sender, receiver) = sync_channel(self.settings.queue);
        let receiver = Mutex::new(receiver);
        let (waited_ns, outcomes) = std::thread::scope(|scope| {
            let work = || self.write_all(&receiver);
            let writers: Vec<_> = (0..self.settings.writers).map(|_| scope.spawn(work)).collect();
            let waited_ns = self.compute(&sender);
            drop(sender);
            (waited_ns, writers.into_iter().map(join).collect::<Vec<_>>())
        });
        Ok((waited_ns, merge(outcomes)?))
    }

    fn compute<'b>(&'b self, sender: &SyncSender<&'b Block>) -> u64 {
        let clock = SystemClock::default();
        let mut waited_ns = 0;
        let mut random = Random::new(1);
        for burst in self.mesh.blocks.chunks(self.settings.blocks) {
            let until_ns = clock.now_ns() + (self.settings.computing_s * 1e9) as u64;
            while clock.now_ns() < until_ns {
                std::hint::black_box(random.next_u64());
            }
            for block in burst {
                // Only a full queue is waited for; handing over is not.
                if let Err(TrySendError::Full(block)) = sender.try_send(block) {
                    let before_ns = clock.now_ns();
                    sender.send(block).expect("writers take blocks until there are no more");
                    waited_ns += clock.now_ns() - before_ns;
                }
            }
        }
        waited_ns
    }

    /// Writes what comes until nothing more does. After a failure it goes on taking blocks, so
    /// that the computation does not wait for ever.
    fn write_all(&self, blocks: &Mutex<Receiver<&Block>>) -> Result<Histogram<u64>> {
        let mut latencies_ns = latencies();
        let clock = SystemClock::default();
        let mut failure = None;
        let next = || blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        while let Ok(block) = next() {
            let before_ns = clock.now_ns();
            match self.write_one(block) {
                Err(error) if failure.is_none() => failure = Some(error),
                _ => {}
            }
            latencies_ns.saturating_record(clock.now_ns() - before_ns);
        }
        failure.map_or(Ok(latencies_ns), Err)
    }

    fn write_one(&self, block: &Block) -> Result<()> {
        let semantics = Semantics::at_level(self.settings.level);
        let mut how = Open::create_new().with_semantics(semantics);
        how.size_hint_bytes = Some(block.size_bytes as u64);
        self.backend.open(&block.key, &how)?.write(0, self.mesh.data(block))
    }

    fn read(&self, part: &[&Block]) -> Result<Histogram<u64>> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Histogram<u64>> {
            let mut latencies_ns = latencies();
            let mut buffer = vec![0; *BLOCK_BYTES.end() + 1];
            let clock = SystemClock::default();
            let semantics = Semantics::at_level(self.settings.level);
            let how = Open::read().with_semantics(semantics);
            while let Some(block) = part.get(next.fetch_add(1, Ordering::Relaxed)) {
                let before_ns = clock.now_ns();
                let count = self.backend.open(&block.key, &how)?.read(0, &mut buffer)?;
                latencies_ns.saturating_record(clock.now_ns() - before_ns);
                if &buffer[..count] != self.mesh.data(block) {
                    return Err(Error::new(ErrorKind::Corrupt, "run the benchmark")
                        .because("something else was read than was written")
                        .with("key", &block.key));
                }
            }
            Ok(latencies_ns)
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.settings.writers).map(|_| scope.spawn(work)).collect();
            readers.into_iter().map(join).collect()
        });
        merge(outcomes)
    }
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("a benchmark thread does not panic")
}

fn merge(outcomes: Vec<Result<Histogram<u64>>>) -> Result<Histogram<u64>> {
    let mut all = latencies();
    for latencies_ns in outcomes {
        all.add(&latencies_ns?).expect("all histograms have the same range");
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use terrace_backends::{Place as BackendPlace, open_backend};

    use super::*;

    fn with_simulation(test: impl Fn(&Simulation<'_>)) {
        let settings = Settings {
            steps: 3,
            blocks: 5,
            computing_s: 0.0,
            writers: 2,
            queue: 1,
            level: Persistency::None,
            repetitions: 1,
            place: Place { directory: "/".into(), backend: String::new(), engine: String::new() },
        };
        let place = BackendPlace { path: None, capacity_bytes: u64::MAX, read_only: false };
        let backend = open_backend("memory", &place).expect("it needs nothing");
        let mesh = Mesh::new(15).expect("a mesh");
        test(&Simulation { settings: &settings, mesh: &mesh, backend: &*backend });
    }

    #[test]
    fn every_block_is_written_once_and_a_part_is_read() {
        with_simulation(|simulation| {
            let (_, written) = simulation.write().expect("nothing fails");
            assert_eq!(written.len(), 15);
            for block in &simulation.mesh.blocks {
                let stat = simulation.backend.stat(&block.key).expect("it was written");
                assert_eq!(stat.size_bytes, block.size_bytes as u64);
                assert!(BLOCK_BYTES.contains(&block.size_bytes));
                simulation.backend.delete(&block.key).expect("deleted");
            }
            let mut figures = Figures::new();
            simulation.repeat(1, &mut figures).expect("nothing fails");
            assert_eq!((figures.writes.operations, figures.reads.operations), (15, 4));
        });
    }

    #[test]
    fn a_failure_ends_it_and_nobody_waits() {
        with_simulation(|simulation| {
            simulation.write_one(&simulation.mesh.blocks[2]).expect("written");
            let error = simulation.write().expect_err("it is there already");
            assert_eq!(error.kind(), ErrorKind::Exists);
        });
    }

    #[test]
    fn what_was_not_written_is_not_read() {
        with_simulation(|simulation| {
            simulation.write().expect("nothing fails");
            let [first, second] = [0, 1].map(|index| &simulation.mesh.blocks[index]);
            let how = Open::write().with_semantics(Semantics::at_level(Persistency::None));
            let object = simulation.backend.open(&first.key, &how).expect("it is there");
            object.write(100, &[0; 8]).expect("written");
            let error = simulation.read(&[second, first]).expect_err("it differs");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        });
    }
}
