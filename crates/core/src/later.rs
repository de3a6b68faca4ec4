// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads whose end is told later, by whoever hears of it.

use crate::Result;

/// Hears the end of a read that was begun with [`Object::read_later`]: the bytes, fewer than asked
/// for only at the end of the object; why there are none; or nothing where only
/// [`Object::read_at`] can tell. Any thread calls it: it waits for nothing, least of all for another
/// operation of the same backend.
///
/// [`Object::read_later`]: crate::Object::read_later
/// [`Object::read_at`]: crate::Object::read_at
pub type ReadDone = Box<dyn FnOnce(Option<Result<&[u8]>>) + Send>;

/// A read on its way.
pub enum ReadBegun {
    /// Another thread tells of its end.
    Sent,
    /// Its end is told while this runs, and that of others that are begun meanwhile. Whoever began it
    /// calls it, at once and without holding anything that others wait for.
    Answering(Box<dyn FnOnce() + Send>),
}
