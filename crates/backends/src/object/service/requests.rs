// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a service, which block: the asynchronous client runs on two threads of its own, and a
//! deadline ends each request with all its retries.

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::{Error, ErrorKind, Result};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::client::{Answer, Client, Condition, Head, Parts, Tagged, Uploading};
use super::failure::{panicked, within};
use super::record::Record;

/// Threads of the client: they move bytes between sockets and memory.
const THREADS: usize = 2;

/// Requests with many bytes at a time, of all objects together: they bound the memory.
const READS_MAX: usize = 16;
const PARTS_MAX: usize = 8;

/// How long an end waits for requests that run in the background.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// Where a service is, for those that make requests to it.
pub(crate) struct Place {
    /// Address in logs and errors.
    pub(crate) target: String,
    /// What the name of every object begins with: empty, or ends with `/`.
    pub(crate) root: String,
    /// Longest that a request takes, with all its retries.
    pub(crate) deadline: Duration,
}

/// A service.
pub(crate) struct Service {
    /// Only its drop takes it.
    runtime: Option<Runtime>,
    pub(super) client: Box<dyn Client>,
    pub(crate) target: String,
    pub(crate) root: String,
    pub(super) deadline: Duration,
    reads: Arc<Semaphore>,
    parts: Arc<Semaphore>,
    uploading: Uploading,
    /// Requests that run in the background.
    ending: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let ending = std::mem::take(&mut *lock(&self.ending));
        let all = async {
            for one in ending {
                let _ = one.await;
            }
        };
        let _ = runtime.block_on(async { tokio::time::timeout(END_TIME_MAX, all).await });
        runtime.shutdown_timeout(END_TIME_MAX);
    }
}

impl Service {
    /// Prepares requests; makes none.
    ///
    /// # Errors
    ///
    /// Those of `connect`; `Io` where the machine has no threads left.
    pub(crate) fn open(
        place: Place,
        connect: impl FnOnce() -> Result<Box<dyn Client>>,
    ) -> Result<Self> {
        choose_cryptography();
        let client = connect()?;
        let failed = |error| Error::from_io("start the threads of a service", error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("terrace-service")
            .on_thread_start(terrace_affinity::roam)
            .enable_all()
            .build()
            .map_err(failed)?;
        let Place { target, root, deadline } = place;
        Ok(Self {
            runtime: Some(runtime),
            client,
            target,
            root,
            deadline,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            parts: Arc::new(Semaphore::new(PARTS_MAX)),
            uploading: Uploading::default(),
            ending: Mutex::default(),
        })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("only the drop takes it")
    }

    /// Waits for a request.
    pub(crate) fn run<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let done = self.block_on(within(operation, self.deadline, request));
        done.map_err(|error| error.with("target", &self.target))
    }

    /// What an object is like and its changed attributes, asked for at once; `None` where it is missing.
    pub(crate) fn look(
        &self,
        operation: &'static str,
        object: &Path,
        attributes: &Path,
    ) -> Result<Option<(Head, Option<Tagged>)>> {
        let changed = self.runtime().spawn(self.client.get(operation, attributes));
        let head = self.client.head(operation, object);
        let both = async move {
            let head = head.await;
            let changed = changed.await;
            // Of some services an answer without a body does not tell a missing object from a missing
            // bucket; the other one does.
            let changed = changed.map_err(|error| panicked(operation, &error))??;
            Ok(head?.map(|head| (head, changed)))
        };
        self.run(operation, both)
    }

    /// What an object is like; `None` where it is missing, or what it is kept in is, where the answer does not tell.
    pub(crate) fn head(&self, operation: &'static str, path: &Path) -> Result<Option<Head>> {
        self.run(operation, self.client.head(operation, path))
    }

    /// Begins to read a range; what is returned gives its bytes, all of them or an error.
    pub(crate) fn begin_range(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static {
        const OPERATION: &str = "read an object";
        let request = self.client.get_range(OPERATION, path, range.clone());
        let request = async move { Ok((request.await?, ())) };
        let reading = self.runtime().spawn(self.in_turn(OPERATION, range, request));
        let target = self.target.clone();
        async move {
            let read = reading.await.unwrap_or_else(|error| Err(panicked(OPERATION, &error)));
            read.map(|(bytes, ())| bytes).map_err(|error| error.with("target", &target))
        }
    }

    /// A read of a range once its turn has come: all bytes of the range or an error, which does not name the target.
    pub(crate) fn in_turn<T, F>(
        &self,
        operation: &'static str,
        range: Range<u64>,
        request: F,
    ) -> impl Future<Output = Result<(Bytes, T)>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = Result<(Bytes, T)>> + Send + 'static,
    {
        let (reads, deadline) = (Arc::clone(&self.reads), self.deadline);
        async move {
            let _turn = reads.acquire_owned().await;
            // Behind the turn the deadline of the request begins.
            let (bytes, more) = within(operation, deadline, request).await?;
            if bytes.len() as u64 != range.end - range.start {
                return Err(Error::new(ErrorKind::Io, operation)
                    .because("the service returned another number of bytes than was asked for")
                    .with("want_bytes", range.end - range.start)
                    .with("got_bytes", bytes.len()));
            }
            Ok((bytes, more))
        }
    }

    /// A small object, and the tag by which a conditional write names what it replaces; `None` where it is
    /// missing.
    pub(crate) fn get_tagged(
        &self,
        operation: &'static str,
        path: &Path,
    ) -> Result<Option<Tagged>> {
        self.run(operation, self.client.get(operation, path))
    }

    /// Makes an object of one request on a condition; `None` where the condition is not met, which it is
    /// neither behind an earlier try that was carried out. Else the tag of the object, where it has one.
    pub(crate) fn put_if(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        condition: Condition,
    ) -> Result<Option<Option<String>>> {
        self.run(operation, self.client.put_if(operation, path, bytes, condition))
    }

    /// Waits for what has deadlines of its own.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime().block_on(future)
    }

    /// Makes an object of one request. It is there when this returns, and durable.
    pub(crate) fn put(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        record: Option<&Record>,
    ) -> Result<()> {
        self.run(operation, self.client.put(operation, path, bytes, record))
    }

    /// Begins an object of several requests.
    pub(super) fn begin_parts(&self, path: &Path, record: &Record) -> Result<Box<dyn Parts>> {
        const OPERATION: &str = "begin to write an object";
        lock(&self.uploading).insert(path.as_ref().into());
        self.run(OPERATION, self.client.begin_parts(OPERATION, path, record))
            .inspect_err(|_| self.end_parts(path))
    }

    /// Notes that no part of an object is being uploaded any more.
    pub(super) fn end_parts(&self, path: &Path) {
        lock(&self.uploading).remove(path.as_ref());
    }

    /// Waits for the turn of one more part.
    pub(super) fn part_turn(&self) -> OwnedSemaphorePermit {
        self.block_on(Arc::clone(&self.parts).acquire_owned()).expect("it is never closed")
    }

    /// Runs a request with a deadline of its own in the background.
    pub(super) fn send_part(
        &self,
        operation: &'static str,
        request: Answer<()>,
        turn: OwnedSemaphorePermit,
    ) -> JoinHandle<Result<()>> {
        let (deadline, target) = (self.deadline, self.target.clone());
        self.runtime().spawn(async move {
            let sent = within(operation, deadline, request).await;
            drop(turn);
            sent.map_err(|error| error.with("target", target))
        })
    }

    /// Runs a request in the background; the end of the service waits for it, for a while.
    pub(super) fn run_to_the_end(&self, request: impl Future<Output = ()> + Send + 'static) {
        let running = self.runtime().spawn(request);
        let mut ending = lock(&self.ending);
        ending.retain(|one| !one.is_finished());
        ending.push(running);
    }

    /// Waits for the end of an upload.
    pub(super) fn complete(&self, parts: &mut dyn Parts) -> Result<()> {
        const OPERATION: &str = "complete an object";
        self.run(OPERATION, parts.complete(OPERATION))
    }

    pub(crate) fn delete(&self, operation: &'static str, path: &Path) -> Result<()> {
        self.run(operation, self.client.delete(operation, path))
    }

    /// Up to 1000 names behind `after` that begin with a text, and whether there are more.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Result<(Vec<String>, bool)> {
        const OPERATION: &str = "list objects";
        self.run(OPERATION, self.client.list(OPERATION, prefix, after, max))
    }

    /// What follows a prefix up to the next `/`, of all names.
    pub(super) fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        const OPERATION: &str = "list namespaces";
        self.run(OPERATION, self.client.list_directories(OPERATION, prefix))
    }

    /// Removes what uploads of an earlier process have left; how many there were.
    pub(super) fn clean_up(&self) -> Result<usize> {
        const OPERATION: &str = "remove what uploads have left";
        let own = Arc::clone(&self.uploading);
        let cleaned = self.client.clean_up(OPERATION, &self.root, own);
        self.block_on(cleaned).map_err(|error| error.with("target", &self.target))
    }

    /// Removes directories of the tier that are empty.
    pub(super) fn remove_directories(&self) -> Result<()> {
        const OPERATION: &str = "remove the directories of a tier";
        self.run(OPERATION, self.client.remove_directories(OPERATION, &self.root))
    }
}

/// Chooses what TLS of the client is made of: the same as of all other connections.
pub(crate) fn choose_cryptography() {
    static CHOSEN: OnceLock<()> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        // Where a program has chosen another one, that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Nothing is left half changed by what is done under these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
