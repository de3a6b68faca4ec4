// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many stores as a backend.

use std::collections::BTreeSet;

use terrace_core::{
    Backend, Capability, Create, Cursor, Draft, Key, Object, Op, Open, Page, Result, Semantics,
    Space, Stat, with_object,
};

use super::parallel::at_once;
use super::piece::{check_name, is_reserved};
use super::{Member, Shared, Striped, all};
use crate::deadline;

impl Shared {
    /// Does something on all servers at the same time.
    fn on_all<T: Send>(&self, work: impl Fn(&Member) -> Result<T> + Sync) -> Result<Vec<T>> {
        let work = &work;
        let one = |member| move || work(member).map_err(|error| Member::blame(member, error));
        all(at_once(self.map.members().iter().map(one).collect()))
    }

    /// Whether a namespace holds anything but pieces: they are the last of every listing.
    fn holds_objects(&self, namespace: &str) -> Result<bool> {
        for member in self.map.members() {
            let mut cursor = Cursor::start();
            loop {
                let page = member.backend.list(namespace, "", &cursor, 1);
                let page = page.map_err(|error| member.blame(error))?;
                match (page.keys.first(), page.next) {
                    (Some(key), _) if is_reserved(key.name()) => break,
                    (Some(_), _) => return Ok(true),
                    (None, None) => break,
                    (None, Some(next)) => cursor = next,
                }
            }
        }
        Ok(false)
    }
}

impl Backend for Striped {
    fn target(&self) -> &str {
        &self.shared.target
    }

    fn capability(&self) -> Capability {
        self.shared.capability
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let open = || self.shared.open(key, how);
        // One that cannot be made takes time to clear away.
        if how.create == Create::Never { deadline::share(open) } else { open() }
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        self.shared.draft(key, how)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        const OPERATION: &str = "stat an object";
        check_name(OPERATION, key)?;
        deadline::share(|| {
            let (_, stat) =
                self.shared.locate(OPERATION, key, |member| member.backend.stat(key))?;
            match stat.is_labelled {
                false => Ok(stat),
                true => {
                    with_object(|| self.shared.open(key, &Open::read()), |object| object.stat())
                }
            }
        })
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.shared.delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.shared.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let found = self.shared.on_all(|member| member.backend.namespaces())?;
        let mut namespaces = Vec::new();
        for namespace in found.into_iter().flatten().collect::<BTreeSet<_>>() {
            if self.shared.holds_objects(&namespace)? {
                namespaces.push(namespace);
            }
        }
        Ok(namespaces)
    }

    fn space(&self) -> Result<Space> {
        self.shared.space()
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        self.execute_batch(operations, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.shared.on_all(|member| member.backend.sync()).map(drop)
    }

    fn sync_all(&self) -> Result<()> {
        self.shared.on_all(|member| member.backend.sync_all()).map(drop)
    }
}
