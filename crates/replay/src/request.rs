// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace is made of, wherever it comes from.

/// A request for an object, or for a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, from a beginning that is the trace's own.
    pub time_ns: u64,
    /// Which: the number that the trace gives it, or a hash of its name.
    pub object: u64,
    /// The size of the whole object, as far as is known from the trace by now.
    pub size_bytes: u64,
    /// Where the part begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// The number of the client: a rank, a process; 0 where the trace has none.
    pub client: u32,
    /// How long the answer took then; 0 where the trace does not tell.
    pub latency_ns: u64,
    /// What for.
    pub operation: Operation,
}

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read it.
    Read,
    /// Wrote it.
    Write,
    /// Made it; of traces that tell, where [`crate::Options::has_lives`] asks for it.
    Create,
    /// Opened it; likewise.
    Open,
    /// Closed it; likewise.
    Close,
    /// Cut it, or made it longer: to `length_bytes`; likewise.
    SetLength,
    /// Deleted it; likewise.
    Delete,
    /// Asked for its size and times; likewise.
    Stat,
    /// Asked for it to be durable; likewise.
    Sync,
    /// The trace does not tell, or it was something else.
    Unknown,
}

impl Operation {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::SetLength => "set-length",
            Operation::Delete => "delete",
            Operation::Stat => "stat",
            Operation::Sync => "sync",
            Operation::Unknown => "unknown",
        }
    }
}

impl Operation {
    /// Those that neither read nor write.
    pub(crate) const LIVES: [Operation; 7] = [
        Operation::Create,
        Operation::Open,
        Operation::Close,
        Operation::SetLength,
        Operation::Delete,
        Operation::Stat,
        Operation::Sync,
    ];

    /// Whether it reads or writes, as far as is known, and does not make or end something.
    pub(crate) fn is_access(self) -> bool {
        matches!(self, Operation::Read | Operation::Write | Operation::Unknown)
    }
}

impl Request {
    /// A request for a whole object.
    pub(crate) fn whole(time_ns: u64, object: u64, bytes: u64, operation: Operation) -> Self {
        Self {
            time_ns,
            object,
            size_bytes: bytes,
            offset_bytes: 0,
            length_bytes: bytes,
            client: 0,
            latency_ns: 0,
            operation,
        }
    }
}
