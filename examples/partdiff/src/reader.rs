// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads checkpoints in batches: all headers of a batch, then all of its points.

use terrace_store::{
    Backend, BackendExt, Error, ErrorKind, Key, Op, Persistency, Reply, Request, Result, Semantics,
};

use crate::checkpoint::{self, HEADER_BYTES};
use crate::{Header, Summary};

/// Checkpoints that are read at once.
const BATCH_CHECKPOINTS: usize = 10;

/// What was found in one checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The object.
    pub key: Key,
    /// Its header.
    pub header: Header,
    /// Sum of the points on the main diagonal.
    pub diagonal: f64,
}

/// Reads and verifies all checkpoints of a namespace in order; calls `each` for every one.
///
/// # Errors
///
/// `Corrupt` for a checkpoint that is not what was written, and everything a read can meet.
pub fn read(
    store: &dyn Backend,
    namespace: &str,
    each: &mut dyn FnMut(&Reading),
) -> Result<Summary> {
    let mut summary = Summary::default();
    for keys in store.list_all(namespace, checkpoint::PREFIX)?.chunks(BATCH_CHECKPOINTS) {
        let sizes = vec![HEADER_BYTES; keys.len()];
        let headers = read_batch(store, keys, 0, &sizes)?
            .iter()
            .zip(keys)
            .map(|(bytes, key)| Header::decode(key, bytes))
            .collect::<Result<Vec<_>>>()?;

        let sizes: Vec<_> = headers.iter().map(|header| header.points_bytes() as usize).collect();
        let batch = read_batch(store, keys, HEADER_BYTES, &sizes)?;

        for ((key, header), points) in keys.iter().zip(headers).zip(batch) {
            header.verify(key, &points)?;
            let diagonal = checkpoint::main_diagonal(header.dimension, &points);
            summary.add(&header);
            each(&Reading { key: key.clone(), header, diagonal });
        }
    }
    Ok(summary)
}

/// Reads `sizes[i]` bytes at the same offset of every key, all at once.
fn read_batch(
    store: &dyn Backend,
    keys: &[Key],
    offset_bytes: usize,
    sizes: &[usize],
) -> Result<Vec<Vec<u8>>> {
    let mut buffers: Vec<_> = sizes.iter().map(|bytes| vec![0; *bytes]).collect();
    let mut operations: Vec<_> = keys
        .iter()
        .zip(&mut buffers)
        .map(|(key, buffer)| {
            Op::new(Request::Read { key, offset_bytes: offset_bytes as u64, buffer })
        })
        .collect();
    // Whoever only reads has nothing that could be lost.
    store.execute(&mut operations, &Semantics::at_level(Persistency::None));

    for ((operation, key), want) in operations.into_iter().zip(keys).zip(sizes) {
        match operation.outcome.expect("execute fills every outcome")? {
            Reply::Count(count) if count == *want => {}
            _ => {
                return Err(Error::new(ErrorKind::Corrupt, "read a checkpoint")
                    .because("it ends too early")
                    .with("key", key));
            }
        }
    }
    Ok(buffers)
}
