// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page over a recording that was made up.

use super::*;
use crate::demo::recording::{
    Change, FillSample, Mark, MarkKind, MoveRecord, ObjectRecord, Phase, Recording,
};
use crate::demo::report::Machine;
use crate::drawing::tests::assert_closed;

fn recording(objects: usize) -> Recording {
    let object = |index: usize| {
        let at_s = index as f64 * 0.02;
        let slow = index % 10 != 9;
        let read = Mark { at_s: 2.1 + at_s / 2.0, kind: MarkKind::Read, tier: usize::from(slow) };
        ObjectRecord {
            key: format!("partdiff/checkpoint-{index:06}"),
            created_s: at_s,
            placed_on: 0,
            marks: vec![Mark { at_s: at_s + 0.001, kind: MarkKind::Write, tier: 0 }, read],
            moves: slow
                .then(|| MoveRecord {
                    at_s: at_s + 0.3,
                    from: 0,
                    to: 1,
                    reason: "idle for <50 ms>".into(),
                })
                .into_iter()
                .collect(),
        }
    };
    let fill = (0..400).map(|step| FillSample {
        at_s: f64::from(step) * 0.01,
        taken_bytes: vec![
            u64::try_from(step.min(15)).expect("positive") * 500_000,
            u64::try_from((step / 2 - 8).clamp(0, 100)).expect("positive") * 500_000,
        ],
    });
    Recording {
        tiers: vec!["fast".into(), "slow".into()],
        objects: (0..objects).map(object).collect(),
        fill: fill.collect(),
        changes: vec![Change { at_s: 0.4, words: "timeout for partdiff: 12 ms".into() }],
        phases: vec![
            Phase { name: "writing".into(), start_s: 0.0, end_s: 2.0 },
            Phase { name: "reading".into(), start_s: 2.0, end_s: 3.2 },
        ],
    }
}

fn report() -> DemoReport {
    let run = RunReport {
        name: "write-buffer & more".into(),
        policy: "write-buffer timeout=50ms".into(),
        story: "New checkpoints went to the fast tier.".into(),
        write_s: 2.0,
        read_s: 1.2,
        moves: 90,
        migrated_bytes: 45_000_000,
        fast_bytes_max: 7_500_000,
        fast_bytes_mean: 7_000_000,
        checksum: "0123456789abcdef".into(),
        recording: recording(100),
        ..RunReport::default()
    };
    let skipped = RunReport {
        name: "example policy".into(),
        skipped: Some("it is not built".into()),
        ..RunReport::default()
    };
    DemoReport {
        version: "0.1.0".into(),
        command: "terrace demo".into(),
        machine: Machine::default(),
        simulated: "The slow tier is simulated.".into(),
        workload: "partdiff writes 100 checkpoints.".into(),
        runs: vec![run, skipped],
        verdicts: vec![Verdict {
            bar: "write-buffer ≤ 1.05 × fast only".into(),
            finding: Finding::Met,
            ratio: 1.01,
            bounds: None,
            words: "1.01 ×".into(),
        }],
        blocks: Vec::new(),
        elapsed_s: 45.0,
    }
}

#[test]
fn every_object_and_every_migration_is_drawn() {
    let html = page(&report(), &[]);
    for index in 0..100 {
        assert!(html.contains(&format!("<title>partdiff/checkpoint-{index:06}\n")), "{index}");
    }
    assert_eq!(html.matches("<g class=\"object\">").count(), 100);
    // One more in the key.
    assert_eq!(html.matches("class=\"star\"").count(), 90 + 1);
    assert!(html.contains("timeout for partdiff: 12 ms"));
    assert!(html.contains("skipped: it is not built"));
}

#[test]
fn elements_are_closed_in_order_and_text_is_escaped() {
    let step = Step { what: "look".into(), command: "terrace tiers > file".into() };
    let html = page(&report(), &[step]);
    assert!(html.contains("write-buffer &amp; more"));
    assert!(html.contains("idle for &lt;50 ms&gt;"));
    assert_closed(&html);
}

#[test]
fn nothing_is_fetched() {
    let html = page(&report(), &[]);
    for word in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!html.contains(word), "{word}");
    }
}
