// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private decoders of a bucket. It may change with every version.

use super::page;

/// The names of a page of a listing; `None` where the text is none.
pub fn names_of_listing(text: &str, prefix: &str) -> Option<Vec<String>> {
    let page = page::read(text, prefix)?;
    let names = page.objects.into_iter().map(|(name, _)| name);
    Some(names.chain(page.parts).collect())
}
