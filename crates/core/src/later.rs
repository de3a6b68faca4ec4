// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous reads and writes: their completion is a callback.

use std::sync::Arc;

use crate::Result;

/// Completes a read that was begun with [`Later::read_later`]: the bytes, fewer than asked for only
/// at the end of the object; the error; or nothing where only [`Object::read_at`] can answer. Any
/// thread calls it: it must not block, least of all on another operation of the same backend.
///
/// [`Object::read_at`]: crate::Object::read_at
pub type ReadDone = Box<dyn FnOnce(Option<Result<&[u8]>>) + Send>;

/// Completes a write that was begun with [`Later::write_later`]: success; an error after which the
/// write may or may not be applied; or nothing where it is not applied and nothing of it is in
/// flight any more, so that only [`Object::write_at`] can apply it, or return why not. Any thread
/// calls it, as [`ReadDone`].
///
/// [`Object::write_at`]: crate::Object::write_at
pub type WriteDone = Box<dyn FnOnce(Option<Result<()>>) + Send>;

/// A read or a write on its way.
pub enum Begun {
    /// Another thread tells of its end.
    Sent,
    /// The callback runs the completion, and that of others that are begun meanwhile. The caller
    /// that began the operation runs it, at once and without holding anything that others wait for.
    Answering(Box<dyn FnOnce() + Send>),
}

/// Of objects whose user can go on before a read or a write is done.
pub trait Later {
    /// Begins a read of `bytes` bytes; the caller goes on without them. The callback that `done`
    /// returns is called once, with the bytes. `None` where the read was not begun, and `done` was
    /// not called: then `read_at` reads.
    fn read_later(
        &self,
        offset_bytes: u64,
        bytes: usize,
        done: &mut dyn FnMut() -> ReadDone,
    ) -> Option<Begun>;

    /// Begins a write of `data`; the caller goes on before it is applied. The callback that `done`
    /// returns is called once, with the result. `None` where the write was not begun, and `done`
    /// was not called: then `write_at` writes. Writes in flight at the same time are applied in any
    /// order.
    fn write_later(
        &self,
        offset_bytes: u64,
        data: &Arc<[u8]>,
        done: &mut dyn FnMut() -> WriteDone,
    ) -> Option<Begun>;
}
