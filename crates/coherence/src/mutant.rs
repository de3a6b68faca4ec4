// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of the protocol that tests take out, one at a time: the simulation must notice each.

/// A rule that is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The server carries a conflicting request out without a recall.
    NoRecall,
    /// The server sends the recall and does not wait for the answer.
    NoRecallWait,
    /// The server takes capabilities away before the lease of their holder has ended.
    EarlyFence,
    /// The server applies deferred changes of a session that lost the capability.
    NoFence,
    /// A server that was restarted carries requests out at once.
    NoGrace,
    /// A session that lost capabilities without an answer may reclaim them after a restart.
    FencedMayReclaim,
    /// A client may reclaim what it gave back to the instance before.
    ReclaimReleased,
    /// The server takes messages that were for the instance before.
    AnyInstance,
    /// A server that was restarted does not wait for sessions that may not reclaim.
    ForgetFenced,
    /// The server grants capabilities although a request waits for them to be given back.
    GrantWhileParked,
    /// The server grants capabilities although a change ran beside the read.
    GrantBesideChange,
    /// The server lets a request start while a deferred change of another session is applied.
    StartBesideApply,
    /// A release also gives back later grants.
    ReleaseAll,
    /// Deferred changes that come twice are applied twice.
    #[cfg(test)]
    NoSequence,
    /// A request overtakes deferred changes.
    NoBarrier,
    /// The client gives capabilities back before it has flushed.
    ReleaseBeforeFlush,
    /// The client caches by a grant that was recalled before the reply came.
    NoFloor,
    /// The client answers from its cache after its lease has ended.
    NoLease,
    /// The client counts its lease from when the reply comes, not from when it asked.
    LeaseFromReply,
    /// A reply renews the lease although recalls that were sent before are missing.
    RenewBesideRecall,
    /// The client caches what it read beside its own change.
    CacheBesideOwnChange,
    /// The client caches of an inode that it did not ask for what is older than its own deferred changes.
    CacheBesideDeferred,
    /// The client does not give back what was recalled while the last change of it was under way.
    KeepRecalled,
    /// The server applies deferred changes of an inode whose making it has refused.
    NoBirth,
    /// The server applies deferred changes that build on one that it has refused with them.
    BuildOnRefused,
    /// The server changes an inode that the client holds and did not name.
    ChangeUnnamed,
    /// The client loses refused changes without a report.
    NoLossReport,
}

/// The rule that is taken out of a state machine; none outside tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutated {
    #[cfg(test)]
    pub(crate) by: Option<Mutant>,
}

impl Mutated {
    /// Whether this rule is taken out.
    #[cfg(test)]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        self.by == Some(mutant)
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) fn is(self, _: Mutant) -> bool {
        false
    }
}
