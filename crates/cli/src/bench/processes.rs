// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other processes take.

/// CPU time of processes so far, user and system; nothing for those that have ended.
pub(super) fn cpu_ns(processes: &[u32]) -> u64 {
    processes.iter().map(|process| cpu_ns_of(*process).unwrap_or(0)).sum()
}

fn cpu_ns_of(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields 14 and 15, counted behind the name in parentheses (proc_pid_stat(5)).
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}
