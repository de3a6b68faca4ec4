// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in the place of a file system that is to be made.
//!
//! Its first files would have the numbers of those that were there before, and with these their
//! objects: it would read, write over and delete what is not its own.

use terrace_core::{Backend, Cursor, Error, ErrorKind, Kv, Result};
use terrace_fs::{NUMBERS_MARGIN, Tree, TreeOptions, is_recognized, number_of};

use crate::Store;
use crate::companions::{MAKE, check_unmarked, first_object};
use crate::store::Side;

/// Keys that are listed together.
const PAGE_KEYS: usize = 1000;

const ADOPT: &str = "make a file system of objects";

impl Store {
    /// Makes a file system of the objects in a namespace of an owned store whose names are lost. They
    /// are not in it still: [`Store::mend_files`] finds them and puts them into `lost+found`.
    ///
    /// # Errors
    ///
    /// `Exists` where there is a file system already; `Invalid` where an object was no file of one,
    /// or lies over several servers; `NotFound` where there are no objects; `Busy` where the store is
    /// attached; `Io`.
    pub fn adopt_files(&self, name: &str, options: &TreeOptions) -> Result<()> {
        let owned = match &self.side {
            Side::Owned(owned) => owned,
            Side::Attached(link) => return Err(link.busy(ADOPT)),
        };
        owned.check_writable(ADOPT)?;
        let kv = owned.stack.kv(name)?;
        if is_recognized(&*kv).map_err(|failure| failure.into_error(ADOPT))? {
            return Err(Error::new(ErrorKind::Exists, ADOPT)
                .because("there is a file system already; `terrace fsck --repair` mends it")
                .with("name", name));
        }
        check_unmarked(&*kv, ADOPT, name)?;
        let Some(highest) = highest_number(&owned.stack, name)? else {
            return Err(Error::new(ErrorKind::NotFound, ADOPT)
                .because("there are none")
                .with("name", name));
        };
        // Some may be on a tier that is missing, and come back.
        let Some(first_number) = highest.checked_add(NUMBERS_MARGIN) else {
            return Err(Error::invalid(ADOPT, "their numbers leave too few for new files")
                .with("name", name));
        };
        make_tree(&*kv, &TreeOptions { first_number, ..options.clone() })
    }

    /// Refuses to make a file system where there are objects.
    pub(crate) fn check_no_objects(&self, name: &str) -> Result<()> {
        let (found, is_behind_servers) = match &self.side {
            Side::Owned(owned) => (first_object(&owned.stack, name)?, false),
            Side::Attached(link) => {
                // Of each by itself: what lies over several is a part on each of them, which no
                // list of all of them has.
                let mut servers = link.file_servers().into_iter();
                let found = servers.find_map(|(server, remote)| {
                    let found = first_object(remote, name);
                    found.map_err(|error| error.with("server", server)).transpose()
                });
                (found.transpose()?, !link.servers().is_empty())
            }
        };
        let Some(key) = found else { return Ok(()) };
        let elsewhere = match is_behind_servers {
            true => "name all servers that it lies over, also the one with the names",
            false => "where servers have the names, mount it through these",
        };
        let reason = format!(
            "there are objects of its files, but not their names, and new files would write over \
             them: {elsewhere}; where the names are lost, `terrace fsck --repair --adopt {name}` \
             brings the files back; --name OTHER makes another file system"
        );
        Err(Error::new(ErrorKind::Exists, MAKE).because(reason).with("key", key))
    }
}

/// The highest number that the objects of a namespace are named by; `None` where there are none.
fn highest_number(data: &dyn Backend, namespace: &str) -> Result<Option<u64>> {
    let mut highest = None;
    let mut cursor = Some(Cursor::start());
    while let Some(from) = cursor {
        let page = data.list(namespace, "", &from, PAGE_KEYS)?;
        for key in page.keys {
            let number = number_of(key.name()).ok_or_else(|| {
                Error::invalid(ADOPT, "one of them is no file of a file system").with("key", &key)
            })?;
            if data.stat(&key)?.is_labelled {
                return Err(Error::invalid(ADOPT, "one of them lies over several servers")
                    .with("key", &key));
            }
            highest = highest.max(Some(number));
        }
        cursor = page.next;
    }
    Ok(highest)
}

/// Makes a file system of pairs.
fn make_tree(kv: &dyn Kv, options: &TreeOptions) -> Result<()> {
    let mut entropy = [0; 32];
    terrace_transport::random_bytes(&mut entropy)?;
    let clock = terrace_core::SystemClock::default();
    Tree::create(kv, options, &clock, &entropy).map_err(|failure| failure.into_error(MAKE))
}
