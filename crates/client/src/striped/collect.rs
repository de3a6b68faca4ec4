// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pieces whose object is gone: a crash in the middle of a create or a delete leaves them.

use terrace_core::{Cursor, ErrorKind, Key, Open, Result, Stat};

use super::layout::Layout;
use super::piece::{Piece, RESERVED};
use super::{Member, Striped};

/// Pieces of a page.
const PAGE_KEYS: usize = 1000;

/// A piece whose object was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The server that has it.
    pub server: String,
    /// Its key there.
    pub key: Key,
    /// The object that it was a part of; `None` where it does not say.
    pub owner: Option<Key>,
    /// Its length.
    pub size_bytes: u64,
    /// When it was made or last written, nanoseconds since 1970.
    pub touched_ns: u64,
    /// Whether it was removed.
    pub is_removed: bool,
}

/// What [`Striped::collect`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Pieces that were looked at.
    pub pieces: u64,
    /// Those whose object was not found.
    pub orphans: Vec<Orphan>,
}

impl Striped {
    /// Looks for pieces without an object, and removes those that were last touched before `before_ns`
    /// (nanoseconds since 1970; 0 removes none). An object that is being created has its pieces
    /// before it is there: leave an hour.
    ///
    /// Removed is only what its home declares to be no part of an object. A piece stays that does
    /// not name its object, or its home (as those that were made before they did), or whose home is
    /// none of the servers here: a client that knows of fewer servers than there are removes
    /// nothing from the others.
    ///
    /// # Errors
    ///
    /// The errors of any server: while one does not answer it is unknown what is missing there.
    pub fn collect(&self, before_ns: u64) -> Result<Orphans> {
        let mut found = Orphans::default();
        for member in self.shared.map.members() {
            self.collect_on(member, before_ns, &mut found)?;
        }
        Ok(found)
    }

    fn collect_on(&self, member: &Member, before_ns: u64, found: &mut Orphans) -> Result<()> {
        let blame = |error| member.blame(error);
        for namespace in member.backend.namespaces().map_err(blame)? {
            let mut cursor = Cursor::start();
            loop {
                let page = member.backend.list(&namespace, RESERVED, &cursor, PAGE_KEYS);
                let page = page.map_err(blame)?;
                for key in page.keys {
                    found.pieces += 1;
                    found.orphans.extend(self.orphan(member, key, before_ns)?);
                }
                match page.next {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn orphan(&self, member: &Member, key: Key, before_ns: u64) -> Result<Option<Orphan>> {
        let looked = member.backend.open(&key, &Open::read()).and_then(|piece| {
            let stat = piece.stat()?;
            Ok((stat, piece.label()))
        });
        let (Stat { size_bytes, created_ns, modified_ns, .. }, label) = match looked {
            // Deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| member.blame(error))?,
        };
        let piece = label.and_then(|label| Piece::decode(key.namespace(), &label).ok());
        let piece = piece.filter(|piece| piece.key() == key);
        let home = piece.as_ref().and_then(|piece| self.shared.map.index(piece.home?));
        if let Some(piece) = &piece
            && self.is_part(member, piece, home)?
        {
            return Ok(None);
        }
        // Not every store knows when a piece was made.
        let touched_ns = created_ns.max(modified_ns);
        let is_removed = home.is_some() && touched_ns < before_ns;
        if is_removed {
            match member.backend.delete(&key) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(member.blame(error));
                }
                _ => {}
            }
        }
        let (server, owner) = (member.name.clone(), piece.map(|piece| piece.owner));
        Ok(Some(Orphan { server, key, owner, size_bytes, touched_ns, is_removed }))
    }

    /// Whether the object that a piece names is there and has this piece there, as its home says; all
    /// that may be, where that is not known.
    fn is_part(&self, member: &Member, piece: &Piece, home: Option<usize>) -> Result<bool> {
        let look = |home: &Member| home.backend.open(&piece.owner, &Open::read());
        let found = match home.map(|home| self.shared.member(home)) {
            Some(home) => look(home).map_err(|error| home.blame(error)),
            None => {
                let found = self.shared.locate("look for an object", &piece.owner, look);
                found.map(|(_, head)| head)
            }
        };
        let head = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let Some(label) = head.label() else { return Ok(false) };
        let layout = Layout::decode(&label).map_err(|error| error.with("key", &piece.owner))?;
        let server = layout.servers().get(usize::from(piece.index));
        Ok(layout.object_id() == piece.object_id && server == Some(&member.id))
    }
}
