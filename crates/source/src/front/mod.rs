// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers the kernel: names and attributes from the source, bytes from copies.

mod large;
mod listed;
mod names;
mod open;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Clock, SystemClock};
use terrace_fuse::{
    Entry, FileSystem, FileSystemStatus, Operation, Passthrough, Reply, Request, StatxAnswer,
};

use self::listed::Listed;
use self::names::OpenDirectory;
use self::open::{Handle, SETTLED_NS};
use crate::cache::Cache;
use crate::calls::may_be_unreachable;
use crate::file_systems::FileSystems;
use crate::meta::Meta;
use crate::nodes::{Known, Node, Nodes};
use crate::options::SourceOptions;
use crate::source::Source;
use crate::table::Table;

/// The attribute that tells how many bytes of a file are in the cache.
const CACHED: &[u8] = b"user.terrace.cached";
/// The attribute that names the directory of the cache.
const CACHE: &[u8] = b"user.terrace.cache";
/// The attribute that has the path below the root of the source.
const PATH: &[u8] = b"user.terrace.path";

/// What the kernel takes at most between the lookup and the open of one system call.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// The file system before a source and its cache.
pub(crate) struct Front {
    source: Arc<dyn Source>,
    cache: Arc<Cache>,
    file_systems: FileSystems,
    nodes: Nodes,
    files: Table<Handle>,
    directories: Table<OpenDirectory>,
    passthrough: Option<Passthrough>,
    ttl: Duration,
    clock: SystemClock,
    listed: Listed,
    /// When an open of a path was refused because the file had changed.
    refused: Mutex<HashMap<PathBuf, u64>>,
    /// Opens since the start that the cache could not take, for the log.
    failed_copies: AtomicU64,
    /// Blocks that are read ahead now.
    ahead: Arc<AtomicUsize>,
}

impl Front {
    pub(crate) fn new(
        source: &Arc<dyn Source>,
        cache: &Arc<Cache>,
        passthrough: Option<Passthrough>,
        options: &SourceOptions,
    ) -> io::Result<Self> {
        let clock = SystemClock::default();
        let file_systems = FileSystems::new(source, options.deadline);
        let (root, asked) = (Path::new(""), Arc::clone(source));
        let looked = file_systems.calls_of(root).run(move || asked.look(root));
        let (meta, is_recalled) = match looked {
            // What is cached is served where the source is down at the start.
            Err(errno) if may_be_unreachable(errno) => match cache.recall(root) {
                Some((meta, _)) => (source.shown(meta), true),
                None => return Err(errno.into()),
            },
            other => (other?, false),
        };
        cache.remember(root, &meta, None);
        let looked_ns = clock.now_ns();
        Ok(Self {
            source: Arc::clone(source),
            cache: Arc::clone(cache),
            file_systems,
            nodes: Nodes::new(Known { meta, looked_ns, is_recalled, is_refuted: false }),
            files: Table::default(),
            directories: Table::default(),
            passthrough: passthrough.filter(|_| options.passes_through),
            ttl: options.ttl,
            clock,
            listed: Listed::default(),
            refused: Mutex::default(),
            failed_copies: AtomicU64::new(0),
            ahead: Arc::default(),
        })
    }

    pub(crate) fn passes_through(&self) -> bool {
        self.passthrough.is_some()
    }

    /// Runs a call of the source that concerns a path, where the file system of that answers.
    fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        call: impl FnOnce(&dyn Source) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let source = Arc::clone(&self.source);
        self.file_systems.calls_of(path).try_run(move || call(&*source))
    }

    /// What a path names: as the source says, or where that does not answer, as it was when a copy was made.
    fn look(&self, above: Option<&Node>, path: &Path) -> Result<Known, Errno> {
        let recall = || {
            let (meta, _) = self.cache.recall(path)?;
            Some(Known {
                meta: self.source.shown(meta),
                looked_ns: self.clock.now_ns(),
                is_recalled: true,
                is_refuted: false,
            })
        };
        // A source that did not answer a moment ago is asked in the background where there is a copy.
        if self.file_systems.calls_of(path).is_suspect()
            && let Some(known) = recall()
        {
            self.file_systems.probe(path);
            return Ok(known);
        }
        if let Some(known) = self.listed.find(path)
            && !self.left(&known).is_zero()
        {
            self.cache.void_other(path, Some(&known.meta));
            return Ok(known);
        }
        let looked_ns = self.clock.now_ns();
        let asked = path.to_path_buf();
        let above = above.map(|node| (node.path(), node.known().meta));
        let looked = self.ask(path, move |source| match (above, asked.file_name()) {
            (Some((directory, seen)), Some(name)) => source.look_in(&directory, &seen, name),
            _ => source.look(&asked),
        });
        match looked {
            Ok(meta) => {
                self.cache.void_other(path, Some(&meta));
                Ok(Known { meta, looked_ns, is_recalled: false, is_refuted: false })
            }
            Err(errno) if may_be_unreachable(errno) => {
                if errno == Errno::IO {
                    self.file_systems.probe(path);
                }
                recall().ok_or(errno)
            }
            Err(errno) => {
                if matches!(errno, Errno::NOENT | Errno::NOTDIR) {
                    self.cache.void_other(path, None);
                }
                Err(errno)
            }
        }
    }

    /// How much longer something that was looked at may be taken for what it was. What was recalled not at
    /// all, so that the source's own answer is seen as soon as there is one.
    fn left(&self, known: &Known) -> Duration {
        if known.is_recalled {
            return Duration::ZERO;
        }
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(known.looked_ns));
        self.ttl.saturating_sub(age)
    }

    /// Whether something may have been done, at this time of the monotonic clock, in the system call that asks now. The lookup and this call
    /// may take the deadline each.
    fn is_recent(&self, at_ns: u64) -> bool {
        let age = Duration::from_nanos(self.clock.now_ns().saturating_sub(at_ns));
        age < self.file_systems.deadline().saturating_mul(2).saturating_add(RETRY_TIME)
    }

    /// How long the kernel may take attributes for what they are: those of a file that is being written not
    /// at all, so that a program that has opened it sees its length.
    fn attributes_timeout(&self, known: &Known) -> Duration {
        let is_settled = !known.meta.is_modified_within(SETTLED_NS, self.clock.wall_ns());
        if is_settled || !known.meta.is_file() { self.left(known) } else { Duration::ZERO }
    }

    /// What is known of an inode, not older than the time to live.
    ///
    /// # Errors
    ///
    /// `ESTALE` where its name leads to something else by now, or to another state of a file that was looked
    /// up a while ago, and where a read found another state: the kernel looks the name up again then. It does so
    /// once for each system call, so a file that changes all the time is what it was at that lookup.
    fn fresh(&self, node: &Node) -> Result<Known, Errno> {
        let known = node.known();
        if known.is_refuted {
            return Err(Errno::STALE);
        }
        if !self.left(&known).is_zero() {
            return Ok(known);
        }
        let found = self.look(node.parent(), &node.path()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Errno::STALE,
            other => other,
        })?;
        if !found.meta.is_same_inode(&known.meta) {
            let is_file = found.meta.is_file() && known.meta.is_file();
            return if is_file && self.is_recent(known.looked_ns) {
                Ok(known)
            } else {
                Err(Errno::STALE)
            };
        }
        node.set_known(found.clone());
        Ok(found)
    }

    /// What is known of an inode for `stat`: that of an open file stays what it was opened as.
    fn attributes(&self, node: u64) -> Result<(Meta, Duration), Errno> {
        let node = self.nodes.get(node)?;
        let direct = crate::lock(&node.direct).upgrade();
        if let Some(file) = direct {
            // One that is not in the cache may be growing.
            let calls = Arc::clone(file.calls());
            let meta = calls.run(move || file.look())?;
            return Ok((meta, Duration::ZERO));
        }
        match self.fresh(&node) {
            Ok(known) => {
                let timeout = self.attributes_timeout(&known);
                Ok((known.meta, timeout))
            }
            Err(Errno::STALE) if node.is_open() => Ok((node.known().meta, Duration::ZERO)),
            Err(errno) => Err(errno),
        }
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let parent = self.nodes.get(parent)?;
        let known = self.look(Some(&parent), &parent.path_of(name))?;
        let (left, attributes_timeout) = (self.left(&known), self.attributes_timeout(&known));
        let attributes = known.meta.attributes();
        let node = self.nodes.found(&parent, name, known);
        Ok(Entry {
            node: node.number,
            generation: 0,
            attributes,
            entry_timeout: left,
            attributes_timeout,
        })
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.get(node)?;
        let path = node.path();
        let asked = path.clone();
        let seen = node.known().meta;
        match self.ask(&path, move |source| source.read_link(&asked, &seen)) {
            Ok(target) => {
                self.cache.remember(&path, &node.known().meta, Some(target.clone()));
                Ok(target)
            }
            Err(errno) if may_be_unreachable(errno) => {
                self.cache.recall(&path).and_then(|(_, link)| link).ok_or(errno)
            }
            // It is no link any more.
            Err(Errno::INVAL | Errno::NOENT) => Err(Errno::STALE),
            Err(errno) => Err(errno),
        }
    }

    fn status(&self) -> FileSystemStatus {
        let nothing =
            FileSystemStatus { block_bytes: 4096, name_bytes_max: 255, ..Default::default() };
        self.ask(Path::new(""), |source| source.status()).unwrap_or(nothing)
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        use std::os::unix::ffi::OsStrExt;
        match name {
            CACHE => Ok(self.cache.directory().as_os_str().as_bytes().to_vec()),
            PATH => Ok(self.nodes.get(node)?.path().into_os_string().into_encoded_bytes()),
            CACHED => {
                let node = self.nodes.get(node)?;
                let meta = node.known().meta;
                if !meta.is_file() {
                    return Err(Errno::NODATA);
                }
                let bytes = self.cache.cached_bytes(&node.path(), &meta);
                Ok(bytes.to_string().into_bytes())
            }
            _ => Err(Errno::NODATA),
        }
    }
}

impl FileSystem for Front {
    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation.clone() {
            Operation::Lookup { name } => match self.lookup(node, name) {
                Err(Errno::NOENT) if !self.ttl.is_zero() => {
                    reply.entry(&Entry::negative(self.ttl));
                }
                found => answer(reply, found, |reply, entry| reply.entry(&entry)),
            },
            Operation::Forget { count } => self.nodes.forget(node, count),
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, count)| self.nodes.forget(node, count));
            }
            Operation::GetAttr { .. } => {
                answer(reply, self.attributes(node), |reply, (meta, left)| {
                    reply.attributes(&meta.attributes(), left);
                });
            }
            Operation::Statx { .. } => {
                answer(reply, self.attributes(node), |reply, (meta, timeout)| {
                    let attributes = meta.attributes();
                    reply.statx(&StatxAnswer { attributes, created: None, timeout });
                });
            }
            Operation::ReadLink => {
                answer(reply, self.read_link(node), |reply, target| reply.data(&target));
            }
            Operation::Open { .. } => self.open(node, reply),
            Operation::Read { handle, offset, bytes, .. } => {
                self.read(handle, offset, bytes, reply);
            }
            Operation::Release { handle, .. } => {
                self.files.remove(handle);
                reply.empty();
            }
            Operation::StatFs => reply.file_system_status(&self.status()),
            Operation::OpenDir { .. } => {
                answer(reply, self.open_directory(node), |reply, opened| reply.opened(&opened));
            }
            Operation::ReadDir { handle, offset, bytes } => {
                let read = self.read_directory(handle, offset, bytes);
                answer(reply, read, |reply, entries| reply.directory(&entries));
            }
            Operation::ReleaseDir { handle } => {
                self.directories.remove(handle);
                reply.empty();
            }
            Operation::GetXattr { name, bytes } => match self.xattr(node, name) {
                Ok(value) if bytes == 0 => {
                    reply.xattr_size(u32::try_from(value.len()).unwrap_or(u32::MAX));
                }
                Ok(value) if value.len() > bytes as usize => reply.error(Errno::RANGE),
                Ok(value) => reply.data(&value),
                Err(errno) => reply.error(errno),
            },
            Operation::ListXattr { bytes: 0 } => reply.xattr_size(0),
            Operation::ListXattr { .. } => reply.data(&[]),
            // The mount is for reading only; the kernel does without the rest, and does not ask again.
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, _: u64) {
        // Calls of the source have a deadline.
    }

    fn unmounted(&self) {}
}

fn answer<T>(reply: Reply, result: Result<T, Errno>, send: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => send(reply, value),
        Err(errno) => reply.error(errno),
    }
}
