// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace hold`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_core::units::parse_duration;
use terrace_metrics::{ControlSource, Exporter, ProcessSource, StoreSource};
use terrace_store::{OpenOptions, Store};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::inherited;
use crate::interrupt::Interrupt;
use crate::log::{Form, Log};
use crate::metrics::{Metrics, export};
use crate::output::{Output, count};

/// What it logs: that a policy failed, or a catalog cannot be written.
const LOG_LEVEL: &str = "warn";

/// Keep a store running, so that its policy acts
///
/// Opens the store, runs its policy and migrations, and serves all other commands through the
/// control socket in the store's directory, until SIGINT (Ctrl-C), SIGTERM or SIGHUP. It then
/// finishes what must be finished and leaves the store clean.
///
/// Prints one line on standard output once commands are served: `holding DIR ...`, or with --json
/// `{"ready":true,...}`. If another process has the store open, the status is 5. What goes wrong
/// meanwhile, such as a policy that fails and is replaced, is logged on standard error.
///
/// With --dry-run the policy's decisions are recorded but not carried out; `terrace policy show`
/// lists them.
#[derive(Args, Debug)]
pub(crate) struct Hold {
    /// Record the policy's decisions without carrying them out
    #[arg(long)]
    dry_run: bool,

    /// Hold the store also where tiers are missing
    ///
    /// Objects on a missing tier cannot be read or written, unless a clean copy elsewhere serves
    /// readers; everything else works. The tier is compared when it is back, at the next opening.
    #[arg(long)]
    degraded: bool,

    /// Stop after this time, for example 90s or 10min; default: hold until a signal comes
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<String>,

    #[command(flatten)]
    metrics: Metrics,
}

impl Verb for Hold {
    const NAME: &'static str = "hold";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace hold &                        in the background; stop with: kill %1
  terrace hold --for 10min              for a while
  terrace hold --dry-run                see what the policy would do
  terrace hold --degraded               go on without a tier that is missing";

    fn run(self, context: &Context) -> Result<()> {
        let time = self.time.as_deref().map(parse_duration).transpose()?;
        let metrics = self.metrics.endpoint()?;
        let form = if context.is_json { Form::Json } else { Form::Text };
        let _log = Log::start(LOG_LEVEL, form)?;
        inherited::settle_daemon_and_log();
        let interrupt = Interrupt::watch()?;
        let mut options =
            OpenOptions { attach: false, degraded: self.degraded, ..OpenOptions::default() };
        if self.dry_run {
            options.dry_run = Some(true);
        }
        context.with_options(options, |store| {
            let stop = interrupt.flag();
            if let Some(time) = time {
                stop_after(time, Arc::clone(&stop));
            }
            let exporter = export(metrics.as_ref(), || {
                vec![
                    Box::new(ProcessSource::new(Self::NAME)),
                    Box::new(StoreSource::new(store, context.store().unwrap_or_default())),
                    Box::new(ControlSource::new(store)),
                ]
            })?;
            inherited::leave_directory();
            print_ready(context, store, exporter.as_ref())?;
            let served = store.serve(&stop);
            drop(exporter);
            Ok(served?)
        })
    }
}

fn print_ready(context: &Context, store: &Store, exporter: Option<&Exporter>) -> Result<()> {
    let tiers = store.admin().tiers()?;
    let policy = store.admin().policy()?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({
            "ready": true,
            "store": context.store()?,
            "process": std::process::id(),
            "policy": policy.as_ref().map(|policy| &policy.name),
            "is_dry_run": policy.as_ref().is_some_and(|policy| policy.is_dry_run),
            "metrics": exporter.map(Exporter::url),
        }))?;
    } else {
        let policy = match &policy {
            Some(policy) if policy.is_dry_run => format!("policy {} (dry run)", policy.name),
            Some(policy) => format!("policy {}", policy.name),
            None => "no policy".into(),
        };
        let tiers = count(tiers.len() as u64, "tier");
        let metrics = exporter.map_or(String::new(), |one| format!(", metrics on {}", one.url()));
        let store = context.store()?;
        output.line(format!("holding {store}: {tiers}, {policy}{metrics}; Ctrl-C stops"))?;
    }
    output.flush()
}

/// Sets the flag when the time is over, if the process still runs.
fn stop_after(time: Duration, stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        thread::sleep(time);
        stop.store(true, Ordering::SeqCst);
    });
}
