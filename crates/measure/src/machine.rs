// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine, as far as it matters for the numbers.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A machine as far as it matters for the numbers.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system of the directory.
    pub file_system: String,
}

impl Machine {
    /// Describes the machine and the file system below `dir`; what cannot be found reads `unknown`.
    pub fn describe(dir: &Path) -> Self {
        let memory_kib = field("/proc/meminfo", "MemTotal").and_then(|text| {
            text.strip_suffix(" kB").and_then(|number| number.trim().parse::<u64>().ok())
        });
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: kernel.map_or_else(unknown, |text| text.trim().to_owned()),
            file_system: file_system(dir),
        }
    }
}

fn unknown() -> String {
    "unknown".into()
}

/// The value of the first line `name: value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}

/// The type of the file system that `dir` lies in, or `unknown`.
pub fn file_system(dir: &Path) -> String {
    mount_type(dir).unwrap_or_else(unknown)
}

/// The type of the mount that `dir` lies in.
fn mount_type(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // `36 35 98:0 /root /mount/point options - type source options`, see proc(5).
    mounts
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = before.split(' ').nth(4)?;
            let kind = after.split(' ').next()?;
            dir.starts_with(point).then(|| (point.len(), kind.to_owned()))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
}
