// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What daemons report to the service manager that started them (sd_notify of systemd): readiness, keep-alives for
//! its watchdog, and the beginning of the end. Without a service manager nothing is sent.

use std::process::{self, Command};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{env, thread};

use sd_notify::NotifyState;

/// Reports that clients are served, runs `body`, and sends keep-alives while it runs.
///
/// `probe` runs before each keep-alive: where it blocks, as behind a lock that is never released, the service
/// manager restarts the process after its `WatchdogSec=`. What it finds does not count, only that it returns.
pub(crate) fn while_serving<T>(probe: &(dyn Fn() + Sync), body: impl FnOnce() -> T) -> T {
    ready();
    let Some(interval) = keep_alive_interval() else { return body() };
    thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        let keeps_alive = thread::Builder::new().name("terrace-watchdog".into());
        let started = keeps_alive.spawn_scoped(scope, move || {
            while end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                probe();
                notify(NotifyState::Watchdog);
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "the service manager gets no keep-alives, and will restart this process");
        }
        let result = body();
        drop(ended);
        result
    })
}

/// Reports that clients are served, or that the process waits for what the service manager does once it is ready.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// Reports that the process ends.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Starts `command` without the service manager of this process, which reports for itself alone.
pub(crate) fn hide_from(command: &mut Command) {
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(variable);
    }
}

/// Half of what the service manager waits for a keep-alive, as sd_watchdog_enabled(3) recommends. `None` where it
/// waits for none of this process.
fn keep_alive_interval() -> Option<Duration> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_meant = env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(process::id().into());
    let watchdog_us = number("WATCHDOG_USEC").filter(|watchdog_us| is_meant && *watchdog_us > 0)?;
    Some(Duration::from_micros(watchdog_us) / 2)
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::warn!(%error, "the service manager cannot be reached");
    }
}
