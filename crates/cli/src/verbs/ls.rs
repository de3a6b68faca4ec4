// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace ls`.

use clap::Args;
use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Backend, ErrorKind, Key};
use terrace_store::{Explanation, Store};

use super::{Group, Verb};
use crate::address::{self, Range};
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, show_name};
use crate::selection::for_each_page;
use crate::table::Table;
use crate::time::show_wall;

/// List objects
///
/// Prints the keys of a namespace, of those objects in it whose names begin with PREFIX, or
/// without an argument of the whole store, one a line. PREFIX is plain text: `run/4` covers
/// `run/4`, `run/41` and `run/4/a`.
///
/// Listing is done page by page: it starts at once and takes little memory, however many objects
/// there are. An object that is created or removed meanwhile may or may not be listed.
///
/// Control characters in names are shown as \n, \t or \u{...}; --json has the names as they are.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// What to list; default: everything
    #[arg(value_name = "NAMESPACE[/PREFIX]")]
    range: Option<String>,

    /// Also print size, tier (`fast+slow` for an object that lies on both) and time of the last
    /// change (UTC)
    #[arg(short, long)]
    long: bool,
}

impl Verb for List {
    const NAME: &'static str = "ls";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace ls                            every object of the store
  terrace ls -l climate                 the objects of a namespace with size and tier
  terrace ls climate/t2m/2024-          those whose names begin alike
  terrace ls --json | jq -r .key        one JSON object a line";

    fn run(self, context: &Context) -> Result<()> {
        if let Some(range) = &self.range {
            let instead = "ls(1) lists files, `getfattr -n user.terrace.tier FILE...` their tiers";
            mounted::refuse(context, range, instead)?;
        }
        let mut output = Output::new();
        context.with_store_for_reading(|store| {
            let ranges = match &self.range {
                Some(text) => vec![address::range(text)?],
                None => all_ranges(store)?,
            };
            for range in &ranges {
                for_each_page(store, range, &mut |keys| {
                    if self.long {
                        print_long(store, &keys, context.is_json, &mut output)
                    } else {
                        print_short(&keys, context.is_json, &mut output)
                    }
                })?;
            }
            output.flush()
        })
    }
}

fn all_ranges(store: &Store) -> Result<Vec<Range>> {
    let namespaces = store.namespaces()?.into_iter();
    Ok(namespaces.map(|namespace| Range { namespace, prefix: String::new() }).collect())
}

fn print_short(keys: &[Key], is_json: bool, output: &mut Output) -> Result<()> {
    for key in keys {
        if is_json {
            output.json(&json!({ "key": key.as_str() }))?;
        } else {
            output.line(show_name(key.as_str()))?;
        }
    }
    // A reader sees every page when it is there.
    output.flush()
}

fn print_long(store: &Store, keys: &[Key], is_json: bool, output: &mut Output) -> Result<()> {
    let mut table = Table::new(&[0]);
    for key in keys {
        let explanation = match store.admin().explain(key) {
            Ok(explanation) => explanation,
            // Removed since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let tiers = tiers(&explanation);
        if is_json {
            output.json(&json!({
                "key": key.as_str(),
                "size_bytes": explanation.size_bytes,
                "tiers": tiers,
                "modified_ns": explanation.modified_ns,
                "is_pinned": explanation.is_pinned,
            }))?;
        } else {
            table.row([
                show_bytes(explanation.size_bytes),
                tiers.join("+"),
                show_wall(explanation.modified_ns),
                show_name(key.as_str()),
            ]);
        }
    }
    for line in table.lines() {
        output.line(line)?;
    }
    output.flush()
}

/// The tiers of an object's primaries, each once, in the order of its segments.
pub(crate) fn tiers(explanation: &Explanation) -> Vec<String> {
    let mut tiers: Vec<String> = Vec::new();
    for segment in &explanation.segments {
        if !tiers.contains(&segment.tier) {
            tiers.push(segment.tier.clone());
        }
    }
    tiers
}
