// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace versions`.

use clap::Args;
use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_store::VersionReport;

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::Output;
use crate::table::Table;
use crate::time::show_wall;

/// List the earlier and deleted values of an object that tiers keep
///
/// A tier with the setting `keep_deleted` keeps the objects that leave it for that time: they are deleted,
/// replaced, or moved to another tier, as they are before they are changed. A version is the value that
/// an object had when that happened, the latest first; KEY need not exist any more.
///
/// `end` says why it is not the present value. One that is `changed` may still be: a part of the object was
/// moved, and need not have been written to since. `bytes` says whether all of it is there: what was only
/// on tiers that keep nothing is not. `kept until` is the earliest time at which it is removed.
///
/// `terrace undelete` brings a version back. The names of files in a mounted store have no versions.
#[derive(Args, Debug)]
pub(crate) struct Versions {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`
    key: String,
}

impl Verb for Versions {
    const NAME: &'static str = "versions";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace versions runs/42.tar
  terrace versions --json runs/42.tar | jq -r '.versions[] | select(.is_whole) | .version'";

    fn run(self, context: &Context) -> Result<()> {
        mounted::refuse(context, &self.key, "the names of files have no versions")?;
        let key = address::key(&self.key)?;
        let found = context.with_store_for_reading(|store| Ok(store.admin().versions(&key)?));
        let versions = found.map_err(|failure| failure.about(&key))?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "key": key.as_str(), "versions": versions }))?;
            return output.flush();
        }
        if versions.is_empty() {
            context.note("no version of it is kept");
            return output.flush();
        }
        let mut table = Table::new(&[2]);
        table.heading(["version", "ended", "size", "end", "tiers", "bytes", "kept until"]);
        for version in &versions {
            table.row([
                version.version.clone(),
                show_wall(version.ended_ns),
                show_bytes(version.size_bytes),
                version.end.clone(),
                version.tiers.join(", "),
                bytes(version),
                version.kept_until_ns.map_or("-".into(), show_wall),
            ]);
        }
        for line in table.lines() {
            output.line(line)?;
        }
        for version in versions.iter().filter(|version| !version.is_whole) {
            for part in &version.missing {
                output.line(format!(
                    "{}: {} from {}: {}",
                    version.version,
                    show_bytes(part.length_bytes),
                    show_bytes(part.start_bytes),
                    part.reason
                ))?;
            }
        }
        output.flush()
    }
}

/// How much of a version is there.
fn bytes(version: &VersionReport) -> String {
    match version.missing.iter().map(|part| part.length_bytes).sum() {
        0 if version.is_whole => "whole".into(),
        missing => format!("{} missing", show_bytes(missing)),
    }
}
