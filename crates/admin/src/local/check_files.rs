// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the file systems of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;

use terrace_core::{Backend, ErrorKind, Key, Kv, Open, Result};
use terrace_fs::{
    Check, Mending, Reached, TreeReport, is_recognized, number_in_place, paths, recorded_stores,
};

use super::owned::Owned;
use crate::reports::FilesReport;

const OPERATION: &str = "check a file system";

impl Owned {
    /// Checks every file system that is not in use, or mends it. Errors: what tiers and catalog say.
    pub fn check_files(
        &self,
        mending: Option<Mending>,
        places: &[String],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<FilesReport>> {
        let mut reports = Vec::new();
        for name in self.stack.kv_namespaces()? {
            let kv = self.stack.kv(&name)?;
            if !is_recognized(&*kv).map_err(|failure| failure.into_error(OPERATION))? {
                continue;
            }
            let paths = reached(&*kv, &name, places)?;
            let found = TreeReport::default();
            // Whether it can be read the check says.
            let servers = recorded_stores(&*kv).ok().flatten().unwrap_or_default();
            let servers = servers.iter().map(ToString::to_string).collect();
            let mut report = FilesReport { name, is_in_use: true, servers, paths, found };
            if let Some(_turn) = self.trees.keep_out(&report.name) {
                let data: &dyn Backend = &self.stack;
                let (kv, now_ns) = (&*kv, self.clock.wall_ns());
                let asked = Check {
                    kv,
                    data,
                    namespace: &report.name,
                    is_lost: &|key| self.is_lost(key),
                    now_ns,
                    mending,
                };
                let found = terrace_fs::check(&asked, progress)
                    .map_err(|failure| failure.into_error(OPERATION).with("name", &report.name))?;
                report.is_in_use = false;
                report.found = found;
            }
            reports.push(report);
        }
        Ok(reports)
    }

    /// Whether each of an object's files is certainly gone: not those on a tier that is missing, nor
    /// where there is a clean copy, of which it is not known why it cannot be read.
    fn is_lost(&self, key: &Key) -> bool {
        if self.stack.tiers().iter().any(|tier| tier.offline.is_some()) {
            return false;
        }
        let (Ok(found), Ok(object)) =
            (self.stack.explain(key), self.stack.open(key, &Open::read()))
        else {
            return false;
        };
        let is_gone = |start_bytes| {
            let read = object.read_at(start_bytes, &mut [IoSliceMut::new(&mut [0])]);
            read.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let mut segments = found.segments.iter();
        segments.all(|segment| segment.copies.is_empty() && is_gone(segment.start_bytes))
    }
}

/// How the files are reached that places are about, of those in a file system.
fn reached(kv: &dyn Kv, name: &str, places: &[String]) -> Result<BTreeMap<String, Reached>> {
    let numbered = |place: &String| Some((number_in_place(name, place)?, place.clone()));
    let numbered: Vec<_> = places.iter().filter_map(numbered).collect();
    if numbered.is_empty() {
        return Ok(BTreeMap::new());
    }
    let numbers: BTreeSet<u64> = numbered.iter().map(|(number, _)| *number).collect();
    let found =
        paths(kv, &numbers).map_err(|failure| failure.into_error(OPERATION).with("name", name))?;
    let of = |(number, place)| found.get(&number).map(|reached| (place, reached.clone()));
    Ok(numbered.into_iter().filter_map(of).collect())
}
