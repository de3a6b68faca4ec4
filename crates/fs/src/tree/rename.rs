// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moving names.

use rustix::io::Errno;
use terrace_core::Txn;

use super::make::{Spot, inheriting};
use super::remove::{check_removal, note_nameless, unlink};
use super::{
    Orphan, Tree, check_name, get_bucket, get_directory, get_living_directory, get_node, is_above,
    put_bucket, put_node, touch,
};
use crate::clock::Moment;
use crate::failure::{Failure, Result};
use crate::node::{Kind, Node};
use crate::request::{Made, RenameHow, Reply};

/// What became of a rename.
enum Moved {
    /// The name leads to another node than the one that is locked.
    Elsewhere,
    /// Two names of one node: nothing happens, says POSIX.
    Same,
    /// Done; what had the name lost it.
    Over { orphan: Option<Box<Orphan>>, is_nameless: bool },
}

impl Tree {
    /// Moves a name, at once for all. `owner` is the owner of a whiteout.
    pub(super) fn rename(
        &self,
        session: u64,
        from: Spot<'_>,
        to: Spot<'_>,
        how: RenameHow,
        owner: (u32, u32),
    ) -> Result<Reply> {
        check_name(from.name)?;
        check_name(to.name)?;
        if how.exchanges && (how.keeps_existing || how.leaves_whiteout) {
            return Err(Errno::INVAL.into());
        }
        let whiteout = match how.leaves_whiteout {
            true => Some(self.take_number()?),
            false => None,
        };
        let hash = self.hash(to.name);
        loop {
            let bucket = get_bucket(self, to.directory, hash)?;
            let victim = bucket.find(to.name).map(|entry| entry.number);
            // Without a node in the way no open needs to be kept out.
            let mut holds = victim.map(|number| (number, self.holds.lock(number)));
            let is_open =
                holds.as_ref().is_some_and(|(number, holds)| self.is_held(holds, *number));
            let work = Work { from, to, how, victim, is_open, whiteout, owner, now: self.now() };
            match self.change(|txn| work.carry_out(self, txn))? {
                Moved::Elsewhere => {}
                Moved::Same => return Ok(Reply::Done),
                Moved::Over { orphan, is_nameless } => {
                    let Some((number, holds)) = &mut holds else { return Ok(Reply::Done) };
                    note_nameless(holds.get_mut(number), is_nameless);
                    let has_garbage = self.keep_unlinked(session, orphan.map(|orphan| *orphan));
                    let number = *number;
                    self.delegations.forget(number);
                    let (directory, is_delegated) = (None, false);
                    return Ok(Reply::Gone { number, has_garbage, directory, is_delegated });
                }
            }
        }
    }
}

/// One try to move a name.
struct Work<'a> {
    from: Spot<'a>,
    to: Spot<'a>,
    how: RenameHow,
    /// What has the new name, by what was seen before the transaction, …
    victim: Option<u64>,
    /// … and whether it is open.
    is_open: bool,
    /// The number for what is left under the old name.
    whiteout: Option<u64>,
    owner: (u32, u32),
    now: Moment<'a>,
}

impl Work<'_> {
    fn carry_out(&self, tree: &Tree, txn: &mut dyn Txn) -> Result<Moved> {
        let (from, to) = (self.from, self.to);
        let from_hash = tree.hash(from.name);
        let to_hash = tree.hash(to.name);
        // Looked at before the new directory: it must be there also where that is gone.
        let bucket = get_bucket(&mut *txn, from.directory, from_hash)?;
        let number = bucket.find(from.name).ok_or(Failure::of(Errno::NOENT))?.number;
        let mut node = get_node(&mut *txn, number)?;
        get_living_directory(&mut *txn, to.directory)?;
        let bucket = get_bucket(&mut *txn, to.directory, to_hash)?;
        let there = bucket.find(to.name).map(|entry| entry.number);
        if there != self.victim {
            return Ok(Moved::Elsewhere);
        }
        let victim = there.map(|number| get_node(&mut *txn, number)).transpose()?;
        if victim.is_some() && self.how.keeps_existing {
            return Err(Errno::EXIST.into());
        }
        if from.directory != to.directory && node.kind.is_directory() {
            refuse_circle(txn, number, to.directory)?;
        }
        if self.how.exchanges {
            let victim = victim.ok_or(Failure::of(Errno::NOENT))?;
            if from.directory != to.directory && victim.kind.is_directory() {
                refuse_circle(txn, victim.number, from.directory)?;
            }
            return self.exchange(tree, txn, node, victim);
        }
        if victim.as_ref().is_some_and(|victim| victim.number == number) {
            return Ok(Moved::Same);
        }
        let mut orphan = None;
        let mut is_nameless = false;
        if let Some(mut victim) = victim {
            check_removal(txn, &victim, node.kind.is_directory())?;
            self.take_out(tree, txn, to, victim.kind)?;
            orphan = unlink(txn, &mut victim, self.is_open, self.now)?.map(Box::new);
            is_nameless = victim.links == 0;
        }
        self.take_out(tree, txn, from, node.kind)?;
        self.put_in(tree, txn, to, number, node.kind)?;
        node.changed = self.now.after(node.changed);
        node.parent = to.directory;
        put_node(txn, &node)?;
        if let Some(number) = self.whiteout {
            let directory = get_directory(&mut *txn, from.directory)?;
            let node = inheriting(txn, &directory, number, &whiteout(self.owner), self.now)?;
            put_node(txn, &node)?;
            self.put_in(tree, txn, from, number, Kind::CharacterDevice)?;
        }
        Ok(Moved::Over { orphan, is_nameless })
    }

    fn exchange(
        &self,
        tree: &Tree,
        txn: &mut dyn Txn,
        mut node: Node,
        mut other: Node,
    ) -> Result<Moved> {
        if node.number == other.number {
            return Ok(Moved::Same);
        }
        self.take_out(tree, txn, self.from, node.kind)?;
        self.take_out(tree, txn, self.to, other.kind)?;
        self.put_in(tree, txn, self.to, node.number, node.kind)?;
        self.put_in(tree, txn, self.from, other.number, other.kind)?;
        for (moved, directory) in
            [(&mut node, self.to.directory), (&mut other, self.from.directory)]
        {
            moved.changed = self.now.after(moved.changed);
            moved.parent = directory;
            put_node(txn, moved)?;
        }
        // Both nodes keep a name, whatever was locked.
        Ok(Moved::Same)
    }

    /// Removes an entry.
    fn take_out(&self, tree: &Tree, txn: &mut dyn Txn, spot: Spot<'_>, kind: Kind) -> Result<()> {
        let hash = tree.hash(spot.name);
        let mut bucket = get_bucket(&mut *txn, spot.directory, hash)?;
        bucket.remove(spot.name);
        put_bucket(txn, spot.directory, hash, &bucket)?;
        let mut directory = get_directory(&mut *txn, spot.directory)?;
        directory.size = directory.size.saturating_sub(1);
        directory.links -= u32::from(kind.is_directory());
        touch(&mut directory, self.now);
        put_node(txn, &directory)
    }

    /// Adds an entry whose name is free.
    fn put_in(
        &self,
        tree: &Tree,
        txn: &mut dyn Txn,
        spot: Spot<'_>,
        number: u64,
        kind: Kind,
    ) -> Result<()> {
        let hash = tree.hash(spot.name);
        let mut bucket = get_bucket(&mut *txn, spot.directory, hash)?;
        bucket.add(spot.name, number, kind)?;
        put_bucket(txn, spot.directory, hash, &bucket)?;
        let mut directory = get_directory(&mut *txn, spot.directory)?;
        directory.size += 1;
        directory.links += u32::from(kind.is_directory());
        touch(&mut directory, self.now);
        put_node(txn, &directory)
    }
}

/// A directory must not come into itself, or below.
fn refuse_circle(txn: &mut dyn Txn, moved: u64, directory: u64) -> Result<()> {
    match is_above(txn, moved, directory)? {
        true => Err(Errno::INVAL.into()),
        false => Ok(()),
    }
}

/// What is left under the old name where that is asked for.
fn whiteout((user, group): (u32, u32)) -> Made<'static> {
    Made {
        kind: Kind::CharacterDevice,
        permissions: 0,
        umask: 0,
        user,
        group,
        device: 0,
        target: &[],
        is_opened: false,
        object: None,
    }
}
