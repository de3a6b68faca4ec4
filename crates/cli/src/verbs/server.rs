// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace server`.

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::Access;
use terrace_core::units::{show_bytes, show_ns};

use super::{Group, Verb};
use crate::context::{Context, alone};
use crate::failure::Result;
use crate::output::Output;

/// See and steer the server that a store is used through
///
/// For stores behind `terrace serve`, whose address is `terrace://HOST:PORT` or
/// `terrace+unix:///PATH`.
#[derive(Args, Debug)]
pub(crate) struct Server {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show clients, requests, bytes and CPU time since the server began
    #[command(after_long_help = "Examples:
  terrace server status                   with TERRACE_STORE=terrace://host:7420
  terrace server status --json | jq .requests")]
    Status,
    /// Change what the server logs while it runs
    #[command(after_long_help = "Examples:
  terrace server log-level debug          log every connection from now on
  terrace server log-level warn")]
    LogLevel {
        /// `off`, or the least bad that is logged
        #[arg(value_name = "LEVEL", value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
        level: String,
    },
}

impl Verb for Server {
    const NAME: &'static str = "server";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace server status                   with TERRACE_STORE=terrace://host:7420
  terrace server status --json | jq .requests
  terrace server log-level debug          log every connection from now on";

    fn run(self, context: &Context) -> Result<()> {
        match self.what {
            What::Status => context.with_options(alone(Access::Read), |store| {
                let report = store.server()?;
                let mut output = Output::new();
                if context.is_json {
                    output.json(&json!(report))?;
                    return output.flush();
                }
                for (name, value) in [
                    ("process", report.process.to_string()),
                    ("connections", report.status.connections.to_string()),
                    ("strangers", report.status.strangers.to_string()),
                    ("sessions", report.status.sessions.to_string()),
                    ("open objects", report.status.handles.to_string()),
                    ("requests", report.status.requests.to_string()),
                    ("operations", report.status.operations.to_string()),
                    ("received", show_bytes(report.status.received_bytes)),
                    ("sent", show_bytes(report.status.sent_bytes)),
                    ("refused", report.status.refused.to_string()),
                    ("cpu", show_ns(report.cpu_ns)),
                    ("log level", report.log_level.clone()),
                ] {
                    output.line(format!("{name:<13} {value}"))?;
                }
                output.flush()
            }),
            What::LogLevel { level } => context.with_options(alone(Access::Write), |store| {
                Ok(store.set_server_log_level(&level)?)
            }),
        }
    }
}
