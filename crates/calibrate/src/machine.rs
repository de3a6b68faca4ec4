// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine takes of writes before writers wait for devices, and what was used of it.

use std::fs::read_to_string;

use rustix::time::{ClockId, clock_gettime};

/// Time of processors for this thread so far, user and system.
pub(super) fn thread_cpu_ns() -> u64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

/// The same for all threads of this process.
pub(super) fn process_cpu_ns() -> u64 {
    cpu_ns(ClockId::ProcessCPUTime)
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes that may be written and not be on devices before a writer is slowed: half-way between
/// what makes the kernel begin to write and what it allows at most (`balance_dirty_pages`,
/// Documentation/admin-guide/sysctl/vm.rst). `None` where the kernel does not tell.
pub(super) fn unwritten_bytes_max() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    limit(&meminfo, |name| read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok())
}

fn limit(meminfo: &str, setting: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available_bytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    // Where bytes are given, they count and the ratio reads as 0.
    let bytes = |name: &str| match setting(&format!("{name}_bytes")) {
        Some(bytes) if bytes > 0 => Some(bytes),
        _ => Some(available_bytes / 100 * setting(&format!("{name}_ratio"))?),
    };
    Some(u64::midpoint(bytes("dirty_background")?, bytes("dirty")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_half_way_between_both_thresholds() {
        let meminfo = "MemTotal:  4000000 kB\nMemAvailable:    1000000 kB\n";
        let setting = |pairs: &'static [(&str, u64)]| {
            move |name: &str| pairs.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
        };
        let ratios = &[("dirty_background_ratio", 10), ("dirty_ratio", 20), ("dirty_bytes", 0)];
        assert_eq!(limit(meminfo, setting(ratios)), Some(153_600_000));
        let bytes = &[("dirty_background_bytes", 1000), ("dirty_bytes", 3000), ("dirty_ratio", 0)];
        assert_eq!(limit(meminfo, setting(bytes)), Some(2000));
        assert_eq!(limit(meminfo, |_| None), None);
        assert_eq!(limit("MemTotal: 1 kB", setting(ratios)), None);
    }
}
