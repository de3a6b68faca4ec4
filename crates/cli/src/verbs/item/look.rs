// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace item ls` and `stat`.

use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Cursor, ErrorKind};
use terrace_items::{Collection, Items};

use super::find;
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, show_name};
use crate::selection::PAGE_KEYS;
use crate::table::Table;
use crate::time::show_wall;

/// Lists items page by page.
pub(crate) fn list(context: &Context, range: &str, is_long: bool) -> Result<()> {
    let (name, prefix) = range.split_once('/').unwrap_or((range, ""));
    let mut output = Output::new();
    context.with_store_for_reading(|store| {
        let collection = Items::new(store).open(name)?;
        let mut cursor = Cursor::start();
        loop {
            let page = collection.list(prefix, &cursor, PAGE_KEYS)?;
            match is_long {
                true => print_long(&collection, &page.names, context.is_json, &mut output)?,
                false => print_short(&collection, &page.names, context.is_json, &mut output)?,
            }
            // A reader sees every page when it is there.
            output.flush()?;
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    })
}

fn print_short(
    collection: &Collection,
    names: &[String],
    is_json: bool,
    output: &mut Output,
) -> Result<()> {
    for name in names {
        let item = format!("{}/{name}", collection.name());
        match is_json {
            true => output.json(&json!({ "item": item }))?,
            false => output.line(show_name(&item))?,
        }
    }
    Ok(())
}

fn print_long(
    collection: &Collection,
    names: &[String],
    is_json: bool,
    output: &mut Output,
) -> Result<()> {
    let mut table = Table::new(&[0]);
    for name in names {
        let stat = match collection.status(name) {
            Ok(status) => status.stat,
            // Removed since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let item = format!("{}/{name}", collection.name());
        if is_json {
            output.json(&json!({
                "item": item, "size_bytes": stat.size_bytes, "modified_ns": stat.modified_ns,
            }))?;
        } else {
            table.row([show_bytes(stat.size_bytes), show_wall(stat.modified_ns), show_name(&item)]);
        }
    }
    for line in table.lines() {
        output.line(line)?;
    }
    Ok(())
}

/// Shows what is known of an item.
pub(crate) fn stat(context: &Context, item: &str) -> Result<()> {
    let status = context.with_store_for_reading(|store| {
        let (collection, name) = find(store, item)?;
        Ok(collection.status(&name)?)
    })?;
    let (object, stat) = (status.object, status.stat);
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({
            "item": item,
            "object": object.as_str(),
            "size_bytes": stat.size_bytes,
            "allocated_bytes": stat.allocated_bytes,
            "created_ns": stat.created_ns,
            "modified_ns": stat.modified_ns,
        }))?;
        return output.flush();
    }
    let mut table = Table::new(&[]);
    for (name, value) in [
        ("item", show_name(item)),
        ("size", format!("{} ({} B)", show_bytes(stat.size_bytes), stat.size_bytes)),
        ("allocated", show_bytes(stat.allocated_bytes)),
        ("created", show_wall(stat.created_ns)),
        ("modified", show_wall(stat.modified_ns)),
        ("object", show_name(object.as_str())),
    ] {
        table.row([name.into(), value]);
    }
    for line in table.lines() {
        output.line(line)?;
    }
    output.flush()
}
