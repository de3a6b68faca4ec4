// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs of the catalog.

use std::path::Path;

use terrace_backends::kv::open_kv;
use terrace_core::{KvExt, KvRange};
use terrace_stack::{
    LOG_HEAD_BYTES, LogPoint, Opening, apply_log, log_head, push_log_commit, push_log_end,
    read_log_end, read_log_head,
};

use crate::input::Input;

const BEGIN: LogPoint = LogPoint { log: 7, sequence: 40 };
const OPENING: Opening = Opening { epoch: 3, opened_ns: 9 };

/// The first byte says how many records the others make, the second whether the last of them is the
/// end of the log, and the third what is damaged. Each record before the damage counts, none behind
/// it, and a record that is no change of a catalog is the end of the log.
pub(crate) fn log(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let records = 1 + input.choice(4);
    let has_end = input.choice(2) == 1;
    let damage = input.choice(256);
    let bodies = input.rest();
    let mut file = Vec::new();
    let mut sequence = BEGIN.sequence;
    for body in bodies.chunks(bodies.len().div_ceil(records).max(1)) {
        sequence += 1;
        push_log_commit(&mut file, sequence, body);
    }
    let begun_end = file.len();
    if has_end {
        push_log_end(&mut file, sequence, OPENING);
        assert_eq!(read_log_end(&file[begun_end..]), Some((sequence, OPENING)));
    }
    // Any bytes are no head, or exactly one.
    if let Some((store_id, point)) = read_log_head(bodies) {
        assert_eq!(log_head(store_id, point), bodies[..LOG_HEAD_BYTES]);
    }
    // And as they are, they are records or the torn end of a log.
    let _ = applied(bodies);
    let whole = applied(&file);
    assert!(whole.bytes <= bodies.len(), "{} bytes came out of {}", whole.bytes, bodies.len());
    let cut = applied(&file[..file.len().saturating_sub(1)]);
    match has_end {
        true => assert_eq!(cut.commits, whole.commits),
        false => assert!(cut.commits <= whole.commits),
    }
    if !file.is_empty() && damage > 0 {
        let at = damage % file.len();
        file[at] ^= damage as u8;
        let damaged = applied(&file);
        assert!(damaged.commits <= whole.commits);
        assert!(damaged.read_bytes <= at as u64 + LOG_HEAD_BYTES as u64);
    }
    whole.commits > 0
}

struct Applied {
    commits: u64,
    read_bytes: u64,
    /// Of the pairs that are there then.
    bytes: usize,
}

fn applied(mut records: &[u8]) -> Applied {
    let catalog = open_kv("memory", Path::new("")).expect("opens");
    let mut point = BEGIN;
    let report = apply_log(&mut records, BEGIN, &mut point, &*catalog).expect("memory can be read");
    assert_eq!(point.sequence, BEGIN.sequence + report.commits);
    let mut bytes = 0;
    let sum = &mut |key: &[u8], value: &[u8]| {
        bytes += 6 + key.len() + value.len();
        Ok(())
    };
    catalog.for_each(KvRange::all(), sum).expect("reads");
    Applied { commits: report.commits, read_bytes: report.bytes, bytes }
}
