// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations of administration.

use std::path::Path;
use std::time::Duration;

use terrace_core::{Access, Clock as _, Key, Result, Space, SystemClock};
use terrace_server::Called;
use terrace_settings::policy::nanoseconds;
use terrace_settings::{Guest, PolicySource};
use terrace_stack::report::{
    BackupReport, CheckReport, Explanation, LedgerReport, MoveReport, PolicyReport, QuotaReport,
    RecordingReport, ScrubReport, ScrubStatus, ShadowReport, TierReport, VersionReport,
};
use terrace_stack::{MoveKind, MoveTicket, ScrubOptions, WatchFilter};

use crate::reports::{FilesReport, Recording, Seen};
use crate::request::{Argument, Progress, Request, answer, not_a_call, read};

/// The first, or the second where the first is missing.
macro_rules! or {
    (; $missing:expr) => {
        $missing
    };
    ($given:expr; $missing:expr) => {
        $given
    };
}

/// Declares operations, and carries out requests for them.
///
/// `Write` before an operation refuses it to clients that may only read. `; progress` is for those that take
/// long. `here "…" if …` refuses it to clients of other machines, with what they cannot do.
macro_rules! operations {
    ($(
        $(#[$documentation:meta])*
        $access:ident fn $name:ident($($argument:ident: $type:ty),* $(; $progress:ident)?) -> $result:ty
        $(, here $what:literal $(if $is_here:expr)?)?;
    )*) => {
        /// Shows and steers what a store does: its tiers, migrations, policy, checks, limits and records.
        ///
        /// It is the same whether this process owns the store, another one does, or it lies over several
        /// servers. Of several, what cannot be asked of all at once is `Unsupported`.
        pub trait Admin: Send + Sync {
            /// Carries out the operation of a request.
            #[doc(hidden)]
            fn perform(&self, request: &Request<'_>, progress: Progress<'_>) -> Result<Called>;

            /// Watches what happens in the store, until `see` returns false.
            ///
            /// What the owner tells a watcher waits in a queue of 4 MiB; where the watcher is too slow,
            /// the oldest is thrown away, and the next notice is [`terrace_stack::Happening::Lost`]. The
            /// store itself never waits for a watcher.
            ///
            /// # Errors
            ///
            /// `Busy` where 16 watch already; `Unreachable` once the store is closed, or its owner or
            /// server went away; `Unsupported` for a store behind several servers.
            fn watch(&self, filter: &WatchFilter, see: &mut dyn FnMut(Seen) -> bool) -> Result<()>;

            /// Sends a message to the policy and returns its reply. Errors: the policy's, `Busy`.
            fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
                let request = Request::new("message", body).with("kind", kind)?;
                Ok(self.perform(&request, &mut |_, _| true)?.body)
            }

            /// Capacity and use as a namespace sees them: those of all tiers, or, where its bytes are
            /// limited, what it holds and may still take. Of several servers the sum.
            ///
            /// # Errors
            ///
            /// As [`Backend::space`](terrace_core::Backend::space).
            fn space_of(&self, namespace: &str) -> Result<Space> {
                let request = Request::new("space_of", b"").with("namespace", namespace)?;
                let answer = self.perform(&request, &mut |_, _| true)?;
                let (capacity_bytes, used_bytes) = read(&answer.json)?;
                Ok(Space { capacity_bytes, used_bytes, file_system: None })
            }

            $(
                $(#[$documentation])*
                fn $name(&self, $($argument: $type,)* $($progress: Progress<'_>)?) -> Result<$result> {
                    let request = Request::new(stringify!($name), b"")
                        $(.with(stringify!($argument), $argument)?)*;
                    read(&self.perform(&request, or!($($progress)?; &mut |_, _| true))?.json)
                }
            )*
        }

        /// Carries out the operation of a request, where it is one that was declared.
        pub(crate) fn carry_out(
            admin: &dyn Admin,
            request: &Request<'_>,
            progress: Progress<'_>,
        ) -> Result<Called> {
            match &*request.operation() {
                $(stringify!($name) => {
                    $(let $argument = request.argument::<$type>(stringify!($argument))?;)*
                    $(let $argument = <$type as Argument<'_>>::lend(&$argument);)*
                    $(let $progress = progress;)?
                    $(request.check_local($what, or!($($is_here)?; true))?;)?
                    request.check(Access::$access)?;
                    admin.$name($($argument,)* $($progress)?).and_then(|result| answer(&result))
                })*
                _ => Err(not_a_call(serde::de::Error::custom("there is no such verb"))),
            }
        }
    };
}

operations! {
    /// All tiers in order of preference.
    Read fn tiers() -> Vec<TierReport>;

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
    Write fn add_tier(section: &str, before: Option<&str>) -> bool, here "add a tier";

    /// Begins to empty a tier; [`TierReport::drain`] says how far it is. It goes on whenever the
    /// store is open, until it is ended. Objects that are pinned move, too, and stay pinned.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` where no other tier takes new data, `Unsupported`, `Denied`, `Io`.
    Write fn drain_tier(tier: &str) -> ();

    /// Ends the drain of a tier. Errors: `NotFound`, `Denied`, `Io`.
    Write fn undrain_tier(tier: &str) -> ();

    /// Removes a tier that holds nothing, from the configuration, too. Its directory stays.
    ///
    /// # Errors
    ///
    /// `Invalid` for a tier that holds something, with figures, and for the only one; `NotFound`,
    /// `Busy`, `Corrupt` (a damaged record may name it), `Unsupported`, `Denied`, `Io`.
    Write fn remove_tier(tier: &str) -> (), here "remove a tier";

    /// Everything about an object. Errors: `NotFound`, `Corrupt`, `Io`.
    Read fn explain(key: &Key) -> Explanation;

    /// The earlier and deleted values of an object that tiers with `keep_deleted` have, the latest first.
    ///
    /// # Errors
    ///
    /// `Unsupported` for several servers as one store; what the catalog says.
    Read fn versions(key: &Key) -> Vec<VersionReport>;

    /// Makes an object `to` of a value that `key` had: of the version of this name in [`Admin::versions`],
    /// or of the latest. An object that exists is replaced only where `replaces` is true. `progress`
    /// gets the bytes done and their total now and then.
    ///
    /// # Errors
    ///
    /// `NotFound` where no such version is kept, `Unsupported` where a part of it is not, and for
    /// several servers as one store; `Exists`, `Corrupt`, `NoSpace`, `Denied`, `Io`.
    Write fn undelete(key: &Key, version: Option<&str>, to: &Key, replaces: bool; progress) -> VersionReport;

    /// Queues migrations of all segments of an object that are not on the tier `to` yet; one
    /// ticket each.
    ///
    /// # Errors
    ///
    /// `NotFound` (object or tier), `Busy` (pinned, or moving already), `Unsupported` (the tier
    /// cannot keep what the object was promised), `Invalid`.
    Write fn migrate(key: &Key, to: &str, kind: MoveKind, priority: i32, reason: &str) -> Vec<MoveTicket>;

    /// Drops the clean copies of an object on a tier. Errors as [`Admin::migrate`].
    Write fn drop_copy(key: &Key, tier: &str) -> ();

    /// Waits for a migration as `wait` does, but half a second at most.
    Read fn wait_briefly(ticket: MoveTicket, timeout: Duration) -> Option<MoveReport>;

    /// Migrations that wait or run, then the last that ended.
    Read fn moves() -> Vec<MoveReport>;

    /// Cancels one migration. Errors: `NotFound` where it is unknown or has ended.
    Write fn cancel(ticket: MoveTicket) -> ();

    /// Cancels all that wait or run; returns how many.
    Write fn cancel_all() -> usize;

    /// Waits as `wait_idle` does, but half a second at most.
    Read fn wait_idle_briefly(timeout: Duration) -> bool;

    /// Forbids to move an object; kept over restarts. Errors: `NotFound`, `Denied`, `Io`.
    Write fn pin(key: &Key) -> ();

    /// Allows it again. Errors: `NotFound`, `Denied`, `Io`.
    Write fn unpin(key: &Key) -> ();

    /// The policy now; `None` where there is one tier and no policy. A store that is open for
    /// reading shows the policy that is configured.
    Read fn policy() -> Option<PolicyReport>;

    /// Swaps the policy while the store runs; when it is called stays as it is. Each policy keeps
    /// its state under its name. Kept over restarts, like all changes of the policy: they are written
    /// into `terrace.toml`, which otherwise stays as it is.
    ///
    /// # Errors
    ///
    /// `NotFound` for an unknown policy or parameter, `Invalid` for a wrong value or library,
    /// `Unsupported` for a store of one tier that was opened without a policy, `Denied`, `Busy`.
    Write fn set_policy(name: &PolicySource, parameters: &[(String, String)]) -> (),
        here "load a policy" if !matches!(name, PolicySource::Name(_));

    /// Lets a policy in another process decide until [`Admin::end_guest`], or until the process ends
    /// that listens at its socket. Nothing of it is written into `terrace.toml`; when the policy
    /// fails, the fallback takes over as for any policy.
    ///
    /// # Errors
    ///
    /// As [`Admin::set_policy`], `Busy` where another guest decides, and where there is no listener at its
    /// socket.
    Write fn use_guest(guest: &Guest, parameters: &[(String, String)]) -> (),
        here "use a policy of another process";

    /// Goes back from the guest at this socket to the policy that `terrace.toml` names, or to none; where
    /// another policy decides by now, that stays. Errors: `Busy`, `Denied`, and those of making the policy.
    Write fn end_guest(socket: &Path) -> (), here "use a policy of another process";

    /// Lets a policy decide in the shadow of the one that does, until [`Admin::end_shadow`], another
    /// one, or the end of the process that owns the store: it is shown the same in a world where its
    /// decisions are carried out, and nothing of it reaches the store. Errors as [`Admin::set_policy`].
    Write fn set_shadow(name: &PolicySource, parameters: &[(String, String)]) -> (),
        here "load a policy" if !matches!(name, PolicySource::Name(_));

    /// Ends the policy in the shadow, where there is one. Errors: `Busy`, `Denied`.
    Write fn end_shadow() -> ();

    /// What the policy in the shadow would have done; `None` where there is none.
    Read fn shadow() -> Option<ShadowReport>;

    /// Changes a parameter of the running policy. Errors: `NotFound`, `Invalid`, `Busy`.
    Write fn set_parameter(name: &str, value: &str) -> ();

    /// Switches dry run on or off: decisions are recorded, not carried out. Errors: `Busy`.
    Write fn set_dry_run(is_dry_run: bool) -> ();

    /// Changes when the policy is called. Errors: `Invalid` for zero, `Busy`.
    Write fn set_calls(after_events: Option<u64>, every: Option<Duration>) -> ();

    /// Calls the policy now with everything that happened so far; its actions are queued when
    /// this returns.
    Write fn run_policy() -> ();

    /// Checks catalog, accounts and media against each other; with `verify` reads all bytes.
    /// `progress` gets the objects done. Changes nothing.
    Read fn check(verify: bool; progress) -> CheckReport;

    /// Checks every unused file system of the store: names, nodes and objects against each
    /// other. None can be opened while it is checked. `progress` gets the pairs done, and no total.
    /// Changes nothing.
    ///
    /// The reports say how the files are reached that `places` are about, those of findings of
    /// [`Admin::check`]; of the first thousand, and in file systems that are in use, too.
    ///
    /// Over several servers each checks the file systems whose metadata it keeps, and not which
    /// objects there are.
    Read fn check_files(places: &[String]; progress) -> Vec<FilesReport>;

    /// Writes the catalog to a file as of one moment, while the store is in use; the file is there
    /// when it is whole and durable. `progress` gets the pairs done, and no total.
    ///
    /// # Errors
    ///
    /// `Exists` where the file is there, unless `replace`; `Denied`, `NoSpace`, `Io`.
    Read fn backup(file: &Path, replace: bool; progress) -> BackupReport, here "write a backup";

    /// Records a trace from now on, until [`Admin::stop_recording`] or the end of the store.
    ///
    /// With decisions the policy hands over to a new instance of itself, as if it was replaced,
    /// so that a replay can begin where the trace does. A disk that fails ends the recording and
    /// nothing else; [`Admin::recording`] says so.
    ///
    /// # Errors
    ///
    /// `Busy` where one is recorded already or something else writes in the directory, `Exists`
    /// where it holds the trace of another store, `Unsupported` for a store of one tier that was
    /// opened without policy and trace, `Invalid`, `Denied`, `NoSpace`, `Io`.
    Write fn record(recording: &Recording) -> (),
        here "record a trace elsewhere" if recording.directory.is_some();

    /// Ends the recording once everything that happened so far is in it, and tells of it.
    ///
    /// # Errors
    ///
    /// `NotFound` where nothing is recorded.
    Write fn stop_recording() -> RecordingReport;

    /// The recording that runs, or how the last one ended; `None` where there was none since the
    /// store was opened.
    Read fn recording() -> Option<RecordingReport>;

    /// Where time went over all tiers.
    Read fn ledger() -> LedgerReport;

    /// Reads every file at a bounded rate and compares it with its checksum, records checksums that
    /// are missing, and mends what a copy can mend. `progress` gets the bytes done. Where another process
    /// owns the store, it is read until this process ends.
    ///
    /// # Errors
    ///
    /// `Busy` where another one was asked for, `Invalid` for a rate of zero; what the catalog says.
    Write fn scrub(options: &ScrubOptions; progress) -> ScrubReport;

    /// When the store was last scrubbed, and how far it is now.
    Read fn scrub_status() -> ScrubStatus;

    /// What namespaces hold and may hold: those with objects or a limit, by name.
    Read fn quotas() -> Vec<QuotaReport>;

    /// Limits what a namespace may hold, from now on and over restarts; `None` leaves a limit as
    /// it is. Less than it holds already is allowed, and forbids it to grow.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be, or without any limit; `Denied`, `Io`.
    Write fn set_quota(namespace: &str, bytes_max: Option<u64>, objects_max: Option<u64>) -> QuotaReport;

    /// Lifts the limits of a namespace. Errors: `NotFound` where it has none, `Denied`, `Io`.
    Write fn clear_quota(namespace: &str) -> QuotaReport;
}

impl dyn Admin + '_ {
    /// Waits for a migration up to `timeout`; `None` when it has not ended by then.
    ///
    /// # Errors
    ///
    /// `NotFound` for one that is unknown or ended long ago.
    pub fn wait(&self, ticket: MoveTicket, timeout: Duration) -> Result<Option<MoveReport>> {
        repeat(timeout, Option::is_some, |left| self.wait_briefly(ticket, left))
    }

    /// Blocks until no migration waits or runs, up to `timeout`; false where it ran out.
    pub fn wait_idle(&self, timeout: Duration) -> Result<bool> {
        repeat(timeout, |is_idle| *is_idle, |left| self.wait_idle_briefly(left))
    }
}

/// Waits again and again, as long as the answer is not what is waited for.
fn repeat<T>(
    timeout: Duration,
    is_over: impl Fn(&T) -> bool,
    wait: impl Fn(Duration) -> Result<T>,
) -> Result<T> {
    let clock = SystemClock::default();
    let deadline_ns = clock.now_ns().saturating_add(nanoseconds(timeout));
    loop {
        let left_ns = deadline_ns.saturating_sub(clock.now_ns());
        let answer = wait(Duration::from_nanos(left_ns))?;
        if is_over(&answer) || clock.now_ns() >= deadline_ns {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;

    /// Keeps requests, and answers each with nothing.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<Value>>);

    impl Admin for Recorder {
        fn perform(&self, request: &Request<'_>, _: Progress<'_>) -> Result<Called> {
            let request = serde_json::from_slice(&request.json()?).expect("JSON");
            self.0.lock().expect("one thread").push(request);
            answer(&())
        }

        fn watch(&self, _: &WatchFilter, _: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_page_of_the_format_has_every_verb() {
        let page = include_str!("../../../docs/formats/control.md");
        let lines = include_str!("operations.rs").lines().map(str::trim);
        let declared = lines.filter_map(|line| {
            let rest = line.strip_prefix("Read fn ").or(line.strip_prefix("Write fn "))?;
            rest.split('(').next()
        });
        let operations: Vec<_> = declared.chain(["watch", "message", "space_of"]).collect();
        assert!(operations.len() > 30, "{operations:?}");
        for operation in operations {
            let verb = operation.replace('_', "-");
            assert!(page.contains(&format!("`{verb}`")), "{verb} is not in the page");
        }
    }

    #[test]
    fn requests_have_the_members_of_their_page() {
        let to = Recorder::default();
        to.drain_tier("fast").expect("sent");
        to.pin(&Key::parse("a/x").expect("legal")).expect("sent");
        to.cancel(MoveTicket(7)).expect("sent");
        to.set_calls(None, Some(Duration::from_micros(1))).expect("sent");
        to.set_policy(&PolicySource::named("lru"), &[("high".into(), "1".into())]).expect("sent");
        let guest = Guest { name: "/p.py".into(), socket: "/socket".into() };
        to.use_guest(&guest, &[]).expect("sent");
        to.end_guest(&guest.socket).expect("sent");
        to.record(&Recording { max_bytes: Some(5), ..Recording::default() }).expect("sent");
        let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
        to.scrub(&options, &mut |_, _| true).expect_err("no report is no answer");
        assert_eq!(
            to.0.into_inner().expect("one thread"),
            [
                json!({ "verb": "drain-tier", "tier": "fast" }),
                json!({ "verb": "pin", "key": "a/x" }),
                json!({ "verb": "cancel", "ticket": 7 }),
                json!({ "verb": "set-calls", "after_events": null, "every_ns": 1000 }),
                json!({ "verb": "set-policy", "name": "lru", "parameters": [["high", "1"]] }),
                json!({ "verb": "use-guest", "name": "/p.py", "socket": "/socket", "parameters": [] }),
                json!({ "verb": "end-guest", "socket": "/socket" }),
                json!({
                    "verb": "record", "directory": null, "has_decisions": false,
                    "has_hashed_names": false, "max_bytes": 5,
                }),
                json!({ "verb": "scrub", "bytes_per_s": u64::MAX as f64, "namespace": null }),
            ]
        );
    }
}
