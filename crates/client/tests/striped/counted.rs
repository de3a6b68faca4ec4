// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that counts what is asked of it, can fall silent, and lets a test decide what opens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use terrace_core::{
    Applied, Backend, Capability, Create, Cursor, Draft, Error, ErrorKind, Key, Object, Op, Open,
    Page, Result, Semantics, Space, Stat, Temperature, TierBackend,
};

/// What becomes of who asks for the room of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Answers,
    /// It waits until that changes.
    IsSilent,
    /// It is told that there was no answer in time.
    IsGivenUp,
}

/// What an open comes to; `None` where that is left to the store.
pub(crate) type Opening =
    dyn Fn(&dyn Backend, &Key, &Open) -> Option<Result<Box<dyn Object>>> + Send + Sync;

/// What a publication comes to; `None` where that is left to the store.
pub(crate) type Publishing = dyn Fn(&dyn Draft, &Key) -> Option<Published> + Send + Sync;

pub(crate) type Published = Result<Option<Arc<[u8]>>>;

/// A draft of which a test decides what becomes of its publication.
struct CountedDraft {
    inner: Box<dyn Draft>,
    key: Key,
    publishing: Option<Arc<Publishing>>,
}

impl Draft for CountedDraft {
    fn object(&self) -> Arc<dyn Object> {
        self.inner.object()
    }

    fn publish(&self) -> Published {
        let decided = self.publishing.as_ref().and_then(|decide| decide(&*self.inner, &self.key));
        decided.unwrap_or_else(|| self.inner.publish())
    }
}

pub(crate) struct Counted {
    inner: Arc<dyn Backend>,
    batches: AtomicUsize,
    others: AtomicUsize,
    /// The hint of every object that was created, by its name.
    hints: Mutex<Vec<(String, Temperature)>>,
    speech: Mutex<Speech>,
    /// Told when that changes.
    changed: Condvar,
    opening: Mutex<Option<Box<Opening>>>,
    publishing: Mutex<Option<Arc<Publishing>>>,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Self {
        let (batches, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (speech, changed) = (Mutex::new(Speech::Answers), Condvar::new());
        let (hints, opening, publishing) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { inner, batches, others, hints, speech, changed, opening, publishing }
    }

    /// Decides about all publications of drafts that are begun from now on.
    pub(crate) fn publish_by(&self, publishing: Arc<Publishing>) {
        *self.publishing.lock().expect("never poisoned") = Some(publishing);
    }

    /// Decides what becomes of who asks for its room, or waits for that.
    pub(crate) fn set_speech(&self, speech: Speech) {
        *self.speech.lock().expect("never poisoned") = speech;
        self.changed.notify_all();
    }

    /// Decides about all opens from now on.
    pub(crate) fn open_by(&self, opening: Box<Opening>) {
        *self.opening.lock().expect("never poisoned") = Some(opening);
    }

    /// Batches, and other calls that touch objects, since this was asked last.
    pub(crate) fn take(&self) -> (usize, usize) {
        (self.batches.swap(0, Ordering::SeqCst), self.others.swap(0, Ordering::SeqCst))
    }

    /// The hints of what was created.
    pub(crate) fn hints(&self) -> Vec<(String, Temperature)> {
        self.hints.lock().expect("never poisoned").clone()
    }

    fn other(&self) -> &dyn Backend {
        self.others.fetch_add(1, Ordering::SeqCst);
        &*self.inner
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Counted {
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        if how.create != Create::Never {
            let hint = (key.name().into(), how.hint.temperature);
            self.hints.lock().expect("never poisoned").push(hint);
        }
        let opening = self.opening.lock().expect("never poisoned");
        let opened = opening.as_ref().and_then(|opening| opening(&*self.inner, key, how));
        drop(opening);
        opened.unwrap_or_else(|| self.other().open(key, how))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let publishing = self.publishing.lock().expect("never poisoned").clone();
        let inner = self.other().draft(key, how)?;
        Ok(Box::new(CountedDraft { inner, key: key.clone(), publishing }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        self.other().stat(key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.other().delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.other().list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.other().namespaces()
    }

    fn space(&self) -> Result<Space> {
        let other = self.other();
        let speech = self.speech.lock().expect("never poisoned");
        let is_silent = |speech: &mut Speech| *speech == Speech::IsSilent;
        let speech = *self.changed.wait_while(speech, is_silent).expect("never poisoned");
        match speech {
            Speech::IsGivenUp => {
                let kind = ErrorKind::Unreachable { applied: Applied::No };
                Err(Error::new(kind, "ask the server"))
            }
            _ => other.space(),
        }
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        self.batches.fetch_add(1, Ordering::SeqCst);
        self.inner.execute(operations, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.other().sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.other().sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        self.other().tier()
    }
}
