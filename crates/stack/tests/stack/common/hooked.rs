// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A backend that asks a test before each call, to hold it, to fail it or to lie about it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use terrace_core::{
    Access, Backend, Capability, Create, Cursor, End, Error, ErrorKind, FileLease, HeldGrowth,
    Identity, Key, Later, Object, ObjectFile, Open, Page, ReadSummary, Result, Space, Stat,
    Superblock, TierBackend,
};

use super::gate::Gate;

/// What is about to be called, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Open,
    Read,
    /// Also appends.
    Write,
    SetLen,
    Allocate,
    Punch,
    Sync,
    /// Of the whole tier.
    SyncAll,
    SetIdentity,
    Delete,
    Lend,
}

/// One call on a tier.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) call: Call,
    /// The name of the file; empty for calls about the whole tier.
    pub(crate) name: String,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    /// Whether the tier has already carried it out.
    pub(crate) is_done: bool,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is carried out.
    Go,
    /// It fails; after the fact, it was carried out all the same.
    Fail(ErrorKind),
    /// It succeeds without being carried out; only before the fact, and only for calls without
    /// a result.
    Pretend,
}

type Hook = Arc<dyn Fn(&Moment) -> Verdict + Send + Sync>;

/// The hook of one tier, which stays when its backend is opened anew.
#[derive(Clone, Default)]
pub(crate) struct Control {
    hook: Arc<Mutex<Option<Hook>>>,
    gate: Arc<Gate>,
    room: Arc<Mutex<Option<u64>>>,
    refuses_stats: Arc<AtomicBool>,
    object_bytes_max: Arc<Mutex<Option<u64>>>,
}

impl Control {
    /// Backends that are opened from now on take objects up to this length.
    pub(crate) fn bound_objects(&self, bytes: u64) {
        *self.object_bytes_max.lock().expect("never poisoned") = Some(bytes);
    }

    /// From now on its file system has room for so many bytes at most: others have taken the rest.
    pub(crate) fn leave_room(&self, bytes: u64) {
        *self.room.lock().expect("never poisoned") = Some(bytes);
    }

    /// From now on every call asks `hook`.
    pub(crate) fn on(&self, hook: impl Fn(&Moment) -> Verdict + Send + Sync + 'static) {
        *self.hook.lock().expect("never poisoned") = Some(Arc::new(hook));
    }

    /// Holds the calls for which `which` is true until [`Control::release`].
    pub(crate) fn hold(&self, which: impl Fn(&Moment) -> bool + Send + Sync + 'static) {
        self.gate.close();
        let gate = self.gate.clone();
        self.on(move |moment| {
            if which(moment) {
                gate.pass();
            }
            Verdict::Go
        });
    }

    /// Holds everything that creates a file.
    pub(crate) fn hold_creates(&self) {
        self.hold(|moment| moment.call == Call::Create && !moment.is_done);
    }

    /// Lets calls that are held go on; holds no more.
    pub(crate) fn release(&self) {
        *self.hook.lock().expect("never poisoned") = None;
        self.gate.open();
    }

    /// Waits until a call is held.
    pub(crate) fn wait_until_held(&self) {
        self.gate.wait_until_held();
    }

    /// Whether a call is held.
    pub(crate) fn is_holding(&self) -> bool {
        self.gate.is_holding()
    }

    /// Fails everything that changes bytes.
    pub(crate) fn fail_writes(&self) {
        self.on(|moment| match moment.call {
            Call::Write | Call::SetLen | Call::Allocate | Call::Punch if !moment.is_done => {
                Verdict::Fail(ErrorKind::Io)
            }
            _ => Verdict::Go,
        });
    }

    /// Whether looks at size and times fail, which ask no hook: the stack looks by itself, too.
    pub(crate) fn fail_stats(&self, do_fail: bool) {
        self.refuses_stats.store(do_fail, Ordering::SeqCst);
    }

    fn check_stat(&self) -> Result<()> {
        match self.refuses_stats.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "use a tier").because("the test said so")),
            false => Ok(()),
        }
    }

    /// Asks nobody any more.
    pub(crate) fn heal(&self) {
        self.release();
    }

    fn ask(&self, moment: &Moment) -> Result<Verdict> {
        let hook = self.hook.lock().expect("never poisoned").clone();
        let verdict = hook.map_or(Verdict::Go, |hook| hook(moment));
        match verdict {
            Verdict::Fail(kind) => Err(Error::new(kind, "use a tier")
                .because("the test said so")
                .with("call", format!("{:?}", moment.call))
                .with("name", &moment.name)),
            verdict => Ok(verdict),
        }
    }

    fn around<T>(
        &self,
        mut moment: Moment,
        pretended: Option<T>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let (Verdict::Pretend, Some(value)) = (self.ask(&moment)?, pretended) {
            return Ok(value);
        }
        let value = body()?;
        moment.is_done = true;
        self.ask(&moment)?;
        Ok(value)
    }
}

/// A tier whose calls ask a [`Control`].
pub(crate) struct Hooked {
    inner: Arc<dyn Backend>,
    control: Control,
}

impl Hooked {
    pub(crate) fn new(inner: Arc<dyn Backend>, control: Control) -> Self {
        Self { inner, control }
    }
}

fn moment(call: Call, name: &str, offset_bytes: u64, length_bytes: u64) -> Moment {
    Moment { call, name: name.into(), offset_bytes, length_bytes, is_done: false }
}

fn length(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|part| part.len() as u64).sum()
}

impl Backend for Hooked {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn capability(&self) -> Capability {
        let bound = *self.control.object_bytes_max.lock().expect("never poisoned");
        let inner = self.inner.capability();
        Capability { object_bytes_max: bound.unwrap_or(inner.object_bytes_max), ..inner }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let call = if how.create == Create::Never { Call::Open } else { Call::Create };
        let control = self.control.clone();
        let name = key.name().to_string();
        let inner = self
            .control
            .around(moment(call, key.name(), 0, 0), None, || self.inner.open(key, how))?;
        Ok(Box::new(HookedObject { inner, control, name, has_failed_sync: false.into() }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.control.check_stat()?;
        self.inner.stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let moment = moment(Call::Delete, key.name(), 0, 0);
        self.control.around(moment, Some(()), || self.inner.delete(key))
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.inner.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.inner.namespaces()
    }

    fn space(&self) -> Result<Space> {
        let mut space = self.inner.space()?;
        if let Some(room) = *self.control.room.lock().expect("never poisoned") {
            space.used_bytes = space.used_bytes.max(space.capacity_bytes.saturating_sub(room));
        }
        Ok(space)
    }

    fn sync(&self) -> Result<()> {
        let moment = moment(Call::SyncAll, "", 0, 0);
        self.control.around(moment, Some(()), || self.inner.sync())
    }

    fn sync_all(&self) -> Result<()> {
        let moment = moment(Call::SyncAll, "", 0, 0);
        self.control.around(moment, Some(()), || self.inner.sync_all())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Hooked {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.inner.identity(key)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        let moment = moment(Call::SetIdentity, key.name(), 0, 0);
        self.control.around(moment, Some(()), || self.inner.set_identity(key, identity))
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        self.inner.superblock()
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.inner.set_superblock(superblock)
    }
}

struct HookedObject {
    inner: Box<dyn Object>,
    control: Control,
    name: String,
    /// A failed sync is sticky, as every tier promises.
    has_failed_sync: AtomicBool,
}

#[deny(clippy::missing_trait_methods)]
impl Object for HookedObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let moment = moment(Call::Read, &self.name, offset_bytes, bytes);
        self.control.around(moment, None, || self.inner.read_at(offset_bytes, buffers))
    }

    fn later(&self) -> Option<&dyn Later> {
        None
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let moment = moment(Call::Write, &self.name, offset_bytes, length(data));
        self.control.around(moment, Some(()), || self.inner.write_at(offset_bytes, data))
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let moment = moment(Call::Write, &self.name, u64::MAX, length(data));
        self.control.around(moment, None, || self.inner.append(data))
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let moment = moment(Call::SetLen, &self.name, bytes, 0);
        self.control.around(moment, Some(()), || self.inner.set_len(bytes))
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        let moment = moment(Call::Allocate, &self.name, range.start, range.end - range.start);
        self.control.around(moment, Some(()), || self.inner.allocate(range, end))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end.saturating_sub(range.start);
        let moment = moment(Call::Punch, &self.name, range.start, bytes);
        self.control.around(moment, Some(()), || self.inner.punch(range))
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        self.inner.next_data(offset_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        self.control.check_stat()?;
        self.inner.stat()
    }

    fn created_ns(&self) -> Result<u64> {
        self.control.check_stat()?;
        self.inner.created_ns()
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.inner.set_modified(wall_ns)
    }

    fn sync(&self) -> Result<()> {
        if self.has_failed_sync.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Io, "sync").because("an earlier sync failed"));
        }
        let moment = moment(Call::Sync, &self.name, 0, 0);
        let result = self.control.around(moment, Some(()), || self.inner.sync());
        if result.is_err() {
            self.has_failed_sync.store(true, Ordering::SeqCst);
        }
        result
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.inner.label()
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        Some(self)
    }
}

impl ObjectFile for HookedObject {
    fn lease_file(&self) -> Result<Option<FileLease>> {
        // What is read through it goes around the hook.
        let moment = moment(Call::Lend, &self.name, 0, 0);
        self.control.around(moment, None, || self.inner.lease_file())
    }

    fn hold_file(&self, access: Access) -> Result<Option<File>> {
        let moment = moment(Call::Lend, &self.name, 0, 0);
        self.control.around(moment, None, || self.inner.hold_file(access))
    }

    fn held_growth(&self) -> Result<HeldGrowth> {
        self.inner.held_growth()
    }

    fn note_reads(&self, reads: &ReadSummary) {
        self.inner.note_reads(reads);
    }
}
