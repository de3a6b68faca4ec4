// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes events one by one and keeps what a picture needs of them, in bounded memory for any number of events, and in
//! some 100 bytes for each object.

use std::collections::{BTreeMap, HashMap};

use super::course::{Course, Filled, Waited};
use super::grid::{Grid, Sum};
use super::{Counted, Mark, Move, Picture, Source, TIER_NONE, Tier};

/// Objects whose names are in a page at most.
const NAMES_MAX: usize = 50_000;

/// Migrations that are listed with their reason at most; others are only counted.
const MOVES_MAX: usize = 20_000;

/// Different reasons at most.
const REASONS_MAX: usize = 4096;

/// Notes beside the axis of time at most.
const NOTES_MAX: usize = 200;

/// Cells of accesses, and changes of lives, of a picture that has a page for itself.
pub const CELLS_MAX: usize = 1 << 18;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The object, and its segment or incarnation.
    pub id: (u64, u32),
    /// When, in nanoseconds by any clock.
    pub time_ns: u64,
    /// What happened.
    pub what: What,
    /// The place of the tier, as [`Builder::tier`] returned it.
    pub tier: Option<usize>,
    /// What it was for.
    pub bytes: u64,
    /// How long the object is at least, as far as this shows.
    pub size_bytes: u64,
    /// Of all that is summed up here.
    pub latency_ns: u64,
    /// Of the latency: what it waited for a migration.
    pub guard_ns: u64,
    /// Of the latency: what the stack itself took.
    pub stack_ns: u64,
    /// How many of them are summed up here.
    pub count: u64,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was created.
    Create,
    /// It is there.
    Present,
    /// A program opened it.
    Open,
    /// A program closed it.
    Close,
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// Read or written: the trace does not tell.
    Request,
    /// It was cut, or made longer.
    SetLength,
    /// It was deleted.
    Delete,
    /// The primary is on the tier from now on.
    Moved,
    /// A clean copy is.
    Copied,
    /// It is not any more.
    Uncopied,
    /// An action was refused, or failed.
    Refused,
}

/// Access of a cell: what it sums up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// The longest latency, and the longest wait at the guard.
    pub(super) latency_ns: u64,
    pub(super) guard_ns: u64,
}

impl Sum for Cell {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.latency_ns = self.latency_ns.max(other.latency_ns);
        self.guard_ns = self.guard_ns.max(other.guard_ns);
    }

    fn is_nothing(&self) -> bool {
        self.count == 0
    }
}

/// What is known of an object while events come.
#[derive(Clone, Copy)]
struct Object {
    tier: u8,
    /// Whether it was created, and nothing was written yet.
    is_empty: bool,
    is_gone: bool,
    /// Since when it is on its tier, as far as it is not in the picture.
    since_ns: u64,
    last_access_ns: u64,
    size_bytes: u64,
    /// The tiers with a copy, by bit, and its length.
    copies: u64,
    copied_bytes: u64,
}

/// Builds a picture.
pub struct Builder {
    rows: HashMap<(u64, u32), u32>,
    objects: Vec<Object>,
    names: Vec<String>,
    tiers: Vec<Tier>,
    accesses: Grid<Cell>,
    lives: Grid<i64>,
    held: BTreeMap<u8, u64>,
    shown: BTreeMap<u8, Course<Filled>>,
    counted: BTreeMap<u8, Course<Filled>>,
    waits: [Course<Waited>; 2],
    moves: Vec<Move>,
    reasons: Vec<String>,
    reason_numbers: HashMap<String, u32>,
    /// The reason of what was asked for last, by object.
    asked: HashMap<(u64, u32), u32>,
    totals: BTreeMap<(Mark, u8), Counted>,
    refused: u64,
    events: u64,
    summed_up: u64,
    phases: Vec<(String, u64, u64)>,
    notes: Vec<(u64, String)>,
    notes_left_out: u64,
    span_ns: Option<(u64, u64)>,
}

impl Builder {
    /// A picture with at most so many cells of accesses, and so many changes of lives.
    pub fn new(cells_max: usize) -> Self {
        Self {
            rows: HashMap::new(),
            objects: Vec::new(),
            names: Vec::new(),
            tiers: Vec::new(),
            accesses: Grid::new(cells_max),
            lives: Grid::new(cells_max),
            held: BTreeMap::new(),
            shown: BTreeMap::new(),
            counted: BTreeMap::new(),
            waits: Default::default(),
            moves: Vec::new(),
            reasons: Vec::new(),
            reason_numbers: HashMap::new(),
            asked: HashMap::new(),
            totals: BTreeMap::new(),
            refused: 0,
            events: 0,
            summed_up: 0,
            phases: Vec::new(),
            notes: Vec::new(),
            notes_left_out: 0,
            span_ns: None,
        }
    }

    /// The place of the tier with this name, which is behind those before where it is new.
    pub fn tier(&mut self, name: &str, capacity_bytes: u64) -> usize {
        let known = self.tiers.iter().position(|tier| tier.name == name);
        known.unwrap_or_else(|| {
            let colour = self.tiers.len();
            self.tiers.push(Tier { name: name.into(), capacity_bytes, colour });
            colour
        })
    }

    /// Has a tier look as the one of this place usually does.
    pub fn colour(&mut self, tier: usize, colour: usize) {
        self.tiers[tier].colour = colour;
    }

    /// Takes an event; `name` is called where the object is new.
    pub fn take(&mut self, seen: &Seen, name: impl FnOnce() -> String) {
        if seen.what == What::Refused {
            self.refused += seen.count;
            self.asked.remove(&seen.id);
            return;
        }
        self.stretch(seen.time_ns, seen.time_ns);
        self.events += seen.count;
        self.summed_up += seen.count.saturating_sub(1);
        let tier = number(seen.tier);
        let row = self.row(seen, tier, name);
        let access = match seen.what {
            What::Read => Some(Mark::Read),
            What::Write => Some(Mark::Write),
            What::Request => Some(Mark::Request),
            What::Create | What::Open | What::Close | What::SetLength => Some(Mark::Handle),
            _ => None,
        };
        if self.objects[row as usize].is_gone {
            // It began before the deletion, and was posted behind it.
            if let Some(mark) = access {
                self.mark(row, seen, mark, tier);
            }
            return;
        }
        self.look_at_size(row, seen);
        let mark = match seen.what {
            What::Delete => Some(Mark::Delete),
            What::Moved => self.moved(row, seen, tier),
            What::Copied => self.copied(row, seen.time_ns, tier, true).then_some(Mark::Copied),
            What::Uncopied => self.copied(row, seen.time_ns, tier, false).then_some(Mark::Dropped),
            _ => access,
        };
        let object = &mut self.objects[row as usize];
        if access.is_some() {
            object.last_access_ns = object.last_access_ns.max(seen.time_ns);
        }
        let tier = if tier == TIER_NONE || seen.what == What::Delete { object.tier } else { tier };
        if seen.what == What::Delete {
            self.end(row, seen.time_ns);
        }
        if let Some(mark) = mark {
            self.mark(row, seen, mark, tier);
        }
    }

    /// The reason for what was asked for with an object, for the migration that comes of it.
    pub fn reason(&mut self, id: (u64, u32), reason: &str) {
        if let Some(number) = self.reason_number(reason) {
            self.asked.insert(id, number);
        }
    }

    /// What a tier holds, as the store or the model counts it.
    pub fn fill(&mut self, time_ns: u64, tier: usize, bytes: u64) {
        self.stretch(time_ns, time_ns);
        let tier = number(Some(tier));
        self.counted.entry(tier).or_default().note(time_ns, Filled::at(bytes));
    }

    /// What a program did, from one time to another.
    pub fn phase(&mut self, name: &str, start_ns: u64, end_ns: u64) {
        self.stretch(start_ns, end_ns);
        self.phases.push((name.into(), start_ns, end_ns));
    }

    /// A note at a time.
    pub fn note(&mut self, time_ns: u64, words: String) {
        if self.notes.len() < NOTES_MAX {
            self.stretch(time_ns, time_ns);
            self.notes.push((time_ns, words));
        } else {
            self.notes_left_out += 1;
        }
    }

    /// The picture of everything so far.
    pub fn finish(mut self) -> Picture {
        for row in 0..self.objects.len() as u32 {
            let object = self.objects[row as usize];
            if !object.is_gone {
                self.live(row, object.last_access_ns);
            }
        }
        let is_bare = self.tiers.is_empty();
        let source = if self.counted.is_empty() { Source::Trace } else { Source::Counted };
        let fill = if self.counted.is_empty() { self.shown } else { self.counted };
        Picture {
            span_ns: self.span_ns.unwrap_or((0, 0)),
            events: self.events,
            summed_up: self.summed_up,
            objects: self.objects.len() as u64,
            tiers: self.tiers,
            names: self.names,
            last_access_ns: match self.objects.len() <= NAMES_MAX {
                true => self.objects.iter().map(|object| object.last_access_ns).collect(),
                false => Vec::new(),
            },
            accesses: self.accesses.into_levels(),
            lives: self.lives.into_levels(),
            // Where tiers are known, what is not yet on one is on none.
            fill: fill.into_iter().filter(|(tier, _)| is_bare || *tier != TIER_NONE).collect(),
            source,
            waits: self.waits,
            moves: self.moves,
            reasons: self.reasons,
            totals: self.totals,
            refused: self.refused,
            phases: self.phases,
            notes: self.notes,
            notes_left_out: self.notes_left_out,
        }
    }

    fn stretch(&mut self, from_ns: u64, until_ns: u64) {
        let (first_ns, last_ns) = self.span_ns.unwrap_or((from_ns, until_ns));
        self.span_ns = Some((first_ns.min(from_ns), last_ns.max(until_ns)));
    }

    /// The row of an object, with the tier that the event tells.
    fn row(&mut self, seen: &Seen, tier: u8, name: impl FnOnce() -> String) -> u32 {
        let next = self.objects.len() as u32;
        let row = *self.rows.entry(seen.id).or_insert(next);
        let new = Object {
            tier: TIER_NONE,
            is_empty: seen.what == What::Create,
            is_gone: false,
            since_ns: seen.time_ns,
            last_access_ns: seen.time_ns,
            size_bytes: 0,
            copies: 0,
            copied_bytes: 0,
        };
        if row == next {
            if self.names.len() < NAMES_MAX {
                self.names.push(name());
            }
            self.objects.push(new);
        }
        let object = &mut self.objects[row as usize];
        if object.is_gone {
            if seen.what != What::Create && seen.time_ns <= object.last_access_ns {
                return row;
            }
            *object = new;
        }
        // A read may be served by a copy elsewhere.
        let is_primary =
            matches!(seen.what, What::Create | What::Present | What::Write | What::SetLength);
        let is_place = is_primary || matches!(seen.what, What::Read | What::Request);
        if object.tier == TIER_NONE && is_place {
            self.place(row, tier);
        } else if is_primary && tier != TIER_NONE && object.tier != tier {
            self.live(row, seen.time_ns);
            self.place(row, tier);
        }
        row
    }

    /// An object is on a tier from now on.
    fn place(&mut self, row: u32, tier: u8) {
        let object = &mut self.objects[row as usize];
        let (from, bytes) = (std::mem::replace(&mut object.tier, tier), object.size_bytes);
        if let Some(held) = self.held.get_mut(&from) {
            *held = held.saturating_sub(bytes);
        }
        *self.held.entry(tier).or_default() += bytes;
    }

    /// Takes what an event shows of the size of an object.
    fn look_at_size(&mut self, row: u32, seen: &Seen) {
        let object = &mut self.objects[row as usize];
        let size_bytes = match seen.what {
            What::SetLength => seen.size_bytes,
            What::Read | What::Write | What::Request | What::Present => {
                object.size_bytes.max(seen.size_bytes)
            }
            _ => return,
        };
        object.is_empty &= size_bytes == 0;
        let (before_bytes, tier) =
            (std::mem::replace(&mut object.size_bytes, size_bytes), object.tier);
        if before_bytes != size_bytes {
            self.hold(seen.time_ns, tier, size_bytes, before_bytes);
        }
    }

    /// A tier holds more by `more`, and less by `less`.
    fn hold(&mut self, time_ns: u64, tier: u8, more: u64, less: u64) {
        let held = self.held.entry(tier).or_default();
        *held = held.saturating_add(more).saturating_sub(less);
        self.shown.entry(tier).or_default().note(time_ns, Filled::at(*held));
    }

    /// A migration, unless it places an object that is empty.
    fn moved(&mut self, row: u32, seen: &Seen, to: u8) -> Option<Mark> {
        let reason = self.asked.remove(&seen.id);
        let object = self.objects[row as usize];
        let others = (0..self.tiers.len() as u8).filter(|tier| *tier != to);
        let from = match object.tier {
            // Of two tiers it was on the other.
            TIER_NONE if self.tiers.len() == 2 => others.max().unwrap_or(TIER_NONE),
            tier => tier,
        };
        self.objects[row as usize].tier = from;
        self.live(row, seen.time_ns);
        self.place(row, to);
        for tier in [from, to] {
            self.hold(seen.time_ns, tier, 0, 0);
        }
        if from == to || object.is_empty {
            return None;
        }
        if self.moves.len() < MOVES_MAX {
            self.moves.push(Move { time_ns: seen.time_ns, row, from, to, reason });
        }
        let is_up = if from == TIER_NONE { to == 0 } else { to < from };
        Some(if is_up { Mark::Up } else { Mark::Down })
    }

    /// A copy is there from now on, or not any more; false where it was so before.
    fn copied(&mut self, row: u32, time_ns: u64, tier: u8, is_there: bool) -> bool {
        let object = &mut self.objects[row as usize];
        let bit = 1u64 << (tier & 63);
        let was_there = object.copies & bit != 0;
        let bytes = if is_there { object.size_bytes } else { object.copied_bytes };
        object.copies = if is_there { object.copies | bit } else { object.copies & !bit };
        match (was_there, is_there) {
            (false, true) => {
                object.copied_bytes = bytes;
                self.hold(time_ns, tier, bytes, 0);
            }
            (true, false) => self.hold(time_ns, tier, 0, bytes),
            _ => {}
        }
        was_there != is_there || !is_there
    }

    /// An object is gone.
    fn end(&mut self, row: u32, time_ns: u64) {
        self.live(row, time_ns);
        let object = &mut self.objects[row as usize];
        object.is_gone = true;
        object.last_access_ns = object.last_access_ns.max(time_ns);
        let (tier, bytes) = (object.tier, std::mem::take(&mut object.size_bytes));
        let copies = std::mem::take(&mut object.copies);
        let copied_bytes = object.copied_bytes;
        self.hold(time_ns, tier, 0, bytes);
        for tier in (0..64).filter(|tier| copies & 1 << tier != 0) {
            self.hold(time_ns, tier, 0, copied_bytes);
        }
    }

    /// An object was on its tier until now.
    fn live(&mut self, row: u32, until_ns: u64) {
        let object = &mut self.objects[row as usize];
        let (from_ns, tier) = (object.since_ns, u32::from(object.tier));
        if from_ns < until_ns {
            object.since_ns = until_ns;
            self.lives.add(from_ns, row, tier, 1);
            self.lives.add(until_ns, row, tier, -1);
        }
    }

    fn mark(&mut self, row: u32, seen: &Seen, mark: Mark, tier: u8) {
        let count = seen.count.max(1);
        // Where several are summed up, the longest is at least as long as their mean.
        let latency_ns = seen.latency_ns / count;
        let cell = Cell { count, bytes: seen.bytes, latency_ns, guard_ns: seen.guard_ns / count };
        self.accesses.add(seen.time_ns, row, mark.what(tier), cell);
        let total = self.totals.entry((mark, tier)).or_default();
        total.count += count;
        total.bytes = total.bytes.saturating_add(seen.bytes);
        total.latency_ns = total.latency_ns.saturating_add(seen.latency_ns);
        total.latency_most_ns = total.latency_most_ns.max(latency_ns);
        total.guard_ns = total.guard_ns.saturating_add(seen.guard_ns);
        let waits = match mark {
            Mark::Read | Mark::Request => &mut self.waits[0],
            Mark::Write => &mut self.waits[1],
            _ => return,
        };
        if seen.latency_ns > 0 {
            waits.note(
                seen.time_ns,
                Waited {
                    count,
                    sum_ns: seen.latency_ns,
                    most_ns: latency_ns,
                    guard_ns: seen.guard_ns,
                    stack_ns: seen.stack_ns,
                    guard_most_ns: seen.guard_ns / count,
                },
            );
        }
    }

    fn reason_number(&mut self, reason: &str) -> Option<u32> {
        if let Some(number) = self.reason_numbers.get(reason) {
            return Some(*number);
        }
        if self.reasons.len() >= REASONS_MAX || reason.is_empty() {
            return None;
        }
        let number = self.reasons.len() as u32;
        self.reasons.push(reason.into());
        self.reason_numbers.insert(reason.into(), number);
        Some(number)
    }
}

/// A tier as a number in cells.
fn number(tier: Option<usize>) -> u8 {
    tier.map_or(TIER_NONE, |tier| tier.min(usize::from(TIER_NONE) - 1) as u8)
}
