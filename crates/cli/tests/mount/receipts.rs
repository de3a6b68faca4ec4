// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of migrations, as `terrace watch` tells.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::Value;

use crate::scene::{Scene, wait_until};

/// Who listens hears of a migration as soon; otherwise another one is tried.
const HEARD_WITHIN: Duration = Duration::from_millis(100);

/// A migration that ended.
pub(crate) struct Receipt {
    /// The object.
    pub(crate) key: String,
    /// `done`, or why not.
    pub(crate) outcome: String,
    /// Whether the policy wanted it.
    pub(crate) is_by_policy: bool,
}

/// Everything that ends in the store of a scene.
pub(crate) struct Receipts {
    child: Child,
    pub(crate) ended: Receiver<Receipt>,
    /// Where the file that it began with is to go next, and where it is.
    pub(crate) tiers: [&'static str; 2],
}

impl Receipts {
    /// Starts to watch; moves `file` until it hears of that.
    pub(crate) fn watch(scene: &Scene, file: &Path) -> Self {
        let mut command = scene.command(["watch", "--json", "--kind", "migration"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let notice: Value = serde_json::from_str(&line).expect("it is JSON");
                if let (Some(key), Some(outcome)) =
                    (notice["key"].as_str(), notice["outcome"].as_str())
                {
                    let is_by_policy =
                        notice["by"].as_str().is_some_and(|by| by.starts_with("policy"));
                    let (key, outcome) = (key.into(), outcome.into());
                    // Nobody listens once the test is over.
                    let _ = sender.send(Receipt { key, outcome, is_by_policy });
                }
            }
        });
        let mut receipts = Self { child, ended, tiers: ["fast", "slow"] };
        wait_until("the watcher hears of migrations", || {
            receipts.tiers.reverse();
            if !ask_served(file, receipts.tiers[1]) {
                receipts.tiers.reverse();
            }
            receipts.ended.recv_timeout(HEARD_WITHIN).is_ok()
        });
        receipts
    }
}

impl Drop for Receipts {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for the migration of a file.
pub(crate) fn ask(file: &Path, tier: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(file, "user.terrace.tier", tier.as_bytes(), XattrFlags::empty())
}

/// The same for a served file; false where it is on its way still, from when it was asked before.
#[track_caller]
pub(crate) fn ask_served(file: &Path, tier: &str) -> bool {
    match ask(file, tier) {
        Err(Errno::BUSY) => false,
        asked => asked.map(|()| true).expect("a served file may move"),
    }
}
