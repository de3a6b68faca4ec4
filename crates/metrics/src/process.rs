// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of the process, under the names that other exporters have for them.

use std::fs;

use terrace_core::{Clock, SystemClock};

use crate::samples::{Samples, Source};

/// Figures of this process.
#[derive(Debug)]
pub struct ProcessSource {
    verb: &'static str,
    started_wall_ns: u64,
    page_bytes: u64,
    ticks_per_s: u64,
}

impl ProcessSource {
    /// Of a process that carries out this verb, and has begun just now.
    pub fn new(verb: &'static str) -> Self {
        Self {
            verb,
            started_wall_ns: SystemClock::default().wall_ns(),
            page_bytes: rustix::param::page_size() as u64,
            ticks_per_s: rustix::param::clock_ticks_per_second(),
        }
    }
}

/// Field `number` (from 1 on) of proc_pid_stat(5). The second one, the name, may hold spaces and parentheses.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

impl Source for ProcessSource {
    fn collect(&self, samples: &mut Samples) {
        samples.info("terrace_build", &[env!("CARGO_PKG_VERSION"), self.verb]);
        samples.time("process_start_time_seconds", &[], self.started_wall_ns);
        // `/proc` may be hidden from services; its figures are left out then.
        let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return };
        if let (Some(user), Some(system)) = (stat_field(&stat, 14), stat_field(&stat, 15)) {
            let cpu_s = (user + system) as f64 / self.ticks_per_s as f64;
            samples.number("process_cpu_seconds", &[], cpu_s);
        }
        if let Some(pages) = stat_field(&stat, 24) {
            samples.count("process_resident_memory_bytes", &[], pages * self.page_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 1 2 3";
        assert_eq!((stat_field(stat, 4), stat_field(stat, 6)), (Some(1), Some(3)));
        assert_eq!((stat_field(stat, 3), stat_field(stat, 9)), (None, None));
    }
}
