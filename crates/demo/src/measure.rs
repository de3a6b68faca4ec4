// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: a fresh store, the application writes, reads, and the migrations settle.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Deserialize;
use terrace_core::units::show_ns;
use terrace_core::{BackendExt, Clock, Error, ErrorKind, Result, SystemClock};
use terrace_store::{MoveKind, OpenOptions, Store};

use super::blocks::BATCH;
use super::plan::Plan;
use super::recording::{Change, FillSample, Phase, Recorder, Recording};
use super::report::RunReport;

/// How often the fill of the tiers is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// Where a run keeps its checkpoints.
pub(crate) const NAMESPACE: &str = "partdiff";

/// Longest that migrations without a waiter may go on after the application has ended.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// Longest that everything may take to get to the slow tier before it is read.
const MOVE_DOWN_MAX: Duration = Duration::from_secs(600);

/// Carries out a plan in a store below `dir`.
///
/// # Errors
///
/// `Corrupt` where something else was read than was written, and everything a store can meet.
pub(crate) fn measure(dir: &Path, plan: &Plan, bar: &ProgressBar) -> Result<RunReport> {
    Store::init(dir, &plan.settings_text(&plan.id)?)?;
    let recorder = Recorder::new();
    let wrapper = recorder.clone();
    let options = OpenOptions {
        policy_wrapper: Some(Box::new(move |policy| wrapper.wrap(policy))),
        ..OpenOptions::default()
    };
    let address = dir.to_string_lossy();
    let store = Store::open_with(&address, options)?;

    let has_ended = AtomicBool::new(false);
    let (worked, fill) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&store, &recorder, &has_ended));
        let worked = work(&store, plan, &recorder, bar);
        has_ended.store(true, Ordering::Relaxed);
        (worked, sampler.join().expect("the sampler does not panic"))
    });
    let work = worked?;
    let changes = deductions(&store, plan, &recorder)?;
    let run = account(&store, plan, &work.phases, &fill)?;
    store.close()?;
    let tiers = plan.tier_names();
    let objects = recorder.objects();
    let recording = Recording { tiers, objects, fill, changes, phases: work.phases };
    Ok(RunReport {
        checksum: format!("{:016x}", work.checksum),
        write_each_s: work.write_each_s,
        read_each_s: work.read_each_s,
        moves: recording.moves() as u64,
        recording,
        ..run
    })
}

/// What the application noticed itself.
struct Work {
    phases: Vec<Phase>,
    checksum: u64,
    write_each_s: Vec<f64>,
    read_each_s: Vec<f64>,
}

/// Writes, reads `plan.rounds` times, and lets the migrations settle.
fn work(store: &Store, plan: &Plan, recorder: &Recorder, bar: &ProgressBar) -> Result<Work> {
    let mut phases = Vec::new();
    let mut phase = |name: &str, start_s: f64| {
        let end_s = recorder.elapsed_s();
        phases.push(Phase { name: name.into(), start_s, end_s });
        end_s
    };
    let write_start_s = recorder.elapsed_s();
    let mut last_s = write_start_s;
    let mut write_each_s = Vec::new();
    let place = partdiff::InStore::new(store, NAMESPACE);
    let written = partdiff::run(&place, &plan.partdiff, &mut |_| {
        let now_s = recorder.elapsed_s();
        write_each_s.push(now_s - last_s);
        last_s = now_s;
        bar.inc(1);
    })?;
    let mut read_start_s = phase("writing", write_start_s);
    if plan.is_moved_down {
        move_down(store)?;
        read_start_s = phase("moving down", read_start_s);
    }

    let mut read_each_s = vec![0.0; write_each_s.len()];
    for _ in 0..plan.rounds {
        let mut read_at_s = vec![recorder.elapsed_s()];
        let read = partdiff::read(&place, &mut |_| {
            read_at_s.push(recorder.elapsed_s());
            bar.inc(1);
        })?;
        if read != written {
            return Err(Error::new(ErrorKind::Corrupt, "run the demo")
                .because("what was read is not what was written")
                .with("run", &plan.name)
                .with("written", format!("{written:?}"))
                .with("read", format!("{read:?}")));
        }
        // The first of a batch waits for all of it.
        let times: Vec<_> = read_at_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (batch, each_s) in times.chunks(BATCH).zip(read_each_s.chunks_mut(BATCH)) {
            let share_s = batch.iter().sum::<f64>() / batch.len() as f64;
            each_s.iter_mut().for_each(|sum_s| *sum_s += share_s);
        }
    }
    let settle_start_s = phase("reading", read_start_s);

    if !store.admin().wait_idle(SETTLE_MAX)? {
        store.admin().cancel_all()?;
    }
    phase("settling", settle_start_s);
    Ok(Work { phases, checksum: written.checksum, write_each_s, read_each_s })
}

/// Moves everything to the slow tier, as the policies that begin there would have had it.
fn move_down(store: &Store) -> Result<()> {
    let admin = store.admin();
    for key in store.list_all(NAMESPACE, "")? {
        admin.migrate(&key, "slow", MoveKind::Move, 0, "the demo begins on the slow tier")?;
    }
    match admin.wait_idle(MOVE_DOWN_MAX)? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Busy, "run the demo")
            .because("not everything could be moved to the slow tier in time")
            .with("seconds", MOVE_DOWN_MAX.as_secs())),
    }
}

fn sample(store: &Store, recorder: &Recorder, has_ended: &AtomicBool) -> Vec<FillSample> {
    let clock = SystemClock::default();
    let mut fill = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        // A sample that cannot be taken is left out; the run itself reports what is wrong.
        if let Ok(tiers) = store.admin().tiers() {
            let taken = |tier: &terrace_store::report::TierReport| {
                tier.used_bytes + tier.reserved_bytes + tier.copy_bytes + tier.garbage_bytes
            };
            let taken_bytes = tiers.iter().map(taken).collect();
            fill.push(FillSample { at_s: recorder.elapsed_s(), taken_bytes });
        }
        clock.sleep(SAMPLE_EVERY);
    }
    fill
}

fn account(store: &Store, plan: &Plan, phases: &[Phase], fill: &[FillSample]) -> Result<RunReport> {
    let tiers = store.admin().tiers()?;
    let fast = tiers.iter().position(|tier| tier.name == "fast");
    let fast_bytes = |sample: &FillSample| fast.map_or(0, |index| sample.taken_bytes[index]);
    let duration = |name: &str| {
        phases
            .iter()
            .filter(|phase| phase.name == name)
            .map(|it| it.end_s - it.start_s)
            .sum::<f64>()
    };
    Ok(RunReport {
        id: plan.id.clone(),
        name: plan.name.clone(),
        scenario: plan.scenario.into(),
        policy: plan.policy.to_string(),
        write_s: duration("writing"),
        read_s: duration("reading"),
        settle_s: duration("settling"),
        migrated_bytes: tiers.iter().map(|tier| tier.ledger.moved_in_bytes).sum(),
        fast_bytes_max: fill.iter().map(fast_bytes).max().unwrap_or(0),
        fast_bytes_mean: mean(fill, phases[0].end_s, fast_bytes),
        modelled_energy_j: tiers.iter().map(|tier| tier.modelled_energy_j).sum(),
        ..RunReport::default()
    })
}

/// What the write buffer learned, as it says itself.
fn deductions(store: &Store, plan: &Plan, recorder: &Recorder) -> Result<Vec<Change>> {
    #[derive(Deserialize)]
    struct Status {
        classes: Vec<Class>,
    }
    #[derive(Deserialize)]
    struct Class {
        class: String,
        deduced_ns: Option<u64>,
        since_ns: Option<u64>,
    }
    if plan.policy.parameter("timeout") != Some("deduced") {
        return Ok(Vec::new());
    }
    let reply = store.admin().message("status", b"")?;
    let status: Status = serde_json::from_slice(&reply).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "read the status of the policy").caused_by(error)
    })?;
    let change = |class: Class| {
        let words = format!("timeout for {}: {}", class.class, show_ns(class.deduced_ns?));
        Some(Change { at_s: recorder.at_s(class.since_ns?), words })
    };
    Ok(status.classes.into_iter().filter_map(change).collect())
}

/// Averages over the time up to `end_s`.
fn mean(fill: &[FillSample], end_s: f64, bytes: impl Fn(&FillSample) -> u64) -> u64 {
    let before = fill.partition_point(|sample| sample.at_s <= end_s);
    let (mut sum, mut time_s) = (0.0, 0.0);
    for pair in fill[..before].windows(2) {
        let step_s = pair[1].at_s - pair[0].at_s;
        sum += bytes(&pair[0]) as f64 * step_s;
        time_s += step_s;
    }
    if time_s > 0.0 { (sum / time_s) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_weighs_by_time_and_ends_with_the_writing() {
        let sample = |at_s, bytes| FillSample { at_s, taken_bytes: vec![bytes] };
        let fill = [sample(0.0, 10), sample(1.0, 20), sample(4.0, 0), sample(9.0, 99)];
        assert_eq!(mean(&fill, 5.0, |it| it.taken_bytes[0]), (10 + 3 * 20) / 4);
        assert_eq!(mean(&[], 5.0, |it| it.taken_bytes[0]), 0);
    }
}
