// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Solves the equation and writes checkpoints.

use std::io::IoSlice;

use terrace_store::{Backend, Open, Persistency, Result, Semantics};

use crate::checkpoint::{self, HEADER_BYTES};
use crate::{Grid, Header, Method, Summary};

/// What to compute and how often to write it down.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the checkpoints go.
    pub namespace: String,
    /// Points along one edge of the grid.
    pub dimension: usize,
    /// How an iteration goes over the grid.
    pub method: Method,
    /// How many checkpoints to write.
    pub checkpoints: u64,
    /// Iterations between two of them.
    pub interval: u64,
    /// What a checkpoint survives once it is written.
    pub persistency: Persistency,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "partdiff".into(),
            dimension: 256,
            method: Method::default(),
            checkpoints: 100,
            interval: 100,
            persistency: Persistency::default(),
        }
    }
}

/// Iterates and writes a checkpoint, one object, every `interval` iterations; calls `progress`
/// after each.
///
/// # Errors
///
/// `Exists` where the namespace holds checkpoints already, and everything a write can meet.
pub fn run(
    store: &dyn Backend,
    settings: &Settings,
    progress: &mut dyn FnMut(&Header),
) -> Result<Summary> {
    let mut grid = Grid::new(settings.dimension);
    let mut points = vec![0; settings.dimension * settings.dimension * size_of::<f64>()];
    let semantics = Semantics::at_level(settings.persistency);
    let mut summary = Summary::default();
    for number in 0..settings.checkpoints {
        let mut residuum = 0.0;
        for _ in 0..settings.interval {
            residuum = grid.iterate(settings.method);
        }
        checkpoint::encode_points(grid.points(), &mut points);
        let iteration = (number + 1) * settings.interval;
        let header = Header::new(settings.dimension, iteration, residuum, &points);

        let key = checkpoint::key(&settings.namespace, number)?;
        let size_hint_bytes = Some((HEADER_BYTES + points.len()) as u64);
        let how = Open { size_hint_bytes, semantics, ..Open::create_new() };
        let object = store.open(&key, &how)?;
        object.write_at(0, &[IoSlice::new(&header.encode()), IoSlice::new(&points)])?;

        summary.add(&header);
        progress(&header);
    }
    Ok(summary)
}
