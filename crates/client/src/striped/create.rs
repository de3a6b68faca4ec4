// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening objects, and making them: first all pieces, then the object itself. A crash in between
//! leaves pieces without an object, which are not visible and `collect` finds; never an object
//! without a piece.

use std::sync::Arc;

use terrace_core::{
    Access, Create, Error, ErrorKind, Hint, Key, Object, Open, Result, Temperature,
};

use super::layout::Layout;
use super::object::StripedObject;
use super::parallel::at_once;
use super::piece::{Piece, check_name};
use super::{Distribution, Member, Shared, is_unknown};

/// An object may come and go as often while it is opened by `Create::IfMissing`.
const ATTEMPTS_MAX: usize = 100;

const OPERATION: &str = "open an object";

impl Shared {
    pub(super) fn open(self: &Arc<Self>, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.check(key, how).map_err(|error| self.name(error, key))?;
        let existing = Open { create: Create::Never, ..how.clone() };
        for _ in 0..ATTEMPTS_MAX {
            if how.create != Create::New {
                match self.open_existing(key, &existing) {
                    Err(error)
                        if error.kind() == ErrorKind::NotFound
                            && how.create == Create::IfMissing => {}
                    other => return other,
                }
            } else if self.exists_elsewhere(key)? {
                return Err(self.name(Error::new(ErrorKind::Exists, "create an object"), key));
            }
            match self.create(key, how) {
                // Another client was faster.
                Err(error)
                    if error.kind() == ErrorKind::Exists && how.create == Create::IfMissing => {}
                other => return other,
            }
        }
        Err(self.name(
            Error::new(ErrorKind::Busy, OPERATION).because("others create and delete it"),
            key,
        ))
    }

    pub(super) fn check(&self, key: &Key, how: &Open) -> Result<()> {
        check_name(OPERATION, key)?;
        how.check_label(&self.capability)?;
        self.capability.check_atomicity(OPERATION, how.semantics.atomicity)?;
        let refused = |reason| Error::new(ErrorKind::Unsupported, OPERATION).because(reason);
        if how.identity.is_some() {
            return Err(refused("no identities are kept here"));
        }
        let (asked, strongest) = (how.semantics.persistency, self.capability.persistency);
        if how.access == Access::Write && asked > strongest {
            return Err(refused("a server cannot keep what is asked for")
                .with("persistency", asked)
                .with("strongest", strongest));
        }
        Ok(())
    }

    /// Opens what is there, wherever it is.
    fn open_existing(self: &Arc<Self>, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let (home, head) = self.locate(OPERATION, key, |member| member.backend.open(key, how))?;
        self.opened(key, how, home, head)
    }

    /// An object whose head was opened.
    fn opened(
        self: &Arc<Self>,
        key: &Key,
        how: &Open,
        home: usize,
        head: Box<dyn Object>,
    ) -> Result<Box<dyn Object>> {
        let Some(label) = head.label() else { return Ok(head) };
        let layout = self.read_layout(&label, home, key)?;
        let object = StripedObject::new(self, key, layout, home, how, Arc::from(head));
        Ok(Box::new(object))
    }

    /// The layout of an object from its label.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Unsupported`; `Stale` where it names a server that the map does not have.
    pub(super) fn read_layout(&self, label: &[u8], home: usize, key: &Key) -> Result<Layout> {
        let member = self.member(home);
        let layout = Layout::decode(label).map_err(|error| member.blame(error.with("key", key)))?;
        for id in layout.servers() {
            if self.map.index(*id).is_none() {
                return Err(Error::new(ErrorKind::Stale, OPERATION)
                    .because("a part of it is on a server that the server map does not have")
                    .with("key", key)
                    .with("store_id", format!("{id:032x}")));
            }
        }
        Ok(layout)
    }

    /// Makes a new object on its home.
    fn create(self: &Arc<Self>, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let ranked = self.map.ranked(key);
        let home = ranked[0];
        let how = Open { create: Create::New, ..how.clone() };
        let Some(layout) = self.new_layout(&ranked, &how)? else {
            let member = self.member(home);
            return member.backend.open(key, &how).map_err(|error| member.blame(error));
        };
        // Its pieces are cut by this already.
        let how = Open { segment_bytes: None, ..how };
        let head_how = self.head_how(&how, &layout);
        let existing = Open { create: Create::Never, ..how.clone() };
        let pieces = self.create_pieces(key, &layout, &how)?;
        let member = self.member(home);
        match self.create_head(member, key, &head_how) {
            Ok(head) => {
                let head = Arc::from(head);
                let object = StripedObject::new(self, key, layout, home, &existing, head);
                object.fill_in(pieces.into_iter().map(Arc::from).collect());
                Ok(Box::new(object))
            }
            Err(error) => {
                drop(pieces);
                // An error that leaves open whether there is an object now leaves the pieces: an
                // object never lacks one.
                if matches!(error.kind(), ErrorKind::Exists | ErrorKind::NoSpace) {
                    let _ = self.delete_pieces(key, &layout);
                }
                Err(member.blame(error))
            }
        }
    }

    /// How the head of a new value is made.
    pub(super) fn head_how(&self, how: &Open, layout: &Layout) -> Open {
        let mut how = Open { segment_bytes: None, ..how.clone() }.with_label(&layout.encode());
        let is_unhinted = how.hint.temperature == Temperature::Unknown;
        if is_unhinted && matches!(self.distribution, Distribution::Progressive { .. }) {
            how.hint = Hint { temperature: Temperature::Hot };
        }
        how
    }

    /// Makes the head of a new object. Where it is unknown whether it was made, because the server
    /// was started anew meanwhile, its label decides: it is unique. What was asked for first may
    /// still come to the server while it is asked again, and then it is this that is there.
    fn create_head(&self, member: &Member, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let unknown = match member.backend.open(key, how) {
            Err(error) if is_unknown(&error) => error,
            made => return made,
        };
        let existing = Open { create: Create::Never, label: None, ..how.clone() };
        match member.backend.open(key, &existing) {
            Ok(head) if head.label() == how.label => return Ok(head),
            // It was not made, and can be.
            Err(missing) if missing.kind() == ErrorKind::NotFound => {}
            _ => return Err(unknown),
        }
        let error = match member.backend.open(key, how) {
            Err(error) => error,
            made => return made,
        };
        match member.backend.open(key, &existing) {
            Ok(head) if head.label() == how.label => Ok(head),
            // Another client was faster.
            Ok(_) if error.kind() == ErrorKind::Exists => Err(error),
            _ => Err(unknown),
        }
    }

    /// How a new object is laid out; `None` where it is to lie on its home alone, because it is
    /// not distributed or is known to be small.
    pub(super) fn new_layout(&self, ranked: &[usize], how: &Open) -> Result<Option<Layout>> {
        let distribution = self.distribution.in_pieces_of(how.segment_bytes);
        distribution.check()?;
        if how.size_hint_bytes.is_some_and(|hint| hint <= distribution.first_bytes()) {
            return Ok(None);
        }
        let server = |index: &usize| {
            let member = self.member(*index);
            (member.id, member.weight)
        };
        let servers: Vec<_> = ranked.iter().map(server).collect();
        Ok(distribution.lay_out(self.new_id(), &servers))
    }

    /// Makes all pieces but the head, at the same time; all or none.
    fn create_pieces(
        &self,
        key: &Key,
        layout: &Layout,
        how: &Open,
    ) -> Result<Vec<Box<dyn Object>>> {
        let make = |(server, piece): (usize, Piece)| {
            let member = self.member(server);
            // Its name is unique: one that is there is what an answer was lost for.
            let how = Open { create: Create::IfMissing, ..how.clone() };
            let how = how.with_label(&piece.encode());
            member.backend.open(&piece.key(), &how).map_err(|error| member.blame(error))
        };
        let pieces = self.pieces(key, layout);
        let made = at_once(pieces.into_iter().map(|piece| || make(piece)).collect());
        super::all(made).inspect_err(|_| drop(self.delete_pieces(key, layout)))
    }

    /// Deletes all pieces but the head, at the same time.
    pub(super) fn delete_pieces(&self, key: &Key, layout: &Layout) -> Result<()> {
        let delete = |(server, piece): (usize, Piece)| {
            let member = self.member(server);
            match member.backend.delete(&piece.key()) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(member.blame(error)),
                _ => Ok(()),
            }
        };
        let pieces = self.pieces(key, layout);
        super::all(at_once(pieces.into_iter().map(|piece| || delete(piece)).collect())).map(drop)
    }

    /// All pieces but the head, with their servers.
    pub(super) fn pieces(&self, key: &Key, layout: &Layout) -> Vec<(usize, Piece)> {
        let servers = layout.servers().iter().enumerate().skip(1);
        let piece = |(index, id): (usize, &u128)| {
            let server = self.map.index(*id).expect("it was looked up before");
            (server, Piece::of(layout, index, key))
        };
        servers.map(piece).collect()
    }

    /// Every part of an object: the index of its server in the map, and its key there. The first has
    /// the object's own name.
    pub(super) fn parts(&self, key: &Key) -> Result<Vec<(usize, Key)>> {
        let (home, layout) = self.find_layout("find the parts of an object", key)?;
        let mut parts = vec![(home, key.clone())];
        let Some(layout) = layout else { return Ok(parts) };
        let pieces = self.pieces(key, &layout).into_iter();
        parts.extend(pieces.map(|(server, piece)| (server, piece.key())));
        Ok(parts)
    }

    /// The home of an object, and its layout, where it is distributed.
    fn find_layout(&self, operation: &'static str, key: &Key) -> Result<(usize, Option<Layout>)> {
        check_name(operation, key)?;
        let look = |member: &Member| {
            let stat = member.backend.stat(key)?;
            if !stat.is_labelled {
                return Ok(None);
            }
            Ok(member.backend.open(key, &Open::read())?.label())
        };
        let (home, label) = self.locate(operation, key, look)?;
        let layout = label.map(|label| self.read_layout(&label, home, key)).transpose()?;
        Ok((home, layout))
    }

    /// Deletes an object: itself first, so that it is gone at once and whole, then its pieces.
    pub(super) fn delete(&self, key: &Key) -> Result<()> {
        const OPERATION: &str = "delete an object";
        let (home, layout) = self.find_layout(OPERATION, key)?;
        let member = self.member(home);
        member.backend.delete(key).map_err(|error| member.blame(error))?;
        let Some(layout) = layout else { return Ok(()) };
        self.forget_end(home, &layout);
        self.delete_pieces(key, &layout).map_err(|error| {
            let error = error.in_part();
            Error::new(error.kind(), OPERATION)
                .because("its name is free, but a part of it is left; collect removes it later")
                .with("key", key)
                .caused_by(error)
        })
    }
}
