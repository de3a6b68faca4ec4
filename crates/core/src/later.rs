// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes whose end is told later, by whoever hears of it.

use std::sync::Arc;

use crate::Result;

/// Hears the end of a read that was begun with [`Later::read_later`]: the bytes, fewer than asked
/// for only at the end of the object; why there are none; or nothing where only
/// [`Object::read_at`] can tell. Any thread calls it: it waits for nothing, least of all for another
/// operation of the same backend.
///
/// [`Object::read_at`]: crate::Object::read_at
pub type ReadDone = Box<dyn FnOnce(Option<Result<&[u8]>>) + Send>;

/// Hears the end of a write that was begun with [`Later::write_later`]: that it is done; why nobody knows
/// whether it is; or nothing where it is not, and nothing of it is on its way any more, so that only
/// [`Object::write_at`] can do it, or tell why not. Any thread calls it, as [`ReadDone`].
///
/// [`Object::write_at`]: crate::Object::write_at
pub type WriteDone = Box<dyn FnOnce(Option<Result<()>>) + Send>;

/// A read or a write on its way.
pub enum Begun {
    /// Another thread tells of its end.
    Sent,
    /// Its end is told while this runs, and that of others that are begun meanwhile. Whoever began it
    /// calls it, at once and without holding anything that others wait for.
    Answering(Box<dyn FnOnce() + Send>),
}

/// Of objects whose user can go on before a read or a write is done.
pub trait Later {
    /// Begins a read of `bytes` bytes, for who can go on without them: what `done` returns is told
    /// of them, once. `None` where it was not begun, and `done` not asked: then `read_at` reads.
    fn read_later(
        &self,
        offset_bytes: u64,
        bytes: usize,
        done: &mut dyn FnMut() -> ReadDone,
    ) -> Option<Begun>;

    /// Begins a write of `data`, for who can go on before it is done: what `done` returns is told of
    /// its end, once. `None` where it was not begun, and `done` not asked: then `write_at` writes. Writes
    /// that are on their way at the same time come in any order.
    fn write_later(
        &self,
        offset_bytes: u64,
        data: &Arc<[u8]>,
        done: &mut dyn FnMut() -> WriteDone,
    ) -> Option<Begun>;
}
