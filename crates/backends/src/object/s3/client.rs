// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a bucket.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, UpdateVersion,
};
use terrace_core::{Persistency, Result};

use super::failure;
use super::page::unescaped;
use super::settings::S3Settings;
use super::signed::Signed;
use crate::object::service::Settings;
use crate::object::service::client::{
    Answer, Client, Condition, Head, Limits, Parts, Tagged, Uploading,
};
use crate::object::service::failure::within;
use crate::object::service::record::Record;
use crate::object::service::requests::{Place, Service, lock};

/// Up to this size an object is one request.
const SINGLE_BYTES_MAX: usize = 16 << 20;

/// Largest object that S3 takes.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Name of what an object's metadata hold for us.
const METADATA: &str = "terrace";

impl Settings for S3Settings {
    fn open(&self) -> Result<Service> {
        Service::open(self.place(), || Ok(Box::new(S3Client::open(self)?)))
    }
}

impl S3Settings {
    /// Where the service is.
    pub(super) fn place(&self) -> Place {
        Place { target: self.target(), root: self.root(), deadline: self.deadline }
    }
}

/// A bucket.
#[derive(Clone)]
pub(super) struct S3Client {
    store: Arc<AmazonS3>,
    pub(super) signed: Signed,
    /// Longest that a request takes, with all its retries.
    deadline: Duration,
}

impl S3Client {
    pub(super) fn open(settings: &S3Settings) -> Result<Self> {
        let (store, address) = settings.build()?;
        let store = Arc::new(store);
        let signed = Signed::open(settings, &store, address)?;
        Ok(Self { store, signed, deadline: settings.deadline })
    }

    /// What an object is like; `None` where it is missing, or the bucket is: an answer without a body does not tell.
    pub(super) fn meta(&self, operation: &'static str, path: &Path) -> Answer<Option<ObjectMeta>> {
        let (store, path) = (Arc::clone(&self.store), path.clone());
        Box::pin(async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let found = found(store.get_opts(&path, options).await);
            let found = found.map_err(|error| failure::of_one(operation, &error))?;
            Ok(found.map(|found| found.meta))
        })
    }

    /// A range of an object that has this tag, where one is given, and what the object is like; its caller checks
    /// the length. Another tag is `Stale`, and so is an object that is shorter.
    pub(super) fn get_range_of(
        &self,
        operation: &'static str,
        path: &Path,
        range: Range<u64>,
        tag: Option<String>,
    ) -> Answer<(Bytes, ObjectMeta)> {
        let (store, path) = (Arc::clone(&self.store), path.clone());
        Box::pin(async move {
            let options = GetOptions { if_match: tag, ..GetOptions::new().with_range(Some(range)) };
            let read = async {
                let found = store.get_opts(&path, options).await?;
                let meta = found.meta.clone();
                Ok((found.bytes().await?, meta))
            };
            read.await.map_err(|error| failure::of_changed(operation, &error))
        })
    }

    /// A request of the crate.
    fn ask<T, F>(
        &self,
        operation: &'static str,
        request: impl FnOnce(Arc<AmazonS3>) -> F + Send + 'static,
    ) -> Answer<T>
    where
        T: 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        Box::pin(
            async move { request(store).await.map_err(|error| failure::of(operation, &error)) },
        )
    }
}

/// What was found; `None` where the object is missing, and not its bucket.
fn found<T>(answer: object_store::Result<T>) -> object_store::Result<Option<T>> {
    match answer {
        Err(error) if failure::is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

impl Client for S3Client {
    fn limits(&self) -> Limits {
        Limits {
            persistency: Persistency::Shared,
            single_bytes_max: SINGLE_BYTES_MAX,
            object_bytes_max: OBJECT_BYTES_MAX,
            has_catalog: true,
        }
    }

    fn head(&self, operation: &'static str, path: &Path) -> Answer<Option<Head>> {
        let path = path.clone();
        self.ask(operation, |store| async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let Some(found) = found(store.get_opts(&path, options).await)? else { return Ok(None) };
            let modified_ns = found.meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
            let metadata = found.attributes.get(&Attribute::Metadata(METADATA.into()));
            Ok(Some(Head {
                size_bytes: found.meta.size,
                record: metadata.map(|text| text.as_ref().to_string()),
                modified_ns: u64::try_from(modified_ns).unwrap_or_default(),
            }))
        })
    }

    fn get(&self, operation: &'static str, path: &Path) -> Answer<Option<Tagged>> {
        let path = path.clone();
        self.ask(operation, |store| async move {
            let Some(found) = found(store.get(&path).await)? else { return Ok(None) };
            let tag = found.meta.e_tag.clone();
            Ok(Some((found.bytes().await?, tag)))
        })
    }

    fn get_range(&self, operation: &'static str, path: &Path, range: Range<u64>) -> Answer<Bytes> {
        let path = path.clone();
        self.ask(operation, |store| async move { store.get_range(&path, range).await })
    }

    fn put(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        record: Option<&Record>,
    ) -> Answer<()> {
        let (path, attributes) = (path.clone(), attributes(record));
        self.ask(operation, |store| async move {
            let options = PutOptions { attributes, ..PutOptions::default() };
            store.put_opts(&path, PutPayload::from_bytes(bytes), options).await.map(drop)
        })
    }

    fn put_if(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        condition: Condition,
    ) -> Answer<Option<Option<String>>> {
        let path = path.clone();
        let mode = match condition {
            Condition::Missing => PutMode::Create,
            Condition::Tag(Some(tag)) => {
                PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None })
            }
            // A service may give none.
            Condition::Tag(None) | Condition::Any => PutMode::Overwrite,
        };
        self.ask(operation, |store| async move {
            let options = PutOptions { mode, ..PutOptions::default() };
            match store.put_opts(&path, PutPayload::from_bytes(bytes), options).await {
                Ok(written) => Ok(Some(written.e_tag)),
                Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. },
                ) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn begin_parts(
        &self,
        operation: &'static str,
        path: &Path,
        record: &Record,
    ) -> Answer<Box<dyn Parts>> {
        let (path, attributes) = (path.clone(), attributes(Some(record)));
        self.ask(operation, |store| async move {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            let upload = store.put_multipart_opts(&path, options).await?;
            Ok(Box::new(S3Parts(upload)) as Box<dyn Parts>)
        })
    }

    fn delete(&self, operation: &'static str, path: &Path) -> Answer<()> {
        let path = path.clone();
        self.ask(operation, |store| async move { found(store.delete(&path).await).map(|_| ()) })
    }

    fn list(
        &self,
        operation: &'static str,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Answer<(Vec<String>, bool)> {
        let prefix = prefix.to_string();
        self.ask(operation, move |store| async move {
            let options = PaginatedListOptions {
                offset: after,
                max_keys: Some(max),
                ..PaginatedListOptions::default()
            };
            let page = store.list_paginated(Some(&prefix), options).await?;
            let names = page.result.objects.into_iter().map(|one| one.location.to_string());
            Ok((names.collect(), page.page_token.is_some()))
        })
    }

    fn list_directories(&self, operation: &'static str, prefix: &str) -> Answer<Vec<String>> {
        let prefix = prefix.to_string();
        self.ask(operation, |store| async move {
            let mut found = Vec::new();
            let mut page_token = None;
            loop {
                let options = PaginatedListOptions {
                    delimiter: Some("/".into()),
                    page_token,
                    ..PaginatedListOptions::default()
                };
                let page = store.list_paginated(Some(&prefix), options).await?;
                let parts = page.result.common_prefixes.into_iter();
                found.extend(parts.map(|one| one.filename().unwrap_or_default().to_string()));
                page_token = page.page_token;
                if page_token.is_none() {
                    return Ok(found);
                }
            }
        })
    }

    fn clean_up(&self, operation: &'static str, root: &str, own: Uploading) -> Answer<usize> {
        let (client, root, deadline) = (self.clone(), root.to_string(), self.deadline);
        Box::pin(async move {
            let listed = async {
                let left = left_uploads(&client.signed, &root).await;
                left.map_err(|error| failure::of(operation, &error))
            };
            let mut aborted = 0;
            for (name, upload) in within(operation, deadline, listed).await? {
                let Ok(path) = Path::parse(&name) else { continue };
                // Behind the listing: one that began in between is noted by now.
                let is_own = lock(&own).contains(&name);
                if is_own {
                    continue;
                }
                let abort = client.ask(operation, |store| async move {
                    // One that is missing was completed or aborted since the listing.
                    found(store.abort_multipart(&path, &upload).await)
                });
                aborted += usize::from(within(operation, deadline, abort).await?.is_some());
            }
            Ok(aborted)
        })
    }

    fn remove_directories(&self, _: &'static str, _: &str) -> Answer<()> {
        // A bucket has none.
        Box::pin(async { Ok(()) })
    }
}

/// An upload in parts.
struct S3Parts(Box<dyn MultipartUpload>);

impl Parts for S3Parts {
    fn put(&mut self, operation: &'static str, bytes: Bytes) -> Answer<()> {
        let part = self.0.put_part(PutPayload::from_bytes(bytes));
        Box::pin(async move { part.await.map_err(|error| failure::of(operation, &error)) })
    }

    fn complete(
        &mut self,
        operation: &'static str,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let completed = self.0.complete().await;
            completed.map(drop).map_err(|error| failure::of(operation, &error))
        })
    }

    fn abort(&mut self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move { self.0.abort().await.is_ok() })
    }
}

/// Names and ids of uploads below the root that were begun and not completed.
async fn left_uploads(signed: &Signed, root: &str) -> object_store::Result<Vec<(String, String)>> {
    let prefix = format!("{root}o/");
    let body = signed.get(&[("prefix", &prefix), ("uploads", "")]).await?;
    let inside = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_string())
    };
    let uploads = body.split("<Upload>").skip(1);
    let of = |one| Some((unescaped(&inside(one, "Key")?)?, unescaped(&inside(one, "UploadId")?)?));
    Ok(uploads.filter_map(of).collect())
}

fn attributes(record: Option<&Record>) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(record) = record {
        let text = AttributeValue::from(record.to_text());
        attributes.insert(Attribute::Metadata(METADATA.into()), text);
    }
    attributes
}
