// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening and closing files.

use std::sync::Arc;

use rustix::io::Errno;
use terrace_core::Access;

use super::closing::Queued;
use super::left::settled;
use super::open::Shared;
use super::table::Opened;
use super::{File, Files, unexpected};
use crate::failure::Result;
use crate::node::Node;
use crate::request::{Closed, Left, Reply, Request};

impl Files {
    /// Opens an existing file.
    ///
    /// # Errors
    ///
    /// `ISDIR`, `INVAL` for what has no bytes, `STALE`.
    pub fn open(self: &Arc<Self>, number: u64, access: Access) -> Result<(Node, File)> {
        let found = self.find_ahead(number, access);
        let ahead = found.or_else(|| self.open_ahead(number, access));
        let (told, file) = self.note_gone(self.open_stale(number, access))?;
        match self.as_opened(told.or(ahead), &file) {
            Ok(node) => {
                file.shared().note_permissions(&node);
                Ok((node, file))
            }
            Err(failure) => {
                file.close_unused();
                Err(failure)
            }
        }
    }

    /// What is known of a file that was just opened, when the answer had something of it.
    fn as_opened(&self, told: Option<Node>, file: &File) -> Result<Node> {
        match told {
            Some(node) => self.with_object(node),
            // It is open here already: what was known of it then is not what others closed since.
            None if !self.options.is_alone && file.object().is_none() => {
                self.with_object(file.shared().refresh(self)?)
            }
            None => self.with_object(self.ask_node(&Request::Node { number: file.number() })?),
        }
    }

    /// Opens an existing file; with what is known of it where that was asked for on the way.
    pub(super) fn open_stale(
        self: &Arc<Self>,
        number: u64,
        access: Access,
    ) -> Result<(Option<Node>, File)> {
        self.open_in(&mut self.open.hold(number).opened, number, access)
    }

    /// The same, while the caller holds its number.
    pub(super) fn open_in(
        self: &Arc<Self>,
        open: &mut Option<Opened>,
        number: u64,
        access: Access,
    ) -> Result<(Option<Node>, File)> {
        let is_for_writing = access == Access::Write;
        let known = open.as_ref();
        let is_registered = known.is_some_and(|opened| match access {
            Access::Read => opened.readers > 0,
            Access::Write => opened.writers > 0,
        });
        let mut told = None;
        if !is_registered {
            let reply = self.metadata.call(&Request::Open { number, is_for_writing })?;
            let Reply::Opened { node, content } = reply else { return Err(unexpected(&reply)) };
            let file = match known {
                // Others have it open, or its close here is still to be sent.
                None if node.links == 0 && !self.may_open_unlinked(number) => {
                    Err(Errno::STALE.into())
                }
                Some(opened) => {
                    let file = Arc::clone(&opened.file);
                    file.reopen(self, &node, content, access).map(|()| file)
                }
                None => Shared::open(self, &node, content, access).map(Arc::new),
            };
            let file = file.inspect_err(|_| {
                let _ = self.close_unused_with_metadata(number, is_for_writing);
            })?;
            open.get_or_insert_with(|| Opened {
                file,
                readers: 0,
                writers: 0,
                opened_for_writing: 0,
            });
            told = Some(node);
        }
        let opened = open.as_mut().expect("it was there or was just put there");
        match access {
            Access::Read => opened.readers += 1,
            Access::Write => {
                opened.writers += 1;
                opened.opened_for_writing += 1;
            }
        }
        Ok((told, File::new(self, Arc::clone(&opened.file), access)))
    }

    /// Whether a file without a name can be opened that is not open here.
    fn may_open_unlinked(&self, number: u64) -> bool {
        self.unlinked.contains(number) || self.kept.contains(number, self.clock.now_ns())
    }

    /// Closes what `open` opened; `is_unused` where nothing was done with it.
    pub(super) fn close_file(
        &self,
        file: Arc<Shared>,
        access: Access,
        is_unused: bool,
    ) -> Result<()> {
        let number = file.number;
        let mut here = self.open.hold(number);
        let Some(opened) = &mut here.opened else { return Ok(()) };
        let count = match access {
            Access::Read => &mut opened.readers,
            Access::Write => &mut opened.writers,
        };
        *count -= 1;
        let is_last = *count == 0;
        let is_untouched = is_unused && opened.opened_for_writing == 1;
        let is_closed = opened.readers == 0 && opened.writers == 0;
        if is_closed {
            here.opened = None;
            self.told.close(number);
        }
        if !is_last {
            return Ok(());
        }
        let is_for_writing = access == Access::Write;
        if is_for_writing && is_untouched {
            // A caller that could not ask its object would wait in vain once more.
            drop(file);
            return self.close_unused_with_metadata(number, is_for_writing);
        }
        let left = match is_for_writing {
            // A caller that waited for it in vain a moment ago does not wait again only to close it.
            true if self.is_silent(number) => None,
            true => self.stat_left(file, !is_closed),
            false => None,
        };
        let left = left.map_or(Left::Unknown, |stat| Left::Settled(settled(stat)));
        if !self.options.is_alone && left == Left::Unknown {
            // Nothing of it is needed soon.
            self.closing.push(|queued| {
                queued.closed.push(Closed { number, is_for_writing, left });
            });
            return Ok(());
        }
        self.close_with_metadata(number, is_for_writing, left)
    }

    /// Whether the servers of a file did not answer a moment ago.
    fn is_silent(&self, number: u64) -> bool {
        [&self.away, &self.uncut].iter().any(|away| away.contains(number, &*self.clock))
    }

    /// Tells the metadata that a file is closed of which no user here has changed anything.
    fn close_unused_with_metadata(&self, number: u64, is_for_writing: bool) -> Result<()> {
        let left = if is_for_writing { Left::Untouched } else { Left::Unknown };
        self.close_with_metadata(number, is_for_writing, left)
    }

    pub(super) fn close_with_metadata(
        &self,
        number: u64,
        is_for_writing: bool,
        left: Left,
    ) -> Result<()> {
        let closed = vec![Closed { number, is_for_writing, left }];
        self.closing.tell(Queued { closed, ..Queued::default() })
    }
}
