// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats of records of one length.

use std::io::Cursor;

use terrace_core::ErrorKind;
use terrace_replay::{Format, Operation, Options, Request, Trace};

use super::{refusal, requests};

const SECOND_NS: u64 = 1_000_000_000;

/// So many oracleGeneral records, more than are read at a time.
const MANY: u32 = 3000;

fn oracle_general(time_s: u32, object: u64, bytes: u32, next: i64) -> Vec<u8> {
    let (time_s, object) = (time_s.to_le_bytes(), object.to_le_bytes());
    [&time_s[..], &object, &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
}

fn many() -> Vec<u8> {
    (0..MANY).flat_map(|n| oracle_general(n / 7, u64::from(n) << 33, n, -1)).collect()
}

fn vscsi_1(opcode: u16, version: u16) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [1u32, 4096, 1] {
        record.extend(word.to_le_bytes());
    }
    record.extend(opcode.to_le_bytes());
    record.extend(version.to_le_bytes());
    record.extend(77u64.to_le_bytes());
    record.extend(5_000_000u64.to_le_bytes());
    record
}

fn vscsi_2(opcode: u16) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(opcode.to_le_bytes());
    record.extend(0x0200u16.to_le_bytes());
    for word in [1u32, 4096, 1] {
        record.extend(word.to_le_bytes());
    }
    for word in [77u64, 5_000_000, 12] {
        record.extend(word.to_le_bytes());
    }
    record
}

fn lcs(version: u64, count: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let magic = 0x1234_5678_9abc_def0u64.to_le_bytes();
    let mut file = [&magic[..], &version.to_le_bytes(), &1u64.to_le_bytes()].concat();
    file.extend(count.to_le_bytes());
    file.resize(8184, 0);
    file.extend(magic);
    file.extend(records.concat());
    file
}

fn lcs_record(version: u64) -> Vec<u8> {
    let mut record = [&9u32.to_le_bytes()[..], &77u64.to_le_bytes()].concat();
    match version {
        1 | 2 => record.extend(4096u32.to_le_bytes()),
        _ => record.extend(4096i64.to_le_bytes()),
    }
    if version > 1 {
        record.extend((5u32 << 8 | 13).to_le_bytes());
    }
    if version > 2 {
        record.extend(60u32.to_le_bytes());
    }
    record.extend((-1i64).to_le_bytes());
    let features = if version > 3 { 1 << (version - 4) } else { 0 };
    record.extend(vec![0xee; 4 * features]);
    record
}

fn block(operation: Operation) -> Request {
    Request {
        time_ns: 5 * SECOND_NS,
        object: 77,
        size_bytes: 4096,
        offset_bytes: 0,
        length_bytes: 4096,
        client: 0,
        latency_ns: 0,
        operation,
    }
}

#[test]
fn oracle_general_is_recognised_and_read() {
    let (format, requests) = requests(&many());
    assert_eq!((format, requests.len()), (Format::OracleGeneral, MANY as usize));
    let last = requests.last().unwrap();
    assert_eq!(last.time_ns, u64::from((MANY - 1) / 7) * SECOND_NS);
    assert_eq!((last.object, last.size_bytes), (u64::from(MANY - 1) << 33, u64::from(MANY - 1)));
}

#[test]
fn oracle_general_is_recognised_whatever_is_in_it() {
    // Times out of order, and sizes in which version 1 of vscsi has its version.
    let backwards =
        [oracle_general(5, 1, 10, 3), oracle_general(3, 2, 10, -1), oracle_general(1, 1, 10, -1)];
    let large = [oracle_general(5, 1, 16 << 20, -1), oracle_general(6, 2, 16 << 20, -1)];
    let untold = [oracle_general(5, 1, 10, 0), oracle_general(6, 1, 10, 0)];
    for records in [&backwards[..], &large, &untold] {
        let (format, found) = requests(&records.concat());
        assert_eq!((format, found.len()), (Format::OracleGeneral, records.len()));
    }
    // The name says it where nothing else does.
    let odd = [oracle_general(5, 1, 10, 1), oracle_general(3, 1, 10, 1)].concat();
    for (name, is_known) in [("a.oracleGeneral.bin", true), ("oracleGeneral/a.bin", false)] {
        let stream = Box::new(Cursor::new(odd.clone()));
        assert_eq!(Trace::from_stream(stream, name, &Options::default()).is_ok(), is_known);
    }
}

#[test]
fn a_file_that_is_cut_short_names_the_record() {
    let mut bytes = many();
    bytes.pop();
    let error = refusal(&bytes, Format::OracleGeneral);
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let end = "it is cut short file=test record=3000 bytes=23";
    assert!(error.to_string().ends_with(end), "{error}");
}

#[test]
fn a_record_that_nobody_writes_is_named() {
    let mut bytes = many();
    bytes.extend(oracle_general(1, 2, 3, -2));
    let error = refusal(&bytes, Format::OracleGeneral).to_string();
    assert!(error.ends_with("file=test record=3001"), "{error}");
}

#[test]
fn vscsi_1_is_recognised_and_read() {
    let records = [vscsi_1(0x28, 0x0100), vscsi_1(0x2a, 0x0100), vscsi_1(0x35, 0x0100)].concat();
    let operations = [Operation::Read, Operation::Write, Operation::Unknown];
    assert_eq!(requests(&records), (Format::Vscsi, operations.map(block).to_vec()));
}

#[test]
fn vscsi_2_is_recognised_and_read() {
    let records = [vscsi_2(0x88), vscsi_2(0x0a)].concat();
    let wanted = [Operation::Read, Operation::Write]
        .map(|operation| Request { latency_ns: 12_000, ..block(operation) });
    assert_eq!(requests(&records), (Format::Vscsi, wanted.to_vec()));
}

#[test]
fn a_record_of_another_version_is_refused() {
    let records = [vscsi_1(0x28, 0x0100), vscsi_1(0x28, 0x0200)].concat();
    let error = refusal(&records, Format::Vscsi).to_string();
    assert!(error.ends_with("another version than the file file=test record=2"), "{error}");
}

#[test]
fn every_version_of_lcs_is_recognised_and_read() {
    for version in 1..=8 {
        let record = lcs_record(version);
        let (format, requests) = requests(&lcs(version, 2, &[record.clone(), record]));
        let (operation, client) = match version {
            1 => (Operation::Unknown, 0),
            _ => (Operation::Write, 5),
        };
        let wanted = Request { time_ns: 9 * SECOND_NS, client, ..block(operation) };
        assert_eq!((format, requests), (Format::Lcs, vec![wanted; 2]), "version {version}");
    }
}

#[test]
fn an_lcs_file_without_all_its_records_is_refused() {
    let record = lcs_record(1);
    let error = refusal(&lcs(1, 3, &[record.clone(), record.clone()]), Format::Lcs).to_string();
    assert!(error.ends_with("record=2 header_says=3"), "{error}");
    let unknown = refusal(&lcs(9, 1, &[record]), Format::Lcs).to_string();
    assert!(unknown.ends_with("version=9"), "{unknown}");
    let short = refusal(&lcs(1, 1, &[])[..8191], Format::Lcs).to_string();
    assert!(short.contains("within its header"), "{short}");
}
