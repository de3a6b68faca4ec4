// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel asked of a mount: counters and latencies.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use terrace_core::{Clock, Latencies, LatencyReport, SystemClock};
use terrace_fuse::{AnswerObserver, Operation};

/// Error numbers that are counted one by one, with their names; all others are `other`.
const ERRNOS: [(Errno, &str); 24] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::MFILE, "EMFILE"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::ROFS, "EROFS"),
    (Errno::RANGE, "ERANGE"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::NODATA, "ENODATA"),
    (Errno::STALE, "ESTALE"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::HOSTUNREACH, "EHOSTUNREACH"),
];

/// Groups of operations of the kernel.
const GROUPS: [&str; 10] =
    ["lookup", "attributes", "xattr", "open", "read", "write", "sync", "names", "list", "other"];

/// The group of an operation in [`GROUPS`]; `None` for what is not answered, and for locks, which may wait for ever.
fn group(operation: &Operation<'_>) -> Option<usize> {
    use Operation as O;
    Some(match operation {
        O::Lookup { .. } | O::ReadLink => 0,
        O::GetAttr { .. } | O::Statx { .. } | O::SetAttr(_) | O::Access { .. } => 1,
        O::SetXattr { .. } | O::GetXattr { .. } | O::ListXattr { .. } | O::RemoveXattr { .. } => 2,
        O::Open { .. }
        | O::Create { .. }
        | O::TmpFile { .. }
        | O::Release { .. }
        | O::Flush { .. } => 3,
        O::Read { .. } => 4,
        O::Write { .. } => 5,
        O::Fsync { .. } | O::FsyncDir { .. } | O::SyncFs => 6,
        O::SymLink { .. }
        | O::MkNod { .. }
        | O::MkDir { .. }
        | O::Unlink { .. }
        | O::RmDir { .. }
        | O::Rename { .. }
        | O::Link { .. } => 7,
        O::OpenDir { .. } | O::ReadDir { .. } | O::ReadDirPlus { .. } | O::ReleaseDir { .. } => 8,
        O::Forget { .. } | O::BatchForget(_) | O::GetLock(_) | O::SetLock { .. } => return None,
        _ => 9,
    })
}

/// Counters of the requests of one mount.
#[derive(Debug, Default)]
pub struct Requests {
    latencies: [Latencies; GROUPS.len()],
    /// Of [`ERRNOS`], then all others.
    errors: [AtomicU64; ERRNOS.len() + 1],
    clock: SystemClock,
}

/// The requests of one mount so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestsReport {
    /// From when a request was read to its answer, by groups of operations.
    pub latencies: Vec<(&'static str, LatencyReport)>,
    /// Answers that were errors, by the names of their numbers.
    pub errors: Vec<(&'static str, u64)>,
}

impl Requests {
    /// What was asked so far.
    pub fn report(&self) -> RequestsReport {
        let names = ERRNOS.iter().map(|(_, name)| *name).chain(["other"]);
        let errors = names.zip(&self.errors);
        let errors = errors.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let latencies = GROUPS.into_iter().zip(&self.latencies);
        RequestsReport {
            latencies: latencies.map(|(name, one)| (name, one.report())).collect(),
            errors: errors.collect(),
        }
    }

    /// The group of a request that is counted, and when it came.
    pub(crate) fn begin(&self, operation: &Operation<'_>) -> Option<(usize, u64)> {
        group(operation).map(|group| (group, self.clock.now_ns()))
    }
}

impl AnswerObserver for Requests {
    fn answered(&self, group: usize, started_ns: u64, error: Option<Errno>) {
        self.latencies[group].add(self.clock.now_ns().saturating_sub(started_ns));
        if let Some(errno) = error {
            let index = ERRNOS.iter().position(|(known, _)| *known == errno);
            self.errors[index.unwrap_or(ERRNOS.len())].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_by_group_and_errors_by_number() {
        let requests = Requests::default();
        let (group, started_ns) =
            requests.begin(&Operation::Lookup { name: b"x" }).expect("it is answered");
        requests.answered(group, started_ns, None);
        requests.answered(group, started_ns, Some(Errno::NOENT));
        requests.answered(group, started_ns, Some(Errno::NOTTY));
        assert_eq!(requests.begin(&Operation::Forget { count: 1 }), None);
        let report = requests.report();
        assert_eq!((report.latencies[0].0, report.latencies[0].1.count()), ("lookup", 3));
        assert!(report.latencies[1..].iter().all(|(_, one)| one.count() == 0));
        let errors: Vec<_> = report.errors.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(errors, [("ENOENT", 1), ("other", 1)]);
    }
}
