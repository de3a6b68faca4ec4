// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is open here, however often.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Access, Create, ErrorKind, Key, Object, Open, Stat};

use super::away::Unanswered;
use super::claim::Claim;
use super::{Files, is_gone, unexpected};
use crate::failure::Result;
use crate::node::{Node, Place, Time};
use crate::request::{Reply, Request};

const SET_ID: u32 = 0o6000;

/// So often the object of a small file is asked for: each time another client may have come between.
const TRIES_MAX: usize = 100;

/// A file that is open here.
pub(super) struct Shared {
    pub(super) number: u64,
    content: RwLock<Content>,
    /// Whether a write may have to take set-user-ID and set-group-ID bits away.
    has_set_id: AtomicBool,
    /// Whether a write by a user outside its group may have to take a set-group-ID bit away that lends
    /// nothing.
    has_idle_set_group: AtomicBool,
    /// Whether a write may have to take [`CAPABILITY`](crate::CAPABILITY) away.
    may_have_capability: AtomicBool,
    /// Whether anybody has it open for writing, or had.
    is_writable: AtomicBool,
    /// When anything of it last changed, as far as is known here: nanoseconds since 1970.
    told_changed_ns: Arc<AtomicU64>,
    /// Whether bytes that are with the metadata are to be asked for again before they are read.
    is_doubted: AtomicBool,
    /// Whether such bytes may be durable: not all of them were written here since it was opened, or
    /// they were synced here.
    may_be_durable: AtomicBool,
    /// Also for the thread that gets the end of a read, and must not be the one to drop the file.
    pub(super) unanswered: Arc<Unanswered>,
}

/// The bytes of an open file.
#[derive(Clone)]
pub(super) enum Content {
    /// As they are with the metadata, as of the last time that they came from there.
    Inline {
        /// The first bytes; those behind them are zeros.
        bytes: Vec<u8>,
        /// How many there are with the zeros.
        size: u64,
        /// When anything of the file had last changed then.
        changed: Time,
        /// When that was, on the clock of this process.
        told_ns: u64,
    },
    /// In an object, opened for this.
    Object(Arc<dyn Object>, Access),
}

impl Shared {
    /// A file that was opened with the metadata.
    pub(super) fn open(files: &Files, node: &Node, bytes: Vec<u8>, access: Access) -> Result<Self> {
        let may_be_durable = AtomicBool::new(node.place == Place::Inline && node.size > 0);
        let content = content(files, node, bytes, access)?;
        Ok(Self {
            number: node.number,
            may_be_durable,
            told_changed_ns: files.told.open(node),
            content: RwLock::new(content),
            has_set_id: AtomicBool::new(node.permissions & SET_ID != 0),
            has_idle_set_group: AtomicBool::new(node.has_idle_set_group()),
            may_have_capability: AtomicBool::new(node.has_xattrs),
            is_writable: AtomicBool::new(access == Access::Write),
            is_doubted: AtomicBool::default(),
            unanswered: Arc::default(),
        })
    }

    /// The same for one more use.
    pub(super) fn reopen(
        &self,
        files: &Files,
        node: &Node,
        bytes: Vec<u8>,
        access: Access,
    ) -> Result<()> {
        self.note_permissions(node);
        self.is_writable.fetch_or(access == Access::Write, Ordering::AcqRel);
        let mut content = self.change();
        self.note_durable(node.size > 0 && !is_known(&content, &bytes));
        let is_newest = self.hear(node);
        match &*content {
            Content::Object(_, Access::Write) => {}
            Content::Object(_, Access::Read) if access == Access::Read => {}
            // Others wrote, or moved the bytes out, since this was asked for: what is here is newer.
            Content::Object(..) if node.place == Place::Inline => {
                self.refresh_into(files, &mut content)?;
            }
            _ if !is_newest => drop(self.refresh_into(files, &mut content)?),
            // Also where it is opened for reading: others may write to what was small so far.
            _ => *content = self::content(files, node, bytes, self.access())?,
        }
        Ok(())
    }

    /// What may be done with it through all that have it open, or had.
    fn access(&self) -> Access {
        match self.is_writable.load(Ordering::Acquire) {
            true => Access::Write,
            false => Access::Read,
        }
    }

    pub(super) fn look(&self) -> RwLockReadGuard<'_, Content> {
        // Content is replaced as a whole: a panic leaves the old one or the new one.
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `small` makes of bytes that are with the metadata, and of the length of the file; or else the
    /// object with the bytes. A caller that waits for that holds up no other open of the file.
    pub(super) fn inline_or_object<R>(
        &self,
        small: impl FnOnce(&[u8], u64) -> R,
    ) -> std::result::Result<R, Arc<dyn Object>> {
        match &*self.look() {
            Content::Inline { bytes, size, .. } => Ok(small(bytes, *size)),
            Content::Object(object, _) => Err(Arc::clone(object)),
        }
    }

    /// The object with the bytes; `None` while they are with the metadata.
    pub(super) fn object(&self) -> Option<Arc<dyn Object>> {
        match &*self.look() {
            Content::Object(object, _) => Some(Arc::clone(object)),
            Content::Inline { .. } => None,
        }
    }

    /// What the object says; `None` while the bytes are with the metadata.
    pub(super) fn object_stat(&self) -> Result<Option<Stat>> {
        Ok(self.object().map(|object| object.stat()).transpose()?)
    }

    /// Whether a write has to take set-user-ID and set-group-ID bits away: true once.
    pub(super) fn take_set_id(&self) -> bool {
        self.has_set_id.load(Ordering::Relaxed) && self.has_set_id.swap(false, Ordering::AcqRel)
    }

    /// Whether a write has to take any of these bits away.
    pub(super) fn lends_rights(&self) -> bool {
        let may_have = |bit: &AtomicBool| bit.load(Ordering::Relaxed);
        may_have(&self.has_set_id) || may_have(&self.has_idle_set_group)
    }

    /// Whether a write has to take anything away, or to look for that.
    pub(super) fn owes_before_write(&self) -> bool {
        self.lends_rights() || self.may_have_capability.load(Ordering::Relaxed)
    }

    pub(super) fn note_set_id(&self) {
        self.has_set_id.store(true, Ordering::Release);
    }

    /// Whether a write has to look for a set-group-ID bit that lends nothing: true once.
    pub(super) fn take_idle_set_group(&self) -> bool {
        let has_one = &self.has_idle_set_group;
        has_one.load(Ordering::Relaxed) && has_one.swap(false, Ordering::AcqRel)
    }

    pub(super) fn note_idle_set_group(&self) {
        self.has_idle_set_group.store(true, Ordering::Release);
    }

    /// Whether a write has to take what it may do away: true once.
    pub(super) fn take_capability(&self) -> bool {
        let may_have = &self.may_have_capability;
        may_have.load(Ordering::Relaxed) && may_have.swap(false, Ordering::AcqRel)
    }

    pub(super) fn note_capability(&self) {
        self.may_have_capability.store(true, Ordering::Release);
    }

    /// Notes what is known of the node; whether nothing newer was noted before.
    pub(super) fn hear(&self, node: &Node) -> bool {
        let changed_ns = node.changed.to_ns();
        self.told_changed_ns.fetch_max(changed_ns, Ordering::AcqRel) <= changed_ns
    }

    /// Asks again for bytes that are with the metadata where what is kept here may be older than what
    /// its user knows of the file, or than may be cached.
    pub(super) fn freshen(&self, files: &Files) -> Result<()> {
        let believed_for = files.options.believed_for;
        if believed_for == Duration::MAX {
            return Ok(());
        }
        // Before it is asked for: a doubt that comes later is one about what is answered.
        let is_doubted = self.is_doubted.load(Ordering::Acquire)
            && self.is_doubted.swap(false, Ordering::AcqRel);
        let is_old = match &*self.look() {
            Content::Object(..) => false,
            Content::Inline { changed, told_ns, .. } => {
                let age_ns = files.clock.now_ns().saturating_sub(*told_ns);
                is_doubted
                    || Duration::from_nanos(age_ns) >= believed_for
                    || changed.to_ns() < self.told_changed_ns.load(Ordering::Acquire)
            }
        };
        if is_old {
            self.refresh(files).inspect_err(|_| {
                self.is_doubted.fetch_or(is_doubted, Ordering::AcqRel);
            })?;
        }
        Ok(())
    }

    /// Notes that no other client has changed it until this moment.
    pub(super) fn vouch(&self, now_ns: u64) {
        if let Content::Inline { told_ns, .. } = &mut *self.change() {
            *told_ns = now_ns.max(*told_ns);
        }
    }

    /// Has the next read ask again for what is cached here.
    pub(super) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Release);
    }

    /// Takes note of a change that was made to the node.
    pub(super) fn note_change(&self, files: &Files, node: &Node, is_cut: bool) -> Result<()> {
        self.note_permissions(node);
        if !is_cut {
            self.hear(node);
            return Ok(());
        }
        let mut guarded = self.change();
        let is_newest = self.hear(node);
        let Content::Inline { bytes, size, changed, .. } = &mut *guarded else { return Ok(()) };
        if !is_newest {
            // Others wrote behind the cut, and what they wrote is here.
            return self.refresh_into(files, &mut guarded).map(drop);
        }
        bytes.truncate(usize::try_from(node.size).unwrap_or(usize::MAX));
        *size = node.size;
        if node.size == 0 {
            // Whatever others wrote before, nothing of it is left.
            *changed = node.changed;
            self.may_be_durable.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Notes what a write may have to take away. The note may be older than what is known
    /// here: taking it away in vain does no harm.
    pub(super) fn note_permissions(&self, node: &Node) {
        self.may_have_capability.fetch_or(node.has_xattrs, Ordering::AcqRel);
        self.has_set_id.fetch_or(node.permissions & SET_ID != 0, Ordering::AcqRel);
        self.has_idle_set_group.fetch_or(node.has_idle_set_group(), Ordering::AcqRel);
    }

    /// Notes that bytes which are with the metadata may be durable: from now on they leave only for an
    /// object that is.
    pub(super) fn note_durable(&self, may_be: bool) {
        self.may_be_durable.fetch_or(may_be, Ordering::AcqRel);
    }

    /// Opens the object anew, of which a sync failed: all later ones through the same handle would, also of
    /// what is written from now on. `lose` notes for all that have the file open that something is lost,
    /// before any of them can sync the new one.
    pub(super) fn replace_object(
        &self,
        files: &Files,
        failed: &Arc<dyn Object>,
        lose: impl FnOnce(),
    ) {
        let mut content = self.change();
        let Content::Object(object, access) = &mut *content else { return };
        // Another one has done it by now.
        if !Arc::ptr_eq(object, failed) {
            return;
        }
        let how = Open { access: *access, semantics: files.options.semantics, ..Open::default() };
        let opened = files.key(self.number).and_then(|key| Ok(files.data.open(&key, &how)?));
        match opened {
            Ok(opened) => {
                lose();
                *object = opened.into();
            }
            // The old one goes on failing.
            Err(failure) => {
                tracing::debug!(file = self.number, %failure, "cannot open an object anew");
            }
        }
    }

    /// Gives a small file an object, because it outgrows what is kept with the metadata.
    pub(super) fn move_out(&self, files: &Files) -> Result<()> {
        let mut made_in = None;
        let moved = self.move_out_once(files, &mut made_in);
        if let Some(life) = made_in.filter(|_| moved.as_ref().is_err_and(is_gone)) {
            // The remover has looked for an object before there was one.
            files.sweeper.push(self.number, life);
        }
        moved
    }

    /// The same; `made_in` is the life of the metadata in which an object may have been made for it.
    fn move_out_once(&self, files: &Files, made_in: &mut Option<u64>) -> Result<()> {
        let mut content = self.change();
        let mut was_lost = false;
        for _ in 0..TRIES_MAX {
            let Content::Inline { bytes, size, .. } = &*content else { return Ok(()) };
            let claim = match files.options.is_alone {
                true => None,
                // Anew each time: what went wrong may be that it is another's by now.
                false => Some(Claim::wait(files, self.number)?),
            };
            let key = files.key(self.number)?;
            let Some(node) = self.note_object(files)? else {
                // It was had in an earlier life of the metadata, and is another's by now.
                drop(claim);
                self.refresh_into(files, &mut content)?;
                continue;
            };
            if node.place == Place::Object {
                *content = self::content(files, &node, Vec::new(), Access::Write)?;
                return Ok(());
            }
            let how = Open { create: Create::IfMissing, ..files.how(&node, Access::Write) };
            made_in.get_or_insert(files.metadata.life());
            let object: Arc<dyn Object> = files.data.open(&key, &how)?.into();
            match fill(&*object, bytes, *size, claim.as_ref()) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(failure) => {
                    drop(object);
                    // A silent server would not do that either.
                    if !failure.may_pass() {
                        clear(files, &key, claim.as_ref());
                    }
                    return Err(failure);
                }
            }
            if self.may_be_durable.load(Ordering::Acquire) {
                // The power may fail when it is durable that they are gone from there.
                match object.sync() {
                    // Its server may have been started anew meanwhile. The bytes are still here.
                    Err(failure) if failure.kind() == ErrorKind::Io && !was_lost => {
                        tracing::debug!(file = self.number, %failure, "fills an object anew");
                        was_lost = true;
                        continue;
                    }
                    synced => synced?,
                }
            }
            let object_modified_ns = object.stat()?.modified_ns;
            let reply = files.metadata.call(&Request::MoveOut {
                number: self.number,
                size: *size,
                content: bytes,
                object_modified_ns,
            })?;
            match reply {
                Reply::Node(_) => {
                    *content = Content::Object(object, Access::Write);
                    return Ok(());
                }
                // Another client wrote to it meanwhile, or has the claim.
                Reply::NotHere => {
                    drop((object, claim));
                    self.refresh_into(files, &mut content)?;
                }
                other => return Err(unexpected(&other)),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Has the object that is about to be made go with the file, whatever becomes of this; what is
    /// known of the file. `None` where another user has the claim.
    fn note_object(&self, files: &Files) -> Result<Option<Node>> {
        match files.metadata.call(&Request::NoteObject { number: self.number }) {
            Ok(Reply::NotHere) => Ok(None),
            Ok(Reply::Node(node)) => Ok(Some(node)),
            Ok(other) => Err(unexpected(&other)),
            // A server of before does not know the request.
            Err(failure) if failure.errno() == Errno::INVAL => {
                files.ask_node(&Request::Node { number: self.number }).map(Some)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Asks the metadata again for what they have of the file; what is known of its node.
    pub(super) fn refresh(&self, files: &Files) -> Result<Node> {
        self.refresh_into(files, &mut self.change())
    }

    fn refresh_into(&self, files: &Files, content: &mut Content) -> Result<Node> {
        let reply = files.metadata.call(&Request::Content { number: self.number })?;
        let Reply::Opened { node, content: bytes } = reply else { return Err(unexpected(&reply)) };
        self.hear(&node);
        self.note_durable(node.size > 0 && !is_known(content, &bytes));
        *content = self::content(files, &node, bytes, self.access())?;
        Ok(node)
    }
}

/// Writes the bytes of a small file to its object, of which an earlier try may have left something;
/// false where another client may use the object by now, and it has to be asked for again.
fn fill(object: &dyn Object, bytes: &[u8], size: u64, claim: Option<&Claim<'_>>) -> Result<bool> {
    let steps: [&dyn Fn() -> terrace_core::Result<()>; 3] =
        [&|| object.set_len(0), &|| object.write_at(0, &[IoSlice::new(bytes)]), &|| {
            object.set_len(size)
        }];
    for step in steps {
        if !claim.is_none_or(Claim::is_certain) {
            return Ok(false);
        }
        step()?;
    }
    Ok(true)
}

/// Deletes an object in which the bytes of a small file did not find room, unless another client may use it
/// by now: where it stays it is written anew by the next try, or goes with the file.
fn clear(files: &Files, key: &Key, claim: Option<&Claim<'_>>) {
    if !claim.is_none_or(Claim::is_certain) {
        return;
    }
    if let Err(failure) = files.data.delete(key) {
        tracing::debug!(object = %key, %failure, "cannot delete what was written of an object");
    }
}

/// Whether bytes are those that are known to be with the metadata.
fn is_known(content: &Content, bytes: &[u8]) -> bool {
    matches!(content, Content::Inline { bytes: known, .. } if *known == bytes)
}

fn content(files: &Files, node: &Node, bytes: Vec<u8>, access: Access) -> Result<Content> {
    Ok(match node.place {
        Place::Inline => Content::Inline {
            bytes,
            size: node.size,
            changed: node.changed,
            told_ns: files.clock.now_ns(),
        },
        Place::Object => {
            let key = files.key(node.number)?;
            let object = files.data.open(&key, &files.how(node, access))?;
            Content::Object(object.into(), access)
        }
    })
}
