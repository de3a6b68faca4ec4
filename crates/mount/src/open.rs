// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a store to its files.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Clock, ErrorKind, Result, Semantics, SystemClock};
use terrace_fs::{AskSpace, Files, FilesOptions, Metadata, Reply, Request, Session, TreeOptions};
use terrace_store::{Alone, FilesUse, Store};

/// The name of the file system that is meant where none is named, and the namespace of its objects.
pub const NAME_DEFAULT: &str = "files";

/// How to open the files of a store.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The file system: a store may have several, each in a namespace of its own.
    pub name: String,
    /// How to make it where it is not there; `None`: it must be there.
    pub create: Option<TreeOptions>,
    /// Objects that are made ahead of files, with exclusive use.
    pub ready_objects: usize,
    /// Whether anything may be changed.
    pub access: Access,
    /// Whether what there is may be read where servers are missing over which the file system lies.
    /// Nothing may be changed then.
    pub degraded: bool,
    /// How long the bytes of a small file that is open are believed where others use the files, too;
    /// zero: each operation sees what others did before it.
    pub believed_for: Duration,
}

/// The metadata of a file system with exclusive use.
struct Ours {
    session: Session,
    /// Dropped behind the session.
    _alone: Alone,
}

impl Metadata for Ours {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        self.session.call(request)
    }
}

/// Opens the files of a store: exclusively where this process owns it and no other process uses them, and
/// beside others otherwise.
///
/// # Errors
///
/// `NotFound` where there is no such file system and none is to be made; `Exists` where there are
/// objects in the place of one that is to be made, and where servers are missing over which it lies;
/// `Busy` where another process uses it exclusively; what store
/// and metadata say.
pub fn open(store: &Store, opening: &Opening) -> Result<Arc<Files>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    if let Some(options) = &opening.create
        && !store.has_files(&opening.name)?
    {
        match store.create_files(&opening.name, options) {
            // Another process did meanwhile, unless it is something else that is there.
            Err(error)
                if error.kind() == ErrorKind::Exists && store.has_files(&opening.name)? => {}
            made => made?,
        }
    }
    store.join_files(&opening.name, usage(opening))?;
    let is_alone = !store.is_attached();
    let mut inline_bytes_max = 0;
    let metadata: Arc<dyn Metadata> = match is_alone {
        true => {
            let alone = store.files_alone(&opening.name)?;
            inline_bytes_max = alone.tree().inline_bytes_max();
            Arc::new(Ours { session: Session::new(alone.tree()), _alone: alone })
        }
        false => store.files(&opening.name)?,
    };
    let options = FilesOptions {
        namespace: opening.name.clone(),
        semantics: Semantics::DEFAULT,
        ready_objects: if is_alone { opening.ready_objects } else { 0 },
        is_alone,
        access: opening.access,
        believed_for: if is_alone { Duration::MAX } else { opening.believed_for },
        inline_bytes_max,
        space: Some(space_of(store, &opening.name)),
    };
    Files::new(metadata, Arc::new(store.clone()), clock, options)
        .map_err(|failure| failure.into_error("open a file system"))
}

/// Asks for room as the namespace of the files sees it.
fn space_of(store: &Store, name: &str) -> AskSpace {
    let (store, name) = (store.clone(), name.to_owned());
    AskSpace(Arc::new(move || store.admin().space_of(&name)))
}

fn usage(opening: &Opening) -> FilesUse {
    match (opening.access, opening.degraded) {
        (Access::Write, _) => FilesUse::Change,
        (Access::Read, false) => FilesUse::Read,
        (Access::Read, true) => FilesUse::ReadPart,
    }
}
