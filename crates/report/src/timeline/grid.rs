// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums over time and objects in bounded memory: as fine as the bound allows, and coarser for an overview.

use std::collections::HashMap;

/// Below this many spans of time, none is made longer at once by more than twice.
const SPANS_FINE: u64 = 1 << 22;

/// A level with fewer cells than this needs no coarser one.
const CELLS_FEW: usize = 1 << 12;

/// Where the cells of a grid are: the order in which a page has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The span of time: nanoseconds by the length of a span.
    pub(super) span: u64,
    /// The group of objects: the row by the size of a group.
    pub(super) group: u32,
    /// What is summed up, as a number.
    pub(super) what: u32,
}

/// What cells sum up.
pub(super) trait Sum: Copy {
    /// Adds what another cell sums up.
    fn add(&mut self, other: &Self);

    /// Whether the cell is as none.
    fn is_nothing(&self) -> bool;
}

impl Sum for i64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }

    fn is_nothing(&self) -> bool {
        *self == 0
    }
}

/// A grid of cells over time and objects. Each cell has the sum of all that was added in its place, so that nothing is
/// lost when cells become larger; they do so whenever there would be more than the bound.
///
/// Spans of time are multiples of a power of two of nanoseconds, groups a power of two of neighbouring rows: two cells
/// of a finer grid are one of a coarser.
#[derive(Debug)]
pub(super) struct Grid<V> {
    cells: HashMap<Place, V>,
    cells_max: usize,
    span_shift: u32,
    group_shift: u32,
    first_ns: u64,
    last_ns: u64,
    last_row: u32,
}

/// A grid of one size of cells, in order.
pub(super) struct Level<V> {
    /// A span of time is 2 to this power, in nanoseconds.
    pub(super) span_shift: u32,
    /// A group has 2 to this power rows.
    pub(super) group_shift: u32,
    pub(super) cells: Vec<(Place, V)>,
}

impl<V: Sum> Grid<V> {
    /// A grid with at most so many cells.
    pub(super) fn new(cells_max: usize) -> Self {
        Self {
            cells: HashMap::new(),
            cells_max,
            span_shift: 0,
            group_shift: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            last_row: 0,
        }
    }

    /// Adds a value to the cell of a time and a row.
    pub(super) fn add(&mut self, time_ns: u64, row: u32, what: u32, value: V) {
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.last_row = self.last_row.max(row);
        let (span, group) = (time_ns >> self.span_shift, row >> self.group_shift);
        put(&mut self.cells, Place { span, group, what }, &value);
        while self.cells.len() > self.cells_max && self.coarsen() {}
    }

    /// Makes cells larger; false where there is one span and one group.
    fn coarsen(&mut self) -> bool {
        let spans = (self.last_ns >> self.span_shift) - (self.first_ns >> self.span_shift) + 1;
        let groups = u64::from(self.last_row >> self.group_shift) + 1;
        let (longer, larger) = match () {
            () if spans > SPANS_FINE => (spans.ilog2() - SPANS_FINE.ilog2() + 1, 0),
            // A picture is about twice as wide as it is high.
            () if spans > 1 && spans >= 2 * groups => (1, 0),
            () if groups > 1 => (0, 1),
            () if spans > 1 => (1, 0),
            () => return false,
        };
        self.span_shift += longer;
        self.group_shift += larger;
        let mut cells = HashMap::with_capacity(self.cells.len());
        for (place, value) in self.cells.drain() {
            let (span, group) = (place.span >> longer, place.group >> larger);
            put(&mut cells, Place { span, group, ..place }, &value);
        }
        self.cells = cells;
        true
    }

    /// The cells as they are, then coarser ones, each time at most half as many.
    pub(super) fn into_levels(mut self) -> Vec<Level<V>> {
        let mut levels = vec![self.level()];
        let mut last = self.cells.len();
        while last > CELLS_FEW && self.coarsen() {
            if self.cells.len() <= last / 2 {
                last = self.cells.len();
                levels.push(self.level());
            }
        }
        levels
    }

    fn level(&self) -> Level<V> {
        let mut cells: Vec<_> = self.cells.iter().map(|(place, value)| (*place, *value)).collect();
        cells.sort_unstable_by_key(|(place, _)| *place);
        Level { span_shift: self.span_shift, group_shift: self.group_shift, cells }
    }
}

fn put<V: Sum>(cells: &mut HashMap<Place, V>, place: Place, value: &V) {
    match cells.entry(place) {
        std::collections::hash_map::Entry::Vacant(empty) => {
            if !value.is_nothing() {
                empty.insert(*value);
            }
        }
        std::collections::hash_map::Entry::Occupied(mut cell) => {
            cell.get_mut().add(value);
            if cell.get().is_nothing() {
                cell.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Random;

    use super::*;

    #[test]
    fn few_cells_are_exact() {
        let mut grid = Grid::new(10);
        for (time_ns, row) in [(7, 1), (5, 0), (7, 1)] {
            grid.add(time_ns, row, 3, 1i64);
        }
        let levels = grid.into_levels();
        assert_eq!(levels.len(), 1);
        assert_eq!((levels[0].span_shift, levels[0].group_shift), (0, 0));
        let place = |span, group| Place { span, group, what: 3 };
        assert_eq!(levels[0].cells, [(place(5, 0), 1), (place(7, 1), 2)]);
    }

    #[test]
    fn many_cells_stay_few_and_lose_nothing() {
        const CELLS_MAX: usize = 20_000;
        let mut random = Random::new(3);
        let mut grid = Grid::new(CELLS_MAX);
        for _ in 0..200_000 {
            let time_ns = 1 << 60 | random.below(1 << 40);
            grid.add(time_ns, random.below(5000) as u32, random.below(2) as u32, 1i64);
            assert!(grid.cells.len() <= CELLS_MAX);
        }
        let levels = grid.into_levels();
        assert!(levels.len() > 1);
        let mut before = usize::MAX;
        for level in &levels {
            assert_eq!(level.cells.iter().map(|(_, count)| count).sum::<i64>(), 200_000);
            assert!(level.cells.len() <= before / 2);
            assert!(level.cells.is_sorted_by_key(|(place, _)| *place));
            before = level.cells.len();
        }
        assert!(before <= CELLS_FEW);
    }

    #[test]
    fn what_comes_to_nothing_is_no_cell() {
        let mut grid = Grid::new(10);
        grid.add(1, 1, 0, 1i64);
        grid.add(1, 1, 0, -1);
        assert!(grid.into_levels()[0].cells.is_empty());
    }
}
