// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects that a verb works on: keys, or with `-r` everything under a prefix.

use terrace_core::{Backend, Cursor, Key};
use terrace_store::Store;

use crate::address::{self, Range};
use crate::failure::{Failures, Result};

/// Keys listed at a time: a walk over millions takes bounded memory.
pub(crate) const PAGE_KEYS: usize = 1000;

/// Calls `each` with every page of keys in a range, in the order of the listing.
pub(crate) fn for_each_page(
    store: &Store,
    range: &Range,
    each: &mut dyn FnMut(Vec<Key>) -> Result<()>,
) -> Result<()> {
    let mut cursor = Cursor::start();
    loop {
        let page = store.list(&range.namespace, &range.prefix, &cursor, PAGE_KEYS)?;
        each(page.keys)?;
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(()),
        }
    }
}

/// Calls `each` with every object that the arguments name, and goes on past failures.
///
/// A prefix that covers nothing is no failure, as an empty listing is none.
pub(crate) fn for_each_key(
    store: &Store,
    arguments: &[String],
    is_recursive: bool,
    failures: &mut Failures,
    each: &mut dyn FnMut(&mut Failures, Key) -> Result<()>,
) -> Result<()> {
    for argument in arguments {
        if !is_recursive {
            if let Some(key) = failures.note(address::key(argument))? {
                let result = each(failures, key.clone()).map_err(|failure| failure.about(&key));
                failures.note(result)?;
            }
            continue;
        }
        let Some(range) = failures.note(address::range(argument))? else { continue };
        let walked = for_each_page(store, &range, &mut |keys| {
            for key in keys {
                let result = each(failures, key.clone()).map_err(|failure| failure.about(&key));
                failures.note(result)?;
            }
            Ok(())
        });
        failures.note(walked)?;
    }
    Ok(())
}
