// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Micro-benchmarks of single operations, on a stack and on what lies below it.
//!
//! `docs/reference/bench.md` says what each case does and how its figures come about.

pub(crate) mod object;
pub(crate) mod pairs;
pub(super) mod picks;
pub(super) mod place;
mod pool;
pub(super) mod row;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use terrace_console::progress::Progress;
use terrace_core::{Atomicity, Error, Persistency, Result, Semantics};
use terrace_measure::sides::{Effort, Subject, Threads, measure};

pub use self::picks::Keys;
pub use self::row::Row;

use self::place::Sides;

/// What a case works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Objects.
    Object,
    /// Key-value pairs.
    Kv,
}

impl Kind {
    /// For people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Object => "object",
            Kind::Kv => "kv",
        }
    }

    /// What can be measured on it, in the order of the table.
    pub fn cases(self) -> &'static [&'static str] {
        match self {
            Kind::Object => &object::CASES,
            Kind::Kv => &pairs::CASES,
        }
    }
}

/// What is measured: every case with every combination of the lists.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is measured, on what.
    pub cases: Vec<(Kind, &'static str)>,
    /// Threads that work at once.
    pub threads: Vec<usize>,
    /// Of an object, a value, a read and a write.
    pub sizes_bytes: Vec<usize>,
    /// Operations of one call.
    pub batches: Vec<usize>,
    /// What an operation survives once it is done.
    pub levels: Vec<Persistency>,
    /// Beside the level.
    pub semantics: Semantics,
    /// Which objects are looked up, read and written, and which pairs are read.
    pub keys: Keys,
    /// For each row.
    pub seconds: f64,
    /// Blocks of each side in a row.
    pub repetitions: usize,
    /// Where the stores are made.
    pub place: Place,
}

/// Where it is measured.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory of the files.
    pub directory: PathBuf,
    /// The backend of the tiers.
    pub backend: String,
    /// The engine of the catalog.
    pub engine: String,
}

/// What distinguishes the rows of a case.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) size_bytes: usize,
    pub(super) batch: usize,
    pub(super) threads: usize,
    /// With the level of the row.
    pub(super) semantics: Semantics,
    pub(super) keys: Keys,
}

impl Shape {
    fn level(&self) -> Persistency {
        self.semantics.persistency
    }
}

/// Which part of a side a subject is: several share its objects and its bounds, and none meets what
/// another makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Of its objects and pairs.
    pub(super) namespace: String,
    pub(super) number: usize,
    pub(super) of: usize,
}

impl Part {
    /// All of a side.
    pub(super) fn whole() -> Self {
        Self { namespace: "bench".into(), number: 0, of: 1 }
    }

    /// Its share of so many; one at least.
    fn share(&self, count: usize) -> usize {
        (count / self.of).max(1)
    }

    /// Tells one of its threads apart from those of all parts.
    fn seed(&self, thread: usize, threads: usize) -> u64 {
        (self.number * threads + thread) as u64
    }
}

/// What one side may leave behind in a block.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Bounds {
    pub(super) objects: usize,
    pub(super) bytes: u64,
}

impl Bounds {
    /// The share of one of so many parts.
    pub(super) fn shared(self, parts: usize) -> Self {
        Self { objects: (self.objects / parts).max(1), bytes: self.bytes / parts as u64 }
    }

    /// Room for objects of this size.
    fn objects_of(self, size_bytes: usize) -> usize {
        let by_bytes = self.bytes / size_bytes.max(1) as u64;
        self.objects.min(by_bytes.max(1) as usize)
    }
}

/// Most memory that the buffers of one batch take.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Measures all rows.
///
/// # Errors
///
/// `Invalid` for a batch that would not fit the memory it is given, `Unsupported` for a level that
/// the backend cannot give, and those of the operations.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<Row>> {
    let plan = plan(settings)?;
    let total = (plan.len() * settings.repetitions) as u64;
    let mut progress = Progress::items("bench", Some(total));
    let measure = |(kind, case, shape): &Planned| {
        progress.say(format!("bench {} {case}", kind.word()));
        one(settings, *kind, case, shape, stop, &mut progress)
    };
    plan.iter().map(measure).collect()
}

/// What a row is about.
pub(super) type Planned = (Kind, &'static str, Shape);

/// All rows, in order.
///
/// # Errors
///
/// `Invalid` for a batch that would not fit the memory it is given.
pub(super) fn plan(settings: &Settings) -> Result<Vec<Planned>> {
    let mut plan = Vec::new();
    for (kind, case) in &settings.cases {
        let is_empty = *kind == Kind::Object && object::EMPTY.contains(case);
        let sizes_bytes = if is_empty { &[0] } else { &*settings.sizes_bytes };
        plan.extend(shapes(settings, sizes_bytes)?.into_iter().map(|shape| (*kind, *case, shape)));
    }
    Ok(plan)
}

fn shapes(settings: &Settings, sizes_bytes: &[usize]) -> Result<Vec<Shape>> {
    let mut shapes = Vec::new();
    for &level in &settings.levels {
        for &size_bytes in sizes_bytes {
            for &batch in &settings.batches {
                if batch.saturating_mul(size_bytes) > BATCH_BYTES_MAX {
                    return Err(Error::invalid("run the benchmark", "the batch is too large")
                        .with("batch_bytes", batch.saturating_mul(size_bytes))
                        .with("batch_bytes_max", BATCH_BYTES_MAX));
                }
                for &threads in &settings.threads {
                    let keys = settings.keys;
                    let semantics = Semantics { persistency: level, ..settings.semantics };
                    shapes.push(Shape { size_bytes, batch, threads, semantics, keys });
                }
            }
        }
    }
    Ok(shapes)
}

/// Measures a row, on a store of its own.
fn one(
    settings: &Settings,
    kind: Kind,
    case: &'static str,
    shape: &Shape,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Row> {
    let effort = Effort {
        threads: shape.threads,
        batch: shape.batch,
        repetitions: settings.repetitions,
        seconds: settings.seconds,
    };
    let threads = shape.threads;
    let of = |subject| Threads { subjects: vec![subject], threads, stop };
    let sides = Sides::new(&settings.place, shape.level())?;
    let (bounds, part) = (sides.bounds()?, Part::whole());
    let measured = match kind {
        Kind::Object => {
            let bare = Semantics { atomicity: Atomicity::None, ..shape.semantics };
            let bare = Shape { semantics: bare, ..shape.clone() };
            let raw = object::Objects::new(case, &*sides.raw, &bare, bounds, &part)?;
            let stack = object::Objects::new(case, &sides.stack, shape, bounds, &part)?;
            let [raw, stack]: [Box<dyn Subject>; 2] = [Box::new(raw), Box::new(stack)];
            measure([&mut of(raw), &mut of(stack)], &effort, progress)?
        }
        Kind::Kv => {
            let (raw, stack) = (pairs::Engine(&*sides.engine), pairs::Stacked(&sides.stack));
            let raw = pairs::PairCase::new(case, &raw, shape, bounds, &part)?;
            let stack = pairs::PairCase::new(case, &stack, shape, bounds, &part)?;
            let [raw, stack]: [Box<dyn Subject>; 2] = [Box::new(raw), Box::new(stack)];
            measure([&mut of(raw), &mut of(stack)], &effort, progress)?
        }
    };
    sides.stack.close()?;
    Ok(row::row(kind, case, shape, &settings.place, &measured))
}
