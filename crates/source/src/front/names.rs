// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listing directories, page by page: a directory is never in memory as a whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fuse::{DirectoryBuffer, Opened};

use super::Front;
use crate::handle::SourceHandle;
use crate::lock;
use crate::nodes::Known;
use crate::source::{Listing, Name};

/// An open directory.
pub(super) struct OpenDirectory {
    node: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` before the first page, and where a call did not come back.
    listing: Option<SourceHandle<Box<dyn Listing>>>,
    /// What is listed, and when that began: the source may fetch a page before it is asked for.
    path: PathBuf,
    begun_ns: u64,
    page: Vec<Name>,
    /// Names before those of `page`.
    before: u64,
    is_begun: bool,
}

impl Front {
    pub(super) fn open_directory(&self, node: u64) -> Result<Opened<'static>, Errno> {
        self.nodes.get(node)?;
        // The source is asked by the first read.
        let handle = self.directories.add(OpenDirectory { node, state: Mutex::default() });
        Ok(Opened { handle, ..Opened::default() })
    }

    pub(super) fn read_directory(
        &self,
        handle: u64,
        offset: u64,
        bytes: u32,
    ) -> Result<DirectoryBuffer, Errno> {
        let open = self.directories.get(handle).ok_or(Errno::BADF)?;
        let mut state = lock(&open.state);
        let mut entries = DirectoryBuffer::new(bytes);
        if !state.is_begun || offset < state.before || offset == 0 {
            self.begin(open.node, &mut state)?;
        }
        let mut offset = offset;
        loop {
            while offset >= state.before + state.page.len() as u64 {
                if !self.turn(&mut state)? {
                    return Ok(entries);
                }
            }
            let start = (offset - state.before) as usize;
            for name in &state.page[start..] {
                if !entries.add(name.inode, offset + 1, name.mode, &name.name) {
                    return Ok(entries);
                }
                offset += 1;
            }
            // The next page is asked for by the next read: the source may be slow.
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
    }

    /// Begins to list from the start.
    fn begin(&self, node: u64, state: &mut State) -> Result<(), Errno> {
        let node = self.nodes.get(node)?;
        let (path, seen) = (node.path(), node.known().meta);
        *state = State { path: path.clone(), begun_ns: self.clock.now_ns(), ..State::default() };
        let calls = self.file_systems.calls_of(&path);
        let (source, own) = (Arc::clone(&self.source), Arc::clone(&calls));
        let listing =
            calls.try_run(move || Ok(SourceHandle::new(source.list(&path, Some(&seen))?, &own)))?;
        state.listing = Some(listing);
        state.is_begun = true;
        Ok(())
    }

    /// Goes on to the next page; whether there is one.
    fn turn(&self, state: &mut State) -> Result<bool, Errno> {
        let mut listing = state.listing.take().ok_or(Errno::IO)?;
        // The first page may have been fetched when the listing began.
        let looked_ns = if state.page.is_empty() { state.begun_ns } else { self.clock.now_ns() };
        let calls = Arc::clone(listing.calls());
        let (listing, page) = calls.run(move || {
            let page = listing.next_page()?;
            Ok((listing, page))
        })?;
        state.listing = Some(listing);
        if page.is_empty() {
            return Ok(false);
        }
        state.before += state.page.len() as u64;
        for name in &page {
            if let Some(meta) = &name.meta {
                let known = Known {
                    meta: (**meta).clone(),
                    looked_ns,
                    is_recalled: false,
                    is_refuted: false,
                };
                self.listed.add(state.path.join(OsStr::from_bytes(&name.name)), known);
            }
        }
        state.page = page;
        Ok(true)
    }
}
