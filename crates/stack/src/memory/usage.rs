// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each namespace takes up, and how much it may: atomic counters that growth passes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use terrace_core::{Error, ErrorKind, Key};

/// Namespaces from which on those that are empty, unlimited and unused are forgotten.
const KEPT_MIN: usize = 1024;

/// What a quota bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Bytes of objects, each counted once, wherever it is.
    Bytes,
    /// Objects.
    Objects,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quota::Bytes => "bytes",
            Quota::Objects => "objects",
        })
    }
}

/// The source of a [`ErrorKind::NoSpace`] error that no free room on any tier would have
/// prevented: a namespace has used up its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Whose quota.
    pub namespace: String,
    /// Which of its quotas.
    pub quota: Quota,
    /// What the namespace takes up.
    pub used: u64,
    /// How much more was asked for.
    pub need: u64,
    /// What it may take up.
    pub limit: u64,
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, quota, used, need, limit } = self;
        write!(f, "namespace={namespace} quota={quota} used={used} need={need} limit={limit}")
    }
}

impl std::error::Error for QuotaExceeded {}

impl QuotaExceeded {
    fn into_error(self, operation: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::NoSpace, operation)
            .because(format!("the namespace has used up its quota of {}", self.quota))
            .with("key", key)
            .caused_by(self)
    }
}

/// Something that is counted and may be limited.
#[derive(Debug)]
pub(crate) struct Counter {
    used: AtomicU64,
    /// `u64::MAX` is no limit.
    limit: AtomicU64,
}

impl Default for Counter {
    fn default() -> Self {
        Self { used: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX) }
    }
}

impl Counter {
    /// Takes `count`, unless more than the limit would be used then.
    fn take(&self, count: u64) -> bool {
        let fits = |used: u64| {
            let limit = self.limit.load(Ordering::Acquire);
            used.checked_add(count).filter(|sum| *sum <= limit)
        };
        self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes what is there already, whatever the limit.
    pub(crate) fn found(&self, count: u64) {
        self.used.fetch_add(count, Ordering::AcqRel);
    }

    fn free(&self, count: u64) {
        if count > 0 {
            // An object whose create failed in the catalog may be there all the same, and is then
            // deleted without having been counted.
            let less = |used: u64| Some(used.saturating_sub(count));
            let _ = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Acquire)).filter(|limit| *limit != u64::MAX)
    }

    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(u64::MAX), Ordering::Release);
    }

    fn is_idle(&self) -> bool {
        self.used() == 0 && self.limit().is_none()
    }
}

/// What one namespace takes up.
///
/// An object takes up its length, or what is allocated of it where it has holes; while it is open and
/// grows, also the room that was promised to it on its tier. Copies and migrations take up nothing.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) bytes: Counter,
    pub(crate) objects: Counter,
}

impl Usage {
    fn exceeded(&self, quota: Quota, need: u64, key: &Key) -> QuotaExceeded {
        let counter = match quota {
            Quota::Bytes => &self.bytes,
            Quota::Objects => &self.objects,
        };
        QuotaExceeded {
            namespace: key.namespace().into(),
            quota,
            used: counter.used(),
            need,
            limit: counter.limit.load(Ordering::Acquire),
        }
    }

    /// Whether `bytes` more are allowed at this moment.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let used = self.bytes.used();
        used.checked_add(bytes).is_some_and(|sum| sum <= self.bytes.limit.load(Ordering::Acquire))
    }

    /// Takes bytes for growth, if they are allowed.
    pub(crate) fn take_bytes(&self, bytes: u64) -> bool {
        self.bytes.take(bytes)
    }

    /// Why bytes are not allowed.
    pub(crate) fn refusal(&self, bytes: u64, key: &Key) -> Error {
        self.exceeded(Quota::Bytes, bytes, key).into_error("write", key)
    }

    /// A segment that took up `before_bytes` takes up `after_bytes` from now on, whatever the limit.
    pub(crate) fn resize(&self, before_bytes: u64, after_bytes: u64) {
        self.bytes.free(before_bytes.saturating_sub(after_bytes));
        self.bytes.found(after_bytes.saturating_sub(before_bytes));
    }

    /// An object is gone; its bytes were given back one by one.
    pub(crate) fn remove_object(&self) {
        self.objects.free(1);
    }
}

/// A new object that counts; no longer when this is dropped before it is [kept](Counted::keep).
#[derive(Debug)]
pub(crate) struct Counted {
    usage: Option<Arc<Usage>>,
    bytes: u64,
}

impl Counted {
    /// # Errors
    ///
    /// `NoSpace` where the namespace has as many objects as it may have.
    pub(crate) fn new(usage: Arc<Usage>, key: &Key) -> Result<Self, Error> {
        if usage.objects.take(1) {
            return Ok(Self { usage: Some(usage), bytes: 0 });
        }
        Err(usage.exceeded(Quota::Objects, 1, key).into_error("create object", key))
    }

    /// Takes bytes that the object has from the beginning, if they are allowed.
    pub(crate) fn take_bytes(&mut self, bytes: u64) -> bool {
        let is_taken = self.usage.as_ref().is_some_and(|usage| usage.take_bytes(bytes));
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Gives them back: they are elsewhere, or nowhere.
    pub(crate) fn free_bytes(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(usage) = &self.usage {
            usage.bytes.free(bytes);
        }
    }

    /// The object was made.
    pub(crate) fn keep(mut self) -> Arc<Usage> {
        self.usage.take().expect("it is taken only here")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.free_bytes();
        if let Some(usage) = &self.usage {
            usage.remove_object();
        }
    }
}

/// The namespaces of a store.
#[derive(Debug, Default)]
pub(crate) struct Usages {
    named: RwLock<HashMap<Box<str>, Arc<Usage>>>,
    /// Held while limits change, so that the catalog tells the last change.
    pub(crate) changing: Mutex<()>,
}

impl Usages {
    /// The counters of a namespace.
    pub(crate) fn of(&self, namespace: &str) -> Arc<Usage> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = named.get(namespace) {
            return Arc::clone(usage);
        }
        drop(named);
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        // Twice as many as are kept pay for looking at all of them.
        if named.len() >= KEPT_MIN && named.len().is_power_of_two() {
            named.retain(|_, usage| {
                let is_idle = usage.bytes.is_idle() && usage.objects.is_idle();
                Arc::strong_count(usage) > 1 || !is_idle
            });
        }
        Arc::clone(named.entry(namespace.into()).or_default())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Usage>)> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let all = named.iter().map(|(name, usage)| (name.to_string(), Arc::clone(usage)));
        let mut all: Vec<_> = all.collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_is_allowed() {
        let counter = Counter::default();
        counter.set_limit(Some(10));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if counter.take(3) {
                            assert!(counter.used() <= 10);
                            counter.free(3);
                        }
                    }
                });
            }
        });
        assert_eq!(counter.used(), 0);
        assert!(counter.take(10) && !counter.take(1));
    }

    #[test]
    fn an_object_that_was_not_made_does_not_count() {
        let usage = Arc::new(Usage::default());
        usage.objects.set_limit(Some(1));
        let key = Key::new("n", "k").expect("legal");
        let first = Counted::new(Arc::clone(&usage), &key).expect("allowed");
        let error = Counted::new(Arc::clone(&usage), &key).expect_err("one too many");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        drop(first);
        Counted::new(Arc::clone(&usage), &key).expect("allowed again").keep();
        assert_eq!(usage.objects.used(), 1);
    }

    #[test]
    fn namespaces_that_nobody_uses_are_forgotten() {
        let usages = Usages::default();
        usages.of("kept").objects.found(1);
        usages.of("limited").bytes.set_limit(Some(0));
        for number in 0..5 * KEPT_MIN {
            drop(usages.of(&number.to_string()));
        }
        let all = usages.all();
        assert!(all.len() <= 2 * KEPT_MIN, "{}", all.len());
        assert!(all.iter().any(|(name, _)| name == "kept"));
        assert!(all.iter().any(|(name, _)| name == "limited"));
    }
}
