// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a server, by requests that are repeated until the deadline. An object is written under a name of
//! its own and then renamed, so that it appears whole; what is replaced consists of two files ([`super::slot`]).

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use opendal::services::Webdav;
use opendal::{HttpTransporter, Metadata, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use reqwest::redirect;
use ring::rand::{SecureRandom, SystemRandom};
use terrace_core::{Error, ErrorKind, Result};

use super::failure;
use super::late::Late;
use super::layout::{
    UPLOADS, attributes_of, file_of, is_replaced, is_upload, name_of, object_of, path_of,
};
use super::settings::{OpendalService, OpendalSettings};
use super::slot::{Pair, Slot};
use crate::object::file::superblock;
use crate::object::service::client::Tagged;
use crate::object::service::failure::{panicked, within};
use crate::object::service::names::{ATTRIBUTES, OBJECTS, SUPERBLOCK};
use crate::object::service::requests::lock;

/// Longest object.
pub(super) const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Retries of one request; the deadline ends them sooner.
const RETRIES_MAX: u32 = 10;

/// Bounds of the pause between two of them, which grows and is jittered.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Longest wait for a connection at a time.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// A directory of a server.
pub(super) struct Server {
    pub(super) operator: Operator,
    /// The directory of the tier: ends with `/`.
    base: String,
    /// Longest that a request takes, with all its retries.
    deadline: Duration,
    /// Pauses between retries last no longer together.
    pauses_max: Duration,
    /// What names of uploads of this client begin with.
    own: String,
    next_upload: AtomicU64,
    /// Names in [`UPLOADS`] that are being written.
    uploads: Mutex<HashSet<String>>,
    /// Directories that are there, below that of the tier.
    directories: Mutex<HashSet<String>>,
    /// Names of objects whose attributes are written, and they not yet.
    beginning: Mutex<HashSet<String>>,
    /// Files of what is replaced that the server may still write, long after the try ended here.
    late: Mutex<Late>,
}

/// Directories and files in a directory, each in order.
pub(super) struct Listed {
    /// Names, and whether they are those of directories.
    pub(super) entries: Vec<(String, bool)>,
}

impl Server {
    pub(super) fn open(settings: &OpendalSettings) -> Result<Self> {
        const OPERATION: &str = "open a service";
        let wrong = |error: &opendal::Error| {
            Error::invalid(OPERATION, error.message().to_string()).with("target", settings.target())
        };
        let base = settings.base()?;
        let operator = match settings.service {
            OpendalService::Webdav => {
                let endpoint = settings.endpoint.as_deref().unwrap_or_default();
                // Directories are made here, once each.
                let mut builder = Webdav::default()
                    .endpoint(endpoint.trim_end_matches('/'))
                    .disable_create_dir(true);
                let credentials = settings.credentials()?;
                if let Some((user, password)) = &credentials.user {
                    builder = builder.username(user).password(password);
                }
                if let Some(token) = &credentials.token {
                    builder = builder.token(token);
                }
                let operator = Operator::new(builder).map_err(|error| wrong(&error))?;
                // A redirected write would become a read.
                let http = reqwest::Client::builder()
                    .connect_timeout(CONNECT_TIME_MAX.min(settings.deadline))
                    .redirect(redirect::Policy::none())
                    .build()
                    .map_err(|error| Error::invalid(OPERATION, error.to_string()))?;
                let transport = HttpTransporter::new(ReqwestTransport::new(http));
                let context = operator.base_context().with_http_transport(transport);
                operator.with_context(context)
            }
        };
        let mut own = [0; 8];
        SystemRandom::new().fill(&mut own).map_err(|_| {
            Error::new(ErrorKind::Io, OPERATION).because("the system gives no random numbers")
        })?;
        Ok(Self {
            operator,
            base,
            // The last try has time left, and its error says more than that the time is over.
            pauses_max: settings.deadline * 7 / 10,
            deadline: settings.deadline,
            own: format!("{:016x}", u64::from_le_bytes(own)),
            next_upload: AtomicU64::new(0),
            uploads: Mutex::default(),
            directories: Mutex::default(),
            beginning: Mutex::default(),
            late: Mutex::default(),
        })
    }

    pub(super) fn full(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Makes a request again while it fails as one that may succeed in a moment.
    pub(super) async fn repeated<T, F>(&self, request: impl Fn() -> F) -> opendal::Result<T>
    where
        F: Future<Output = opendal::Result<T>>,
    {
        let (mut pause, mut paused) = (BACKOFF_MIN, Duration::ZERO);
        for _ in 0..RETRIES_MAX {
            match request().await {
                Err(error) if failure::is_temporary(&error) && paused + pause < self.pauses_max => {
                    let jittered = pause.mul_f64(0.5 + self.chance() / 2.0);
                    tokio::time::sleep(jittered).await;
                    paused += jittered;
                    pause = (pause * 2).min(BACKOFF_MAX);
                }
                done => return done,
            }
        }
        request().await
    }

    /// A number from 0 to 1, another one for each call.
    fn chance(&self) -> f64 {
        let mut bytes = [0; 4];
        // Without random numbers the pauses are shorter.
        let _ = SystemRandom::new().fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
    }

    /// What a file or directory is like; `None` where there is none.
    pub(super) async fn stat(&self, path: &str) -> opendal::Result<Option<Metadata>> {
        let full = self.full(path);
        match self.repeated(|| self.operator.stat(&full)).await {
            Err(error) if error.kind() == opendal::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// The directory of the tier must be there: else everything in it would be missing.
    pub(super) async fn check_base(&self, operation: &'static str) -> Result<()> {
        let found = self.stat("").await.map_err(|error| failure::of(operation, &error))?;
        if found.is_some_and(|found| found.is_dir()) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, operation).because(
            "the server has no directory `root` there: make it, or check `endpoint` and `root`",
        ))
    }

    /// A file; `None` where there is none.
    async fn read(&self, operation: &'static str, path: &str) -> Result<Option<Bytes>> {
        let full = self.full(path);
        match self.repeated(|| self.operator.read(&full)).await {
            Ok(bytes) => Ok(Some(bytes.to_bytes())),
            Err(error) if error.kind() == opendal::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure::of(operation, &error)),
        }
    }

    /// Both files of what is replaced. A first superblock that was written in part counts as missing, as long as
    /// there is no object: no store has begun to use the directory.
    pub(super) async fn pair(
        self: &Arc<Self>,
        operation: &'static str,
        name: &str,
    ) -> Result<Pair> {
        let (second, server) = (file_of(name, 1), Arc::clone(self));
        let second = tokio::spawn(async move { server.read(operation, &second).await });
        let first = self.read(operation, &path_of(name)).await;
        let second = second.await.map_err(|error| panicked(operation, &error))?;
        let pair = Pair([first?, second?]);
        let is_torn = name == SUPERBLOCK && pair.is_first_torn(superblock::TITLE.as_bytes());
        if is_torn && self.has_no_objects(operation).await? {
            return Ok(Pair::default());
        }
        Ok(pair)
    }

    async fn has_no_objects(&self, operation: &'static str) -> Result<bool> {
        for directory in [OBJECTS, ATTRIBUTES] {
            if self.walk(operation, directory, None, |_| true).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is replaced, or another small object.
    pub(super) async fn get(
        self: &Arc<Self>,
        operation: &'static str,
        name: &str,
    ) -> Result<Option<Tagged>> {
        let found = match is_replaced(name) {
            true => {
                let pair = self.pair(operation, name).await?;
                let tag = pair.current().map(|(_, slot)| slot.tag());
                pair.content().map(|content| (content, tag))
            }
            false => self.read(operation, &path_of(name)).await?.map(|bytes| (bytes, None)),
        };
        if found.is_none() {
            self.check_base(operation).await?;
        }
        Ok(found)
    }

    /// Makes the directory of a file.
    async fn ensure_directory(&self, operation: &'static str, path: &str) -> Result<()> {
        let Some((directory, _)) = path.rsplit_once('/') else {
            return self.check_base(operation).await;
        };
        if lock(&self.directories).contains(directory) {
            return Ok(());
        }
        self.check_base(operation).await?;
        let full = self.full(&format!("{directory}/"));
        let made = self.repeated(|| self.operator.create_dir(&full)).await;
        made.map_err(|error| failure::of(operation, &error))?;
        lock(&self.directories).insert(directory.into());
        Ok(())
    }

    /// Writes a file, under a path for each try, all in the directory of `place`; it may be there in part until
    /// this returns.
    async fn write(
        &self,
        operation: &'static str,
        place: &str,
        path: impl Fn() -> String,
        bytes: Bytes,
    ) -> Result<()> {
        let mut is_again = false;
        loop {
            self.ensure_directory(operation, place).await?;
            let write = || async { self.operator.write(&self.full(&path()), bytes.clone()).await };
            match self.repeated(write).await {
                Ok(_) => return Ok(()),
                Err(error) if !is_again && failure::is_without_directory(&error) => {
                    // Another client has removed it.
                    lock(&self.directories).clear();
                    is_again = true;
                }
                Err(error) => return Err(failure::of(operation, &error)),
            }
        }
    }

    /// Replaces a small object; what counts then.
    pub(super) async fn replace(
        &self,
        operation: &'static str,
        name: &str,
        (at, slot): (usize, Slot),
    ) -> Result<Slot> {
        let is_late = lock(&self.late).contains(&file_of(name, at));
        self.write_slot(operation, name, at, &slot).await?;
        if !is_late {
            return Ok(slot);
        }
        // The server may carry out an earlier write of this file at any time: then the other one is to count, and
        // its number the highest.
        let again = Slot { number: slot.number + 1, ..slot };
        self.write_slot(operation, name, 1 - at, &again).await?;
        Ok(again)
    }

    /// Writes a file of what is replaced. It is late unless the first try is acknowledged: the server may carry out
    /// a try that has no answer after later ones.
    async fn write_slot(
        &self,
        operation: &'static str,
        name: &str,
        at: usize,
        slot: &Slot,
    ) -> Result<()> {
        let file = file_of(name, at);
        // First, as the deadline drops what is below.
        let was_late = lock(&self.late).insert(&file);
        let tries = AtomicU32::new(0);
        let path = || {
            tries.fetch_add(1, Ordering::Relaxed);
            file.clone()
        };
        self.write(operation, &file, path, slot.encode()).await?;
        if !was_late && tries.load(Ordering::Relaxed) == 1 {
            lock(&self.late).remove(&file);
        }
        Ok(())
    }

    /// Forgets what is late of an object: no other write of its attributes follows.
    pub(super) fn forget_late(&self, name: &str) {
        let mut late = lock(&self.late);
        [0, 1].iter().for_each(|at| late.remove(&file_of(name, *at)));
    }

    /// Makes an object that appears whole.
    pub(super) async fn create(
        self: &Arc<Self>,
        operation: &'static str,
        name: &str,
        bytes: Bytes,
    ) -> Result<()> {
        let size_bytes = bytes.len() as u64;
        // Each try has a name of its own: one whose answer was lost may still go on at the server.
        let tries = Mutex::new(Vec::new());
        let next = || {
            let upload = Uploaded::new(self);
            let path = upload.path();
            lock(&tries).push(upload);
            path
        };
        let made = async {
            self.write(operation, UPLOADS, next, bytes).await?;
            let (last, count) = {
                let tries = lock(&tries);
                (tries.last().map(Uploaded::path).unwrap_or_default(), tries.len())
            };
            self.rename(operation, &last, &path_of(name), size_bytes, count > 1).await
        };
        let made = made.await;
        let mut tries = std::mem::take(&mut *lock(&tries));
        if made.is_ok() {
            tries.pop();
        }
        for upload in &tries {
            // Where this fails, the next listing from the start finds it.
            let _ = self.operator.delete(&self.full(&upload.path())).await;
        }
        made
    }

    async fn rename(
        &self,
        operation: &'static str,
        upload: &str,
        path: &str,
        size_bytes: u64,
        was_repeated: bool,
    ) -> Result<()> {
        self.ensure_directory(operation, path).await?;
        let (from, to) = (self.full(upload), self.full(path));
        let tries = AtomicU32::new(0);
        let rename = || {
            tries.fetch_add(1, Ordering::Relaxed);
            self.operator.rename(&from, &to)
        };
        match self.repeated(rename).await {
            Ok(_) if !was_repeated && tries.load(Ordering::Relaxed) == 1 => Ok(()),
            Ok(_) => {
                let found =
                    self.stat(path).await.map_err(|error| failure::of(operation, &error))?;
                match found.is_some_and(|found| found.content_length() == size_bytes) {
                    true => Ok(()),
                    false => Err(Error::new(ErrorKind::Io, operation)
                        .because("the object has another length than what was written")),
                }
            }
            // The answer to an earlier try may be lost: then it is there already.
            Err(error) if failure::is_without_directory(&error) => {
                let found = self.stat(path).await.ok().flatten();
                if found.is_none_or(|found| found.content_length() != size_bytes) {
                    lock(&self.directories).clear();
                    return Err(Error::new(ErrorKind::Io, operation)
                        .because("the object was written, and cannot be renamed")
                        .caused_by(failure::of(operation, &error)));
                }
                Ok(())
            }
            Err(error) => Err(failure::of(operation, &error)),
        }
    }

    /// Deletes a file; one that is missing is no error.
    pub(super) async fn delete(&self, operation: &'static str, path: &str) -> Result<()> {
        let full = self.full(path);
        match self.repeated(|| self.operator.delete(&full)).await {
            Err(error) if error.kind() != opendal::ErrorKind::NotFound => {
                Err(failure::of(operation, &error))
            }
            _ => Ok(()),
        }
    }

    /// What is in a directory that ends with `/`, or in that of the tier, within a deadline of its own: a walk asks
    /// for many.
    pub(super) async fn entries(&self, operation: &'static str, directory: &str) -> Result<Listed> {
        within(operation, self.deadline, self.listing(operation, directory)).await
    }

    async fn listing(&self, operation: &'static str, directory: &str) -> Result<Listed> {
        let full = self.full(directory);
        let listed = match self.repeated(|| self.operator.list(&full)).await {
            Ok(listed) => listed,
            Err(error) if error.kind() == opendal::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failure::of(operation, &error)),
        };
        let mut entries = Vec::new();
        for entry in listed {
            let (path, metadata) = entry.into_parts();
            let inside = path.strip_prefix(&full).map(|name| name.trim_end_matches('/'));
            match inside {
                // The directory itself.
                Some("") => {}
                Some(name) if !name.contains('/') => {
                    entries.push((name.to_string(), metadata.is_dir()));
                }
                // Left out, it would be an object that is missing.
                _ => {
                    return Err(Error::new(ErrorKind::Io, operation)
                        .because(
                            "the server lists names that are not in the directory; `endpoint` must be \
                             its own address, with the path that it gives",
                        )
                        .with("directory", full)
                        .with("name", path));
                }
            }
        }
        entries.sort();
        if entries.is_empty() {
            self.check_base(operation).await?;
        }
        Ok(Listed { entries })
    }

    /// Paths of files below a directory behind one of them, in order, until `is_enough` says so; whether it
    /// did.
    async fn walk(
        &self,
        operation: &'static str,
        directory: &str,
        after: Option<&str>,
        mut is_enough: impl FnMut(String) -> bool + Send,
    ) -> Result<bool> {
        let mut levels = vec![(directory.to_string(), self.entries(operation, directory).await?)];
        levels[0].1.entries.reverse();
        while let Some((directory, listed)) = levels.last_mut() {
            let Some((name, is_directory)) = listed.entries.pop() else {
                levels.pop();
                continue;
            };
            let path = format!("{directory}{name}");
            let is_of_uploads = is_directory && path == UPLOADS.trim_end_matches('/');
            if is_of_uploads {
                continue;
            }
            if let Some(after) = after {
                let before = |path: &str| path.split('/').lt(after.split('/'));
                let is_around = is_directory && after.starts_with(&format!("{path}/"));
                if path == after || before(&path) && !is_around {
                    continue;
                }
            }
            if is_directory {
                let inside = format!("{path}/");
                let mut listed = self.entries(operation, &inside).await?;
                listed.entries.reverse();
                levels.push((inside, listed));
            } else if is_enough(path) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn list(
        &self,
        operation: &'static str,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Result<(Vec<String>, bool)> {
        let directory = prefix.rsplit_once('/').map_or("", |(above, _)| above);
        let directory = match directory {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        let after = after.as_deref().map(path_of);
        let mut names = Vec::new();
        let is_enough = |path: String| {
            // What has another form is foreign, but in the way of a new tier.
            let name = if prefix.is_empty() { Some(path) } else { name_of(&path) };
            names.extend(name.filter(|name| name.starts_with(prefix)));
            names.len() >= max
        };
        let has_more = self.walk(operation, &directory, after.as_deref(), is_enough).await?;
        Ok((names, has_more))
    }

    /// Removes what uploads have left: files that were not renamed, and attributes of objects that never
    /// came.
    pub(super) async fn clean_up(&self, operation: &'static str) -> Result<usize> {
        let mut removed = 0;
        for (name, is_directory) in self.entries(operation, UPLOADS).await?.entries {
            // Those of this process that a deadline ended are left, too.
            let is_left = is_upload(&name) && !lock(&self.uploads).contains(&name);
            if !is_directory && is_left {
                let path = format!("{UPLOADS}{name}");
                within(operation, self.deadline, self.delete(operation, &path)).await?;
                removed += 1;
            }
        }
        let files = self.files(operation, ATTRIBUTES).await?;
        let objects: HashSet<_> = self.files(operation, OBJECTS).await?.into_iter().collect();
        for name in files.iter().filter_map(|path| name_of(path)) {
            let Some(object) = object_of(&name) else { continue };
            let path = path_of(&object);
            if objects.contains(&path) || lock(&self.beginning).contains(&object) {
                continue;
            }
            // It may have come since.
            let looked =
                async { self.stat(&path).await.map_err(|error| failure::of(operation, &error)) };
            if within(operation, self.deadline, looked).await?.is_none() {
                let path = path_of(&name);
                within(operation, self.deadline, self.delete(operation, &path)).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Paths of all files below a directory.
    async fn files(&self, operation: &'static str, directory: &str) -> Result<Vec<String>> {
        let mut files = Vec::new();
        let take = |path| {
            files.push(path);
            false
        };
        self.walk(operation, directory, None, take).await?;
        Ok(files)
    }

    pub(super) async fn remove_directories(&self, operation: &'static str) -> Result<()> {
        for (name, is_directory) in self.entries(operation, UPLOADS).await?.entries {
            if !is_directory && is_upload(&name) {
                self.delete(operation, &format!("{UPLOADS}{name}")).await?;
            }
        }
        let mut found: Vec<_> = [OBJECTS, ATTRIBUTES, UPLOADS].map(String::from).into();
        let mut at = 0;
        let mut kept = HashSet::new();
        while let Some(directory) = found.get(at).cloned() {
            at += 1;
            for (name, is_directory) in self.entries(operation, &directory).await?.entries {
                match is_directory {
                    true => found.push(format!("{directory}{name}/")),
                    // Foreign: the directories above stay.
                    false => {
                        let ends = directory.match_indices('/').map(|(end, _)| end + 1);
                        kept.extend(ends.map(|end| directory[..end].to_string()));
                    }
                }
            }
        }
        lock(&self.directories).clear();
        for directory in found.iter().rev().filter(|directory| !kept.contains(*directory)) {
            self.delete(operation, directory).await?;
        }
        Ok(())
    }
}
/// Notes an object whose attributes come before it.
pub(super) struct Beginning {
    server: Arc<Server>,
    name: String,
    pub(super) is_made: bool,
}

impl Beginning {
    pub(super) fn new(server: &Arc<Server>, name: &str) -> Self {
        lock(&server.beginning).insert(name.into());
        Self { server: Arc::clone(server), name: name.into(), is_made: false }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        lock(&self.server.beginning).remove(&self.name);
        // An object that was not made is not made again under this name.
        if let Some(attributes) = attributes_of(&self.name).filter(|_| !self.is_made) {
            self.server.forget_late(&attributes);
        }
    }
}

/// Notes a file in [`UPLOADS`] as long as it is being written.
struct Uploaded {
    server: Arc<Server>,
    name: String,
}

impl Uploaded {
    fn new(server: &Arc<Server>) -> Self {
        let number = server.next_upload.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", server.own);
        lock(&server.uploads).insert(name.clone());
        Self { server: Arc::clone(server), name }
    }

    fn path(&self) -> String {
        format!("{UPLOADS}{}", self.name)
    }
}

impl Drop for Uploaded {
    fn drop(&mut self) {
        lock(&self.server.uploads).remove(&self.name);
    }
}
