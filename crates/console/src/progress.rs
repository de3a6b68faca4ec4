// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress on a terminal, for anything longer than a second.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less time shows no bar.
const QUIET: Duration = Duration::from_secs(1);

/// How far something has come. Costs nothing without a terminal.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    is_watched: bool,
}

impl Progress {
    /// Bytes on their way; `total` where it is known.
    pub fn bytes(what: &str, total: Option<u64>) -> Self {
        let with_total =
            "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        let without = "{spinner} {msg} {decimal_bytes} {decimal_bytes_per_sec}";
        Self::new(what, total, with_total, without)
    }

    /// Things that are done one after the other.
    pub fn items(what: &str, total: Option<u64>) -> Self {
        Self::new(what, total, "{msg} {wide_bar} {pos}/{len} {eta}", "{spinner} {msg} {pos}")
    }

    fn new(what: &str, total: Option<u64>, with_total: &str, without: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = if total.is_some() { with_total } else { without };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is legal"));
        bar.set_message(what.to_string());
        Self { bar, started: Instant::now(), is_watched: stderr().is_terminal() }
    }

    /// So much more is done.
    pub fn advance(&mut self, amount: u64) {
        self.show();
        self.bar.inc(amount);
    }

    /// So much is done, of so much.
    pub fn set(&mut self, done: u64, total: u64) {
        self.show();
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Changes what the bar says.
    pub fn say(&mut self, what: String) {
        self.bar.set_message(what);
    }

    /// Prints something else without the bar in between.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    fn show(&mut self) {
        if self.is_watched && self.bar.is_hidden() && self.started.elapsed() > QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
