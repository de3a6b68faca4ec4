// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads checkpoints in batches: all headers of a batch, then all of its points.

use terrace_store::Result;

use crate::checkpoint::{self, HEADER_BYTES};
use crate::{Header, Place, Summary};

/// Checkpoints that are read at once.
const BATCH_CHECKPOINTS: usize = 10;

/// What was found in one checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its name.
    pub name: String,
    /// Its header.
    pub header: Header,
    /// Sum of the points on the main diagonal.
    pub diagonal: f64,
}

/// Reads and verifies all checkpoints of a place in order; calls `each` for every one.
///
/// # Errors
///
/// `Corrupt` for a checkpoint that is not what was written, and everything a read can meet.
pub fn read(place: &dyn Place, each: &mut dyn FnMut(&Reading)) -> Result<Summary> {
    let mut summary = Summary::default();
    for names in place.names()?.chunks(BATCH_CHECKPOINTS) {
        let headers = place
            .read(names, 0, &vec![HEADER_BYTES; names.len()])?
            .iter()
            .zip(names)
            .map(|(bytes, name)| Header::decode(name, bytes))
            .collect::<Result<Vec<_>>>()?;

        let sizes: Vec<_> = headers.iter().map(|header| header.points_bytes() as usize).collect();
        let batch = place.read(names, HEADER_BYTES as u64, &sizes)?;

        for ((name, header), points) in names.iter().zip(headers).zip(batch) {
            header.verify(name, &points)?;
            let diagonal = checkpoint::main_diagonal(header.dimension, &points);
            summary.add(&header);
            each(&Reading { name: name.clone(), header, diagonal });
        }
    }
    Ok(summary)
}
