// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a trace.

use std::path::Path;

use terrace_core::ErrorKind;
use terrace_trace::fuzzing::{FILE_MAGIC, decode, encode, push_block};
use terrace_trace::{Item, Reader, Record, Scene};

use crate::input::Input;

/// Slots of a snapshot for which a view is made: each takes a hundred bytes, and four million are
/// allowed.
const SLOTS_MAX: u32 = 1000;

/// Any file is read to its end; damage is reported, and only another version is refused.
pub(crate) fn file(input: &[u8]) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    !read(directory.path(), input).is_empty()
}

/// Whole blocks with any content: what was read is written again as something that reads the same,
/// the view that the policy had can be followed, and what is there of a file that is still written
/// reads as the beginning of the whole. Of each block the first byte is its kind, the next two are
/// the length of its content.
pub(crate) fn blocks(input: &[u8]) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut input = Input::new(input);
    let cut = input.choice(256);
    let mut file = FILE_MAGIC.to_vec();
    let mut rest = input.rest();
    while let Some(([kind, low, high], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (content, behind) = behind.split_at(length);
        // Every block is of the time for which part of the trace is asked.
        push_block(&mut file, usize::from(*kind), (0, u64::MAX), content);
        rest = behind;
    }
    let records = read(directory.path(), &file);
    let begun = read(directory.path(), &file[..file.len() - cut.min(file.len())]);
    assert!(begun.len() <= records.len(), "a part holds more than the whole");
    let pairs = begun.iter().zip(&records);
    pairs.for_each(|(begun, record)| assert_eq!(encode(begun), encode(record)));
    for record in &records {
        let bytes = encode(record);
        let again = decode(&bytes, record).expect("was written").expect("is whole");
        assert_eq!(encode(&again), bytes, "{again:?} was {record:?}");
    }
    !records.is_empty()
}

/// Reads a trace of one file, whole and in part, and follows the policy's view.
fn read(directory: &Path, file: &[u8]) -> Vec<Record> {
    std::fs::write(directory.join("000001.trace"), file).expect("writable");
    let part = Reader::open(directory).expect("is there").between(1000, 2000);
    part.filter_map(Result::ok).for_each(drop);
    let mut reader = Reader::open(directory).expect("is there");
    let mut scene = Scene::default();
    let mut records = Vec::new();
    let mut problems = 0;
    loop {
        match reader.next_item() {
            Ok(None) => break,
            Ok(Some(Item::File(head))) => scene.file(&head),
            Ok(Some(Item::Record(record))) => {
                let is_large =
                    matches!(&record, Record::Snapshot(snapshot) if snapshot.slots > SLOTS_MAX);
                if !is_large {
                    let _ = scene.take(&record);
                }
                records.push(record);
            }
            Ok(Some(Item::Problem(problem))) => {
                assert!(!problem.to_string().is_empty());
                assert!(
                    problem.offset_bytes <= file.len().max(FILE_MAGIC.len()) as u64,
                    "{problem}"
                );
                problems += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
    // Each is about a block, or about a place in no particular block.
    assert!(problems <= 1 + file.len(), "{problems} problems");
    records
}
