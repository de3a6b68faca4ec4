// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs on a store when it crashes, and knows what it was promised.

use std::collections::BTreeMap;
use std::ops::Range;

use terrace_core::{
    Backend, BackendExt, End, ErrorKind, Hint, Key, Object, ObjectExt, Op, Open, Persistency,
    Request, Result, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, ScrubOptions, Stack};

use crate::common::crashing::Crash;
use crate::common::expected::Expected;
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::stamped;
use crate::common::world::{LONG, World, key, outcome_of};
use crate::{FAST, SLOW};

/// The application of the crash tests: does one thing after the other and remembers what may be
/// found afterwards.
pub(crate) struct Application<'a> {
    pub(crate) world: &'a World,
    /// `None` after its death.
    pub(crate) stack: Option<Stack>,
    pub(crate) level: Persistency,
    pub(crate) crash: Crash,
    pub(crate) objects: BTreeMap<Key, Expected>,
    pub(crate) pairs: BTreeMap<Vec<u8>, Expected>,
    pub(crate) version: u64,
}

impl<'a> Application<'a> {
    pub(crate) fn new(world: &'a World, stack: Stack, level: Persistency, crash: Crash) -> Self {
        let (objects, pairs) = (BTreeMap::new(), BTreeMap::new());
        Self { world, stack: Some(stack), level, crash, objects, pairs, version: 0 }
    }

    pub(crate) fn stack(&self) -> &Stack {
        self.stack.as_ref().expect("it is alive")
    }

    /// Ends without a clean close; nothing that it does now reaches a frozen world.
    pub(crate) fn die(&mut self) {
        self.world.failpoints().freeze();
        self.stack = None;
    }

    /// Whether an operation that was acknowledged at `level` survives the crash.
    pub(crate) fn survives(&self, level: Persistency) -> bool {
        match self.crash {
            Crash::Process => level >= Persistency::Process,
            Crash::Power { .. } => level == Persistency::Storage,
        }
    }

    pub(crate) fn semantics(&self) -> Semantics {
        Semantics::at_level(self.level)
    }

    pub(crate) fn expected(&mut self, name: &Key) -> &mut Expected {
        self.objects.entry(name.clone()).or_insert_with(Expected::missing)
    }

    pub(crate) fn now(&mut self, name: &Key) -> Vec<u8> {
        self.expected(name).now().expect("the scenario creates it first").to_vec()
    }

    /// Runs one step that leads to `next`. What is acknowledged after the crash was never heard.
    pub(crate) fn step(
        &mut self,
        name: &Key,
        next: Option<Vec<u8>>,
        body: impl FnOnce(&Stack) -> Result<()>,
    ) -> Result<()> {
        self.expected(name).begin(next);
        body(self.stack())?;
        self.heard()?;
        if self.survives(self.level) {
            self.expected(name).settle();
        }
        Ok(())
    }

    pub(crate) fn heard(&self) -> Result<()> {
        self.world.failpoints().is_alive()
    }

    pub(crate) fn create(&mut self, name: &Key) -> Result<Box<dyn Object>> {
        let how = Open::create_new().with_semantics(self.semantics());
        let mut handle = None;
        self.step(name, Some(Vec::new()), |stack| {
            handle = Some(stack.open(name, &how)?);
            Ok(())
        })?;
        Ok(handle.expect("was opened"))
    }

    pub(crate) fn open(&self, name: &Key) -> Result<Box<dyn Object>> {
        self.stack().open(name, &Open::write().with_semantics(self.semantics()))
    }

    pub(crate) fn write(
        &mut self,
        name: &Key,
        object: &dyn Object,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        self.version += 1;
        let data = stamped(7, self.version, at as u64, bytes);
        let mut next = self.now(name);
        next.resize(next.len().max(at + bytes), 0);
        next[at..at + bytes].copy_from_slice(&data);
        self.step(name, Some(next), |_| object.write(at as u64, &data))
    }

    pub(crate) fn set_len(&mut self, name: &Key, object: &dyn Object, bytes: usize) -> Result<()> {
        let mut next = self.now(name);
        next.resize(bytes, 0);
        self.step(name, Some(next), |_| object.set_len(bytes as u64))
    }

    /// Has room promised behind the end, which an application does not see.
    pub(crate) fn promise(
        &mut self,
        name: &Key,
        object: &dyn Object,
        range: Range<u64>,
    ) -> Result<()> {
        let same = self.now(name);
        self.step(name, Some(same), |_| object.allocate(range, End::Stays))
    }

    pub(crate) fn sync(&mut self, name: &Key, object: &dyn Object) -> Result<()> {
        object.sync()?;
        self.heard()?;
        // Both tiers and the catalog give `storage`.
        self.expected(name).settle();
        Ok(())
    }

    pub(crate) fn delete(&mut self, name: &Key) -> Result<()> {
        self.step(name, None, |stack| stack.delete(name))
    }

    /// Migrates and waits; a migration changes nothing that an application sees.
    pub(crate) fn migrate(&mut self, name: &Key, to: TierIndex, kind: MoveKind) -> Result<()> {
        for ticket in self.stack().migrate(name, to, kind, 0, "test")? {
            let ended = self.stack().wait(ticket, LONG)?.expect("a migration ends");
            self.heard()?;
            assert_eq!(outcome_of(&ended), "done", "without a crash it succeeds: {ended:?}");
        }
        Ok(())
    }

    pub(crate) fn put_pair(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let expected = self.pairs.entry(name.to_vec()).or_insert_with(Expected::missing);
        expected.begin(Some(value.to_vec()));
        self.stack().kv_put("test", name, value, self.level)?;
        self.heard()?;
        if self.survives(self.level) {
            self.pairs.entry(name.to_vec()).and_modify(Expected::settle);
        }
        Ok(())
    }

    /// Everything a store does, from the first object to the close.
    pub(crate) fn run(&mut self) -> Result<()> {
        let [one, cut, gone, twice, batch] = ["one", "cut", "gone", "twice", "batch"].map(key);
        let object = self.create(&one)?;
        self.write(&one, &*object, 0, 9600)?;
        self.write(&one, &*object, 3200, 640)?;
        self.put_pair(b"pair", b"first")?;
        // Objects whose name begins with "cut" have segments of 4 KiB.
        let parts = self.create(&cut)?;
        self.write(&cut, &*parts, 0, 3200)?;
        self.write(&cut, &*parts, 3200, 6400)?;
        self.promise(&one, &*object, 9600..20_000)?;
        self.sync(&one, &*object)?;
        self.migrate(&one, SLOW, MoveKind::Move)?;
        self.write(&one, &*object, 0, 320)?;
        self.set_len(&one, &*object, 9600)?;
        self.migrate(&cut, SLOW, MoveKind::Copy)?;
        self.write(&cut, &*parts, 640, 320)?;
        self.sync(&cut, &*parts)?;
        self.migrate(&one, FAST, MoveKind::Promote)?;
        self.migrate(&one, SLOW, MoveKind::Move)?;
        self.set_len(&cut, &*parts, 5000)?;
        self.promise(&cut, &*parts, 6000..17_000)?;
        self.set_len(&cut, &*parts, 13_000)?;
        self.set_len(&cut, &*parts, 1600)?;
        self.write(&cut, &*parts, 6400, 640)?;
        drop(parts);
        self.migrate(&cut, SLOW, MoveKind::Move)?;
        let lost = self.create(&gone)?;
        self.write(&gone, &*lost, 0, 3200)?;
        self.promise(&gone, &*lost, 0..9000)?;
        self.migrate(&gone, SLOW, MoveKind::Promote)?;
        self.sync(&gone, &*lost)?;
        self.delete(&gone)?;
        drop(lost);
        self.run_with_holes()?;
        let first = self.create(&twice)?;
        self.write(&twice, &*first, 0, 6400)?;
        drop(first);
        self.delete(&twice)?;
        let second = self.create(&twice)?;
        self.write(&twice, &*second, 0, 1600)?;
        self.scrub()?;
        self.migrate(&twice, SLOW, MoveKind::Copy)?;
        self.mend(&twice)?;
        self.stack().drop_copy(&twice, SLOW)?;
        self.put_pair(b"pair", b"second")?;
        self.execute(&batch)?;
        self.create_together("few", 3)?;
        self.migrate(&one, FAST, MoveKind::Move)?;
        let again = self.open(&one)?;
        self.write(&one, &*again, 9600, 960)?;
        drop((object, again, second));
        Backend::sync(self.stack())?;
        self.close()
    }

    /// What is done to an object with holes: its account is what is allocated.
    fn run_with_holes(&mut self) -> Result<()> {
        let holes = key("holes");
        let object = self.create(&holes)?;
        self.write(&holes, &*object, 0, 640)?;
        self.write(&holes, &*object, 40_960, 640)?;
        self.set_len(&holes, &*object, 90_000)?;
        self.migrate(&holes, SLOW, MoveKind::Move)?;
        self.write(&holes, &*object, 20_480, 9600)?;
        self.migrate(&holes, FAST, MoveKind::Promote)?;
        self.punch(&holes, &*object, 0..24_576)?;
        self.promise(&holes, &*object, 60_000..70_000)?;
        self.promise(&holes, &*object, 95_000..99_000)?;
        self.write(&holes, &*object, 64_000, 3200)?;
        self.sync(&holes, &*object)?;
        self.migrate(&holes, SLOW, MoveKind::Move)?;
        self.set_len(&holes, &*object, 62_000)?;
        self.migrate(&holes, FAST, MoveKind::Copy)?;
        self.set_len(&holes, &*object, 80_000)?;
        drop(object);
        self.migrate(&holes, FAST, MoveKind::Move)
    }

    fn punch(&mut self, name: &Key, object: &dyn Object, range: Range<usize>) -> Result<()> {
        let mut next = self.now(name);
        next[range.clone()].fill(0);
        self.step(name, Some(next), |_| object.punch(range.start as u64..range.end as u64))
    }

    /// Creates so many objects that whole tiers are synced.
    pub(crate) fn run_large(&mut self) -> Result<()> {
        self.create_together("many", 140)?;
        self.close()
    }

    /// Replaces objects as a whole, and leaves one draft unpublished.
    pub(crate) fn run_puts(&mut self) -> Result<()> {
        // Objects whose name begins with "cut" have segments of 4 KiB.
        for name in ["one", "cut"].map(key) {
            let object = self.create(&name)?;
            self.write(&name, &*object, 0, 9600)?;
            self.sync(&name, &*object)?;
            drop(object);
            self.put(&name, 3200)?;
            self.put(&name, 12_800)?;
            self.migrate(&name, SLOW, MoveKind::Copy)?;
            self.put(&name, 640)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.put(&name, 9600)?;
            let draft = self.stack().draft(&name, &Open::create())?;
            draft.object().write(0, &[1; 6000])?;
            self.put(&name, 6400)?;
        }
        self.close()
    }

    /// Moves objects to a tier that takes whole objects only, and changes them there in every way.
    pub(crate) fn run_whole(&mut self) -> Result<()> {
        // Objects whose name begins with "cut" have segments of 4 KiB.
        for name in ["one", "cut"].map(key) {
            let object = self.create(&name)?;
            self.write(&name, &*object, 0, 9600)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.write(&name, &*object, 3200, 640)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.sync(&name, &*object)?;
            self.set_len(&name, &*object, 12_000)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.set_len(&name, &*object, 5000)?;
            // A copy there becomes the primary and goes back, without a byte.
            self.migrate(&name, SLOW, MoveKind::Copy)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.migrate(&name, FAST, MoveKind::Promote)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.migrate(&name, FAST, MoveKind::Promote)?;
            self.write(&name, &*object, 4000, 640)?;
            drop(object);
            self.migrate(&name, SLOW, MoveKind::Move)?;
            self.put(&name, 640)?;
            self.migrate(&name, SLOW, MoveKind::Move)?;
        }
        let gone = key("gone");
        let lost = self.create(&gone)?;
        self.write(&gone, &*lost, 0, 3200)?;
        self.migrate(&gone, SLOW, MoveKind::Move)?;
        self.delete(&gone)?;
        self.scrub()?;
        drop(lost);
        self.close()
    }

    /// Replaces an object as a whole.
    pub(crate) fn put(&mut self, name: &Key, bytes: usize) -> Result<()> {
        self.version += 1;
        let data = stamped(7, self.version, 0, bytes);
        self.expected(name).begin_put(data.clone());
        let how = Open::create().with_semantics(self.semantics());
        self.stack().put(name, &data, &how)?;
        self.heard()?;
        if self.survives(self.level) {
            self.expected(name).settle();
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        self.stack().close()?;
        self.heard()?;
        // A clean close makes everything durable that it promised to keep.
        if self.level >= Persistency::Process {
            self.objects.values_mut().chain(self.pairs.values_mut()).for_each(Expected::settle);
        }
        Ok(())
    }

    /// Reads everything, records checksums, and returns what was mended.
    pub(crate) fn scrub(&mut self) -> Result<usize> {
        let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
        let report = self.stack().scrub(&options, &mut |_, _| true)?;
        self.heard()?;
        assert_eq!(report.problem_count, 0, "{report:?}");
        Ok(report.repairs.len())
    }

    /// Writes a primary anew that cannot be read, from its copy.
    pub(crate) fn mend(&mut self, name: &Key) -> Result<()> {
        let unreadable = self.stack().explain(name)?.segments.remove(0).stored_as;
        let name = unreadable.split_once('/').expect("a key").1.to_owned();
        self.world.tier(0).on(move |moment| {
            let fails = moment.call == Call::Read && moment.name == name;
            if fails { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
        });
        let mended = self.scrub();
        self.world.tier(0).heal();
        assert_eq!(mended?, 1);
        Ok(())
    }

    /// Creates, overwrites and reads in one batch.
    pub(crate) fn execute(&mut self, name: &Key) -> Result<()> {
        let (data, over) = (stamped(7, 1000, 0, 640), stamped(7, 1001, 320, 320));
        let mut content = data.clone();
        content[320..].copy_from_slice(&over);
        let semantics = self.semantics();
        self.expected(name).begin(Some(data.clone()));
        self.step(name, Some(content), |stack| {
            let mut operations = [
                Op::new(Request::Create { key: name, data: &data, hint: Hint::default() }),
                Op::new(Request::Write { key: name, offset_bytes: 320, data: &over }),
            ];
            stack.execute(&mut operations, &semantics);
            for operation in operations {
                operation.outcome.expect("every outcome is filled")?;
            }
            Ok(())
        })
    }

    /// Creates objects with one batch: each is there or not, and what is acknowledged is whole.
    pub(crate) fn create_together(&mut self, prefix: &str, count: u64) -> Result<()> {
        // Some are larger than a segment, and some are empty.
        let bytes = |number: u64| [640, 0, 9600, 3200][(number % 4) as usize];
        let objects: Vec<_> = (0..count)
            .map(|number| {
                let name = key(&format!("cut-{prefix}-{number}"));
                (name, stamped(7, 2000 + number, 0, bytes(number)))
            })
            .collect();
        for (name, data) in &objects {
            self.expected(name).begin(Some(Vec::new()));
            self.expected(name).begin(Some(data.clone()));
        }
        let request = |(key, data)| Request::Create { key, data, hint: Hint::default() };
        let pairs = objects.iter().map(|(key, data)| (key, data.as_slice()));
        let mut operations: Vec<_> = pairs.map(|pair| Op::new(request(pair))).collect();
        self.stack().execute(&mut operations, &self.semantics());
        self.heard()?;
        for operation in operations {
            operation.outcome.expect("every outcome is filled")?;
        }
        if self.survives(self.level) {
            objects.iter().for_each(|(name, _)| self.expected(name).settle());
        }
        Ok(())
    }

    /// Compares everything with what was promised, and goes on from what was found.
    pub(crate) fn verify(&mut self, stack: &Stack, place: &str) {
        for (name, expected) in &mut self.objects {
            let found = found(stack, name, place);
            if let Err(problem) = expected.explain(found.as_deref()) {
                panic!("{place}: {name}: {problem}");
            }
            expected.adopt(found);
        }
        for (name, expected) in &mut self.pairs {
            let found = stack.kv_get("test", name).expect("reads a pair");
            if let Err(problem) = expected.explain(found.as_deref()) {
                panic!("{place}: pair {name:?}: {problem}");
            }
            // A pair is not written in part.
            expected.adopt(found);
        }
    }
}

/// What an object holds; `None` where it is missing. Anything else blocks it.
fn found(stack: &Stack, name: &Key, place: &str) -> Option<Vec<u8>> {
    match stack.read_all(name) {
        Ok(data) => Some(data),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{place}: {name} is blocked: {}", error.chain()),
    }
}
