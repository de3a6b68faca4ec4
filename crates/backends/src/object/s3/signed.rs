// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signed requests to a bucket for which the client has no call.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{
    HttpClient, HttpConnector, HttpErrorKind, HttpRequest, HttpRequestBody, ReqwestConnector,
};
use terrace_core::Result;

use super::failure;
use super::settings::{Address, BACKOFF_MAX, BACKOFF_MIN, RETRIES_MAX, S3Settings, retry_time};

/// A bucket, with what signs requests to it.
#[derive(Clone)]
pub(super) struct Signed {
    store: Arc<AmazonS3>,
    http: HttpClient,
    address: Address,
    target: String,
    retry_time: Duration,
}

impl Signed {
    pub(super) fn open(
        settings: &S3Settings,
        store: &Arc<AmazonS3>,
        address: Address,
    ) -> Result<Self> {
        let http = ReqwestConnector::default()
            .connect(&settings.options())
            .map_err(|error| failure::of("open a bucket", &error))?;
        let (store, target) = (Arc::clone(store), settings.target());
        Ok(Self { store, http, address, target, retry_time: retry_time(settings.deadline) })
    }

    /// The address of the bucket at its service.
    pub(super) fn bucket_url(&self) -> &str {
        &self.address.bucket_url
    }

    /// Returns the body of an answer. Retries as the client does for its own calls, but for the jitter.
    pub(super) async fn get(&self, parameters: &[(&str, &str)]) -> object_store::Result<String> {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let url = format!("{}?{}", self.address.bucket_url, parameters.join("&"));
        let (mut pause, mut left) = (BACKOFF_MIN, self.retry_time);
        for _ in 0..RETRIES_MAX {
            match self.once(&url).await {
                Err(Attempt::MayRetry(_)) if left > pause => {}
                Ok(body) => return Ok(body),
                Err(Attempt::MayRetry(error) | Attempt::Final(error)) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            left = left.saturating_sub(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        self.once(&url).await.map_err(Attempt::into_error)
    }

    async fn once(&self, url: &str) -> std::result::Result<String, Attempt> {
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
            _ => {
                let error = other(format!("{}{status}: {body}", failure::STATUS));
                let may_retry = matches!(status, 408 | 429 | 500..);
                Err(if may_retry { Attempt::MayRetry(error) } else { Attempt::Final(error) })
            }
        }
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

fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: source.into() }
}
