// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeing and steering what the tiers do: the same whether owned or attached.

use std::path::PathBuf;
use std::time::Duration;

use terrace_core::{Key, Pair, Persistency, Result, Space};
use terrace_stack::report::{
    CheckReport, Explanation, LedgerReport, MoveReport, PolicyReport, QuotaReport, ScrubReport,
    ScrubStatus, ShadowReport, TierReport,
};
use terrace_stack::{MoveKind, MoveTicket, ScrubOptions};

use crate::Store;
use crate::control::Call;
use crate::policy::{self, Guest};
use crate::store::Side;

impl Store {
    /// All tiers in order of preference.
    pub fn tiers(&self) -> Result<Vec<TierReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.tiers()),
            Side::Attached(link) => link.ask(&Call::Tiers),
        }
    }

    /// Names and directories of the tiers whose files can be handed out, as they were when the store
    /// was opened: none of throttled tiers, and none where another process owns the store.
    pub fn directories_to_lend(&self) -> Vec<(String, PathBuf)> {
        let Side::Owned(owned) = &self.side else { return Vec::new() };
        let tiers = owned.settings.tiers.iter().filter(|tier| tier.throttle.is_none());
        tiers.filter_map(|tier| Some((tier.name.clone(), tier.path.clone()?))).collect()
    }

    /// Adds an empty tier and keeps it in the configuration. `section` is the text of its
    /// `[[tier]]` section; its directory is made if it is missing. It comes before the tier
    /// `before`, or behind all; that order holds from the next opening on, until then it is the
    /// least preferred tier. True where it is used at once, false for a store of one tier without
    /// a policy, which uses it from the next opening on.
    ///
    /// # Errors
    ///
    /// `Invalid` for a section that is wrong, `NotFound` for `before`, `Exists` for a directory in
    /// use, `Denied`, `Busy`, `NoSpace`, `Io`.
    pub fn add_tier(&self, section: &str, before: Option<&str>) -> Result<bool> {
        match &self.side {
            Side::Owned(owned) => owned.add_tier(section, before),
            Side::Attached(link) => {
                link.ask(&Call::AddTier { section: section.into(), before: before.map(Into::into) })
            }
        }
    }

    /// Begins to empty a tier; [`TierReport::drain`] says how far it is. It goes on whenever the
    /// store is open, until it is ended. Objects that are pinned move, too, and stay pinned.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` where no other tier takes new data, `Unsupported`, `Denied`, `Io`.
    pub fn drain_tier(&self, name: &str) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.drain_tier(name),
            Side::Attached(link) => link.ask(&Call::DrainTier { tier: name.into() }),
        }
    }

    /// Ends the drain of a tier. Errors: `NotFound`, `Denied`, `Io`.
    pub fn undrain_tier(&self, name: &str) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.undrain_tier(name),
            Side::Attached(link) => link.ask(&Call::UndrainTier { tier: name.into() }),
        }
    }

    /// Removes a tier that holds nothing, from the configuration, too. Its directory stays.
    ///
    /// # Errors
    ///
    /// `Invalid` for a tier that holds something, with figures, and for the only one; `NotFound`,
    /// `Busy`, `Corrupt` (a damaged record may name it), `Unsupported`, `Denied`, `Io`.
    pub fn remove_tier(&self, name: &str) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.remove_tier(name),
            Side::Attached(link) => link.ask(&Call::RemoveTier { tier: name.into() }),
        }
    }

    /// Everything about an object. Errors: `NotFound`, `Corrupt`, `Io`.
    pub fn explain(&self, key: &Key) -> Result<Explanation> {
        match &self.side {
            Side::Owned(owned) => owned.stack.explain(key),
            Side::Attached(link) => link.ask(&Call::Explain { key: key.clone() }),
        }
    }

    /// Queues migrations of all segments of an object that are not on the tier `to` yet; one
    /// ticket each.
    ///
    /// # Errors
    ///
    /// `NotFound` (object or tier), `Busy` (pinned, or moving already), `Unsupported` (the tier
    /// cannot keep what the object was promised), `Invalid`.
    pub fn migrate(
        &self,
        key: &Key,
        to: &str,
        kind: MoveKind,
        priority: i32,
        reason: &str,
    ) -> Result<Vec<MoveTicket>> {
        match &self.side {
            Side::Owned(owned) => {
                owned.stack.migrate(key, owned.stack.tier(to)?, kind, priority, reason)
            }
            Side::Attached(link) => {
                let (key, to, reason) = (key.clone(), to.into(), reason.into());
                let ids: Vec<u64> = link.ask(&Call::Migrate { key, to, kind, priority, reason })?;
                Ok(ids.into_iter().map(MoveTicket).collect())
            }
        }
    }

    /// Drops the clean copies of an object on a tier. Errors as [`Store::migrate`].
    pub fn drop_copy(&self, key: &Key, tier: &str) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.drop_copy(key, owned.stack.tier(tier)?),
            Side::Attached(link) => {
                link.ask(&Call::DropCopy { key: key.clone(), tier: tier.into() })
            }
        }
    }

    /// Waits for a migration up to `timeout`; `None` when it has not ended by then.
    ///
    /// # Errors
    ///
    /// `NotFound` for one that is unknown or ended long ago.
    pub fn wait(&self, ticket: MoveTicket, timeout: Duration) -> Result<Option<MoveReport>> {
        match &self.side {
            Side::Owned(owned) => owned.stack.wait(ticket, timeout),
            Side::Attached(link) => link.wait_for(timeout, Option::is_some, |timeout_ns| {
                Call::Wait { ticket: ticket.0, timeout_ns }
            }),
        }
    }

    /// Migrations that wait or run, then the last that ended.
    pub fn moves(&self) -> Result<Vec<MoveReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.moves()),
            Side::Attached(link) => link.ask(&Call::Moves),
        }
    }

    /// Cancels one migration. Errors: `NotFound` where it is unknown or has ended.
    pub fn cancel(&self, ticket: MoveTicket) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.cancel(ticket),
            Side::Attached(link) => link.ask(&Call::Cancel { ticket: ticket.0 }),
        }
    }

    /// Cancels all that wait or run; returns how many.
    pub fn cancel_all(&self) -> Result<usize> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.cancel_all()),
            Side::Attached(link) => link.ask(&Call::CancelAll),
        }
    }

    /// Blocks until no migration waits or runs, up to `timeout`; false where it ran out.
    pub fn wait_idle(&self, timeout: Duration) -> Result<bool> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.wait_idle(timeout)),
            Side::Attached(link) => link.wait_for(
                timeout,
                |is_idle| *is_idle,
                |timeout_ns| Call::WaitIdle { timeout_ns },
            ),
        }
    }

    /// Forbids to move an object; kept over restarts. Errors: `NotFound`, `Denied`, `Io`.
    pub fn pin(&self, key: &Key) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.pin(key),
            Side::Attached(link) => link.ask(&Call::Pin { key: key.clone() }),
        }
    }

    /// Allows it again. Errors: `NotFound`, `Denied`, `Io`.
    pub fn unpin(&self, key: &Key) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.unpin(key),
            Side::Attached(link) => link.ask(&Call::Unpin { key: key.clone() }),
        }
    }

    /// The policy now; `None` where there is one tier and no policy. A store that is open for
    /// reading shows the policy that is configured.
    pub fn policy(&self) -> Result<Option<PolicyReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.policy()),
            Side::Attached(link) => link.ask(&Call::Policy),
        }
    }

    /// Swaps the policy while the store runs; when it is called stays as it is. Each policy keeps
    /// its state under its name.
    ///
    /// `name` is that of a built-in policy or a path, which has a `/` or a `.` in it: of a Python
    /// file where it ends in `.py`, else of a shared library. Kept over restarts, like all changes of the policy: they are written into
    /// `terrace.toml`, which otherwise stays as it is.
    ///
    /// # Errors
    ///
    /// `NotFound` for an unknown policy or parameter, `Invalid` for a wrong value or library,
    /// `Unsupported` for a store of one tier that was opened without a policy, `Denied`, `Busy`.
    pub fn set_policy(&self, name: &str, parameters: &[(String, String)]) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.set_policy(name, parameters),
            Side::Attached(link) => {
                // The owner's working directory is another one.
                let name = policy::absolute(name)?;
                link.ask(&Call::SetPolicy { name, parameters: parameters.to_vec() })
            }
        }
    }

    /// Lets a policy in another process decide until [`Store::end_guest`], or until the process ends
    /// that listens at its socket. Nothing of it is written into `terrace.toml`; when the policy
    /// fails, the fallback takes over as for any policy.
    ///
    /// # Errors
    ///
    /// As [`Store::set_policy`], `Busy` where another guest decides, and where nobody answers at its
    /// socket.
    pub fn use_guest(&self, guest: &Guest, parameters: &[(String, String)]) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.owned().use_guest(guest, parameters),
            Side::Attached(link) => link.ask(&Call::UseGuest {
                name: guest.name.clone(),
                socket: guest.socket.clone(),
                parameters: parameters.to_vec(),
            }),
        }
    }

    /// Goes back from this guest to the policy that `terrace.toml` names, or to none; where another
    /// policy decides by now, that stays. Errors: `Busy`, `Denied`, and those of making the policy.
    pub fn end_guest(&self, guest: &Guest) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.end_guest(&guest.socket),
            Side::Attached(link) => link.ask(&Call::EndGuest { socket: guest.socket.clone() }),
        }
    }

    /// Lets a policy decide in the shadow of the one that does, until [`Store::end_shadow`], another
    /// one, or the end of the process that owns the store: it is shown the same in a world where its
    /// decisions are carried out, and nothing of it reaches the store. `name` is as for
    /// [`Store::set_policy`], whose errors it has.
    pub fn set_shadow(&self, name: &str, parameters: &[(String, String)]) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.set_shadow(name, parameters),
            Side::Attached(link) => {
                let name = policy::absolute(name)?;
                link.ask(&Call::SetShadow { name, parameters: parameters.to_vec() })
            }
        }
    }

    /// Ends the policy in the shadow, where there is one. Errors: `Busy`, `Denied`.
    pub fn end_shadow(&self) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.end_shadow(),
            Side::Attached(link) => link.ask(&Call::EndShadow),
        }
    }

    /// What the policy in the shadow would have done; `None` where there is none.
    pub fn shadow(&self) -> Result<Option<ShadowReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.shadow()),
            Side::Attached(link) => link.ask(&Call::Shadow),
        }
    }

    /// Changes a parameter of the running policy. Errors: `NotFound`, `Invalid`, `Busy`.
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.set_parameter(name, value),
            Side::Attached(link) => {
                link.ask(&Call::SetParameter { name: name.into(), value: value.into() })
            }
        }
    }

    /// Switches dry run on or off: decisions are recorded, not carried out. Errors: `Busy`.
    pub fn set_dry_run(&self, is_dry_run: bool) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.set_dry_run(is_dry_run),
            Side::Attached(link) => link.ask(&Call::SetDryRun { is_dry_run }),
        }
    }

    /// Changes when the policy is called. Errors: `Invalid` for zero, `Busy`.
    pub fn set_calls(&self, after_events: Option<u64>, every: Option<Duration>) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.set_calls(after_events, every),
            Side::Attached(link) => {
                let every_ns = every.map(crate::policy::nanoseconds);
                link.ask(&Call::SetCalls { after_events, every_ns })
            }
        }
    }

    /// Sends a message to the policy and returns its reply. Errors: the policy's, `Busy`.
    pub fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        match &self.side {
            Side::Owned(owned) => owned.message(kind, body),
            Side::Attached(link) => link.message(kind, body),
        }
    }

    /// Calls the policy now with everything that happened so far; its actions are queued when
    /// this returns.
    pub fn run_policy(&self) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.run_policy(),
            Side::Attached(link) => link.ask(&Call::RunPolicy),
        }
    }

    /// Checks catalog, accounts and media against each other; with `verify` reads all bytes.
    /// `progress` gets the objects done and their total now and then. Changes nothing.
    pub fn check(&self, verify: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        match &self.side {
            Side::Owned(owned) => owned.stack.check(verify, progress),
            Side::Attached(link) => link.ask_long(&Call::Check { verify }, progress),
        }
    }

    /// Where time went over all tiers.
    pub fn ledger(&self) -> Result<LedgerReport> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.ledger()),
            Side::Attached(link) => link.ask(&Call::Ledger),
        }
    }

    /// Reads every file at a bounded rate and compares it with its checksum, records checksums that
    /// are missing, and mends what a copy can mend.
    ///
    /// `progress` gets the bytes done and their total now and then. False ends the scrub of an
    /// owned store; one that is attached is read by its owner until this process ends.
    ///
    /// # Errors
    ///
    /// `Busy` where another one was asked for, `Invalid` for a rate of zero; what the catalog says.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<ScrubReport> {
        match &self.side {
            Side::Owned(owned) => owned.stack.scrub(options, progress),
            Side::Attached(link) => link.scrub(options, &mut |done, total| {
                progress(done, total);
            }),
        }
    }

    /// When the store was last scrubbed, and how far it is now.
    pub fn scrub_status(&self) -> Result<ScrubStatus> {
        match &self.side {
            Side::Owned(owned) => owned.stack.scrub_status(),
            Side::Attached(link) => link.ask(&Call::ScrubStatus),
        }
    }

    /// What namespaces hold and may hold: those with objects or a limit, by name.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>> {
        match &self.side {
            Side::Owned(owned) => Ok(owned.stack.quotas()),
            Side::Attached(link) => link.ask(&Call::Quotas),
        }
    }

    /// Capacity and use as a namespace sees them: those of all tiers, or, where its bytes are
    /// limited, what it holds and may still take. Of several servers the sum.
    ///
    /// # Errors
    ///
    /// As [`Backend::space`](terrace_core::Backend::space).
    pub fn space_of(&self, namespace: &str) -> Result<Space> {
        match &self.side {
            Side::Owned(owned) => owned.stack.space_of(namespace),
            Side::Attached(link) => link.space_of(namespace),
        }
    }

    /// Limits what a namespace may hold, from now on and over restarts; `None` leaves a limit as
    /// it is. Less than it holds already is allowed, and forbids it to grow.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be, or without any limit; `Denied`, `Io`.
    pub fn set_quota(
        &self,
        namespace: &str,
        bytes_max: Option<u64>,
        objects_max: Option<u64>,
    ) -> Result<QuotaReport> {
        match &self.side {
            Side::Owned(owned) => owned.stack.set_quota(namespace, bytes_max, objects_max),
            Side::Attached(link) => {
                link.ask(&Call::SetQuota { namespace: namespace.into(), bytes_max, objects_max })
            }
        }
    }

    /// Lifts the limits of a namespace. Errors: `NotFound` where it has none, `Denied`, `Io`.
    pub fn clear_quota(&self, namespace: &str) -> Result<QuotaReport> {
        match &self.side {
            Side::Owned(owned) => owned.stack.clear_quota(namespace),
            Side::Attached(link) => link.ask(&Call::ClearQuota { namespace: namespace.into() }),
        }
    }

    /// Reads one of the application's key-value pairs.
    pub fn kv_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_get(namespace, key),
            Side::Attached(link) => link.kv_get(namespace, key),
        }
    }

    /// Writes one, as durable as `persistency` says when this returns.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace, key or value that is too long, `Unsupported` for a level that
    /// the catalog's engine cannot give, `Denied`, `NoSpace`, `Io`.
    pub fn kv_put(
        &self,
        namespace: &str,
        key: &[u8],
        value: &[u8],
        persistency: Persistency,
    ) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_put(namespace, key, value, persistency),
            Side::Attached(link) => link.kv_put(namespace, key, value, persistency),
        }
    }

    /// Removes one; whether it was there. Errors as [`Store::kv_put`].
    pub fn kv_remove(&self, namespace: &str, key: &[u8], persistency: Persistency) -> Result<bool> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_remove(namespace, key, persistency),
            Side::Attached(link) => link.kv_remove(namespace, key, persistency),
        }
    }

    /// Up to `max` pairs whose keys start with `prefix`, in order, after `after`.
    pub fn kv_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<Pair>> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_scan(namespace, prefix, after, max),
            Side::Attached(link) => link.kv_scan(namespace, prefix, after, max),
        }
    }
}
