// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files and listings of a source, which are closed by the threads that call it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::calls::Calls;
use crate::source::SourceFile;

/// Something that a source has opened, with the calls of its file system. Dropped, it is closed by one of the threads
/// of these.
pub(crate) struct SourceHandle<T: Send + 'static> {
    thing: Option<T>,
    calls: Arc<Calls>,
}

/// An open file of a source.
pub(crate) type OpenFile = SourceHandle<Box<dyn SourceFile>>;

impl<T: Send + 'static> SourceHandle<T> {
    pub(crate) fn new(thing: T, calls: &Arc<Calls>) -> Self {
        Self { thing: Some(thing), calls: Arc::clone(calls) }
    }

    /// The calls of its file system.
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }
}

impl<T: Send + 'static> Deref for SourceHandle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> DerefMut for SourceHandle<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for SourceHandle<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            self.calls.close(thing);
        }
    }
}
