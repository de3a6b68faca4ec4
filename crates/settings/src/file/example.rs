// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commented configuration of a new store, in parts.

pub(super) const HEAD: &str = r#"# The configuration of a Terrace store.
# Sizes, times, rates and powers have units: 200GB, 1GiB, 80us, 10min, 3GB/s, 5W.

[store]
# What writes survive when the application asks for nothing more: "none", "process" (a crash of
# the process), "storage" (a loss of power) or "shared" (a loss of the machine; needs a bucket).
persistency = "process"
# Migrations that run at once.
move_threads = 4
# Most that all migrations together read. Without it: no bound.
# move_bandwidth = "500MB/s"
# Whether migrations wait while applications keep a tier busy.
# move_yields = true
# Whether the store may be used while tiers are missing: what is there fails, the rest works.
# degraded = false
# Objects kept in memory beside those that are open, about 1 kB each.
# objects_in_memory = 16384

# The tiers, most preferred first. A relative path is relative to the directory of this file.
"#;

pub(super) const TIERS: &str = r#"
[[tier]]
name = "fast"
backend = "file"
path = "fast"
# The most that the tier may hold. Without it: no bound.
capacity = "10GB"
# What the device can do and what it draws. Policies weigh costs with these figures.
# latency = "80us"
# bandwidth = "3GB/s"
# parallelism = 8
# idle_power = "5W"
# active_power = "9W"
# Fill levels: where demotion may stop, where a policy begins it, where the stack itself spills.
# watermarks = { low = 0.7, high = 0.9, critical = 0.97 }

[[tier]]
name = "slow"
backend = "file"
path = "slow"
# Simulates a slower device, to try policies without one.
# throttle = { latency = "50ms", bandwidth = "100MB/s", parallelism = 4 }
"#;

/// `ENGINE` stands for the engine's name, in quotes.
pub(super) const CATALOG: &str = r#"
# Where the store remembers which tier has what. The engine of a store stays what it is.
[catalog]
engine = ENGINE
path = "catalog"

# Reads everything in the background and compares it with its checksums.
# [scrub]
# every = "7d"
# bandwidth = "50MB/s"
"#;

/// `NAME` stands for the policy's, in quotes.
pub(super) const POLICY: &str = r#"
# What decides which tier an object lives on; `library = "PATH"` instead of a name loads a shared
# library. Without this section new objects go to the first tier with room and stay there.
[policy]
name = NAME
# The policy is called after so many events, and this often.
after_events = 1000
every = "100ms"
# When reads and writes become events for it: "after" their I/O, or "before" it.
post_events = "after"
# Record its decisions without carrying them out.
dry_run = false

# [policy.parameters]
# idle = "1s"

# Records what happens in the store while it is open; `terrace trace show` shows it.
# [trace]
# path = "trace"
# max_size = "1GB"
"#;
