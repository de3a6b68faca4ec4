// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace quota`.

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::units::{parse_bytes, show_bytes};
use terrace_core::{Error, ErrorKind};
use terrace_store::QuotaReport;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, show_name};
use crate::table::Table;

/// Limit what namespaces may hold
///
/// A namespace may be limited in the bytes of its objects, in their number, or both. What would
/// exceed a limit is refused with status 4 and a message that says so; objects that are there
/// stay, and can be read, written in place, cut and removed. An object counts once, wherever it
/// is and however often it is copied: with its length or, while it is open and grows, with the
/// room that its tier has promised it. Key-value pairs do not count.
#[derive(Args, Debug)]
pub(crate) struct Quota {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set a limit of a namespace, at once and until it is cleared
    ///
    /// A limit that is not given stays as it is. One below what the namespace holds already
    /// forbids it to grow.
    #[command(after_long_help = "Examples:
  terrace quota set run --bytes 10GB
  terrace quota set run --bytes 10GB --objects 1000000")]
    Set {
        /// The namespace
        namespace: String,
        /// Most bytes of its objects, for example 10GB
        #[arg(long, value_name = "SIZE", required_unless_present = "objects")]
        bytes: Option<String>,
        /// Most objects
        #[arg(long, value_name = "COUNT")]
        objects: Option<u64>,
    },
    /// Show what namespaces hold and may hold
    ///
    /// Without a namespace: all that have objects or a limit.
    #[command(after_long_help = "Examples:
  terrace quota show
  terrace quota show run --json")]
    Show {
        /// The namespace
        namespace: Option<String>,
    },
    /// Lift the limits of a namespace
    #[command(after_long_help = "Examples:
  terrace quota clear run")]
    Clear {
        /// The namespace
        namespace: String,
    },
}

impl Verb for Quota {
    const NAME: &'static str = "quota";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace quota set run --bytes 10GB --objects 1000000
  terrace quota show
  terrace quota clear run";

    fn run(self, context: &Context) -> Result<()> {
        if let Action::Set { namespace, .. }
        | Action::Clear { namespace }
        | Action::Show { namespace: Some(namespace) } = &self.action
        {
            mounted::refuse_namespace(context, namespace)?;
        }
        let quotas = match self.action {
            Action::Set { namespace, bytes, objects } => {
                let bytes = bytes.as_deref().map(parse_bytes).transpose()?;
                let set = context.with_store(|store| {
                    Ok(store.admin().set_quota(&namespace, bytes, objects)?)
                })?;
                vec![set]
            }
            Action::Clear { namespace } => {
                vec![context.with_store(|store| Ok(store.admin().clear_quota(&namespace)?))?]
            }
            Action::Show { namespace } => {
                let all = context.with_store_for_reading(|store| Ok(store.admin().quotas()?))?;
                match namespace {
                    Some(namespace) => vec![find(all, &namespace)?],
                    None => all,
                }
            }
        };
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "quotas": quotas }))?;
        } else {
            for line in table(&quotas).lines() {
                output.line(line)?;
            }
        }
        output.flush()
    }
}

fn find(all: Vec<QuotaReport>, namespace: &str) -> Result<QuotaReport> {
    let found = all.into_iter().find(|quota| quota.namespace == namespace);
    Ok(found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "show a quota")
            .because("the namespace has neither objects nor a limit")
            .with("namespace", namespace)
    })?)
}

fn table(quotas: &[QuotaReport]) -> Table {
    let mut table = Table::new(&[1, 2, 3, 4]);
    table.heading(["namespace", "objects", "of", "bytes", "of"]);
    for quota in quotas {
        let unlimited = || "-".to_string();
        table.row([
            show_name(&quota.namespace),
            quota.objects.to_string(),
            quota.objects_max.map_or_else(unlimited, |max| max.to_string()),
            show_bytes(quota.bytes),
            quota.bytes_max.map_or_else(unlimited, show_bytes),
        ]);
    }
    table
}
