// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the next append to an object goes, for all its clients: a pair in the store of its home.

use terrace_core::{Error, ErrorKind, Kv, Result, check_extent};

use super::Shared;
use super::layout::Layout;
use super::object::StripedObject;

/// What the keys of these pairs begin with: no namespace of an application begins like this.
const PREFIX: &str = "\u{10ffff}\u{10ffff}end\0";

fn row(object_id: u128) -> Vec<u8> {
    [PREFIX.as_bytes(), &object_id.to_be_bytes()].concat()
}

/// The end that a pair names; what is no number names none.
fn read(value: Option<Vec<u8>>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl StripedObject {
    fn kv(&self) -> Option<&dyn Kv> {
        self.shared().member(self.home).kv.as_deref()
    }

    /// Takes the next bytes at the end for an append and returns where they begin. Appends that run
    /// at the same time, here or elsewhere, get others.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the home has no pairs.
    pub(super) fn reserve_end(&self, length_bytes: u64) -> Result<u64> {
        const OPERATION: &str = "append to an object";
        let member = self.shared().member(self.home);
        let Some(kv) = self.kv() else {
            let error = Error::new(ErrorKind::Unsupported, OPERATION)
                .because("it is on several servers, and its home keeps no pairs");
            return Err(member.blame(error));
        };
        let size_bytes = self.size()?;
        let row = row(self.layout.object_id());
        let mut offset_bytes = 0;
        kv.transact(&mut |txn| {
            // Where the pair is behind, because others wrote or power was lost, the length counts.
            offset_bytes = read(txn.get(&row)?).max(size_bytes);
            check_extent(offset_bytes, length_bytes)?;
            txn.put(&row, &(offset_bytes + length_bytes).to_le_bytes())
        })
        .map_err(|error| member.blame(error))?;
        Ok(offset_bytes)
    }

    /// Gives back what a failed append took, unless others have appended behind it.
    pub(super) fn release_end(&self, offset_bytes: u64, length_bytes: u64) {
        let Some(kv) = self.kv() else { return };
        let row = row(self.layout.object_id());
        // If this fails, too, there is a gap of zeros.
        let _ = kv.transact(&mut |txn| match read(txn.get(&row)?) == offset_bytes + length_bytes {
            true => txn.put(&row, &offset_bytes.to_le_bytes()),
            false => Ok(()),
        });
    }

    /// The next append goes where the object ends.
    pub(super) fn forget_end(&self) -> Result<()> {
        self.shared().remove_end(self.home, &self.layout)
    }
}

impl Shared {
    /// Removes the pair of an object that was deleted. One that stays is never read: its number is
    /// not used again.
    pub(super) fn forget_end(&self, home: usize, layout: &Layout) {
        let _ = self.remove_end(home, layout);
    }

    fn remove_end(&self, home: usize, layout: &Layout) -> Result<()> {
        let member = self.member(home);
        let Some(kv) = &member.kv else { return Ok(()) };
        let row = row(layout.object_id());
        let removed = match kv.get(&row) {
            // Most objects are never appended to.
            Ok(None) => return Ok(()),
            Ok(Some(_)) => kv.transact(&mut |txn| txn.delete(&row)).map(drop),
            Err(error) => Err(error),
        };
        removed.map_err(|error| member.blame(error))
    }
}
