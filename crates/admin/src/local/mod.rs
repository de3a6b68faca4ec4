// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Administration of a store that this process owns.

mod check_files;
mod files;
mod membership;
mod owned;
mod recording;
mod trees;
mod visit;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Access, Key, Result, Space};
use terrace_recovery::write_backup;
use terrace_server::Called;
use terrace_settings::amend::Change;
use terrace_settings::{Guest, PolicySource};
use terrace_stack::report::{
    BackupReport, CheckReport, Explanation, LedgerReport, MoveReport, PolicyReport, QuotaReport,
    RecordingReport, ScrubReport, ScrubStatus, ShadowReport, TierReport, VersionReport,
};
use terrace_stack::{MoveKind, MoveTicket, ScrubOptions, Tactics, WatchFilter};

use crate::operations::{Admin, carry_out};
use crate::reports::{FilesReport, Recording, Seen, first_places};
use crate::request::{Progress, Request, answer};

pub use self::files::Alone;
pub use self::owned::Owned;

/// Longest wait inside one operation; a caller that waits longer asks again.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How often a watcher is asked whether to go on, where nothing happens.
pub const WATCH_TICK: Duration = Duration::from_millis(100);

#[deny(clippy::missing_trait_methods)]
impl Admin for Arc<Owned> {
    fn perform(&self, request: &Request<'_>, progress: Progress<'_>) -> Result<Called> {
        match &*request.operation() {
            "message" => {
                let kind = request.argument::<&str>("kind")?;
                request.check(Access::Write)?;
                let body = self.message(&kind, request.body)?;
                Ok(Called { body, ..answer(&())? })
            }
            "space_of" => {
                let space = self.stack.space_of(&request.argument::<&str>("namespace")?)?;
                answer(&(space.capacity_bytes, space.used_bytes))
            }
            _ => carry_out(self, request, progress),
        }
    }

    fn watch(&self, filter: &WatchFilter, see: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
        let watcher = self.stack.watch(filter)?;
        let mut goes_on = see(Seen::Begun);
        while goes_on {
            let notice = watcher.next(WATCH_TICK)?.map(Box::new);
            goes_on = see(notice.map_or(Seen::Nothing, Seen::Notice));
        }
        Ok(())
    }

    fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.check_writable("send a message to the policy")?;
        self.stack.message(kind, body)
    }

    fn space_of(&self, namespace: &str) -> Result<Space> {
        self.stack.space_of(namespace)
    }

    fn tiers(&self) -> Result<Vec<TierReport>> {
        Ok(self.stack.tiers())
    }

    fn add_tier(&self, section: &str, before: Option<&str>) -> Result<bool> {
        Owned::add_tier(self, section, before)
    }

    fn drain_tier(&self, tier: &str) -> Result<()> {
        self.stack.drain_tier(tier)
    }

    fn undrain_tier(&self, tier: &str) -> Result<()> {
        self.stack.undrain_tier(tier)
    }

    fn remove_tier(&self, tier: &str) -> Result<()> {
        Owned::remove_tier(self, tier)
    }

    fn explain(&self, key: &Key) -> Result<Explanation> {
        self.stack.explain(key)
    }

    fn versions(&self, key: &Key) -> Result<Vec<VersionReport>> {
        self.stack.versions(key)
    }

    fn undelete(
        &self,
        key: &Key,
        version: Option<&str>,
        to: &Key,
        replaces: bool,
        progress: Progress<'_>,
    ) -> Result<VersionReport> {
        let mut progress = |done, total| _ = progress(done, total);
        self.stack.undelete(key, version, to, replaces, &mut progress)
    }

    fn migrate(
        &self,
        key: &Key,
        to: &str,
        kind: MoveKind,
        priority: i32,
        reason: &str,
    ) -> Result<Vec<MoveTicket>> {
        self.stack.migrate(key, self.stack.tier(to)?, kind, priority, reason)
    }

    fn drop_copy(&self, key: &Key, tier: &str) -> Result<()> {
        self.stack.drop_copy(key, self.stack.tier(tier)?)
    }

    fn wait_briefly(&self, ticket: MoveTicket, timeout: Duration) -> Result<Option<MoveReport>> {
        self.stack.wait(ticket, timeout.min(WAIT_MAX))
    }

    fn moves(&self) -> Result<Vec<MoveReport>> {
        Ok(self.stack.moves())
    }

    fn cancel(&self, ticket: MoveTicket) -> Result<()> {
        self.stack.cancel(ticket)
    }

    fn cancel_all(&self) -> Result<usize> {
        Ok(self.stack.cancel_all())
    }

    fn wait_idle_briefly(&self, timeout: Duration) -> Result<bool> {
        Ok(self.stack.wait_idle(timeout.min(WAIT_MAX)))
    }

    fn pin(&self, key: &Key) -> Result<()> {
        self.stack.pin(key)
    }

    fn unpin(&self, key: &Key) -> Result<()> {
        self.stack.unpin(key)
    }

    fn policy(&self) -> Result<Option<PolicyReport>> {
        Ok(Owned::policy(self))
    }

    fn set_policy(&self, name: &PolicySource, parameters: &[(String, String)]) -> Result<()> {
        self.check_writable("change the policy")?;
        let source = name.clone().absolute()?;
        self.change(&Change::Policy(&source, parameters), || {
            let policy = source.make(&self.view(), parameters)?;
            let tactics = Tactics::new(&source.to_string(), policy);
            self.stack.set_policy(self.called_as_now(tactics))?;
            self.forget_guest();
            Ok(())
        })
    }

    fn use_guest(&self, guest: &Guest, parameters: &[(String, String)]) -> Result<()> {
        Owned::use_guest(self, guest, parameters)
    }

    fn end_guest(&self, socket: &Path) -> Result<()> {
        Owned::end_guest(self, socket)
    }

    fn set_shadow(&self, name: &PolicySource, parameters: &[(String, String)]) -> Result<()> {
        self.check_writable("let a policy decide in the shadow")?;
        let source = name.clone().absolute()?;
        let policy = source.make(&self.view(), parameters)?;
        let tactics = self.called_as_now(Tactics::new(&source.to_string(), policy));
        self.stack.set_shadow(Some(tactics))
    }

    fn end_shadow(&self) -> Result<()> {
        self.check_writable("end the shadow")?;
        self.stack.set_shadow(None)
    }

    fn shadow(&self) -> Result<Option<ShadowReport>> {
        Ok(self.stack.shadow())
    }

    fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        let change = Change::Parameter(name, value);
        self.change(&change, || self.stack.set_parameter(name, value))
    }

    fn set_dry_run(&self, is_dry_run: bool) -> Result<()> {
        self.change(&Change::DryRun(is_dry_run), || self.stack.set_dry_run(is_dry_run))
    }

    fn set_calls(&self, after_events: Option<u64>, every: Option<Duration>) -> Result<()> {
        let change = Change::Calls(after_events, every);
        self.change(&change, || self.stack.set_calls(after_events, every))
    }

    fn run_policy(&self) -> Result<()> {
        self.check_writable("call the policy")?;
        self.stack.run_policy()
    }

    fn check(&self, verify: bool, progress: Progress<'_>) -> Result<CheckReport> {
        self.stack.check(verify, &mut |done, total| _ = progress(done, total))
    }

    fn check_files(&self, places: &[String], progress: Progress<'_>) -> Result<Vec<FilesReport>> {
        let places: Vec<_> = first_places(places).into_iter().cloned().collect();
        Owned::check_files(self, None, &places, &mut |pairs| _ = progress(pairs, 0))
    }

    fn backup(&self, file: &Path, replace: bool, progress: Progress<'_>) -> Result<BackupReport> {
        write_backup(&self.stack, file, replace, &mut |pairs| _ = progress(pairs, 0))
    }

    fn record(&self, recording: &Recording) -> Result<()> {
        Owned::record(self, &recording.absolute()?)
    }

    fn stop_recording(&self) -> Result<RecordingReport> {
        self.stack.stop_recording()
    }

    fn recording(&self) -> Result<Option<RecordingReport>> {
        Ok(self.stack.recording())
    }

    fn ledger(&self) -> Result<LedgerReport> {
        Ok(self.stack.ledger())
    }

    fn scrub(&self, options: &ScrubOptions, progress: Progress<'_>) -> Result<ScrubReport> {
        self.stack.scrub(options, progress)
    }

    fn scrub_status(&self) -> Result<ScrubStatus> {
        self.stack.scrub_status()
    }

    fn quotas(&self) -> Result<Vec<QuotaReport>> {
        Ok(self.stack.quotas())
    }

    fn set_quota(
        &self,
        namespace: &str,
        bytes_max: Option<u64>,
        objects_max: Option<u64>,
    ) -> Result<QuotaReport> {
        self.stack.set_quota(namespace, bytes_max, objects_max)
    }

    fn clear_quota(&self, namespace: &str) -> Result<QuotaReport> {
        self.stack.clear_quota(namespace)
    }
}
