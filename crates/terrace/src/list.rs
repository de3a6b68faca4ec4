// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listings of objects.

use std::collections::VecDeque;

use terrace_core::{Backend, Cursor, Result};
use terrace_store::Store;

/// Names that are fetched with one request.
const PAGE_NAMES: usize = 1000;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its full name, `namespace/name`.
    pub name: String,
}

/// Iterates over the objects whose names begin alike. Ends after an error.
///
/// An object that exists during the whole iteration is returned exactly once.
pub struct List {
    store: Store,
    /// What names begin with inside their namespaces.
    prefix: String,
    /// `None` until it is known; those that are left.
    namespaces: Option<VecDeque<String>>,
    /// What namespaces begin with, until they are known.
    namespace_prefix: String,
    cursor: Cursor,
    page: VecDeque<String>,
}

impl List {
    pub(crate) fn new(store: Store, prefix: &str) -> Self {
        let (namespaces, namespace_prefix, prefix) = match prefix.split_once('/') {
            Some((namespace, prefix)) => {
                (Some(VecDeque::from([namespace.into()])), String::new(), prefix)
            }
            None => (None, prefix.into(), ""),
        };
        let prefix = prefix.into();
        let (cursor, page) = (Cursor::start(), VecDeque::new());
        Self { store, prefix, namespaces, namespace_prefix, cursor, page }
    }

    fn fetch(&mut self) -> Result<()> {
        while self.page.is_empty() {
            let namespaces = match &mut self.namespaces {
                Some(namespaces) => namespaces,
                unknown => {
                    let mut all = self.store.namespaces()?;
                    all.retain(|namespace| namespace.starts_with(&self.namespace_prefix));
                    unknown.insert(all.into())
                }
            };
            let Some(namespace) = namespaces.front() else { return Ok(()) };
            let page = self.store.list(namespace, &self.prefix, &self.cursor, PAGE_NAMES)?;
            self.page.extend(page.keys.iter().map(|key| key.as_str().to_owned()));
            match page.next {
                Some(next) => self.cursor = next,
                None => {
                    namespaces.pop_front();
                    self.cursor = Cursor::start();
                }
            }
        }
        Ok(())
    }
}

impl Iterator for List {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if let Err(error) = self.fetch() {
            self.namespaces = Some(VecDeque::new());
            return Some(Err(error));
        }
        self.page.pop_front().map(|name| Ok(Entry { name }))
    }
}
