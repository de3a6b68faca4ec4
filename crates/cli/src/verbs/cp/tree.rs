// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace cp -r`.

use std::fs;
use std::path::Path;

use terrace_core::{Error, Key};

use super::{Copying, End, names};
use crate::address::{self, Place, Range};
use crate::failure::{Failure, Result, from_local};
use crate::selection::for_each_page;

impl Copying<'_> {
    /// Copies everything under `source`; goes on past single failures.
    pub(super) fn copy_tree(&mut self, source: &Place, target: &Place) -> Result<()> {
        match (source, target) {
            (Place::Local(source), Place::Stored(target)) => {
                let target = address::range(target)?;
                self.copy_directory(source, &target)
            }
            (Place::Stored(source), Place::Local(target)) => {
                let source = address::range(source)?;
                self.copy_range(&source, |kept, _| {
                    Ok(End::Local(target.join(names::relative_path(kept)?)))
                })
            }
            (Place::Stored(source), Place::Stored(target)) => {
                let (source, target) = (address::range(source)?, address::range(target)?);
                refuse_overlap(&source, &target)?;
                self.copy_range(&source, |kept, _| {
                    Ok(End::Stored(names::key_under(&target, kept)?))
                })
            }
            _ => {
                let reason = "a standard stream is one file: leave -r out";
                Err(Error::invalid("copy", reason).into())
            }
        }
    }

    fn copy_range(
        &mut self,
        range: &Range,
        target_of: impl Fn(&str, &Key) -> Result<End>,
    ) -> Result<()> {
        let store = self.store;
        for_each_page(store, range, &mut |keys| {
            for key in keys {
                let target = target_of(names::kept_name(&key, range), &key);
                let copied = target
                    .and_then(|target| self.copy_with_parents(&End::Stored(key.clone()), &target))
                    .map_err(|failure| failure.about(&key));
                self.note(copied)?;
            }
            Ok(())
        })
    }

    fn copy_with_parents(&mut self, source: &End, target: &End) -> Result<()> {
        if let End::Local(path) = target
            && let Some(parent) = path.parent()
        {
            self.context.check_output(path)?;
            let made = fs::create_dir_all(parent);
            made.map_err(|error| {
                from_local("make the directory", error).with("path", parent.display())
            })?;
        }
        self.copy(source, target)
    }

    fn copy_directory(&mut self, root: &Path, target: &Range) -> Result<()> {
        if !root.is_dir() {
            let name = names::last_part(&End::Local(root.into()))?;
            let target = End::Stored(names::key_under(target, &name)?);
            return self.copy(&End::Local(root.into()), &target);
        }
        // Directories that are still to be visited: never deeper or wider than the tree itself.
        let mut waiting = vec![root.to_path_buf()];
        while let Some(directory) = waiting.pop() {
            let Some(entries) = self.note(read_directory(&directory))? else { continue };
            for entry in entries {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => waiting.push(path),
                    Ok(kind) if kind.is_file() => {
                        let copied = self.copy_file(root, &path, target);
                        self.note(copied)?;
                    }
                    Ok(_) => {
                        self.context
                            .note(&format!("left out, no regular file: {}", path.display()));
                    }
                    Err(error) => {
                        let error = Error::from_io("look at the file", error);
                        let failed = Err(error.with("file", path.display()).into());
                        self.note::<()>(failed)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, root: &Path, path: &Path, target: &Range) -> Result<()> {
        let relative = path.strip_prefix(root).expect("it was found under the root");
        let key = names::key_under(target, &names::text(relative)?);
        let key = key.map_err(|failure| match failure {
            Failure::Failed(error) => error.with("file", path.display()).into(),
            other => other,
        })?;
        self.copy(&End::Local(path.into()), &End::Stored(key))
    }
}

fn read_directory(path: &Path) -> Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(path).and_then(Iterator::collect);
    let mut entries: Vec<fs::DirEntry> = entries.map_err(|error| {
        Error::from_io("read the directory", error).with("path", path.display())
    })?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

/// New objects must not come up in the listing that is being copied.
fn refuse_overlap(source: &Range, target: &Range) -> Result<()> {
    let (one, other) = (&source.prefix, &target.prefix);
    if source.namespace == target.namespace && (one.starts_with(other) || other.starts_with(one)) {
        return Err(Error::invalid("copy", "source and target overlap")
            .with("namespace", &source.namespace)
            .into());
    }
    Ok(())
}
