// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requests of a tier, carried out by a server.

use std::ops::Range;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use object_store::path::Path;
use opendal::Metadata;
use terrace_core::{Error, ErrorKind, Persistency, Result};

use super::failure;
use super::layout::{attributes_of, file_of, is_replaced, path_of};
use super::server::{Beginning, OBJECT_BYTES_MAX, Server};
use super::settings::OpendalSettings;
use crate::object::service::Settings;
use crate::object::service::client::{
    Answer, Client, Condition, Head, Limits, Parts, Tagged, Uploading,
};
use crate::object::service::names::ATTRIBUTES;
use crate::object::service::record::Record;
use crate::object::service::requests::{Place, Service};

impl Settings for OpendalSettings {
    fn open(&self) -> Result<Service> {
        // Names of the tier begin in its directory.
        let place = Place { target: self.target(), root: String::new(), deadline: self.deadline };
        Service::open(place, || Ok(Box::new(OpendalClient(Arc::new(Server::open(self)?)))))
    }
}

struct OpendalClient(Arc<Server>);

impl Client for OpendalClient {
    fn limits(&self) -> Limits {
        Limits {
            // A server survives the machine. But the level `shared` is the promise that another machine can take
            // the tier over, for which the superblock needs a conditional write.
            persistency: Persistency::Storage,
            single_bytes_max: OBJECT_BYTES_MAX as usize,
            object_bytes_max: OBJECT_BYTES_MAX,
            has_catalog: false,
        }
    }

    fn head(&self, operation: &'static str, path: &Path) -> Answer<Option<Head>> {
        let (server, path) = (Arc::clone(&self.0), path_of(path.as_ref()));
        Box::pin(async move {
            let found = server.stat(&path).await.map_err(|error| failure::of(operation, &error))?;
            let Some(found) = found.filter(Metadata::is_file) else {
                server.check_base(operation).await?;
                return Ok(None);
            };
            let modified = found.last_modified().map(std::time::SystemTime::from);
            let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
            let modified_ns = since.map_or(0, |since| since.as_nanos());
            Ok(Some(Head {
                size_bytes: found.content_length(),
                record: None,
                modified_ns: u64::try_from(modified_ns).unwrap_or_default(),
            }))
        })
    }

    fn get(&self, operation: &'static str, path: &Path) -> Answer<Option<Tagged>> {
        let (server, name) = (Arc::clone(&self.0), path.to_string());
        Box::pin(async move { server.get(operation, &name).await })
    }

    fn get_range(&self, operation: &'static str, path: &Path, range: Range<u64>) -> Answer<Bytes> {
        let (server, path) = (Arc::clone(&self.0), path_of(path.as_ref()));
        Box::pin(async move {
            let full = server.full(&path);
            let read = || async { server.operator.read_with(&full).range(range.clone()).await };
            match server.repeated(read).await {
                Ok(bytes) => Ok(bytes.to_bytes()),
                Err(error) => {
                    if error.kind() == opendal::ErrorKind::NotFound {
                        server.check_base(operation).await?;
                    }
                    Err(failure::of(operation, &error))
                }
            }
        })
    }

    fn put(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        record: Option<&Record>,
    ) -> Answer<()> {
        let (server, name) = (Arc::clone(&self.0), path.to_string());
        let record = record.map(|record| Bytes::from(record.encode()));
        Box::pin(async move {
            if is_replaced(&name) {
                let next = server.pair(operation, &name).await?.next(bytes);
                return server.replace(operation, &name, next).await.map(drop);
            }
            let attributes = attributes_of(&name).zip(record);
            let Some((attributes, record)) = attributes else {
                return server.create(operation, &name, bytes).await;
            };
            // First, so that no object is without them.
            let mut beginning = Beginning::new(&server, &name);
            let next = server.pair(operation, &attributes).await?.next(record);
            server.replace(operation, &attributes, next).await?;
            server.create(operation, &name, bytes).await?;
            beginning.is_made = true;
            Ok(())
        })
    }

    fn put_if(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: Bytes,
        condition: Condition,
    ) -> Answer<Option<Option<String>>> {
        let (server, name) = (Arc::clone(&self.0), path.to_string());
        Box::pin(async move {
            // Another client may write in between: `docs/how-to/opendal.md` says so.
            let pair = server.pair(operation, &name).await?;
            let is_met = match condition {
                Condition::Missing => pair.content().is_none(),
                Condition::Tag(tag) => pair.current().map(|(_, slot)| slot.tag()) == tag,
                Condition::Any => true,
            };
            if !is_met {
                return Ok(None);
            }
            let written = server.replace(operation, &name, pair.next(bytes)).await?;
            Ok(Some(Some(written.tag())))
        })
    }

    fn begin_parts(&self, operation: &'static str, _: &Path, _: &Record) -> Answer<Box<dyn Parts>> {
        Box::pin(async move {
            Err(Error::new(ErrorKind::Unsupported, operation)
                .because("it is longer than an object of this service can be")
                .with("object_bytes_max", OBJECT_BYTES_MAX))
        })
    }

    fn delete(&self, operation: &'static str, path: &Path) -> Answer<()> {
        let (server, name) = (Arc::clone(&self.0), path.to_string());
        Box::pin(async move {
            if is_replaced(&name) {
                // A first file without the second counts, and not the other way round.
                server.delete(operation, &file_of(&name, 1)).await?;
            }
            server.delete(operation, &path_of(&name)).await?;
            if name.starts_with(ATTRIBUTES) {
                // No other object has this name later.
                server.forget_late(&name);
            }
            // A file that is missing is no error: it may be missing with the directory.
            server.check_base(operation).await
        })
    }

    fn list(
        &self,
        operation: &'static str,
        prefix: &str,
        after: Option<String>,
        max: usize,
    ) -> Answer<(Vec<String>, bool)> {
        let (server, prefix) = (Arc::clone(&self.0), prefix.to_string());
        Box::pin(async move { server.list(operation, &prefix, after, max).await })
    }

    fn list_directories(&self, operation: &'static str, prefix: &str) -> Answer<Vec<String>> {
        let (server, prefix) = (Arc::clone(&self.0), prefix.to_string());
        Box::pin(async move {
            let entries = server.entries(operation, &prefix).await?.entries.into_iter();
            Ok(entries.filter(|(_, is_directory)| *is_directory).map(|(name, _)| name).collect())
        })
    }

    fn clean_up(&self, operation: &'static str, _: &str, _: Uploading) -> Answer<usize> {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.clean_up(operation).await })
    }

    fn remove_directories(&self, operation: &'static str, _: &str) -> Answer<()> {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.remove_directories(operation).await })
    }
}
