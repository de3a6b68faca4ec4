// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cases on objects, on any backend: a stack, or the bare one below it.

use std::ops::Range;
use std::slice::ChunksMut;

use terrace_core::{
    Backend, Error, ErrorKind, Hint, Key, Object, ObjectExt, Op, Open, Random, Reply, Request,
    Result, Semantics,
};
use terrace_measure::sides::{Call, Subject};

use super::picks::Picks;
use super::pool::{Pool, Usage};
use super::{Bounds, Part, Shape};

/// What can be measured on objects, in the order of the table.
pub(crate) const CASES: [&str; 11] = [
    "create",
    "delete",
    "create+delete",
    "create+write",
    "status",
    "read",
    "write",
    "mixed",
    "open+read",
    "read-run",
    "write-run",
];

/// Those whose objects have no bytes.
pub(super) const EMPTY: [&str; 3] = ["create", "delete", "create+delete"];

/// Those that go through one object from its beginning: as many operations of a batch, so many times
/// its size.
const RUNS: [&str; 2] = ["read-run", "write-run"];

/// Objects that are there throughout, for cases that look them up by name.
const NAMED_MAX: usize = 10_000;

/// Objects that are kept open: two sides of them stay below the usual limit of 1024 descriptors.
const OPEN_MAX: usize = 128;

/// Operations of one batch that makes or takes away what is not measured.
const PREPARE_BATCH: usize = 1000;

/// One case on one backend.
pub(crate) struct Objects<'a> {
    case: &'static str,
    backend: &'a dyn Backend,
    shape: Shape,
    part: Part,
    semantics: Semantics,
    bounds: Bounds,
    /// Objects that come and go.
    fresh: Pool<Key>,
    /// What is there throughout.
    lasting: Vec<Key>,
    open: Vec<Box<dyn Object>>,
    /// What is written.
    data: Vec<u8>,
}

impl<'a> Objects<'a> {
    /// Makes what is there throughout.
    pub(crate) fn new(
        case: &'static str,
        backend: &'a dyn Backend,
        shape: &Shape,
        bounds: Bounds,
        part: &Part,
    ) -> Result<Self> {
        let mut data = vec![0; shape.size_bytes];
        Random::new(5).fill(&mut data);
        let usage = match case {
            "create" | "create+write" | "delete" => Usage::Once,
            "create+delete" => Usage::Again,
            _ => Usage::None,
        };
        let mut objects = Self {
            case,
            backend,
            shape: shape.clone(),
            part: part.clone(),
            semantics: shape.semantics,
            bounds,
            fresh: Pool::new(usage, shape.threads, shape.batch),
            lasting: Vec::new(),
            open: Vec::new(),
            data,
        };
        let count = match case {
            "read" | "write" | "mixed" if shape.batch == 1 => part.share(OPEN_MAX),
            "read" | "write" | "mixed" | "status" | "open+read" => part.share(NAMED_MAX),
            "read-run" | "write-run" => shape.threads,
            _ => 0,
        };
        let repeated = if RUNS.contains(&case) { shape.batch } else { 1 };
        let lasting_bytes = shape.size_bytes * repeated;
        let count = bounds.objects_of(lasting_bytes).min(count);
        objects.lasting = names(part, "lasting", 0..count)?;
        create(backend, &objects.lasting, &objects.data.repeat(repeated))?;
        if shape.batch == 1 && matches!(case, "read" | "write" | "mixed" | "read-run" | "write-run")
        {
            let how = Open::write().with_semantics(objects.semantics);
            for key in &objects.lasting {
                objects.open.push(backend.open(key, &how)?);
            }
        }
        Ok(objects)
    }

    /// One operation a call, as an application without batches does it.
    fn single(&self, thread: usize) -> Call<'_> {
        let (backend, data) = (self.backend, &*self.data);
        let open = |how: Open| how.with_semantics(self.semantics);
        let picks = self.picks(thread);
        let mut buffer = vec![0; self.shape.size_bytes];
        let at = move |call| &self.fresh.of_call(thread, call)[0];
        match self.case {
            "create" => {
                let how = open(Open::create_new());
                Box::new(move |call| backend.open(at(call), &how).map(drop))
            }
            "create+write" => {
                let mut how = open(Open::create_new());
                how.size_hint_bytes = Some(data.len() as u64);
                Box::new(move |call| backend.open(at(call), &how)?.write(0, data))
            }
            "delete" => Box::new(move |call| backend.delete(at(call))),
            "create+delete" => {
                let how = open(Open::create_new());
                Box::new(move |call| {
                    drop(backend.open(at(call), &how)?);
                    backend.delete(at(call))
                })
            }
            "status" => Box::new(move |call| {
                let stat = backend.stat(&self.lasting[picks.at(call)])?;
                check_count(stat.size_bytes as usize, data.len())
            }),
            "open+read" => {
                let how = open(Open::read());
                Box::new(move |call| {
                    let object = backend.open(&self.lasting[picks.at(call)], &how)?;
                    object.read_exact(0, &mut buffer)
                })
            }
            "read" | "read-run" => {
                Box::new(move |call| self.open[picks.at(call)].read_exact(0, &mut buffer))
            }
            "write" | "write-run" => Box::new(move |call| self.open[picks.at(call)].write(0, data)),
            _ => Box::new(move |call| {
                let object = &self.open[picks.at(call)];
                if is_write(call) {
                    object.write(0, data)
                } else {
                    object.read_exact(0, &mut buffer)
                }
            }),
        }
    }

    /// Many operations with one call of [`Backend::execute`].
    fn batched(&self, thread: usize) -> Call<'_> {
        let batch = self.shape.batch;
        let picks = self.picks(thread);
        let reads = matches!(self.case, "read" | "mixed" | "open+read" | "read-run");
        let mut buffers = vec![0; if reads { batch * self.shape.size_bytes } else { 0 }];
        Box::new(move |call| {
            let keys = || self.fresh.of_call(thread, call).iter();
            let touched = (0..batch as u64).map(|index| {
                let position = call * batch as u64 + index;
                (position, &self.lasting[picks.at(position)])
            });
            match self.case {
                "create" => self.execute(keys().map(|key| request_create(key, &[]))),
                "create+write" => self.execute(keys().map(|key| request_create(key, &self.data))),
                "delete" => self.execute(keys().map(|key| Request::Delete { key })),
                "create+delete" => {
                    self.execute(keys().map(|key| request_create(key, &[])))?;
                    self.execute(keys().map(|key| Request::Delete { key }))
                }
                "status" => self.execute(touched.map(|(_, key)| Request::Stat { key })),
                "read-run" | "write-run" => {
                    let key = &self.lasting[thread % self.lasting.len()];
                    let mut chunks = buffers.chunks_mut(self.shape.size_bytes);
                    self.execute((0..batch).map(|index| {
                        let offset_bytes = (index * self.shape.size_bytes) as u64;
                        self.transfer(index as u64, key, offset_bytes, &mut chunks)
                    }))
                }
                _ => {
                    let mut chunks = buffers.chunks_mut(self.shape.size_bytes);
                    self.execute(
                        touched.map(|(position, key)| self.transfer(position, key, 0, &mut chunks)),
                    )
                }
            }
        })
    }

    fn picks(&self, thread: usize) -> Picks {
        let seed = self.part.seed(thread, self.shape.threads);
        Picks::new(self.shape.keys, self.lasting.len().max(1), seed)
    }

    fn transfer<'b>(
        &'b self,
        position: u64,
        key: &'b Key,
        offset_bytes: u64,
        chunks: &mut ChunksMut<'b, u8>,
    ) -> Request<'b> {
        let is_write = match self.case {
            "write" | "write-run" => true,
            case => case == "mixed" && is_write(position),
        };
        if is_write {
            return Request::Write { key, offset_bytes, data: &self.data };
        }
        let buffer = chunks.next().expect("there is a buffer for every operation");
        Request::Read { key, offset_bytes, buffer }
    }

    fn execute<'b>(&self, requests: impl Iterator<Item = Request<'b>>) -> Result<()> {
        execute(self.backend, requests, &self.semantics, self.data.len())
    }
}

impl Subject for Objects<'_> {
    fn calls_max(&self) -> u64 {
        self.fresh.calls_max(self.bounds.objects_of(self.data.len()))
    }

    fn prepare(&mut self, calls: u64) -> Result<()> {
        self.fresh.reserve(calls, |numbers| names(&self.part, "fresh", numbers))?;
        if self.case == "delete" { create(self.backend, self.fresh.all(), &[]) } else { Ok(()) }
    }

    fn call(&self, thread: usize) -> Result<Call<'_>> {
        Ok(if self.shape.batch == 1 { self.single(thread) } else { self.batched(thread) })
    }

    /// What was created is deleted, which fails where it is not there; of what was to be deleted
    /// the rest is.
    fn clean(&mut self, calls: &[u64]) -> Result<()> {
        for (thread, calls) in calls.iter().enumerate() {
            let (used, unused) = match self.case {
                "create" | "create+write" | "delete" => self.fresh.used(thread, *calls),
                _ => return Ok(()),
            };
            if self.case == "delete" {
                check_gone(self.backend, used)?;
                delete(self.backend, unused)?;
            } else {
                delete(self.backend, used)?;
            }
        }
        Ok(())
    }
}

/// Three of ten operations are writes.
fn is_write(position: u64) -> bool {
    // By a generator's first number, because a pattern would be foretold by the processor.
    Random::new(position).below(10) < 3
}

fn names(part: &Part, prefix: &str, numbers: Range<usize>) -> Result<Vec<Key>> {
    let name = |number| Key::new(&part.namespace, &format!("{prefix}-{number:07}"));
    numbers.map(name).collect()
}

fn request_create<'b>(key: &'b Key, data: &'b [u8]) -> Request<'b> {
    Request::Create { key, data, hint: Hint::default() }
}

fn create(backend: &dyn Backend, keys: &[Key], data: &[u8]) -> Result<()> {
    in_batches(backend, keys, |key| request_create(key, data))
}

fn delete(backend: &dyn Backend, keys: &[Key]) -> Result<()> {
    in_batches(backend, keys, |key| Request::Delete { key })
}

/// Fails where the last of these is still there.
fn check_gone(backend: &dyn Backend, keys: &[Key]) -> Result<()> {
    match keys.last().map(|key| backend.stat(key)) {
        Some(Ok(_)) => Err(Error::new(ErrorKind::Io, "run the benchmark")
            .because("an object is there that was deleted")),
        _ => Ok(()),
    }
}

fn in_batches<'b>(
    backend: &dyn Backend,
    keys: &'b [Key],
    request: impl Fn(&'b Key) -> Request<'b>,
) -> Result<()> {
    let semantics = Semantics::at_level(terrace_core::Persistency::None);
    keys.chunks(PREPARE_BATCH)
        .try_for_each(|keys| execute(backend, keys.iter().map(&request), &semantics, 0))
}

/// Carries out a batch; the first failure is the outcome, and a read that is short is one.
fn execute<'b>(
    backend: &dyn Backend,
    requests: impl Iterator<Item = Request<'b>>,
    semantics: &Semantics,
    size_bytes: usize,
) -> Result<()> {
    let mut operations: Vec<_> = requests.map(Op::new).collect();
    backend.execute(&mut operations, semantics);
    operations.into_iter().try_for_each(|operation| match operation.outcome {
        Some(Ok(Reply::Done)) => Ok(()),
        Some(Ok(Reply::Count(count))) => check_count(count, size_bytes),
        Some(Ok(Reply::Stat(stat))) => check_count(stat.size_bytes as usize, size_bytes),
        Some(Err(error)) => Err(error),
        None => Err(Error::new(ErrorKind::Io, "run the benchmark")
            .because("an operation of a batch was left out")),
    })
}

fn check_count(bytes: usize, wanted_bytes: usize) -> Result<()> {
    if bytes == wanted_bytes {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, "run the benchmark")
        .because("an object is not as large as it was written")
        .with("size_bytes", bytes)
        .with("want_bytes", wanted_bytes))
}

#[cfg(test)]
mod tests {
    use terrace_backends::{Place, open_backend};
    use terrace_core::{BackendExt, Persistency};

    use super::*;
    use crate::micro::Keys;

    const BOUNDS: Bounds = Bounds { objects: 50, bytes: 1 << 20 };

    fn shape(case: &str, batch: usize) -> Shape {
        let size_bytes = if EMPTY.contains(&case) { 0 } else { 4096 };
        let (semantics, keys) = (Semantics::at_level(Persistency::None), Keys::Uniform);
        Shape { size_bytes, batch, threads: 2, semantics, keys }
    }

    fn with_backend(test: impl Fn(&dyn Backend, usize)) {
        for batch in [1, 3] {
            let place = Place { path: None, capacity_bytes: u64::MAX, read_only: false };
            test(&*open_backend("memory", &place).expect("it needs nothing"), batch);
        }
    }

    fn subject<'a>(case: &'static str, backend: &'a dyn Backend, batch: usize) -> Objects<'a> {
        let (shape, part) = (shape(case, batch), Part::whole());
        Objects::new(case, backend, &shape, BOUNDS, &part).expect("a subject")
    }

    /// Names and bytes of what is there.
    fn there(backend: &dyn Backend, prefix: &str) -> (usize, u64) {
        let keys = backend.list_all("bench", prefix).expect("a listing");
        let bytes = keys.iter().map(|key| backend.stat(key).expect("it is listed").size_bytes);
        (keys.len(), bytes.sum())
    }

    /// Two calls of the first thread and three of the second.
    fn call(objects: &Objects<'_>) -> [u64; 2] {
        let calls = [2, 3];
        for (thread, calls) in calls.into_iter().enumerate() {
            let mut call = objects.call(thread).expect("a call");
            (0..calls).try_for_each(&mut *call).expect("nothing fails");
        }
        calls
    }

    #[test]
    fn what_was_counted_was_done() {
        with_backend(|backend, batch| {
            for (case, before, after, size) in [
                ("create", 0, 5 * batch, 0),
                ("create+write", 0, 5 * batch, 4096),
                ("delete", 2 * 4 * batch, 3 * batch, 0),
                ("create+delete", 0, 0, 0),
            ] {
                let mut objects = subject(case, backend, batch);
                objects.prepare(4).expect("prepared");
                assert_eq!(there(backend, "fresh").0, before, "{case}");
                let calls = call(&objects);
                assert_eq!(there(backend, "fresh"), (after, after as u64 * size), "{case}");
                objects.clean(&calls).expect("it is all there");
                assert_eq!(there(backend, "fresh").0, 0, "{case}");
            }
        });
    }

    #[test]
    fn what_was_not_done_is_found_out() {
        with_backend(|backend, batch| {
            for case in ["create", "create+write", "delete"] {
                let mut objects = subject(case, backend, batch);
                objects.prepare(4).expect("prepared");
                call(&objects);
                assert!(objects.clean(&[2, 4]).is_err(), "{case}");
                let left = backend.list_all("bench", "fresh").expect("a listing");
                delete(backend, &left).expect("deleted");
            }
        });
    }

    #[test]
    fn what_is_read_and_written_is_there_throughout() {
        with_backend(|backend, batch| {
            for case in ["status", "read", "write", "mixed", "open+read"] {
                let mut objects = subject(case, backend, batch);
                objects.prepare(4).expect("prepared");
                let calls = call(&objects);
                objects.clean(&calls).expect("there is nothing to clean");
                assert_eq!(there(backend, "lasting"), (50, 50 * 4096), "{case}");
                delete(backend, &objects.lasting).expect("deleted");
            }
        });
    }

    #[test]
    fn a_run_goes_through_one_object_of_each_thread() {
        with_backend(|backend, batch| {
            for case in RUNS {
                let mut objects = subject(case, backend, batch);
                objects.prepare(4).expect("prepared");
                let calls = call(&objects);
                objects.clean(&calls).expect("there is nothing to clean");
                assert_eq!(there(backend, "lasting"), (2, 2 * batch as u64 * 4096), "{case}");
                delete(backend, &objects.lasting).expect("deleted");
            }
        });
    }

    #[test]
    fn a_short_object_is_no_success() {
        with_backend(|backend, batch| {
            for case in ["status", "read", "open+read", "read-run"] {
                let mut objects = subject(case, backend, batch);
                for key in &objects.lasting {
                    let how = Open::write().with_semantics(objects.semantics);
                    let object = backend.open(key, &how).expect("it is there");
                    object.set_len(100).expect("cut");
                }
                objects.prepare(1).expect("prepared");
                let mut call = objects.call(0).expect("a call");
                assert!(call(0).is_err(), "{case}");
                drop(call);
                delete(backend, &objects.lasting).expect("deleted");
            }
        });
    }

    #[test]
    fn parts_share_what_there_is_and_meet_nobody() {
        with_backend(|backend, batch| {
            let part = |number| Part { namespace: format!("bench-{number}"), number, of: 4 };
            let parts: Vec<_> = (0..4)
                .map(|number| {
                    let (shape, bounds) = (shape("status", batch), BOUNDS.shared(4));
                    Objects::new("status", backend, &shape, bounds, &part(number))
                })
                .collect::<Result<_>>()
                .expect("subjects");
            let namespaces = backend.namespaces().expect("a listing");
            assert_eq!(namespaces, ["bench-0", "bench-1", "bench-2", "bench-3"]);
            for (number, part) in parts.iter().enumerate() {
                assert_eq!(part.lasting.len(), 50 / 4);
                // Two threads each, and none draws as another does.
                let seeds = [part.part.seed(0, 2), part.part.seed(1, 2)];
                assert_eq!(seeds, [2 * number as u64, 2 * number as u64 + 1]);
            }
            for part in parts {
                delete(backend, &part.lasting).expect("deleted");
            }
        });
    }
}
