// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace item put` and `get`.

use std::path::Path;

use serde_json::json;
use terrace_transfer::streams::{
    LocalSource, LocalTarget, NewContent, Source, Stdout, StoredSource, Transfer,
};

use super::find;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Output;

/// Stores a file, or standard input.
pub(crate) fn put(context: &Context, item: &str, file: &str, content: &NewContent) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let mut source = match file {
        "-" => LocalSource::stdin(&interrupt)?,
        file => LocalSource::open(Path::new(file), &interrupt)?,
    };
    let bytes = context.with_store(|store| {
        let (collection, name) = find(store, item)?;
        let size_bytes = source.size_bytes();
        let bytes = Transfer::new(&interrupt, "put", size_bytes)
            .copy(&mut source, || content.open_item(&collection, &name, size_bytes))?;
        context.note_unheld(store)?;
        Ok(bytes)
    })?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "item": item, "size_bytes": bytes }))?;
    }
    output.flush()
}

/// Writes to a file, or to standard output.
pub(crate) fn get(context: &Context, item: &str, file: &str) -> Result<()> {
    if file != "-" {
        context.check_output(Path::new(file))?;
    }
    let interrupt = Interrupt::watch()?;
    let bytes = context.with_store(|store| {
        let (collection, name) = find(store, item)?;
        let mut source = StoredSource::open_item(&collection, &name)?;
        let mut transfer = Transfer::new(&interrupt, "get", source.size_bytes());
        match file {
            "-" => transfer.copy(&mut source, || Ok(Stdout)),
            file => transfer.copy(&mut source, || LocalTarget::create(Path::new(file))),
        }
    })?;
    let mut output = Output::new();
    if context.is_json && file != "-" {
        output.json(&json!({ "item": item, "size_bytes": bytes, "file": file }))?;
    }
    output.flush()
}
