// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a store to its files.

use std::sync::Arc;

use terrace_core::{Clock, Error, ErrorKind, Result, Semantics, SystemClock};
use terrace_fs::{Files, FilesOptions, Session, Tree, TreeOptions};
use terrace_store::Store;

/// The name of the file system that is meant where none is named, and the namespace of its objects.
pub const NAME_DEFAULT: &str = "files";

/// How to open the files of a store.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The file system: a store may have several, each in a namespace of its own.
    pub name: String,
    /// How to make it where it is not there; `None`: it must be there.
    pub create: Option<TreeOptions>,
    /// Objects that are made ahead of files.
    pub ready_objects: usize,
}

/// Opens the files of a store that this process owns.
///
/// # Errors
///
/// `Busy` where another process owns the store; `NotFound` where there is no such file system and
/// none is to be made; what store and metadata say.
pub fn open(store: &Store, opening: &Opening) -> Result<Arc<Files>> {
    let Some(stack) = store.stack() else {
        return Err(Error::new(ErrorKind::Busy, "open a file system")
            .because("another process owns the store"));
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let kv = stack.kv(&opening.name)?;
    if !Tree::exists(&*kv).map_err(|failure| failure.into_error("open a file system"))? {
        let Some(options) = &opening.create else {
            return Err(Error::new(ErrorKind::NotFound, "open a file system")
                .because("the store has none of this name; `terrace mount` makes one")
                .with("name", &opening.name));
        };
        Tree::create(&*kv, options, &*clock, &entropy()?)
            .map_err(|failure| failure.into_error("make a file system"))?;
    }
    let options = FilesOptions {
        namespace: opening.name.clone(),
        semantics: Semantics::DEFAULT,
        ready_objects: opening.ready_objects,
        is_alone: true,
    };
    let files = (|| {
        let tree = Tree::open(kv, Arc::clone(&clock))?;
        tree.discard_nameless()?;
        let session = Arc::new(Session::new(&tree));
        Files::new(session, Arc::new(store.clone()), clock, options)
    })();
    files.map_err(|failure| failure.into_error("open a file system"))
}

fn entropy() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::from_io("take random numbers", errno.into()))?;
    // Up to 256 bytes come whole (getrandom(2)).
    assert_eq!(filled, bytes.len(), "the kernel gave fewer random bytes than it promises");
    Ok(bytes)
}
