// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others keep below a prefix of a bucket, under its own names, for reading.

use std::ops::Range;

use bytes::Bytes;
use object_store::ObjectMeta;
use terrace_core::{Error, ErrorKind, Result};

use super::client::S3Client;
use super::failure;
use super::page::{self, PrefixObject, PrefixPage};
use super::settings::S3Settings;
use crate::object::service::object_path;
use crate::object::service::requests::Service;

/// Objects below a prefix of a bucket. No request changes anything.
///
/// Names are relative to the prefix. Requests block until they are answered, at most for the deadline of the
/// settings.
pub struct Prefix {
    service: Service,
    client: S3Client,
}

impl Prefix {
    /// Prepares requests; makes none.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Denied` (a file of credentials that cannot be read).
    pub fn open(settings: &S3Settings) -> Result<Self> {
        let mut opened = None;
        let place = settings.place();
        let service = Service::open(place, || {
            let client = S3Client::open(settings)?;
            opened = Some(client.clone());
            Ok(Box::new(client))
        })?;
        Ok(Self { service, client: opened.expect("the service has it") })
    }

    /// Address in logs and errors.
    pub fn target(&self) -> &str {
        &self.service.target
    }

    /// The address of the bucket at its service.
    pub fn bucket_url(&self) -> &str {
        self.client.signed.bucket_url()
    }

    /// An object; `None` where there is none of this name, or no bucket: the answer does not tell. One request.
    ///
    /// # Errors
    ///
    /// `Denied`; `Invalid` for a name that the client cannot send; `Unsupported` where the service refuses this
    /// request, however often it is sent; `Io` for all else.
    pub fn look(&self, name: &str) -> Result<Option<PrefixObject>> {
        const OPERATION: &str = "look at an object";
        let looked = self.client.meta(OPERATION, &self.path(name)?);
        Ok(self.service.run(OPERATION, looked)?.map(|meta| of_meta(&meta)))
    }

    /// Lists what begins with `below`, up to the next `/` behind it, and continues where an earlier page ended. One
    /// request; at most `names_max` names, and 1000.
    ///
    /// # Errors
    ///
    /// As [`Prefix::look`].
    pub fn list(&self, below: &str, after: Option<&str>, names_max: usize) -> Result<PrefixPage> {
        const OPERATION: &str = "list objects";
        let prefix = format!("{}{below}", self.service.root);
        let names_max = names_max.to_string();
        // Without the encoding, names with control characters make no XML.
        let mut parameters = vec![
            ("delimiter", "/"),
            ("encoding-type", "url"),
            ("list-type", "2"),
            ("max-keys", names_max.as_str()),
            ("prefix", prefix.as_str()),
        ];
        parameters.extend(after.map(|token| ("continuation-token", token)));
        let body = self.service.run(OPERATION, async {
            let asked = self.client.signed.get(&parameters).await;
            asked.map_err(|error| failure::of_listing(OPERATION, &error))
        })?;
        page::read(&body, &prefix).ok_or_else(|| {
            Error::new(ErrorKind::Io, OPERATION)
                .because("the answer is no listing of version 2")
                .with("target", self.target())
        })
    }

    /// Reads a range of an object that is still in this state: all bytes of the range. One request.
    ///
    /// # Errors
    ///
    /// `Stale` where the object is in another state, `NotFound`; as [`Prefix::look`].
    pub fn read(&self, name: &str, object: &PrefixObject, range: Range<u64>) -> Result<Bytes> {
        const OPERATION: &str = "read an object";
        let path = self.path(name)?;
        let request = self.client.get_range_of(OPERATION, &path, range.clone(), object.tag.clone());
        let expected = object.clone();
        let of_state = async move {
            let (bytes, meta) = request.await?;
            // A service that gives no tags, or does not heed the condition. It returns fewer bytes than the range
            // has where the object is shorter now.
            if of_meta(&meta) != expected {
                return Err(failure::changed(OPERATION));
            }
            Ok((bytes, ()))
        };
        // The deadline is that of the turn, too.
        let read = self.service.in_turn(OPERATION, range, of_state);
        self.service.run(OPERATION, read).map(|(bytes, ())| bytes)
    }

    fn path(&self, name: &str) -> Result<object_store::path::Path> {
        object_path(&format!("{}{name}", self.service.root))
    }
}

fn of_meta(meta: &ObjectMeta) -> PrefixObject {
    PrefixObject {
        size_bytes: meta.size,
        modified_s: meta.last_modified.timestamp(),
        tag: meta.e_tag.as_deref().and_then(page::tag),
    }
}
