// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private parts of the format. Not for anybody else: it may change with
//! every version.

use crate::access::{ACCESS_BYTES_MAX, Before};
use crate::block::{CONTENT_BYTES_MAX, Kind, PREFIX_BYTES, seal};
use crate::codec::{Encoder, Wrong};
use crate::index::END_MAGIC;
use crate::record::Record;
use crate::{block, entry};

/// The first bytes of every file.
pub const FILE_MAGIC: [u8; 8] = block::FILE_MAGIC;

/// Appends a whole block with this content, as far as one can hold it, and an end of the file
/// behind an index. The kinds are a head, subjects, records and an index.
pub fn push_block(file: &mut Vec<u8>, kind: usize, times: (u64, u64), content: &[u8]) {
    let kind = [Kind::Head, Kind::Subjects, Kind::Records, Kind::Index][kind % 4];
    let content = &content[..content.len().min(CONTENT_BYTES_MAX)];
    let start = file.len();
    file.extend([0; PREFIX_BYTES]);
    file.extend(content);
    seal(&mut file[start..], kind, 1, times);
    if kind == Kind::Index {
        file.extend((start as u64).to_le_bytes());
        file.extend(END_MAGIC);
    }
}

/// Writes a record as the only one of a block.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut content = Encoder::default();
    let head = match record {
        Record::Access(access) => {
            let mut bytes = vec![0; ACCESS_BYTES_MAX];
            let end = Before::default().put(&mut bytes, 0, access);
            bytes.truncate(end);
            return bytes;
        }
        Record::Snapshot(snapshot) => {
            content.snapshot(snapshot);
            entry::SNAPSHOT
        }
        Record::State(state) => {
            content.state(state);
            entry::STATE
        }
        Record::Round(round) => {
            content.round(round);
            entry::ROUND
        }
        Record::Decision(action) => {
            content.decision(action);
            entry::DECISION
        }
        Record::Policy(change) => {
            content.policy(change);
            entry::POLICY
        }
    };
    let mut whole = Encoder::default();
    whole.u8(head).list(&content.bytes);
    whole.bytes
}

/// Reads the only record of a block; the key of a segment is that of `like`.
///
/// # Errors
///
/// Why it is none.
pub fn decode(bytes: &[u8], like: &Record) -> Result<Option<Record>, &'static str> {
    let mut decoder = crate::codec::Decoder::new(bytes);
    let key_of = |_| match like {
        Record::State(state) => state.view.key.clone(),
        _ => unreachable!("only states have keys"),
    };
    let record = block::Entries::default().next(&mut decoder, key_of);
    record.and_then(|record| decoder.finish().map(|()| record)).map_err(|Wrong(why)| why)
}
