// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacing objects: the head is a draft on its home, and each further piece is one on its server, under
//! a name of its own. To publish, first the pieces are published, then the head: that is the moment from
//! which on the key names the new value, because only the head says which pieces belong to the object.
//! At last the pieces of the old value are deleted.
//!
//! A client that ends before leaves nothing: servers discard its drafts. One that ends between the
//! publications, or before the old pieces are gone, leaves pieces without an object, which are not
//! visible and `collect` finds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Access, Applied, Create, Draft, Error, ErrorKind, Key, Object, Open, Persistency, Result,
    Semantics,
};

use super::layout::Layout;
use super::object::StripedObject;
use super::parallel::at_once;
use super::piece::Piece;
use super::{Shared, all, is_unknown};

const OPERATION: &str = "replace an object";

/// A new value of an object, on all servers that it is to be on.
struct StripedDraft {
    shared: Arc<Shared>,
    key: Key,
    how: Open,
    home: usize,
    head: Box<dyn Draft>,
    /// Where it is to be on several servers.
    parts: Option<Parts>,
    object: Arc<dyn Object>,
    /// Whether there was an old value when this was begun.
    has_old: bool,
    stage: Mutex<Stage>,
}

struct Parts {
    layout: Layout,
    /// All but the head, in their order.
    pieces: Vec<PieceDraft>,
    /// Whether any of them may have been published.
    is_any_published: AtomicBool,
}

struct PieceDraft {
    server: usize,
    draft: Box<dyn Draft>,
    is_published: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may be published.
    Begun,
    Published,
    /// Whether it was published is unknown.
    InDoubt,
}

impl Shared {
    pub(super) fn draft(self: &Arc<Self>, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let how = Open { access: Access::Write, ..how.clone() };
        self.check(key, &how).map_err(|error| self.name(error, key))?;
        let old_home = match self.locate(OPERATION, key, |member| member.backend.stat(key)) {
            Ok((home, _)) => Some(home),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        check_create(how.create, old_home.is_some()).map_err(|error| self.name(error, key))?;
        let mut ranked = self.map.ranked(key);
        // A key is switched on the server that has it: an object stays where it is, also after servers
        // were added.
        let home = old_home.unwrap_or(ranked[0]);
        ranked.retain(|server| *server != home);
        ranked.insert(0, home);
        let draft = match self.new_layout(&ranked, &how)? {
            None => self.plain_draft(key, how, home, old_home.is_some())?,
            Some(layout) => self.draft_parts(key, how, home, old_home.is_some(), layout)?,
        };
        Ok(Box::new(draft))
    }

    /// A draft on its home alone.
    fn plain_draft(
        self: &Arc<Self>,
        key: &Key,
        how: Open,
        home: usize,
        has_old: bool,
    ) -> Result<StripedDraft> {
        let member = self.member(home);
        let head = member.backend.draft(key, &how).map_err(|error| member.blame(error))?;
        let object = head.object();
        Ok(self.new_draft(key, how, home, has_old, (head, None, object)))
    }

    /// A draft over several servers.
    fn draft_parts(
        self: &Arc<Self>,
        key: &Key,
        how: Open,
        home: usize,
        has_old: bool,
        layout: Layout,
    ) -> Result<StripedDraft> {
        let strongest = self.capability.persistency;
        // A server does not know that what is new there replaces something elsewhere.
        let level = match how.semantics.persistency {
            Persistency::Process if has_old => strongest,
            level => level,
        };
        // Its pieces are cut by this already.
        let piece_how = Open { create: Create::IfMissing, segment_bytes: None, ..how.clone() };
        let piece_semantics = Semantics { persistency: level, ..how.semantics };
        let piece_how = piece_how.with_semantics(piece_semantics);
        let begin = |(server, piece): (usize, Piece)| {
            let member = self.member(server);
            let how = piece_how.clone().with_label(&piece.encode());
            let draft = member.backend.draft(&piece.key(), &how);
            let draft = draft.map_err(|error| member.blame(error))?;
            Ok(PieceDraft { server, draft, is_published: AtomicBool::new(false) })
        };
        let pieces = self.pieces(key, &layout);
        let begun = at_once(pieces.into_iter().map(|piece| || begin(piece)).collect());
        let pieces = all(begun)?;
        let member = self.member(home);
        let head = member.backend.draft(key, &self.head_how(&how, &layout));
        let head = head.map_err(|error| member.blame(error))?;
        let existing = Open { create: Create::Never, ..how.clone() };
        let object = StripedObject::new(self, key, layout.clone(), home, &existing, head.object());
        object.fill_in(pieces.iter().map(|piece| piece.draft.object()).collect());
        let parts = Parts { layout, pieces, is_any_published: AtomicBool::new(false) };
        Ok(self.new_draft(key, how, home, has_old, (head, Some(parts), Arc::new(object))))
    }

    fn new_draft(
        self: &Arc<Self>,
        key: &Key,
        how: Open,
        home: usize,
        has_old: bool,
        (head, parts, object): (Box<dyn Draft>, Option<Parts>, Arc<dyn Object>),
    ) -> StripedDraft {
        let (shared, key, stage) = (Arc::clone(self), key.clone(), Mutex::new(Stage::Begun));
        StripedDraft { shared, key, how, home, head, parts, object, has_old, stage }
    }

    /// Deletes what is left of a value on `home` that was replaced. What cannot be deleted now, `collect`
    /// finds.
    fn delete_replaced(&self, key: &Key, home: usize, label: &[u8]) {
        let Ok(old) = self.read_layout(label, home, key) else { return };
        self.forget_end(home, &old);
        let _ = self.delete_pieces(key, &old);
    }
}

impl StripedDraft {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes those pieces that were not, at the same time.
    fn publish_pieces(&self, parts: &Parts) -> Result<()> {
        // An object that appeared since this was begun is rare.
        let needs_sync = self.how.semantics.persistency == Persistency::Process
            && !self.has_old
            && self.how.create != Create::New
            && self.shared.member(self.home).backend.stat(&self.key).is_ok();
        let publish = |piece: &PieceDraft| {
            let member = self.shared.member(piece.server);
            let published = || {
                if !piece.is_published.load(Ordering::Relaxed) {
                    if needs_sync {
                        piece.draft.object().sync()?;
                    }
                    piece.draft.publish()?;
                    piece.is_published.store(true, Ordering::Relaxed);
                }
                if needs_sync { member.backend.sync() } else { Ok(()) }
            };
            published().map_err(|error| member.blame(error).with("part_of", &self.key))
        };
        parts.is_any_published.store(true, Ordering::Relaxed);
        let publish = &publish;
        let published = parts.pieces.iter().map(|piece| move || publish(piece));
        all(at_once(published.collect())).map(drop).map_err(|error| match is_unknown(&error) {
            // No key that is visible names a piece.
            true => Error::new(ErrorKind::Unreachable { applied: Applied::No }, OPERATION)
                .because("a part of the new value could not be published; nothing was changed")
                .caused_by(error),
            false => error,
        })
    }

    /// Makes the key name the head. Where no answer comes, its label decides: it is unique.
    fn publish_head(&self) -> Result<Option<Arc<[u8]>>> {
        let member = self.shared.member(self.home);
        let error = match self.head.publish() {
            Err(error) if is_unknown(&error) => error,
            other => return other.map_err(|error| member.blame(error)),
        };
        let is_ours = |label: Arc<[u8]>| {
            self.parts.as_ref().is_some_and(|parts| *label == *parts.layout.encode())
        };
        let found = member.backend.open(&self.key, &Open::read());
        match found.is_ok_and(|head| head.label().is_some_and(is_ours)) {
            true => Ok(None),
            false => Err(member.blame(error)),
        }
    }
}

impl Draft for StripedDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.object)
    }

    /// No labels are kept here.
    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        // Held over the requests: another thread would have to wait for them as well.
        let mut stage = self.stage();
        let reason = match *stage {
            Stage::Begun => None,
            Stage::Published => Some("it was published before"),
            Stage::InDoubt => Some("it may have been published before"),
        };
        if let Some(reason) = reason {
            return Err(self.shared.name(Error::invalid("publish a draft", reason), &self.key));
        }
        if let Some(parts) = &self.parts {
            self.publish_pieces(parts)?;
        }
        let replaced = self.publish_head().inspect_err(|error| {
            if is_unknown(error) {
                *stage = Stage::InDoubt;
            }
        })?;
        *stage = Stage::Published;
        if let Some(label) = replaced {
            self.shared.delete_replaced(&self.key, self.home, &label);
        }
        Ok(None)
    }
}

impl Drop for StripedDraft {
    /// Deletes pieces that were published without their head; drafts discard themselves. Where it is
    /// unknown whether the head was published they stay: an object never lacks a piece.
    fn drop(&mut self) {
        if *self.stage() != Stage::Begun {
            return;
        }
        let parts = self.parts.as_ref();
        if let Some(parts) = parts.filter(|parts| parts.is_any_published.load(Ordering::Relaxed)) {
            // What cannot be deleted now, `collect` finds.
            let _ = self.shared.delete_pieces(&self.key, &parts.layout);
        }
    }
}

fn check_create(create: Create, has_old: bool) -> Result<()> {
    match (create, has_old) {
        (Create::New, true) => Err(Error::new(ErrorKind::Exists, "create an object")),
        (Create::Never, false) => Err(Error::new(ErrorKind::NotFound, OPERATION)),
        _ => Ok(()),
    }
}
