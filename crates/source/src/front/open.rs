// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening and reading files: from a copy where there is one or can be one, else from the source.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fuse::{BackingId, Opened, OpenedFlags, Reply};

use super::Front;
use super::large::Large;
use crate::cache::{Copy, WHOLE_BYTES_MAX};
use crate::calls::is_unreachable;
use crate::handle::{OpenFile, SourceHandle};
use crate::lock;
use crate::meta::Meta;
use crate::nodes::{Known, Node};
use crate::source::Source;

/// A file that was modified less than this ago is not copied: another modification may have the same time. FAT rounds
/// times down to two seconds, and takes them from a clock of the kernel that is up to a tick late.
pub(super) const SETTLED_NS: u64 = 2_100_000_000;
/// Paths that are remembered of opens that were refused.
const REFUSED_MAX: usize = 1000;
/// So many copies that fail are logged one by one.
const LOGGED_MAX: u64 = 10;

/// An open file.
pub(super) struct Handle {
    bytes: Bytes,
    node: InUse,
    /// Kept while the file is open, so that all opens of an inode have the same.
    _backing: Option<Arc<BackingId>>,
}

/// Where the bytes of an open file are.
pub(super) enum Bytes {
    /// A whole copy.
    Copy(Whole),
    /// A copy of a large file, of which blocks may be missing.
    Large(Large),
    /// The source's file in the state that was looked up, which the cache cannot take.
    Past(Arc<OpenFile>),
    /// The source's file, which may change while it is read.
    Direct(Arc<OpenFile>),
    /// A copy that the cache has no more and the kernel still reads for other opens of the inode.
    Backed(Arc<BackingId>),
}

/// A whole copy of a file.
pub(super) struct Whole {
    copy: Copy,
    size_bytes: u64,
    /// The source's file, where the copy could not be read.
    spare: Mutex<Option<Arc<OpenFile>>>,
}

impl Whole {
    fn new(copy: Copy, meta: &Meta) -> Self {
        Self { copy, size_bytes: meta.size_bytes, spare: Mutex::default() }
    }
}

/// An inode with a handle that is open.
struct InUse(Arc<Node>);

impl InUse {
    fn new(node: Arc<Node>) -> Self {
        node.opens.fetch_add(1, Ordering::AcqRel);
        Self(node)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.opens.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What fetching a file came to.
enum Fetched {
    Copy(Copy),
    /// The cache could not take it.
    Past(Arc<OpenFile>),
    /// It was being changed.
    Direct(Arc<OpenFile>),
}

thread_local! {
    /// What a thread reads into; as long as the longest read that it had to do.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Front {
    pub(super) fn open(&self, node: u64, reply: Reply) {
        let opened = self.nodes.get(node).and_then(|node| {
            let known = self.fresh(&node)?;
            let node = InUse::new(node);
            let bytes = self.bytes(&node.0, &known)?;
            Ok((node, bytes))
        });
        let (node, bytes) = match opened {
            Ok(opened) => opened,
            Err(errno) => return reply.error(errno),
        };
        let (flags, backing) = match &bytes {
            // The inode is of one state of the file, so what the kernel has of it stays true.
            Bytes::Copy(whole) => (OpenedFlags::KEEP_CACHE, self.backing(&node.0, &whole.copy)),
            Bytes::Large(_) => (OpenedFlags::KEEP_CACHE, node.0.living_backing()),
            Bytes::Backed(backing) => (OpenedFlags::NONE, Some(Arc::clone(backing))),
            Bytes::Past(_) | Bytes::Direct(_) => match node.0.living_backing() {
                Some(backing) => (OpenedFlags::NONE, Some(backing)),
                None => {
                    if let Bytes::Direct(file) = &bytes {
                        *lock(&node.0.direct) = Arc::downgrade(file);
                    }
                    (OpenedFlags::DIRECT_IO, None)
                }
            },
        };
        let flags = if backing.is_some() { OpenedFlags::NONE } else { flags };
        let handle = Handle { bytes, node, _backing: backing.clone() };
        let handle = self.files.add(handle);
        reply.opened(&Opened { handle, flags, backing: backing.as_deref() });
    }

    pub(super) fn read(&self, handle: u64, offset: u64, bytes: u32, reply: Reply) {
        let Some(open) = self.files.get(handle) else {
            return reply.error(Errno::BADF);
        };
        match &open.bytes {
            Bytes::Copy(whole) => BUFFER.with_borrow_mut(|buffer| {
                let bytes = bytes as usize;
                if buffer.len() < bytes {
                    buffer.resize(bytes, 0);
                }
                match self.read_copy(&open.node.0, whole, offset, &mut buffer[..bytes]) {
                    Ok(count) => reply.data(&buffer[..count]),
                    Err(errno) => self.reply_read(&open, Err(errno), reply),
                }
            }),
            Bytes::Large(large) => {
                self.reply_read(&open, self.read_large(&open.node.0, large, offset, bytes), reply);
            }
            Bytes::Past(file) => {
                let meta = open.node.0.known().meta;
                self.reply_read(&open, read_past(file, &meta, offset, bytes as usize), reply);
            }
            Bytes::Direct(file) => {
                self.reply_read(&open, read_source(file, offset, bytes as usize), reply);
            }
            // The kernel reads it itself.
            Bytes::Backed(_) => reply.error(Errno::IO),
        }
    }

    fn reply_read(&self, open: &Handle, read: Result<Vec<u8>, Errno>, reply: Reply) {
        match read {
            Ok(data) => reply.data(&data),
            Err(errno) => {
                let node = &open.node.0;
                let path = node.path();
                if errno == Errno::STALE {
                    // The kernel repeats an open, and no read: the next open must not find the old state.
                    self.listed.remove(&path);
                    node.refute();
                }
                tracing::debug!(%errno, path = %path.display(), "a read failed");
                reply.error(errno);
            }
        }
    }

    /// Reads a copy; where it cannot be read, the source's file in the state that the copy is of. Returns how much.
    fn read_copy(
        &self,
        node: &Node,
        whole: &Whole,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let left = usize::try_from(whole.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let part = buffer.len().min(left);
        let buffer = &mut buffer[..part];
        if lock(&whole.spare).is_none() {
            match whole.copy.read_at(offset, buffer) {
                Ok(()) => return Ok(part),
                Err(errno) => whole.copy.discard(&node.path(), errno),
            }
        }
        let file = self.same_file(node, &whole.spare)?;
        buffer.copy_from_slice(&read_past(&file, &node.known().meta, offset, part)?);
        Ok(part)
    }

    /// The source's file in the state of an inode, which is opened where it is not.
    pub(super) fn same_file(
        &self,
        node: &Node,
        open: &Mutex<Option<Arc<OpenFile>>>,
    ) -> Result<Arc<OpenFile>, Errno> {
        if let Some(file) = &*lock(open) {
            return Ok(Arc::clone(file));
        }
        let file = self.open_same(&node.path(), &node.known().meta)?;
        Ok(Arc::clone(lock(open).get_or_insert(file)))
    }

    /// Where the bytes of a file come from.
    fn bytes(&self, node: &Node, known: &Known) -> Result<Bytes, Errno> {
        let (path, meta) = (node.path(), &known.meta);
        // The kernel goes on to read a void copy for the other opens of this inode, until they are closed, and takes no
        // other bytes for it. So this open gets another inode: the kernel looks the name up again.
        if node.backing_epoch().is_some_and(|epoch| !self.cache.is_trusted(epoch)) {
            self.nodes.retire(node);
            return Err(Errno::STALE);
        }
        if let Some(copy) = self.cache.find(&path, meta) {
            return Ok(Bytes::Copy(Whole::new(copy, meta)));
        }
        // The kernel refuses every other kind of open of an inode that it reads itself.
        if let Some(backing) = node.living_backing() {
            self.cache.note_hit();
            return Ok(Bytes::Backed(backing));
        }
        if meta.size_bytes > WHOLE_BYTES_MAX {
            return self.open_large(node, &path, meta);
        }
        // Others that want the same file wait, and then have the copy, or fail with it.
        let running = node.fetching.begin()?;
        if let Some(copy) = self.cache.find(&path, meta) {
            return Ok(Bytes::Copy(Whole::new(copy, meta)));
        }
        self.cache.note_miss();
        let fetched = self.fetch(node, &path, known);
        if let Err(errno) = &fetched
            && is_unreachable(*errno)
        {
            running.fail(*errno);
        }
        match fetched? {
            Fetched::Copy(copy) => Ok(Bytes::Copy(Whole::new(copy, meta))),
            Fetched::Past(file) => {
                self.cache.note_refused();
                Ok(Bytes::Past(file))
            }
            Fetched::Direct(file) => {
                self.cache.note_refused();
                Ok(Bytes::Direct(file))
            }
        }
    }

    /// Opens a file of the source that was seen in a state, and does what the caller wants with it in the same call.
    fn open_and<T: Send + 'static>(
        &self,
        path: &Path,
        seen: &Meta,
        then: impl FnOnce(&dyn Source, &OpenFile) -> Result<T, Errno> + Send + 'static,
    ) -> Result<(Arc<OpenFile>, T), Errno> {
        let calls = self.file_systems.calls_of(path);
        let (source, own) = (Arc::clone(&self.source), Arc::clone(&calls));
        let (asked, seen) = (path.to_path_buf(), seen.clone());
        let opened = calls.try_run(move || {
            let file = SourceHandle::new(source.open(&asked, &seen)?, &own);
            let done = then(&*source, &file)?;
            Ok((Arc::new(file), done))
        });
        opened.map_err(|errno| self.stale(path, errno))
    }

    pub(super) fn open_source(&self, path: &Path, meta: &Meta) -> Result<Arc<OpenFile>, Errno> {
        let seen = meta.clone();
        let opened = self.open_and(path, meta, move |source, file| {
            let admits = source.shown(file.look()?).admits_as(&source.shown(seen));
            admits.then_some(()).ok_or(Errno::STALE)
        });
        opened.map(|(file, ())| file)
    }

    /// Opens the source's file in a state.
    ///
    /// # Errors
    ///
    /// `ESTALE` where the name leads to another file, or the file has another state: the kernel looks the name
    /// up again then. Those of the source.
    pub(super) fn open_same(&self, path: &Path, meta: &Meta) -> Result<Arc<OpenFile>, Errno> {
        let wanted = meta.clone();
        let opened = self.open_and(path, meta, move |_, file| {
            file.look()?.is_same_state(&wanted).then_some(()).ok_or(Errno::STALE)
        });
        opened.map(|(file, ())| file)
    }

    /// What to return where a file that was looked up cannot be opened: the kernel looks one up again that is gone
    /// or in another state, and a listing from before must not be the answer then.
    pub(super) fn stale(&self, path: &Path, errno: Errno) -> Errno {
        match errno {
            Errno::NOENT | Errno::STALE => {
                self.listed.remove(path);
                Errno::STALE
            }
            other => other,
        }
    }

    /// Copies a whole file.
    fn fetch(&self, node: &Node, path: &Path, known: &Known) -> Result<Fetched, Errno> {
        let meta = &known.meta;
        let seen = meta.clone();
        let size_bytes = usize::try_from(meta.size_bytes).map_err(|_| Errno::FBIG)?;
        let piece_bytes = self.source.piece_bytes();
        let first_bytes = size_bytes.min(piece_bytes);
        // One call for most files: what they are, all their bytes, and whether they are still the same.
        let opened = self.open_and(path, meta, move |source, file| {
            let before = file.look()?;
            if !source.shown(before.clone()).admits_as(&source.shown(seen)) {
                return Err(Errno::STALE);
            }
            let mut data = vec![0; first_bytes];
            let count = file.read_at(0, &mut data)?;
            data.truncate(count);
            let after = file.look_again()?;
            Ok((data, before, after))
        });
        let (file, (data, before, mut after)) = opened?;
        if !before.is_same_state(meta) {
            // It has changed since it was looked at. The kernel looks again, once: a program would get the
            // error of a file that changes again until then.
            return match self.may_refuse(path, known) {
                true => Err(Errno::STALE),
                false => Ok(Fetched::Direct(file)),
            };
        }
        let is_settled = |meta: &Meta| !meta.is_modified_within(SETTLED_NS, self.clock.wall_ns());
        if data.len() != first_bytes || !is_settled(meta) {
            return Ok(Fetched::Direct(file));
        }
        let draft = match self.cache.draft(meta.size_bytes) {
            Ok(draft) => draft,
            Err(errno) => return Ok(self.past_the_cache(path, errno, file)),
        };
        if let Err(errno) = draft.write_at(0, &data) {
            return Ok(self.past_the_cache(path, errno, file));
        }
        let mut done = data.len();
        while done < size_bytes {
            let bytes = (size_bytes - done).min(piece_bytes);
            let data = read_source(&file, done as u64, bytes)?;
            if data.len() != bytes {
                return Ok(Fetched::Direct(file));
            }
            if let Err(errno) = draft.write_at(done as u64, &data) {
                return Ok(self.past_the_cache(path, errno, file));
            }
            done += bytes;
            if done == size_bytes {
                let looked = Arc::clone(&file);
                after = file.calls().run(move || looked.look_again())?;
            }
        }
        if !after.is_same_state(meta) {
            return Ok(Fetched::Direct(file));
        }
        self.remember_above(node);
        match draft.publish(path, meta) {
            Ok(copy) => Ok(Fetched::Copy(copy)),
            Err(errno) => Ok(self.past_the_cache(path, errno, file)),
        }
    }

    /// Whether an open may fail because the file is in another state than it was looked up in: not where that
    /// was the lookup after such an open.
    fn may_refuse(&self, path: &Path, known: &Known) -> bool {
        let now_ns = self.clock.now_ns();
        let mut refused = lock(&self.refused);
        if refused.get(path).is_some_and(|at_ns| self.is_recent(*at_ns))
            && self.is_recent(known.looked_ns)
        {
            return false;
        }
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert(path.to_path_buf(), now_ns);
        true
    }

    /// Keeps what is known of the directories of a file, for the time when the source does not answer.
    pub(super) fn remember_above(&self, node: &Node) {
        let mut above = node.parent();
        while let Some(node) = above {
            self.cache.remember(&node.path(), &node.known().meta, None);
            above = node.parent();
        }
    }

    fn past_the_cache(&self, path: &Path, errno: Errno, file: Arc<OpenFile>) -> Fetched {
        if self.failed_copies.fetch_add(1, Ordering::Relaxed) < LOGGED_MAX {
            tracing::warn!(%errno, path = %path.display(), "a file cannot be kept in the cache, and is read from the source");
        }
        Fetched::Past(file)
    }

    /// What the opens of an inode are passed through to. Where that cannot be had the kernel asks
    /// for reads, which is slower and not wrong.
    fn backing(&self, node: &Node, copy: &Copy) -> Option<Arc<BackingId>> {
        let passthrough = self.passthrough.as_ref()?;
        let mut kept = lock(&node.backing);
        if let Some(backing) = kept.0.upgrade() {
            return Some(backing);
        }
        // The kernel refuses to mix: those that are open already are served.
        if node.opens.load(Ordering::Acquire) > 1 {
            return None;
        }
        let backing = Arc::new(passthrough.open(copy.file.as_fd()).ok()?);
        *kept = (Arc::downgrade(&backing), copy.epoch);
        Some(backing)
    }
}

fn read_source(file: &Arc<OpenFile>, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let asked = Arc::clone(file);
    file.calls().run(move || {
        let mut data = vec![0; bytes];
        let count = asked.read_at(offset, &mut data)?;
        data.truncate(count);
        Ok(data)
    })
}

/// Reads from the source's file in a state, past the cache.
///
/// # Errors
///
/// `ESTALE` where the file has another state. Those of the source.
fn read_past(
    file: &Arc<OpenFile>,
    meta: &Meta,
    offset: u64,
    bytes: usize,
) -> Result<Vec<u8>, Errno> {
    let left = usize::try_from(meta.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    if left == 0 {
        return Ok(Vec::new());
    }
    let (asked, meta) = (Arc::clone(file), meta.clone());
    file.calls().run(move || Ok(read_state(&asked, &meta, offset, bytes.min(left))?.bytes))
}

/// Bytes of the state of a file that a copy is of.
pub(super) struct InState {
    pub(super) bytes: Vec<u8>,
    /// Whether the file still has this state: else nothing is stored.
    pub(super) is_same: bool,
}

/// Reads from the source's file in a state, within its length.
///
/// # Errors
///
/// `ESTALE` where it has been changed: its bytes are not those of the file that was opened. Those of the source.
pub(super) fn read_state(
    file: &OpenFile,
    meta: &Meta,
    offset_bytes: u64,
    length: usize,
) -> Result<InState, Errno> {
    let mut bytes = vec![0; length];
    let read = file.read_at(offset_bytes, &mut bytes)?;
    // After the read: each change before it has changed the state by now.
    let found = file.look_again()?;
    let is_same = found.is_same_state(meta);
    match read == length && (is_same || is_same_but_for_names(&found, meta)) {
        true => Ok(InState { bytes, is_same }),
        false => Err(Errno::STALE),
    }
}

/// Whether a file differs from what it was by the number of its names and the time of that change only: another
/// file was renamed over it, or it was removed. Its bytes are the same.
fn is_same_but_for_names(found: &Meta, meta: &Meta) -> bool {
    found.links != meta.links && Meta { changed: meta.changed, ..found.clone() }.is_same_state(meta)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::path::PathBuf;
    use std::time::Duration;

    use tempfile::TempDir;
    use terrace_fuse::{MountOptions, ROOT_NODE};

    use super::*;
    use crate::cache::{Cache, CacheSettings};
    use crate::directory::Directory;
    use crate::options::SourceOptions;

    #[test]
    fn no_settled_file_changes_without_another_time() {
        let stat = rustix::fs::stat("/").expect("root");
        // FAT has times in steps of two seconds, rounded down. The clock that the kernel takes them from has ticks.
        let (step_ns, tick_ns) = (2_000_000_000, 10_000_000);
        let written_ns = |wall_ns: u64| (wall_ns - tick_ns) / step_ns * step_ns;
        for wall_ms in 100_000..104_000 {
            let wall_ns = wall_ms * 1_000_000;
            let stamp_ns = written_ns(wall_ns);
            let modified = ((stamp_ns / 1_000_000_000).cast_signed(), 0);
            let meta = Meta { modified, ..Meta::of(&stat) };
            for later_ns in (wall_ns..wall_ns + step_ns).step_by(7_000_000) {
                if written_ns(later_ns) == stamp_ns {
                    assert!(meta.is_modified_within(SETTLED_NS, later_ns), "{wall_ms} {later_ns}");
                }
            }
        }
    }

    /// A source with a file of some bytes, and what is in front of it.
    fn ground(bytes: &[u8]) -> (TempDir, Front) {
        let ground = tempfile::tempdir().expect("a directory");
        let path = ground.path().join("source/file");
        fs::create_dir(ground.path().join("source")).expect("room");
        fs::write(&path, bytes).expect("room");
        let old = std::time::UNIX_EPOCH + PATIENT;
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_times(FileTimes::new().set_modified(old)).expect("it is ours");
        let source = Directory::open(&ground.path().join("source")).expect("a directory");
        let source: Arc<dyn Source> = Arc::new(source);
        let settings = CacheSettings {
            directory: ground.path().join("cache"),
            bytes_max: Some(1 << 30),
            purpose: "a test".into(),
        };
        let cache = Arc::new(Cache::open(&settings, source.identity()).expect("a cache"));
        let options = SourceOptions {
            mount: MountOptions::default(),
            ttl: PATIENT,
            deadline: PATIENT,
            threads: 1,
            passes_through: false,
        };
        let front = Front::new(&source, &cache, None, &options).expect("the source answers");
        (ground, front)
    }

    const PATIENT: Duration = Duration::from_secs(60);

    /// Copies of files, of which the bytes can be read no more.
    fn break_copies(ground: &TempDir) -> Vec<PathBuf> {
        let mut broken = Vec::new();
        for directory in fs::read_dir(ground.path().join("cache/copies")).expect("a directory") {
            for entry in fs::read_dir(directory.expect("listed").path()).expect("a directory") {
                let path = entry.expect("listed").path();
                if fs::metadata(&path).expect("it is there").len() > 0 {
                    File::options().write(true).open(&path).expect("ours").set_len(0).expect("cut");
                    broken.push(path);
                }
            }
        }
        broken
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_dropped_for_the_source() {
        let old: Vec<u8> = (0..5000).map(|at| at as u8).collect();
        let (ground, front) = ground(&old);
        let number = front.lookup(ROOT_NODE, b"file").expect("it is there").node;
        let node = front.nodes.get(number).expect("it is known");
        let Ok(Bytes::Copy(whole)) = front.bytes(&node, &node.known()) else { panic!("a copy") };
        let read = |offset: u64| {
            let mut buffer = [0; 4096];
            let count = front.read_copy(&node, &whole, offset, &mut buffer)?;
            Ok::<_, Errno>(buffer[..count].to_vec())
        };
        assert_eq!(read(4000), Ok(old[4000..].to_vec()));
        let broken = break_copies(&ground);
        assert_eq!(broken.len(), 1);
        for offset in [0, 4000] {
            let end = old.len().min(offset + 4096);
            assert_eq!(read(offset as u64), Ok(old[offset..end].to_vec()));
        }
        assert_eq!(read(5000), Ok(Vec::new()));
        assert!(!broken[0].exists(), "it is dropped");
        fs::write(ground.path().join("source/file"), b"other").expect("room");
        assert_eq!(read(0), Err(Errno::STALE), "it is not what was opened");
    }

    #[test]
    fn a_block_that_cannot_be_read_is_read_from_the_source() {
        let old: Vec<u8> = (0..9 << 20).map(|at| (at >> 12) as u8).collect();
        let (ground, front) = ground(&old);
        let number = front.lookup(ROOT_NODE, b"file").expect("it is there").node;
        let node = front.nodes.get(number).expect("it is known");
        let Ok(Bytes::Large(large)) = front.bytes(&node, &node.known()) else { panic!("blocks") };
        let read = |offset: usize| front.read_large(&node, &large, offset as u64, 8192);
        let part = |offset: usize| Ok(old[offset..offset + 8192].to_vec());
        assert_eq!(read(5 << 20), part(5 << 20));
        let broken = break_copies(&ground);
        assert_eq!(broken.len(), 1);
        assert_eq!(read(5 << 20), part(5 << 20));
        assert!(!broken[0].exists(), "it is dropped");
        assert_eq!(read(7 << 20), part(7 << 20));
    }

    #[test]
    fn an_open_copy_is_not_read_after_its_sync_has_failed() {
        let old: Vec<u8> = (0..5000).map(|at| at as u8).collect();
        let (_ground, front) = ground(&old);
        let number = front.lookup(ROOT_NODE, b"file").expect("it is there").node;
        let node = front.nodes.get(number).expect("it is known");
        let open = || match front.bytes(&node, &node.known()) {
            Ok(Bytes::Copy(whole)) => whole,
            _ => panic!("a copy"),
        };
        let read = |whole: &Whole| {
            let mut buffer = [0; 5000];
            let count = front.read_copy(&node, whole, 0, &mut buffer)?;
            Ok::<_, Errno>(buffer[..count].to_vec())
        };
        let whole = open();
        front.cache.fail_sync(5000);
        assert_eq!(read(&whole), Ok(old.clone()));
        let again = open();
        assert_eq!(read(&again), Ok(old.clone()));
        assert_eq!(read(&whole), Ok(old));
        assert!(front.cache.find(Path::new("file"), &node.known().meta).is_some(), "the new one");
    }

    #[test]
    fn open_blocks_are_fetched_again_after_their_sync_has_failed() {
        let old: Vec<u8> = (0..9 << 20).map(|at| (at >> 12) as u8).collect();
        for count in [2, 9] {
            let (_ground, front) = ground(&old);
            let number = front.lookup(ROOT_NODE, b"file").expect("it is there").node;
            let node = front.nodes.get(number).expect("it is known");
            let Ok(Bytes::Large(large)) = front.bytes(&node, &node.known()) else {
                panic!("blocks")
            };
            // Not in their order: nothing is read ahead.
            let blocks = (0..count).rev().map(|block| block << 20);
            let read = |offset: usize| front.read_large(&node, &large, offset as u64, 8192);
            let part = |offset: usize| Ok(old[offset..offset + 8192].to_vec());
            blocks.clone().for_each(|offset| assert_eq!(read(offset), part(offset)));
            let cached = || front.cache.cached_bytes(Path::new("file"), &node.known().meta);
            assert_eq!(cached(), (count << 20) as u64);
            let used_bytes = front.cache.report().used_bytes;
            front.cache.fail_sync(count << 20);
            blocks.clone().for_each(|offset| assert_eq!(read(offset), part(offset)));
            if count == 9 {
                assert_eq!(cached(), old.len() as u64, "whole again");
                assert_eq!(front.cache.report().used_bytes, used_bytes, "counted once");
            }
        }
    }
}
