// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a request changes.

use terrace_fs::{Effect, Left, LockKind, Request};

/// Which nodes a request changes, as far as can be seen from it.
#[derive(PartialEq, Eq)]
pub(crate) enum Changed {
    None,
    These(Vec<u64>),
    Any,
}

impl Changed {
    pub(crate) fn by(request: &Request<'_>) -> Self {
        if request.effect() == Effect::Look {
            return Self::None;
        }
        match request {
            // Whoever had it locked may have changed it.
            Request::Lock { number, locked, .. } if locked.range.kind != LockKind::Unlock => {
                Self::These(vec![*number])
            }
            // Nobody writes to it with that.
            Request::OpenAhead { .. } | Request::Open { is_for_writing: false, .. } => Self::None,
            // That an object may be there is nothing that is told of a node.
            Request::Lock { .. }
            | Request::NoteObject { .. }
            | Request::Reserve { .. }
            | Request::Numbers { .. }
            | Request::Collected { .. }
            | Request::Sync => Self::None,
            Request::Make { directory, .. }
            | Request::MakeNumbered { directory, .. }
            | Request::Remove { directory, .. }
            | Request::RemoveNumbered { directory, .. } => Self::These(vec![*directory]),
            Request::Link { number, directory, .. } => Self::These(vec![*number, *directory]),
            Request::Change { number, .. }
            | Request::SetXattr { number, .. }
            | Request::RemoveXattr { number, .. }
            | Request::Mark { number, .. }
            | Request::MarkOne { number, .. }
            | Request::Open { number, .. }
            | Request::Settle { number, .. }
            | Request::Write { number, .. }
            | Request::MoveOut { number, .. } => Self::These(vec![*number]),
            Request::Close { closed, read, .. } => {
                // Else nothing changes, but that one without a name goes: how long an object is that was
                // written is not known as long as nobody says so, and a small file changed before.
                let written = closed.iter().filter(|it| it.left != Left::Unknown);
                let written = written.map(|closed| closed.number);
                let nodes: Vec<_> = written.chain(read.iter().map(|read| read.number)).collect();
                if nodes.is_empty() { Self::None } else { Self::These(nodes) }
            }
            // What is moved changes, too, and nobody says which node it is.
            _ => Self::Any,
        }
    }
}
