// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was done, in words.

use terrace_core::units::{show_bytes, show_ns};

use super::plan::Plan;
use super::report::RunReport;
use super::slow::Slow;

/// What is not real.
pub(crate) fn simulated(slow: &Slow) -> String {
    let device = match slow {
        Slow::Simulated(device) => device,
        Slow::Given(given) => return given.describe(),
    };
    let (latency, parallelism) = (device.latency, device.parallelism);
    format!(
        "The slow tier is simulated: it is a directory, too, but every request to it takes {} \
         (the latency of the study that the idea comes from) and it serves {parallelism} at once. \
         Everything else is real.",
        show_ns(latency.as_nanos() as u64),
    )
}

/// What the application does.
pub(crate) fn workload(partdiff: &partdiff::Settings) -> String {
    let bytes = (partdiff.dimension * partdiff.dimension * size_of::<f64>()) as u64;
    format!(
        "partdiff solves the heat equation on {0} × {0} points and writes {1} checkpoints of {2}, \
         one every {3} iterations; then partdiff-read reads them back in batches of ten: all \
         headers of a batch, then all matrices, and sums up their main diagonals.",
        partdiff.dimension,
        partdiff.checkpoints,
        show_bytes(bytes),
        partdiff.interval,
    )
}

/// What the policy did.
pub(crate) fn story(plan: &Plan, run: &RunReport) -> String {
    let first = match plan.is_moved_down {
        true => {
            "New objects begin on the fast tier, because the slow one takes whole objects alone; all were \
             moved down before they were read. From there on: "
        }
        false => "",
    };
    format!("{first}{}", of_policy(plan, run))
}

fn of_policy(plan: &Plan, run: &RunReport) -> String {
    let moved = format!("{} migrations ({})", run.moves, show_bytes(run.migrated_bytes));
    let peak = show_bytes(run.fast_bytes_max);
    match plan.id.as_str() {
        "fast" => format!(
            "The yardstick: everything stays on the fast tier, which has to hold all of it, {peak}."
        ),
        "slow" => "The other end: there is only the slow tier, and the application waits for \
                   every request to it."
            .into(),
        "pinned" => "There are two tiers, but everything is placed on the slow one \
             and nothing ever moves. What a policy that moves things must not be slower than."
            .into(),
        "lru-off" => format!(
            "New objects go to the slow tier, and whatever is used a second time is moved up, \
             whether that pays or not: {moved}. The header of a checkpoint is the first use, its \
             matrix the second, and the third never comes: the migrations only keep the slow tier \
             busy while the application waits for it. They do not give way to it either \
             (`move_yields = false`). This is the slowdown of the study."
        ),
        "lru-on" => format!(
            "The same policy, but a promotion has to pass the gate: what it will probably save \
             must exceed one and a half times what it costs. Reading on in an object is no sign \
             that it will be read again, so the gate stays shut: {moved}."
        ),
        "write-buffer-deduced" => format!(
            "As before, but nobody chooses the timeout: the policy watches how long objects of \
             this kind are written to and takes 1.2 × the 95th percentile once it has seen enough \
             of them. {moved}; at most {peak} were on the fast tier."
        ),
        "example" => format!(
            "A policy in a shared library, written in C and loaded by its path: new objects go to \
             the fast tier, which has room for a quarter of them here; from 90 % on the least \
             recently used are moved down, and what is used twice is moved up again. {moved}; at \
             most {peak} were on the fast tier. It has no gate."
        ),
        "reread-pinned" => format!(
            "A working set of {} checkpoints lies on the slow tier and is read {} times over. \
             Every round waits for the slow tier again.",
            plan.partdiff.checkpoints, plan.rounds
        ),
        "reread-lru" => format!(
            "The same working set under lru with its gate: once checkpoints come back, the gate \
             opens, {moved}, and the rounds after that are served by the fast tier."
        ),
        "wide-pinned" => format!(
            "Here both tiers are simulated: a request to the lower one takes 20 ms, but it serves \
             16 at once with 1 GB/s in all; the upper one answers in 1 ms, with 100 MB/s and one \
             request after the other. {} checkpoints of {} lie below and are read {} times, ten \
             at a time.",
            plan.partdiff.checkpoints,
            show_bytes((plan.partdiff.dimension * plan.partdiff.dimension * 8) as u64),
            plan.rounds,
        ),
        "wide-lru-off" => format!(
            "Without the gate, what is read again goes to the tier that is called fast: {moved}. \
             Ten matrices at once then queue where one after the other is served."
        ),
        "wide-lru-on" => format!(
            "The gate calculates with the size of the reads and with how many of them come at \
             once, finds that moving them up would cost time, and leaves them below: {moved}."
        ),
        _ => format!(
            "New checkpoints are written to the fast tier and moved to the slow one in the \
             background, {} after the last write: {moved}. The application does not wait for the \
             slow tier, and at most {peak} were on the fast one.",
            plan.policy.parameter("timeout").unwrap_or("some time"),
        ),
    }
}
