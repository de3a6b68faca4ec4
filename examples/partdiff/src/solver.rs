// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Solves the equation and writes checkpoints.

use terrace_store::{Error, Persistency, Result};

use crate::{Grid, Header, Method, Place, Summary, checkpoint};

/// What to compute and how often to write it down.
#[derive(Clone, Debug)]
pub struct Settings {
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
            dimension: 256,
            method: Method::default(),
            checkpoints: 100,
            interval: 100,
            persistency: Persistency::default(),
        }
    }
}

/// Iterates and writes a checkpoint every `interval` iterations; calls `progress`
/// after each.
///
/// # Errors
///
/// `Invalid` for a grid that is too small or too large, `Exists` where the place holds checkpoints already, and everything a write can meet.
pub fn run(
    place: &dyn Place,
    settings: &Settings,
    progress: &mut dyn FnMut(&Header),
) -> Result<Summary> {
    if !checkpoint::DIMENSIONS.contains(&(settings.dimension as u64)) {
        return Err(Error::invalid("solve", "a grid has 3 to 32768 points along one edge")
            .with("dimension", settings.dimension));
    }
    let mut grid = Grid::new(settings.dimension);
    let mut points = vec![0; settings.dimension * settings.dimension * size_of::<f64>()];
    let mut summary = Summary::default();
    for number in 0..settings.checkpoints {
        let mut residuum = 0.0;
        for _ in 0..settings.interval {
            residuum = grid.iterate(settings.method);
        }
        checkpoint::encode_points(grid.points(), &mut points);
        let iteration = (number + 1) * settings.interval;
        let header = Header::new(settings.dimension, iteration, residuum, &points);

        place.create(number, settings.persistency, &header.encode(), &points)?;
        summary.add(&header);
        progress(&header);
    }
    Ok(summary)
}
