// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page over a recording that was made up.

use terrace_measure::Machine;
use terrace_report::assert_closed;

use super::*;
use crate::recording::{
    Change, FillSample, Mark, MarkKind, MoveRecord, ObjectRecord, Phase, Recording,
};

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
    let (_, rest) = html.split_once("<script type=\"application/json\">").expect("it has data");
    let (data, _) = rest.split_once("</script>").expect("it ends");
    let data: serde_json::Value = serde_json::from_str(data).expect("it is JSON");
    assert_eq!((&data["objects"], &data["moves"]["n"]), (&100.into(), &90.into()));
    // Each is created, written and read.
    assert_eq!(data["accesses"][0]["n"], 390);
    assert_eq!(data["names"]["rest"].as_array().map(Vec::len), Some(100));
    assert_eq!(data["moves"]["reasons"][0], "idle for <50 ms>");
    assert_eq!(data["notes"][0], serde_json::json!([400_000_000, "timeout for partdiff: 12 ms"]));
    assert_eq!(
        data["phases"][1],
        serde_json::json!(["reading", 2_000_000_000u64, 3_200_000_000u64])
    );
    assert!(html.contains("skipped: it is not built"));
}

#[test]
fn elements_are_closed_in_order_and_text_is_escaped() {
    let step = Step { what: "look".into(), command: "terrace tiers > file".into() };
    let html = page(&report(), &[step]);
    assert!(html.contains("write-buffer &amp; more"));
    assert!(html.contains("idle for \\u003c50 ms>"));
    // Scripts are no elements.
    let pieces = html
        .split("<script")
        .map(|piece| piece.split_once("</script>").map_or(piece, |(_, rest)| rest));
    assert_closed(&pieces.collect::<String>());
}

#[test]
fn nothing_is_fetched() {
    let html = page(&report(), &[]);
    for word in ["http:", "https:", "src=", "@import", "url(", "fetch(", "import(", "<link"] {
        assert!(!html.contains(word), "{word}");
    }
}
