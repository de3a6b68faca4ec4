// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The option `--metrics` of commands that go on: where they answer scrapes.

use clap::Args;
use terrace_core::ErrorKind;
use terrace_metrics::{Exporter, Limits, Source, read_address};
use terrace_transport::Endpoint;

use crate::failure::Result;

/// Where to answer scrapes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Metrics {
    /// Where Prometheus finds metrics: HOST:PORT, or unix:PATH; default: nowhere
    ///
    /// They are at `http://HOST:PORT/metrics`, for every peer that reaches the address. Port 0 is a free one.
    /// Where another process listens there, a warning is logged, and all else goes on.
    #[arg(long = "metrics", value_name = "ADDRESS", env = "TERRACE_METRICS")]
    pub(crate) address: Option<String>,
}

impl Metrics {
    /// The address, where one is given. An empty one is none: so the variable of a unit can be overridden.
    pub(crate) fn endpoint(&self) -> Result<Option<Endpoint>> {
        let Some(text) = self.address.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(match read_address(text)? {
            // The socket is removed in the end, when the working directory is another one.
            Endpoint::Unix(path) => Endpoint::Unix(std::path::absolute(&path).unwrap_or(path)),
            tcp => tcp,
        }))
    }
}

/// Answers scrapes at `endpoint`, where there is one, until the result is dropped: before what the sources read is closed.
///
/// # Errors
///
/// Those of listening there, but for an address that is in use: that is logged, as what is served does not
/// depend on being watched.
pub(crate) fn export(
    endpoint: Option<&Endpoint>,
    sources: impl FnOnce() -> Vec<Box<dyn Source>>,
) -> Result<Option<Exporter>> {
    let Some(endpoint) = endpoint else { return Ok(None) };
    match Exporter::start(endpoint, sources(), Limits::default()) {
        Ok(exporter) => {
            tracing::info!(url = exporter.url(), "metrics");
            Ok(Some(exporter))
        }
        Err(error) if error.kind() == ErrorKind::Busy => {
            let error = error.chain();
            tracing::warn!(
                error,
                "no metrics: give another address with --metrics or TERRACE_METRICS"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
