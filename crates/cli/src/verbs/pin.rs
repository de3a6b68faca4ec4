// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace pin` and `terrace unpin`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use terrace_core::Key;
use terrace_store::Store;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::mounted;
use crate::output::{Output, hex};
use crate::selection::for_each_key;

/// Forbid to move objects
///
/// A pinned object stays on its tier: what the policy or `terrace migrate` asks for is refused
/// with the outcome `pinned`. It can still be read, written and removed. The pin is kept in the
/// store until `terrace unpin`. To pin an object on another tier, migrate it there first.
///
/// A directory of a mounted store that is pinned passes that on to what is made in it later; with -r
/// the same holds of all directories below it, and all files there are pinned.
#[derive(Args, Debug)]
pub(crate) struct Pin {
    #[command(flatten)]
    objects: Objects,
}

/// Allow to move pinned objects again
///
/// Takes back `terrace pin`. An object that is not pinned is left as it is.
///
/// Of a directory of a mounted store, what is made in it later is pinned no longer; with -r the same
/// holds of all directories below it, and no file there is pinned any more.
#[derive(Args, Debug)]
pub(crate) struct Unpin {
    #[command(flatten)]
    objects: Objects,
}

#[derive(Args, Debug)]
struct Objects {
    /// The objects, or files of a mounted store: /PATH, ./PATH
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,

    /// Everything in a namespace, under a prefix of it, or in a directory, and that itself
    ///
    /// The arguments are then what `terrace ls` takes: NAMESPACE or NAMESPACE/PREFIX; or paths.
    #[arg(short, long)]
    recursive: bool,
}

impl Objects {
    fn each(
        &self,
        context: &Context,
        is_pinned: bool,
        change: fn(&Store, &Key) -> terrace_core::Result<()>,
    ) -> Result<()> {
        let mut failures = Failures::walking(context.is_json, self.recursive);
        let mut output = Output::new();
        let meant = mounted::meant(context, &self.keys);
        if let Some(paths) = mounted::steered(&meant, self.recursive)? {
            for path in paths {
                // Files know themselves that they are pinned, also those without an object.
                let pin = if is_pinned { "1" } else { "0" };
                if failures.note(mounted::steer(&path, "pin", pin))?.is_some() && context.is_json {
                    output.json(&file_json(&path, is_pinned))?;
                }
            }
            output.flush()?;
            return failures.finish();
        }
        let keys = mounted::keys(&meant)?;
        context.with_store(|store| {
            for_each_key(store, &keys, self.recursive, &mut failures, &mut |_, key| {
                change(store, &key)?;
                if context.is_json {
                    output.json(&json!({ "key": key.as_str(), "is_pinned": is_pinned }))?;
                }
                Ok(())
            })
        })?;
        output.flush()?;
        failures.finish()
    }
}

/// What became of a file: `path` where that is UTF-8, else `path_hex`.
fn file_json(path: &Path, is_pinned: bool) -> Value {
    match path.to_str() {
        Some(path) => json!({ "path": path, "is_pinned": is_pinned }),
        None => json!({ "path_hex": hex(path.as_os_str().as_bytes()), "is_pinned": is_pinned }),
    }
}

impl Verb for Pin {
    const NAME: &'static str = "pin";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace migrate index/main --to fast && terrace pin index/main
  terrace pin -r index                  every object of a namespace
  terrace pin -r /mnt/files/index       a directory of a mounted store, and all below";

    fn run(self, context: &Context) -> Result<()> {
        self.objects.each(context, true, |store, key| store.admin().pin(key))
    }
}

impl Verb for Unpin {
    const NAME: &'static str = "unpin";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace unpin index/main
  terrace unpin -r index                every object of a namespace
  terrace unpin -r /mnt/files/index     a directory of a mounted store, and all below";

    fn run(self, context: &Context) -> Result<()> {
        self.objects.each(context, false, |store, key| store.admin().unpin(key))
    }
}
