// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sides measured in turns, so that what changes on the machine meets both.

use terrace_console::progress::Progress;
use terrace_core::{Buffer, Clock, Result, SystemClock};

use crate::cpu_ns;

/// Fewer groups than this support no verdict.
pub const GROUPS_MIN: usize = 20;

/// An operation to be repeated. It gets a number that counts up, and memory to read into or write
/// from: the same for both sides, because how fast a copy is depends on where it goes.
pub type Step<'a> = Box<dyn FnMut(u64, &mut [u8]) -> Result<()> + Send + 'a>;

/// Memory for the steps: there already, so that none of them waits for it.
pub fn memory(bytes: usize) -> Buffer {
    let mut memory = Buffer::zeroed(bytes);
    memory.fill(1);
    memory
}

/// How long a block lasts.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// About so many nanoseconds have passed.
    TimeNs(f64),
    /// So many operations are done: for those that leave something behind, of which both sides
    /// shall have as much.
    Count(u64),
}

/// What the groups of a case gave, one value each, in nanoseconds per operation.
#[derive(Default)]
pub struct Samples {
    /// What it is compared with.
    pub yardstick: Vec<f64>,
    /// What is measured.
    pub ours: Vec<f64>,
    /// CPU time of the whole process while that was measured.
    pub ours_cpu: Vec<f64>,
}

impl Samples {
    /// What is measured beside the yardstick, group by group.
    pub fn paired(&self, compare: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        self.yardstick
            .iter()
            .zip(&self.ours)
            .map(|(theirs, ours)| compare(*theirs, *ours))
            .collect()
    }
}

/// Whose turn a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Of what it is compared with.
    Yardstick,
    /// Of what is measured.
    Ours,
}

/// Measures groups of four blocks: yardstick, ours, ours, yardstick. Before each block, `prepare` does what is
/// not measured, and can end it all.
pub fn interleave(
    groups: usize,
    until: Until,
    bytes: usize,
    [mut yardstick, mut ours]: [Step<'_>; 2],
    progress: &mut Progress,
    prepare: &mut dyn FnMut(Turn) -> Result<()>,
) -> Result<Samples> {
    let mut samples = Samples::default();
    let mut buffer = memory(bytes);
    let mut measured = |side| {
        let turn = if side == 0 { Turn::Yardstick } else { Turn::Ours };
        prepare(turn)?;
        let step = if turn == Turn::Yardstick { &mut yardstick } else { &mut ours };
        let cpu = cpu_ns();
        let block = block(step, until, &mut buffer)?;
        Ok((block, (cpu_ns() - cpu) as f64))
    };
    let mut keep = |side, [(first, first_cpu), (second, second_cpu)]: [(Block, f64); 2]| {
        let per_op_ns = (first.per_op_ns() + second.per_op_ns()) / 2.0;
        if side == 0 {
            samples.yardstick.push(per_op_ns);
        } else {
            samples.ours.push(per_op_ns);
            samples.ours_cpu.push((first_cpu + second_cpu) / (first.count + second.count) as f64);
        }
    };
    in_turns(groups, 2, progress, &mut measured, &mut keep)?;
    Ok(samples)
}

/// Measures groups of two blocks of every side: of one after the other, and then in the reverse
/// order, so that a drift meets all alike. Before the first, each has a block that is forgotten.
pub fn in_turns<B>(
    groups: usize,
    sides: usize,
    progress: &mut Progress,
    measured: &mut dyn FnMut(usize) -> Result<B>,
    keep: &mut dyn FnMut(usize, [B; 2]),
) -> Result<()> {
    for side in 0..sides {
        measured(side)?;
    }
    for _ in 0..groups {
        let there = (0..sides).map(&mut *measured).collect::<Result<Vec<_>>>()?;
        let back = (0..sides).rev().map(&mut *measured).collect::<Result<Vec<_>>>()?;
        for (side, blocks) in there.into_iter().zip(back.into_iter().rev()).enumerate() {
            keep(side, blocks.into());
        }
        progress.advance(1);
    }
    Ok(())
}

/// What one block took.
pub struct Block {
    count: u64,
    passed_ns: f64,
}

impl Block {
    /// Nanoseconds of one operation, in the mean.
    pub fn per_op_ns(&self) -> f64 {
        self.passed_ns / self.count as f64
    }
}

/// Repeats a step.
pub fn block(step: &mut Step<'_>, until: Until, buffer: &mut Buffer) -> Result<Block> {
    /// Operations between two looks at the clock.
    const STRIDE: u64 = 16;
    let clock = SystemClock::default();
    let mut count = 0;
    loop {
        for _ in 0..STRIDE {
            step(count, buffer)?;
            count += 1;
        }
        let passed_ns = clock.now_ns() as f64;
        let is_over = match until {
            Until::TimeNs(longest) => passed_ns >= longest,
            Until::Count(most) => count >= most,
        };
        if is_over {
            return Ok(Block { count, passed_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_every_side_there_and_back() {
        let mut order = Vec::new();
        let mut kept = Vec::new();
        let mut progress = Progress::items("measuring", None);
        let mut measured = |side| {
            order.push(side);
            Ok(order.len())
        };
        let mut keep = |side, blocks| kept.push((side, blocks));
        in_turns(2, 3, &mut progress, &mut measured, &mut keep).expect("nothing fails");
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
        let first = [(0, [4, 9]), (1, [5, 8]), (2, [6, 7])];
        assert_eq!(kept[..3], first);
    }
}
