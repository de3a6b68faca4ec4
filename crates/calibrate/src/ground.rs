// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are measured on: made for that, and gone with it.

use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, fadvise, fstatfs};
use terrace_core::{
    Backend, Buffer, Clock, Cursor, FileLease, Key, Object, Open, Persistency, Random, Result,
    Semantics, Writes,
};

/// Where objects of calibrations are on a tier: no object of a store is ever there.
pub(super) const NAMESPACE: &str = "calibrate";

/// The least request.
pub(super) const BLOCK: u64 = 4 << 10;

/// More than the caches of a processor have for one of its cores, and the words of a line of them.
const LINES_BYTES: u64 = 64 << 20;
const LINE_WORDS: usize = 8;

/// Objects where there is room for all; with little room there is one.
const OBJECTS: u64 = 16;

/// From so much room on there are several.
const SEVERAL_BYTES_MIN: u64 = 64 << 20;

/// Bytes that are written at a time while objects are made.
const FILL_BYTES: u64 = 1 << 20;

/// The objects of one tier.
pub(super) struct Ground<'a> {
    backend: &'a dyn Backend,
    pub(super) clock: &'a dyn Clock,
    objects: Vec<Made>,
    /// What is written; no device can make it smaller.
    noise: Buffer,
    /// What the caches of a processor have no room for beside anything else; made when it is needed.
    other: OnceLock<Vec<u64>>,
    /// Objects that were made as writes.
    written: AtomicU64,
}

/// One object with what it holds.
struct Made {
    object: Box<dyn Object>,
    bytes: u64,
    /// The file behind it, where there is one whose pages can be dropped.
    file: Option<FileLease>,
}

/// A place that is read or written.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    object: usize,
    offset_bytes: u64,
}

impl<'a> Ground<'a> {
    /// Makes objects of so many bytes in all, or as many as are written until `is_over`.
    pub(super) fn make(
        backend: &'a dyn Backend,
        clock: &'a dyn Clock,
        bytes: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self> {
        // What one left that was killed.
        clear(backend)?;
        let count = if bytes >= SEVERAL_BYTES_MIN { OBJECTS } else { 1 };
        let each_bytes = bytes / count / BLOCK * BLOCK;
        let mut noise = Buffer::zeroed(each_bytes as usize);
        Random::new(0).fill(&mut noise);
        let (objects, other) = (Vec::new(), OnceLock::new());
        let mut ground = Self { backend, clock, objects, noise, other, written: AtomicU64::new(0) };
        for index in 0..count {
            if index > 0 && is_over() {
                break;
            }
            ground.make_one(index, each_bytes, is_over)?;
        }
        Ok(ground)
    }

    /// Has the caches of the processor hold something else, where they might have room for the bytes
    /// among which the next request is: a store does not read the same little again and again.
    pub(super) fn forget_lines(&self, among_bytes: u64) {
        if among_bytes >= LINES_BYTES {
            return;
        }
        let other = self.other.get_or_init(|| vec![1; LINES_BYTES as usize / size_of::<u64>()]);
        let sum = other.iter().step_by(LINE_WORDS).fold(0, |sum, word| sum ^ word);
        std::hint::black_box(sum);
    }

    fn make_one(&mut self, index: u64, each_bytes: u64, is_over: &dyn Fn() -> bool) -> Result<()> {
        let key = Key::new(NAMESPACE, &index.to_string())?;
        // Main memory gives no more, and files none the less.
        let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
        let object = self.backend.open(&key, &Open { semantics, ..Open::create_new() })?;
        // From here on it is deleted whatever happens.
        self.objects.push(Made { object, bytes: 0, file: None });
        let made = self.objects.last_mut().expect("it was pushed above");
        while made.bytes < each_bytes && (made.bytes == 0 || !is_over()) {
            let range = made.bytes as usize..(made.bytes + FILL_BYTES).min(each_bytes) as usize;
            made.object.write_at(made.bytes, &[IoSlice::new(&self.noise[range.clone()])])?;
            made.bytes = range.end as u64;
        }
        made.object.sync()?;
        made.file = made.object.lease_file()?.filter(|lease| !is_in_memory(lease));
        Ok(())
    }

    /// Bytes of all objects.
    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|made| made.bytes).sum()
    }

    /// The largest request that there is room for.
    pub(super) fn request_bytes_max(&self) -> u64 {
        self.objects.iter().map(|made| made.bytes).max().unwrap_or(0)
    }

    /// Whether what is read next comes from the device, and not from the memory of the machine.
    pub(super) fn is_cold(&self) -> bool {
        self.objects.iter().all(|made| made.file.is_some())
    }

    /// Drops what the machine keeps of the objects in memory.
    pub(super) fn drop_pages(&self) -> Result<()> {
        for made in &self.objects {
            let Some(lease) = &made.file else { continue };
            made.object.sync()?;
            // Advice that is not taken makes reads as fast as memory, which the figures show.
            let _ = fadvise(&lease.file, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    /// A place anywhere for a request of this size.
    pub(super) fn anywhere(&self, bytes: u64, random: &mut Random) -> At {
        let able: Vec<_> =
            (0..self.objects.len()).filter(|index| self.objects[*index].bytes >= bytes).collect();
        let object = able[random.below(able.len() as u64) as usize];
        let blocks = (self.objects[object].bytes - bytes) / BLOCK + 1;
        At { object, offset_bytes: random.below(blocks) * BLOCK }
    }

    /// All places for requests of this size that have nothing in common, in any order.
    pub(super) fn apart(&self, bytes: u64, random: &mut Random) -> Vec<At> {
        let of_one = |object: usize| {
            let count = self.objects[object].bytes / bytes;
            (0..count).map(move |number| At { object, offset_bytes: number * bytes })
        };
        let mut places: Vec<_> = (0..self.objects.len()).flat_map(of_one).collect();
        for last in (1..places.len()).rev() {
            places.swap(last, random.below(last as u64 + 1) as usize);
        }
        places
    }

    /// The block of this number of the first object.
    pub(super) fn in_order(&self, number: u64) -> At {
        At { object: 0, offset_bytes: number * BLOCK % self.objects[0].bytes.max(BLOCK) }
    }

    /// Reads; how long it took, in seconds.
    pub(super) fn read(&self, at: At, buffer: &mut [u8]) -> Result<f64> {
        let began_ns = self.clock.now_ns();
        let object = &self.objects[at.object].object;
        object.read_at(at.offset_bytes, &mut [IoSliceMut::new(buffer)])?;
        Ok(self.since(began_ns))
    }

    /// Makes an object and writes to it; how long that took, in seconds.
    pub(super) fn create(&self, number: usize, bytes: u64) -> Result<f64> {
        let key = Key::new(NAMESPACE, &format!("new-{number}"))?;
        let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
        let began_ns = self.clock.now_ns();
        let object = self.backend.open(&key, &Open { semantics, ..Open::create_new() })?;
        object.write_at(0, &[IoSlice::new(&self.noise[..bytes as usize])])?;
        if self.is_whole() {
            // Else it would not be there.
            object.sync()?;
        }
        drop(object);
        Ok(self.since(began_ns))
    }

    /// Whether objects are written once, as a whole: a write is one that makes an object.
    fn is_whole(&self) -> bool {
        self.backend.capability().writes == Writes::Whole
    }

    /// Makes an object of these bytes, and deletes it; how long making it took, in seconds.
    fn make_whole(&self, bytes: u64) -> Result<f64> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let key = Key::new(NAMESPACE, &format!("written-{number}"))?;
        let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
        let how = Open { semantics, size_hint_bytes: Some(bytes), ..Open::create_new() };
        let began_ns = self.clock.now_ns();
        let object = self.backend.open(&key, &how)?;
        object.write_at(0, &[IoSlice::new(&self.noise[..bytes as usize])])?;
        object.sync()?;
        let took_s = self.since(began_ns);
        self.backend.delete(&key)?;
        Ok(took_s)
    }

    /// Deletes what [`Ground::create`] made.
    pub(super) fn remove_created(&self, count: usize) -> Result<()> {
        let key = |number| Key::new(NAMESPACE, &format!("new-{number}"));
        (0..count).try_for_each(|number| self.backend.delete(&key(number)?).map(drop))
    }

    /// Writes; how long it took, in seconds.
    pub(super) fn write(&self, at: At, bytes: u64) -> Result<f64> {
        if self.is_whole() {
            return self.make_whole(bytes);
        }
        let began_ns = self.clock.now_ns();
        let object = &self.objects[at.object].object;
        object.write_at(at.offset_bytes, &[IoSlice::new(&self.noise[..bytes as usize])])?;
        Ok(self.since(began_ns))
    }

    /// Makes one object durable, or all; how long it took, in seconds.
    pub(super) fn sync(&self, at: Option<At>) -> Result<f64> {
        let began_ns = self.clock.now_ns();
        match at {
            Some(at) => self.objects[at.object].object.sync()?,
            None => self.objects.iter().try_for_each(|made| made.object.sync())?,
        }
        Ok(self.since(began_ns))
    }

    fn since(&self, began_ns: u64) -> f64 {
        (self.clock.now_ns() - began_ns) as f64 * 1e-9
    }
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        self.objects.clear();
        // What cannot be deleted now is deleted by the next calibration.
        let _ = clear(self.backend);
    }
}

/// Whether a file is in main memory anyway.
fn is_in_memory(lease: &FileLease) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `statfs(2)`.
    const MAGICS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    fstatfs(&lease.file).is_ok_and(|stat| MAGICS.contains(&(stat.f_type as u64)))
}

/// Deletes all objects of calibrations.
pub(super) fn clear(backend: &dyn Backend) -> Result<()> {
    const PAGE_KEYS: usize = 1000;
    loop {
        let page = backend.list(NAMESPACE, "", &Cursor::start(), PAGE_KEYS)?;
        if page.keys.is_empty() {
            return Ok(());
        }
        for key in &page.keys {
            backend.delete(key)?;
        }
    }
}
