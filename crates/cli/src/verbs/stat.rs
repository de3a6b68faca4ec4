// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace stat`.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use terrace_core::Backend;
use terrace_core::units::show_bytes;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, show_name};
use crate::table::Table;
use crate::time::show_wall;

/// Show size, times and tiers of an object
///
/// Prints what is known about an object without its history; `terrace explain` says why it is
/// where it is. Times are in UTC and do not change when an object migrates. Of a file of a mounted store the
/// object with its bytes is shown; stat(1) shows the file itself.
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`; or a file of a mounted
    /// store: /PATH, ./PATH, and PATH where no store is named
    key: OsString,
}

impl Verb for Stat {
    const NAME: &'static str = "stat";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace stat climate/t2m
  terrace stat /mnt/files/results.h5    a file of a mounted store
  terrace stat --json climate/t2m | jq .size_bytes
  terrace stat climate/t2m > /dev/null || echo missing      status 3 where it does not exist";

    fn run(self, context: &Context) -> Result<()> {
        let (context, key) = &mounted::object(context, &self.key)?;
        let found = context.with_store_for_reading(|store| {
            let stat = store.stat(key)?;
            Ok((stat, store.admin().explain(key)?))
        });
        let (stat, explanation) = found.map_err(|failure| {
            mounted::note_mounted(context, &self.key, &failure);
            failure.about(key)
        })?;
        let tiers = super::ls::tiers(&explanation);
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({
                "key": key.as_str(),
                "size_bytes": stat.size_bytes,
                "allocated_bytes": stat.allocated_bytes,
                "created_ns": stat.created_ns,
                "modified_ns": stat.modified_ns,
                "tiers": tiers,
                "segments": explanation.segments.len(),
                "persistency": explanation.persistency,
                "is_pinned": explanation.is_pinned,
            }))?;
            return output.flush();
        }
        let size = match stat.size_bytes {
            bytes @ 0..1000 => show_bytes(bytes),
            bytes => format!("{} ({bytes} B)", show_bytes(bytes)),
        };
        let mut table = Table::new(&[]);
        for (name, value) in [
            ("key", show_name(key.as_str())),
            ("size", size),
            ("allocated", show_bytes(stat.allocated_bytes)),
            ("created", show_wall(stat.created_ns)),
            ("modified", show_wall(stat.modified_ns)),
            ("tiers", tiers.join(", ")),
            ("segments", explanation.segments.len().to_string()),
            ("persistency", explanation.persistency.clone()),
            ("pinned", yes_no(explanation.is_pinned).into()),
        ] {
            table.row([name.into(), value]);
        }
        for line in table.lines() {
            output.line(line)?;
        }
        output.flush()
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
