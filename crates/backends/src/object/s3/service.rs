// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a bucket, which block: the asynchronous client runs on two threads of its own, and a
//! deadline ends each request with all its retries.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{
    HttpClient, HttpConnector, HttpErrorKind, HttpRequest, HttpRequestBody, ReqwestConnector,
};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
};
use terrace_core::{Error, ErrorKind, Result};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::failure;
use super::settings::{Address, BACKOFF_MAX, BACKOFF_MIN, RETRIES_MAX, S3Settings, retry_time};

/// Threads of the client: they move bytes between sockets and memory.
const THREADS: usize = 2;

/// Requests with many bytes at a time, of all objects together: they bound the memory.
const READS_MAX: usize = 16;
const PARTS_MAX: usize = 8;

/// How long an end waits for requests that run in the background.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// Name of what an object's metadata hold for us.
const METADATA: &str = "terrace";

/// A bucket.
pub(super) struct Service {
    /// Only its drop takes it.
    runtime: Option<Runtime>,
    store: Arc<AmazonS3>,
    http: HttpClient,
    address: Address,
    pub(super) target: String,
    pub(super) root: String,
    pub(super) deadline: Duration,
    reads: Arc<Semaphore>,
    parts: Arc<Semaphore>,
    /// Names of objects that are being uploaded in parts.
    pub(super) uploading: Mutex<HashSet<String>>,
    /// Requests that run in the background.
    ending: Mutex<Vec<JoinHandle<()>>>,
}

/// What an object is like.
pub(super) struct Head {
    pub(super) size_bytes: u64,
    /// What was kept with it when it was written.
    pub(super) metadata: Option<String>,
    pub(super) modified_ns: u64,
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
    pub(super) fn open(settings: &S3Settings) -> Result<Self> {
        choose_cryptography();
        let (store, address) = settings.build()?;
        let failed = |error| Error::from_io("start the threads of a bucket", error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("terrace-s3")
            .on_thread_start(terrace_affinity::roam)
            .enable_all()
            .build()
            .map_err(failed)?;
        let http = ReqwestConnector::default()
            .connect(&settings.options())
            .map_err(|error| failure::of("open a bucket", &error))?;
        Ok(Self {
            runtime: Some(runtime),
            store: Arc::new(store),
            http,
            address,
            target: settings.target(),
            root: settings.root(),
            deadline: settings.deadline,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            parts: Arc::new(Semaphore::new(PARTS_MAX)),
            uploading: Mutex::default(),
            ending: Mutex::default(),
        })
    }

    /// The address of the bucket at its service.
    pub(super) fn bucket_url(&self) -> &str {
        &self.address.bucket_url
    }

    pub(super) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("only the drop takes it")
    }

    /// Waits for a request.
    fn run<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        self.wait(operation, request)?
            .map_err(|error| failure::of(operation, &error).with("target", &self.target))
    }

    fn wait<T>(&self, operation: &'static str, request: impl Future<Output = T>) -> Result<T> {
        let deadline = self.deadline;
        self.runtime()
            .block_on(async move { tokio::time::timeout(deadline, request).await })
            .map_err(|_| failure::late(operation, deadline).with("target", &self.target))
    }

    /// The metadata and the changed attributes of an object, asked for at once; `None` where it is
    /// missing.
    pub(super) fn look(
        &self,
        operation: &'static str,
        object: &Path,
        attributes: &Path,
    ) -> Result<Option<(Head, Option<Bytes>)>> {
        let (store, path) = (Arc::clone(&self.store), attributes.clone());
        let changed = self.runtime().spawn(async move { get(&store, &path).await });
        let (store, path) = (Arc::clone(&self.store), object.clone());
        let both = async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let head = store.get_opts(&path, options).await;
            (head, changed.await)
        };
        let (head, changed) = self.wait(operation, both)?;
        let failed = |error| failure::of(operation, &error).with("target", &self.target);
        // An answer without a body does not tell a missing object from a missing bucket; the other does.
        let changed = changed.map_err(|error| panicked(operation, &error))?;
        let changed = changed.map_err(failed)?;
        let found = match head {
            Err(error) if failure::is_missing(&error) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let modified_ns = found.meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
        let metadata = found.attributes.get(&Attribute::Metadata(METADATA.into()));
        let head = Head {
            size_bytes: found.meta.size,
            metadata: metadata.map(|text| text.as_ref().to_string()),
            modified_ns: u64::try_from(modified_ns).unwrap_or_default(),
        };
        Ok(Some((head, changed)))
    }

    /// Begins to read a range; what is returned gives its bytes, all of them or an error.
    pub(super) fn begin_range(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static {
        let reading = self.reading(path).run(range, None, failure::of);
        let reading = self.runtime().spawn(async move { reading.await.map(|(_, bytes)| bytes) });
        async move { reading.await.unwrap_or_else(|error| Err(panicked(READ, &error))) }
    }

    /// Reads a range of an object that has this tag, where one is given. Returns what the object is like, too.
    ///
    /// # Errors
    ///
    /// `Stale` where the object has another tag or is shorter, `NotFound`; what the service says.
    pub(super) fn read_tagged(
        &self,
        path: &Path,
        range: Range<u64>,
        tag: Option<String>,
    ) -> Result<(ObjectMeta, Bytes)> {
        self.block_on(self.reading(path).run(range, tag, failure::of_changed))
    }

    fn reading(&self, path: &Path) -> Reading {
        Reading {
            store: Arc::clone(&self.store),
            path: path.clone(),
            turns: Arc::clone(&self.reads),
            deadline: self.deadline,
            target: self.target.clone(),
        }
    }

    /// What an object is like; `None` where it is missing, or the bucket is: an answer without a body does not tell.
    pub(super) fn head(&self, operation: &'static str, path: &Path) -> Result<Option<ObjectMeta>> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.wait(operation, self.store.get_opts(path, options))? {
            Ok(found) => Ok(Some(found.meta)),
            Err(error) if failure::is_missing(&error) => Ok(None),
            Err(error) => Err(failure::of(operation, &error).with("target", &self.target)),
        }
    }

    /// Sends a request for which the client has no call, and returns the body of its answer.
    pub(super) fn get_signed(
        &self,
        operation: &'static str,
        parameters: &[(&str, &str)],
    ) -> Result<String> {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let url = format!("{}?{}", self.address.bucket_url, parameters.join("&"));
        self.run(operation, self.retry_signed(&url))
    }

    /// Retries as the client does for its own calls, but for the jitter.
    async fn retry_signed(&self, url: &str) -> object_store::Result<String> {
        let mut pause = BACKOFF_MIN;
        let mut left = retry_time(self.deadline);
        for _ in 0..RETRIES_MAX {
            match self.try_signed(url).await {
                Err(Attempt::MayRetry(_)) if left > pause => {}
                Ok(body) => return Ok(body),
                Err(Attempt::MayRetry(error) | Attempt::Final(error)) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            left = left.saturating_sub(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        self.try_signed(url).await.map_err(Attempt::into_error)
    }

    async fn try_signed(&self, url: &str) -> std::result::Result<String, Attempt> {
        let credential = self.store.credentials().get_credential().await.map_err(Attempt::Final)?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.parse().map_err(|error| Attempt::Final(other(error)))?;
        AwsAuthorizer::new(&credential, "s3", &self.address.region)
            .try_authorize(&mut request, None)
            .map_err(Attempt::Final)?;
        let answer = self.http.execute(request).await.map_err(|error| match error.kind() {
            // Another try would take as long.
            HttpErrorKind::Timeout => Attempt::Final(other(error)),
            _ => Attempt::MayRetry(other(error)),
        })?;
        let status = answer.status().as_u16();
        let body =
            answer.into_body().bytes().await.map_err(|error| Attempt::MayRetry(other(error)))?;
        let body = String::from_utf8_lossy(&body).into_owned();
        match status {
            200..=299 => Ok(body),
            401 | 403 => Err(Attempt::Final(object_store::Error::PermissionDenied {
                path: self.target.clone(),
                source: body.into(),
            })),
            408 | 429 | 500.. => Err(Attempt::MayRetry(other(format!("{status}: {body}")))),
            _ => Err(Attempt::Final(other(format!("{status}: {body}")))),
        }
    }

    /// A small object, and the tag by which a conditional write names what it replaces; `None` where it is
    /// missing.
    pub(super) fn get_tagged(
        &self,
        operation: &'static str,
        path: &Path,
    ) -> Result<Option<(Bytes, Option<String>)>> {
        let request = async {
            match self.store.get(path).await {
                Ok(found) => {
                    let tag = found.meta.e_tag.clone();
                    Ok(Some((found.bytes().await?, tag)))
                }
                Err(error) if failure::is_missing(&error) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.run(operation, request)
    }

    /// Makes an object of one request on a condition; `None` where the condition is not met, which it is
    /// neither behind an earlier try that was carried out. Else the tag of the object, where it has one.
    pub(super) fn put_if(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<Option<Option<String>>> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let request = self.store.put_opts(path, PutPayload::from_bytes(bytes), options);
        match self.wait(operation, request)? {
            Ok(written) => Ok(Some(written.e_tag)),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(None),
            Err(error) => Err(failure::of(operation, &error).with("target", &self.target)),
        }
    }

    /// Waits for what has a deadline of its own.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime().block_on(future)
    }

    /// Makes an object of one request. It is there when this returns, and durable.
    pub(super) fn put(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        metadata: Option<String>,
    ) -> Result<()> {
        let options = PutOptions { attributes: attributes(metadata), ..PutOptions::default() };
        self.run(operation, self.store.put_opts(path, PutPayload::from_bytes(bytes), options))
            .map(drop)
    }

    /// Begins an object of several requests.
    pub(super) fn begin_parts(
        &self,
        path: &Path,
        metadata: String,
    ) -> Result<Box<dyn MultipartUpload>> {
        lock(&self.uploading).insert(path.as_ref().into());
        let options = PutMultipartOptions {
            attributes: attributes(Some(metadata)),
            ..PutMultipartOptions::default()
        };
        self.run("begin to write an object", self.store.put_multipart_opts(path, options))
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

    /// Runs a request in the background; the end of the service waits for it, for a while.
    pub(super) fn run_to_the_end(&self, request: impl Future<Output = ()> + Send + 'static) {
        let running = self.runtime().spawn(request);
        let mut ending = lock(&self.ending);
        ending.retain(|one| !one.is_finished());
        ending.push(running);
    }

    /// Waits for the end of an upload.
    pub(super) fn complete(&self, upload: &mut dyn MultipartUpload) -> Result<()> {
        self.run("complete an object", upload.complete()).map(drop)
    }

    pub(super) fn delete(&self, operation: &'static str, path: &Path) -> Result<()> {
        match self.wait(operation, self.store.delete(path))? {
            Err(error) if failure::is_missing(&error) => Ok(()),
            other => {
                other.map_err(|error| failure::of(operation, &error).with("target", &self.target))
            }
        }
    }

    /// Up to 1000 names behind `after` that begin with a text, in order, and whether there are more.
    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Result<(Vec<String>, bool)> {
        let options = PaginatedListOptions {
            offset: after,
            max_keys: Some(max),
            ..PaginatedListOptions::default()
        };
        let page = self.run("list objects", self.store.list_paginated(Some(prefix), options))?;
        let names = page.result.objects.into_iter().map(|one| one.location.to_string()).collect();
        Ok((names, page.page_token.is_some()))
    }

    /// What follows a prefix up to the next `/`, of all names.
    pub(super) fn list_parts_of_names(&self, prefix: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page =
                self.run("list namespaces", self.store.list_paginated(Some(prefix), options))?;
            let parts = page.result.common_prefixes.into_iter();
            found.extend(parts.map(|one| one.filename().unwrap_or_default().to_string()));
            page_token = page.page_token;
            if page_token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Aborts uploads in parts that an earlier process has left; how many.
    pub(super) fn abort_left_uploads(&self) -> Result<usize> {
        const OPERATION: &str = "abort uploads that were left";
        let mut aborted = 0;
        for (name, upload) in self.left_uploads(OPERATION)? {
            let is_own = lock(&self.uploading).contains(&name);
            let Ok(path) = Path::parse(&name) else { continue };
            if is_own {
                continue;
            }
            self.run(OPERATION, self.store.abort_multipart(&path, &upload))?;
            aborted += 1;
        }
        Ok(aborted)
    }

    /// Names and ids of uploads below the root that were begun and not completed.
    fn left_uploads(&self, operation: &'static str) -> Result<Vec<(String, String)>> {
        let prefix = format!("{}o/", self.root);
        let body = self.get_signed(operation, &[("prefix", &prefix), ("uploads", "")])?;
        let inside = |text: &str, name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_string())
        };
        let uploads = body.split("<Upload>").skip(1);
        Ok(uploads
            .filter_map(|one| Some((inside(one, "Key")?, inside(one, "UploadId")?)))
            .collect())
    }
}

const READ: &str = "read an object";

/// A read of a range, in its turn.
struct Reading {
    store: Arc<AmazonS3>,
    path: Path,
    turns: Arc<Semaphore>,
    deadline: Duration,
    target: String,
}

impl Reading {
    /// Returns all bytes of the range or an error.
    async fn run(
        self,
        range: Range<u64>,
        tag: Option<String>,
        explain: fn(&'static str, &object_store::Error) -> Error,
    ) -> Result<(ObjectMeta, Bytes)> {
        let Self { store, path, turns, deadline, target } = self;
        let options =
            GetOptions { if_match: tag, ..GetOptions::new().with_range(Some(range.clone())) };
        // Behind the turn the deadline of the request begins.
        let read = async {
            let found = store.get_opts(&path, options).await?;
            let meta = found.meta.clone();
            Ok::<_, object_store::Error>((meta, found.bytes().await?))
        };
        let _turn = turns.acquire_owned().await;
        let (meta, bytes) = match tokio::time::timeout(deadline, read).await {
            Ok(read) => read.map_err(|error| explain(READ, &error).with("target", &target))?,
            Err(_) => return Err(failure::late(READ, deadline).with("target", &target)),
        };
        if bytes.len() as u64 != range.end - range.start {
            return Err(Error::new(ErrorKind::Io, READ)
                .because("the service returned another number of bytes than was asked for")
                .with("want_bytes", range.end - range.start)
                .with("got_bytes", bytes.len())
                .with("target", &target));
        }
        Ok((meta, bytes))
    }
}

/// Why a try of a request failed.
enum Attempt {
    MayRetry(object_store::Error),
    Final(object_store::Error),
}

impl Attempt {
    fn into_error(self) -> object_store::Error {
        match self {
            Self::MayRetry(error) | Self::Final(error) => error,
        }
    }
}

/// Encodes the value of a parameter.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

async fn get(store: &AmazonS3, path: &Path) -> object_store::Result<Option<Bytes>> {
    match store.get(path).await {
        Ok(found) => found.bytes().await.map(Some),
        Err(error) if failure::is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn attributes(metadata: Option<String>) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(text) = metadata {
        attributes.insert(Attribute::Metadata(METADATA.into()), AttributeValue::from(text));
    }
    attributes
}

fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: source.into() }
}

pub(super) fn panicked(operation: &'static str, error: &tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Io, operation).because(format!("the thread that does it failed: {error}"))
}

/// Chooses what TLS of the client is made of: the same as of all other connections.
fn choose_cryptography() {
    static CHOSEN: OnceLock<()> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        // Where a program has chosen another one, that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Nothing is left half changed by what is done under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
