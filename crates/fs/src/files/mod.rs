// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files as programs use them: metadata and bytes together.

mod away;
mod background;
mod claim;
mod closing;
mod file;
mod io;
mod kept;
mod left;
mod list;
mod losses;
mod marks;
mod open;
mod opened_ahead;
mod ready;
mod sweep;
mod table;
mod told;
mod unlinked;
mod uses;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Access, Backend, Clock, Key, Open, Semantics, Space, Stat};

use self::away::Away;
use self::closing::{Closing, Queued};
pub use self::file::File;
pub use self::io::Written;
use self::kept::Kept;
use self::left::{StillHeld, settled};
pub use self::losses::Heard;
use self::losses::Losses;
use self::open::Shared;
use self::opened_ahead::AllAhead;
use self::ready::Ready;
use self::sweep::Sweeper;
use self::table::{Opened, Table};
use self::told::Told;
use self::unlinked::Unlinked;
use crate::failure::{Failure, Result};
use crate::metadata::Metadata;
use crate::node::{Kind, Node, SET_GROUP_ID, object_key};
use crate::request::{Changes, Left, Made, RenameHow, Reply, Request, WasRead, When};

/// How files are kept.
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// Namespace of the objects that hold the bytes of files.
    pub namespace: String,
    /// Requirements on every object.
    pub semantics: Semantics,
    /// Objects that are made before their files, so that a file that is created has one at once;
    /// 0: a file gets one when it grows beyond what is kept with the metadata.
    pub ready_objects: usize,
    /// Whether this is the only user of the metadata, as far as open files go: then what another
    /// one left behind when it died can be cleared up at once.
    pub is_alone: bool,
    /// Whether anything may be changed, also what others left behind.
    pub access: Access,
    /// How long the bytes of a small file that is open are believed while others may change it; zero:
    /// each operation sees what others did before it, `Duration::MAX`: exclusive use.
    pub believed_for: Duration,
    /// Longest file whose bytes are kept with the metadata, as far as is known here.
    pub inline_bytes_max: u64,
    /// How to ask for the room of these files, where a quota bounds it; else the data is asked.
    pub space: Option<AskSpace>,
}

/// Asks for capacity and use.
#[derive(Clone)]
pub struct AskSpace(pub Arc<dyn Fn() -> terrace_core::Result<Space> + Send + Sync>);

impl fmt::Debug for AskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskSpace")
    }
}

/// The files of a file system.
///
/// Metadata may be here or with a server, bytes on a stack or on many servers. What has no name is
/// deleted in the background.
pub struct Files {
    metadata: Arc<dyn Metadata>,
    data: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    options: FilesOptions,
    open: Arc<Table>,
    ahead: Arc<AllAhead>,
    /// Whose servers did not say how long they are.
    away: Away,
    /// It is unknown whether they were cut. Their servers may answer by now, which a look at
    /// one finds out; a close does not wait for that.
    uncut: Away,
    told: Arc<Told>,
    kept: Kept,
    unlinked: Arc<Unlinked>,
    losses: Arc<Losses>,
    ready: Ready,
    sweeper: Arc<Sweeper>,
    closing: Closing,
    still_held: StillHeld,
}

impl Files {
    /// Brings metadata and bytes together.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn new(
        metadata: Arc<dyn Metadata>,
        data: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        options: FilesOptions,
    ) -> Result<Arc<Self>> {
        let sweeper = Arc::new(Sweeper::start(&metadata, &data, &options, &clock)?);
        let ready = Ready::start(&metadata, &data, &sweeper, &options, &clock)?;
        let (open, told) = (Arc::default(), Arc::default());
        let ahead = Arc::new(AllAhead::new(&open, &told));
        let unlinked = Arc::default();
        let closing = Closing::start(&metadata, &sweeper, &ahead, &unlinked, &clock)?;
        let (kept, losses) = (Kept::default(), Arc::default());
        Ok(Arc::new(Self {
            metadata,
            data,
            clock,
            options,
            open,
            ahead,
            away: Away::default(),
            uncut: Away::default(),
            told,
            kept,
            unlinked,
            losses,
            ready,
            sweeper,
            closing,
            still_held: StillHeld::default(),
        }))
    }

    /// The metadata, for requests that concern nothing else.
    pub fn metadata(&self) -> &dyn Metadata {
        &*self.metadata
    }

    /// The key of the object that holds the bytes of a file.
    ///
    /// # Errors
    ///
    /// `INVAL` where the namespace is none.
    pub fn key(&self, number: u64) -> Result<Key> {
        Ok(object_key(&self.options.namespace, number)?)
    }

    /// What a name leads to.
    ///
    /// # Errors
    ///
    /// `NOENT`, `NOTDIR`, `NAMETOOLONG`, `STALE`.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node> {
        let node = match self.is_sought() {
            true => self.look_up_keeping(directory, name)?,
            false => self.ask_node(&Request::Lookup { directory, name })?,
        };
        self.as_known(node)
    }

    /// What a name leads to, and how long ago that was so: less than `age_max`. A second lookup of the
    /// same name that was not [forgotten](Files::forget) in between asks the server.
    ///
    /// # Errors
    ///
    /// As [`Files::lookup`].
    pub fn lookup_recent(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Result<(Node, Duration)> {
        let ahead = match self.is_sought() {
            true => None,
            false => self.metadata.ahead(directory, name, age_max)?,
        };
        match ahead {
            Some((node, age)) => Ok((self.as_known(node)?, age)),
            None => Ok((self.lookup(directory, name)?, Duration::ZERO)),
        }
    }

    /// What is known of a node.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone.
    pub fn node(&self, number: u64) -> Result<Node> {
        let node = self.on_inode(number, || self.ask_node(&Request::Node { number }))?;
        self.as_known(node)
    }

    /// The directory that a node was named in last; asks no object.
    ///
    /// # Errors
    ///
    /// `STALE` where it is gone.
    pub fn parent(&self, number: u64) -> Result<u64> {
        Ok(self.ask_node(&Request::Node { number })?.parent)
    }

    /// Takes the set-group-ID bit of a file away where it lends nothing and `is_member` returns that the user that
    /// has changed its bytes is not in its group. The node then; `None` where there was nothing to do.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn take_idle_set_group(
        self: &Arc<Self>,
        node: &Node,
        is_member: impl Fn(u32) -> bool,
    ) -> Result<Option<Node>> {
        let changes = without_idle_set_group(node, is_member);
        changes.map(|changes| self.change(node.number, changes)).transpose()
    }

    /// Makes something that is no open file.
    ///
    /// # Errors
    ///
    /// `EXIST`, `NOENT`, `NOTDIR`, `NAMETOOLONG`, `INVAL`.
    pub fn make(&self, directory: u64, name: &[u8], made: Made<'_>) -> Result<Node> {
        self.ask_made(&Request::Make { directory, name, made })
    }

    /// Makes a file and opens it for reading and writing; without a name if that is empty. With
    /// `gets_object` it has an object from the beginning, where one is ready.
    ///
    /// # Errors
    ///
    /// As [`Files::make`].
    pub fn create(
        self: &Arc<Self>,
        directory: u64,
        name: &[u8],
        made: Made<'_>,
        gets_object: bool,
    ) -> Result<(Node, File)> {
        let object = if gets_object { self.ready.take() } else { None };
        self.create_with(directory, name, Made { object, ..made }, false)
    }

    /// The same for a caller that need not know before it is closed, or used otherwise, that it is made.
    ///
    /// # Errors
    ///
    /// As [`Files::make`]; errors that come later are also returned to the user of the file.
    pub fn create_later(
        self: &Arc<Self>,
        directory: u64,
        name: &[u8],
        made: Made<'_>,
    ) -> Result<(Node, File)> {
        self.create_with(directory, name, Made { object: None, ..made }, true)
    }

    fn create_with(
        self: &Arc<Self>,
        directory: u64,
        name: &[u8],
        made: Made<'_>,
        may_be_later: bool,
    ) -> Result<(Node, File)> {
        let object = made.object;
        let made = Made { kind: Kind::File, is_opened: true, ..made };
        let request = Request::Make { directory, name, made };
        let said = if may_be_later { self.metadata.make_later(&request) } else { None };
        let made_node = match said {
            Some(Reply::Made { node, .. }) => Ok(node),
            _ => self.ask_made(&request),
        };
        let node = match (made_node, object) {
            (Ok(node), object) => {
                // It was not what is wished for in this directory.
                self.ready.give_back(object.filter(|object| object.number != node.number));
                node
            }
            (Err(failure), object) => {
                self.ready.give_back(object);
                return Err(failure);
            }
        };
        if name.is_empty() {
            self.note_unlinked(node.number, None);
        }
        let mut here = self.open.hold(node.number);
        if here.opened.is_some() {
            // Another client found and opened it since it has a name: it is one use more of that, before
            // that one can have removed and closed it.
            let opened = self.open_in(&mut here.opened, node.number, Access::Write);
            drop(here);
            let closed = self.close_with_metadata(node.number, true, Left::Unknown);
            let (_, file) = opened?;
            return closed.map(|()| (node, file));
        }
        let file = match Shared::open(self, &node, Vec::new(), Access::Write) {
            Ok(file) => Arc::new(file),
            Err(failure) => {
                let _ = self.close_with_metadata(node.number, true, Left::Unknown);
                return Err(failure);
            }
        };
        let file_here = Arc::clone(&file);
        let opened = Opened { file: file_here, readers: 0, writers: 1, opened_for_writing: 1 };
        here.opened = Some(opened);
        drop(here);
        Ok((node, File::new(self, file, Access::Write)))
    }

    /// Gives a node one more name.
    ///
    /// # Errors
    ///
    /// `EXIST`, `PERM` for a directory, `MLINK`, `NOENT`, `NOTDIR`, `STALE`.
    pub fn link(&self, number: u64, directory: u64, name: &[u8]) -> Result<Node> {
        let link = || self.ask_node(&Request::Link { number, directory, name });
        let node = self.on_inode(number, link)?;
        self.as_known(node)
    }

    /// Takes a name away.
    ///
    /// # Errors
    ///
    /// `NOENT`, `ISDIR` and `NOTDIR`, `NOTEMPTY`.
    pub fn remove(&self, directory: u64, name: &[u8], is_directory: bool) -> Result<()> {
        let _removal = self.begin_removal();
        let life = self.metadata.life();
        let reply = self.metadata.call(&Request::Remove { directory, name, is_directory })?;
        self.after_removal(&reply, life)
    }

    /// The same for a file, for a caller that need not wait until the name is gone for others.
    ///
    /// # Errors
    ///
    /// As [`Files::remove`].
    pub fn remove_later(&self, directory: u64, name: &[u8]) -> Result<()> {
        if !self.is_sought() {
            let _removal = self.begin_removal();
            let life = self.metadata.life();
            if let Some(reply) = self.metadata.remove_later(directory, name)? {
                return self.after_removal(&reply, life);
            }
        }
        self.remove(directory, name, false)
    }

    /// Moves a name.
    ///
    /// # Errors
    ///
    /// `NOENT`, `EXIST`, `NOTEMPTY`, `ISDIR`, `NOTDIR`, `INVAL`.
    pub fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
        owner: (u32, u32),
    ) -> Result<()> {
        let _removal = self.begin_removal();
        let life = self.metadata.life();
        let reply = self.rename_as_told(from, to, how, owner)?;
        self.after_removal(&reply, life)
    }

    fn rename_as_told(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
        owner: (u32, u32),
    ) -> Result<Reply> {
        self.metadata.call(&Request::Rename {
            from_directory: from.0,
            from: from.1,
            to_directory: to.0,
            to: to.1,
            how,
            user: owner.0,
            group: owner.1,
        })
    }

    /// Changes what is known of a node, and its length.
    ///
    /// # Errors
    ///
    /// `ISDIR` and `INVAL` for the length of what is no file, `FBIG`, `NOSPC`, `STALE`.
    pub fn change(self: &Arc<Self>, number: u64, changes: Changes) -> Result<Node> {
        self.note_gone(self.on_inode(number, || self.change_there(number, changes)))
    }

    fn change_there(self: &Arc<Self>, number: u64, mut changes: Changes) -> Result<Node> {
        if let Some(size) = changes.size {
            self.metadata.check(number)?;
            match self.metadata.call(&Request::Change { number, changes })? {
                Reply::Node(node) => {
                    self.note_change(&node, true)?;
                    return Ok(node);
                }
                Reply::NotHere => changes = self.cut_object(number, size, changes)?,
                other => return Err(unexpected(&other)),
            }
        } else if changes.modified.is_some() {
            // What is known from here on holds, whatever the object returns of the time before.
            if let Some(file) = self.open.file(number)
                && let Some(stat) = file.object_stat()?
            {
                changes.settled_ns = Some(self.settle_held(number, stat)?);
            }
        }
        let mut node = self.ask_node(&Request::Change { number, changes })?;
        if changes.modified.is_some() && changes.settled_ns.is_none() && node.is_written {
            // Another client writes to it, or died while it had it open.
            let stat = self.data.stat(&self.key(number)?)?;
            changes.settled_ns = Some(self.settle_held(number, stat)?);
            node = self.ask_node(&Request::Change { number, changes })?;
        }
        self.note_change(&node, false)?;
        self.as_known(node)
    }

    /// Has the metadata take account of what an object says before its time of modification is set;
    /// when the object last changed. Else the last close would report that it did not change
    /// since, and yet is shorter or longer: then it would be asked for its length for ever.
    fn settle(&self, number: u64, stat: Stat) -> Result<u64> {
        let settled = settled(stat);
        self.metadata.call(&Request::Settle { number, settled })?;
        Ok(settled.modified_ns)
    }

    /// Cuts or grows the object of a file; what remains to be changed.
    fn cut_object(self: &Arc<Self>, number: u64, size: u64, changes: Changes) -> Result<Changes> {
        if i64::try_from(size).is_err() {
            return Err(Errno::FBIG.into());
        }
        let (_, file) = self.open_stale(number, Access::Write)?;
        file.set_len(size).inspect_err(|failure| self.uncut.note(number, failure, &*self.clock))?;
        let stat = file.shared().object_stat()?;
        let settled_ns = stat.map(|stat| self.settle(number, stat)).transpose()?;
        let modified = changes.modified.or(Some(When::Now));
        Ok(Changes { size: None, modified, settled_ns, ..changes })
    }

    /// Whether a closed file could be used as it was opened and locked here, as far as is known
    /// without waiting for a server that has forgotten it; of one that is locked in any case.
    ///
    /// # Errors
    ///
    /// As [`File::check`].
    pub fn check_to_close(&self, number: u64) -> Result<()> {
        self.metadata.check_to_close(number)
    }

    /// Others may have written to a file: later reads see what they did, however long its
    /// bytes are believed.
    pub fn doubt(&self, number: u64) {
        if let Some(file) = self.open.file(number) {
            file.doubt();
        }
    }

    /// Notes that a file has [`CAPABILITY`](crate::CAPABILITY) from now on.
    pub fn note_capability(&self, number: u64) {
        if let Some(file) = self.open.file(number) {
            file.note_capability();
        }
    }

    /// Notes that a node is read, which was as it is given: soon where others use it, too.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn note_read(&self, node: &Node) -> Result<()> {
        let read = WasRead { number: node.number, changed: node.changed };
        if !self.options.is_alone {
            self.closing.push_read(read);
            return Ok(());
        }
        self.closing.tell(Queued { read: vec![read], ..Queued::default() })
    }

    /// Whether the metadata do not know yet that a node was read: the access time that they return is older.
    pub fn is_read_pending(&self, number: u64) -> bool {
        self.closing.is_read_pending(number)
    }

    /// Flushes a pending read of a node to the metadata.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub fn flush_read(&self, number: u64) -> Result<()> {
        self.closing.flush_read(number)
    }

    /// Whether a file was still held when its last writer here closed it: a mapping of it may be left.
    pub fn may_be_mapped(&self, number: u64) -> bool {
        self.still_held.contains(number)
    }

    /// Makes everything that was acknowledged survive a loss of power.
    ///
    /// # Errors
    ///
    /// What tiers and pairs say. `IO`, once, where something of what was acknowledged since it was asked
    /// last may be lost.
    pub fn sync(&self) -> Result<()> {
        self.open.note_all_durable();
        self.data.sync_all()?;
        self.metadata.call(&Request::Sync)?;
        match self.metadata.take_loss(None) {
            true => Err(losses::failure()),
            false => Ok(()),
        }
    }

    /// Has a handle that opens a directory get what is lost of it.
    pub fn hear(&self, directory: u64) -> Heard {
        self.losses.open(directory)
    }

    /// Makes the names in a directory, and what is known of it, survive a loss of power.
    ///
    /// # Errors
    ///
    /// The answer of the metadata. `IO`, once for each handle, where something of that may be lost.
    pub fn sync_directory(&self, heard: &Heard) -> Result<()> {
        self.metadata.call(&Request::Sync)?;
        heard.tell(&*self.metadata)
    }

    /// Longest file whose bytes are kept with the metadata.
    pub fn inline_bytes_max(&self) -> u64 {
        self.options.inline_bytes_max
    }

    /// Capacity and use of all tiers, bounded by the quota of the files' namespace.
    ///
    /// # Errors
    ///
    /// What the tiers say.
    pub fn space(&self) -> Result<Space> {
        match &self.options.space {
            Some(ask) => Ok((ask.0)()?),
            None => Ok(self.data.space()?),
        }
    }

    /// Waits until the objects of everything that was removed are deleted.
    ///
    /// # Errors
    ///
    /// What the deletions say.
    pub fn sweep(&self) -> Result<()> {
        self.sweeper.wait()
    }

    /// Ends the work in the background, and gives back what was made ready.
    ///
    /// # Errors
    ///
    /// The results of deletions and metadata; what is left is cleared up by the next opening.
    pub fn close(&self) -> Result<()> {
        let let_go = self.forget_all().and(self.forget_all_unlinked());
        self.let_go_all_ahead();
        self.look_at_all_left();
        self.closing.stop();
        for object in self.ready.stop() {
            self.sweeper.push(object.number, self.metadata.life());
        }
        let_go.and(self.metadata.finish()).and(self.sweeper.stop())
    }

    /// Takes note of what a name led to that is gone, as was asked in this life of the metadata.
    fn after_removal(&self, reply: &Reply, life: u64) -> Result<()> {
        if let Reply::Gone { number, has_garbage, .. } = reply {
            self.let_go_ahead(*number);
            self.forget_left(*number);
            self.note_unlinked(*number, has_garbage.then_some(life));
        }
        Ok(())
    }

    /// What an operation on a file failed for: `STALE` where another user removed the file, and its
    /// object with it, since it was looked at.
    pub fn failure(&self, number: u64, failure: Failure) -> Failure {
        let is_removed = || self.ask_node(&Request::Node { number }).is_err_and(|it| is_gone(&it));
        match failure.errno() == Errno::IO && is_removed() {
            true => Errno::STALE.into(),
            false => failure,
        }
    }

    /// What is known of a node, with what its object says where that can be asked: one that is lost, or
    /// on a tier that is, still has a name, and can be removed.
    fn as_known(&self, node: Node) -> Result<Node> {
        let noted = node.is_written.then(|| node.clone());
        match (self.with_object(node), noted) {
            (Err(failure), Some(noted)) if !failure.may_pass() && !is_gone(&failure) => {
                tracing::debug!(file = noted.number, %failure, "cannot ask the object of a file");
                Ok(noted)
            }
            (outcome, _) => outcome,
        }
    }

    /// What is known of a node with what its object says, where that may be newer.
    fn with_object(&self, node: Node) -> Result<Node> {
        if self.options.believed_for != Duration::MAX {
            self.told.hear(&node);
        }
        if !node.is_written {
            return Ok(node);
        }
        let number = node.number;
        self.ask_object(node).map_err(|failure| self.failure(number, failure))
    }

    fn ask_object(&self, node: Node) -> Result<Node> {
        let number = node.number;
        if self.away.contains(number, &*self.clock) {
            return Err(Errno::HOSTUNREACH.into());
        }
        let asked = self.ask_object_anyway(node);
        asked.inspect_err(|failure| self.away.note(number, failure, &*self.clock))
    }

    fn ask_object_anyway(&self, node: Node) -> Result<Node> {
        let stat = match self.open.file(node.number) {
            Some(file) => file.object_stat()?,
            None => None,
        };
        if let Some(stat) = stat {
            return Ok(node.with_object(&stat));
        }
        let stat = self.data.stat(&self.key(node.number)?)?;
        if self.options.is_alone && self.options.access == Access::Write && !stat.is_held {
            // Its last user died, or had it mapped and is gone: from now on it need not be asked for.
            // Where it cannot be noted it is asked for again.
            if let Err(failure) = self.settle(node.number, stat) {
                tracing::debug!(file = node.number, %failure, "cannot note what an object says");
            }
        }
        Ok(node.with_object(&stat))
    }

    /// Takes note of what was changed by a request, for files that are open here.
    fn note_change(&self, node: &Node, is_cut: bool) -> Result<()> {
        self.open.file(node.number).map_or(Ok(()), |file| file.note_change(self, node, is_cut))
    }

    fn ask_node(&self, request: &Request<'_>) -> Result<Node> {
        match self.metadata.call(request)? {
            Reply::Node(node) => Ok(node),
            Reply::Nowhere => Err(Errno::NOENT.into()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask_made(&self, request: &Request<'_>) -> Result<Node> {
        match self.metadata.call(request)? {
            Reply::Made { node, .. } => Ok(node),
            other => Err(unexpected(&other)),
        }
    }

    /// How the object of a file is opened.
    fn how(&self, node: &Node, access: Access) -> Open {
        let semantics = self.options.semantics;
        let (hint, segment_bytes) = (node.marks.hint(), node.marks.segment_bytes);
        Open { access, semantics, hint, segment_bytes, ..Open::default() }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(failure) = self.close() {
            tracing::warn!(%failure, "cannot clear up after a file system");
        }
    }
}

/// The change that takes away the set-group-ID bit of a file that lends nothing, where there is one and the user that
/// has changed its bytes is not in its group.
fn without_idle_set_group(node: &Node, is_member: impl Fn(u32) -> bool) -> Option<Changes> {
    let permissions = Some(node.permissions & !SET_GROUP_ID);
    let is_taken = node.has_idle_set_group() && !is_member(node.group);
    is_taken.then(|| Changes { permissions, ..Changes::default() })
}

/// Whether a node was removed.
fn is_gone(failure: &Failure) -> bool {
    failure.errno() == Errno::STALE
}

/// A server that answers something else than was asked.
fn unexpected(reply: &Reply) -> Failure {
    let name = match reply {
        Reply::NotHere => return Errno::STALE.into(),
        Reply::Done => "nothing",
        Reply::Node(_) => "a node",
        Reply::Made { .. } => "a new node",
        Reply::Nowhere => "no node",
        Reply::Opened { .. } => "an opened file",
        Reply::Gone { .. } => "a removal",
        Reply::Bytes(_) => "bytes",
        Reply::Listing(_) => "a listing",
        Reply::Numbers(_) => "numbers",
        Reply::InTheWay(_) => "a lock",
        Reply::OpenedAhead(_) => "opened files",
        Reply::Removed { .. } => "removed names",
        Reply::ListedAhead(_) => "listings",
    };
    Failure::corrupt(&format!("the metadata answered {name} to another question"))
}
