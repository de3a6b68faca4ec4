// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other processes take.

use std::collections::BTreeMap;
use std::str::FromStr;

/// These processes, and all that they have started and that run.
pub fn with_children(processes: &[u32]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let running = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = running.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in numbers {
        if let Some(parent) = field::<u32>(process, 1) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut all = Vec::new();
    let mut ahead = processes.to_vec();
    while let Some(process) = ahead.pop() {
        // One that was given may be the child of another that was.
        if !all.contains(&process) {
            all.push(process);
            ahead.extend(children.get(&process).into_iter().flatten());
        }
    }
    all
}

/// CPU time of processes so far, user and system; nothing for those that have ended.
pub fn cpu_ns(processes: &[u32]) -> u64 {
    processes.iter().map(|process| cpu_ns_of(*process).unwrap_or(0)).sum()
}

fn cpu_ns_of(process: u32) -> Option<u64> {
    // utime and stime.
    let ticks = field::<u64>(process, 11)? + field::<u64>(process, 12)?;
    Some(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

/// A field of what the kernel says of a process, counted behind the name in parentheses, from the
/// state, which is 0 (proc_pid_stat(5): the third); none where it has ended.
fn field<T: FromStr>(process: u32, index: usize) -> Option<T> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit(')').next()?.split_whitespace().nth(index)?.parse().ok()
}
