// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a trace, also one that is being written or damaged.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};

use terrace_core::{Error, Key, Result, Slot};

use crate::block::{self, Entries, Kind};
use crate::codec::{Decoder, Wrong};
use crate::directory::{is_blank, is_written, list};
use crate::file::{Blocks, Found, read_head};
use crate::record::{Head, Record, Subject};

/// What a reader comes upon.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A file begins.
    File(Head),
    /// A record.
    Record(Record),
    /// Something cannot be read; reading goes on behind it.
    Problem(Problem),
}

/// A part of a trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset_bytes: u64,
    /// What is wrong, and how much of it.
    pub what: Damage,
}

/// What is wrong with a part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not begin as a trace.
    NoTrace,
    /// So many bytes are no whole block.
    Block {
        /// Up to the next whole block.
        bytes: u64,
    },
    /// A whole block with content that no writer makes.
    Content {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file was not ended, and no process writes it: its last records are missing.
    Torn {
        /// The beginning of a block, at its end.
        bytes: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Damage::NoTrace => write!(f, "it does not begin as a trace")?,
            Damage::Block { bytes } => write!(f, "a damaged part is left out bytes={bytes}")?,
            Damage::Content { why } => write!(f, "a block is left out: {why}")?,
            Damage::Torn { bytes } => {
                write!(f, "it was not ended, and its last records are missing bytes={bytes}")?;
            }
        }
        write!(f, " file={} offset_bytes={}", self.file.display(), self.offset_bytes)
    }
}

/// Reads the files of a trace one after the other, oldest first.
///
/// What a recording writes meanwhile is read up to its last whole block.
#[derive(Debug)]
pub struct Reader {
    is_live: bool,
    span_wall_ns: (u64, u64),
    files: VecDeque<PathBuf>,
    now: Option<Now>,
    ready: VecDeque<Item>,
}

/// The file that is being read.
#[derive(Debug)]
struct Now {
    blocks: Blocks,
    head: Option<Head>,
    subjects: HashMap<(Slot, u32), Subject>,
    entries: Entries,
    /// The blocks to read, by offset, where the index has them.
    wanted: Option<VecDeque<u64>>,
    block: Option<Block>,
    is_next: bool,
    is_last: bool,
}

/// The block of records that is being read.
#[derive(Debug)]
struct Block {
    content: Vec<u8>,
    at: usize,
    offset_bytes: u64,
}

/// Why a directory cannot be read.
fn no_trace(directory: &Path) -> Error {
    let below = directory.join("trace");
    let is_below = list(&below).is_ok_and(|files| !files.is_empty());
    let reason = match is_below {
        true => {
            "it has no files of a trace such as 000001.trace; those in `trace` below it are one"
        }
        false => "it has no files of a trace, such as 000001.trace, but others",
    };
    Error::invalid("read the trace", reason).with("directory", directory.display())
}

impl Reader {
    /// Opens the trace in a directory.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied`, `Io`; `Invalid` for a directory that is none of a trace. One in which
    /// nothing was recorded yet is empty.
    pub fn open(directory: &Path) -> Result<Self> {
        // Before the list: what was not ended then, and is not written now, is torn.
        let is_live = is_written(directory);
        let files: VecDeque<_> = list(directory)?.into_iter().map(|(_, path)| path).collect();
        if files.is_empty() && !is_live && !is_blank(directory)? {
            return Err(no_trace(directory));
        }
        let span_wall_ns = (0, u64::MAX);
        Ok(Self { is_live, span_wall_ns, files, now: None, ready: VecDeque::new() })
    }

    /// Leaves out blocks of records that are wholly before or after a span of time, given in
    /// nanoseconds since 1970. Records outside it may still come, from blocks that reach into it.
    pub fn between(mut self, from_wall_ns: u64, until_wall_ns: u64) -> Self {
        self.span_wall_ns = (from_wall_ns, until_wall_ns);
        self
    }

    /// Whether a process wrote the trace when it was opened.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// What the file that is being read says of itself, where that can be read.
    pub fn head(&self) -> Option<&Head> {
        self.now.as_ref()?.head.as_ref()
    }

    /// What a slot stands for in the file that is being read.
    pub fn subject(&self, slot: Slot, incarnation: u32) -> Option<&Subject> {
        self.now.as_ref()?.subjects.get(&(slot, incarnation))
    }

    /// The next item; `None` at the end.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a file of another version, `Io`; the next call goes on with the next
    /// file.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.now.is_none() {
                let Some(path) = self.files.pop_front() else { return Ok(None) };
                self.begin(&path)?;
            } else if let Some(record) = self.next_of_block() {
                return Ok(Some(record));
            } else if let Err(error) = self.next_block() {
                self.now = None;
                return Err(error);
            }
        }
    }

    fn begin(&mut self, path: &Path) -> Result<()> {
        let blocks = match Blocks::open(path) {
            Ok(Some(blocks)) => blocks,
            Ok(None) => {
                let what = Damage::NoTrace;
                let problem = Problem { file: path.into(), offset_bytes: 0, what };
                self.ready.push_back(Item::Problem(problem));
                return Ok(());
            }
            // The oldest file may be deleted while the newest is written.
            Err(error) if error.kind() == terrace_core::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_whole = self.span_wall_ns == (0, u64::MAX);
        let known = if is_whole { None } else { blocks.index() };
        let head = crate::file::head(path);
        let wanted = head.as_ref().zip(known).map(|(head, (_, known))| {
            let is_wanted =
                |first_ns, last_ns| is_wanted(head, self.span_wall_ns, first_ns, last_ns);
            let wanted =
                known.iter().filter(|one| !one.is_records || is_wanted(one.first_ns, one.last_ns));
            wanted.map(|one| one.offset_bytes).collect()
        });
        self.now = Some(Now {
            blocks,
            head: None,
            subjects: HashMap::new(),
            entries: Entries::default(),
            wanted,
            block: None,
            is_next: true,
            is_last: self.files.is_empty(),
        });
        Ok(())
    }

    /// The next record of the block that is being read.
    fn next_of_block(&mut self) -> Option<Item> {
        let now = self.now.as_mut()?;
        let block = now.block.as_mut()?;
        let subjects = &now.subjects;
        let key_of = |slot: (Slot, u32)| {
            subjects.get(&slot).map_or_else(|| unknown_key(slot), |subject| subject.name.key())
        };
        while block.at < block.content.len() {
            let mut decoder = Decoder::new(&block.content[block.at..]);
            let record = now.entries.next(&mut decoder, key_of);
            block.at = block.content.len() - decoder.left();
            match record {
                Ok(Some(record)) => return Some(Item::Record(record)),
                Ok(None) => {}
                Err(Wrong(why)) => {
                    let offset_bytes = block.offset_bytes;
                    now.block = None;
                    now.is_next = false;
                    return Some(self.problem(offset_bytes, Damage::Content { why }));
                }
            }
        }
        now.block = None;
        None
    }

    /// Reads the next block of the file, or ends it.
    fn next_block(&mut self) -> Result<()> {
        let now = self.now.as_mut().expect("called with a file");
        if let Some(wanted) = &mut now.wanted {
            let Some(offset_bytes) = wanted.pop_front() else {
                self.now = None;
                return Ok(());
            };
            now.is_next &= now.blocks.at == offset_bytes;
            now.blocks.at = offset_bytes;
        } else if let (Some(head), Some(prefix)) = (&now.head, now.blocks.peek()?) {
            let is_records = prefix.kind == Kind::Records;
            if is_records && !is_wanted(head, self.span_wall_ns, prefix.first_ns, prefix.last_ns) {
                now.blocks.skip(&prefix);
                now.is_next = false;
                return Ok(());
            }
        }
        let at = now.blocks.at;
        match now.blocks.next()? {
            Found::Block(prefix, content) => {
                self.take(at, prefix.kind, content);
                Ok(())
            }
            Found::Damaged => self.step_over(at),
            Found::End(bytes) => {
                let is_growing = self.is_live && now.is_last;
                if !is_growing {
                    let problem = self.problem(at, Damage::Torn { bytes });
                    self.ready.push_back(problem);
                }
                self.now = None;
                Ok(())
            }
        }
    }

    fn take(&mut self, at: u64, kind: Kind, content: Vec<u8>) {
        let now = self.now.as_mut().expect("called with a file");
        let mut wrong = None;
        match kind {
            Kind::Head => match read_head(&content) {
                Some(head) => {
                    now.head = Some(head.clone());
                    self.ready.push_back(Item::File(head));
                }
                None => wrong = Some(Wrong("the head of the file cannot be read")),
            },
            Kind::Subjects => {
                let subjects = &mut now.subjects;
                let read = block::subjects(&content, |slot, subject| {
                    subjects.insert(slot, subject);
                });
                wrong = read.err();
            }
            Kind::Records => {
                now.entries.begin(now.is_next);
                now.is_next = true;
                now.block = Some(Block { content, at: 0, offset_bytes: at });
            }
            Kind::Index => self.now = None,
        }
        if let Some(Wrong(why)) = wrong {
            let problem = self.problem(at, Damage::Content { why });
            self.ready.push_back(problem);
        }
    }

    /// Goes on behind a damaged block.
    fn step_over(&mut self, at: u64) -> Result<()> {
        let now = self.now.as_mut().expect("called with a file");
        let bytes = now.blocks.resume()?;
        let is_at_end = now.blocks.at >= now.blocks.length()?;
        // What is being written is not all there yet.
        let is_growing = self.is_live && now.is_last && is_at_end;
        now.is_next = false;
        now.wanted = None;
        if !is_growing {
            let problem = self.problem(at, Damage::Block { bytes });
            self.ready.push_back(problem);
        }
        if is_at_end {
            self.now = None;
        }
        Ok(())
    }

    fn problem(&self, offset_bytes: u64, what: Damage) -> Item {
        let file = self.now.as_ref().expect("called with a file").blocks.path.clone();
        Item::Problem(Problem { file, offset_bytes, what })
    }
}

impl Iterator for Reader {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}

fn is_wanted(head: &Head, span_wall_ns: (u64, u64), first_ns: u64, last_ns: u64) -> bool {
    head.wall_of(last_ns) >= span_wall_ns.0 && head.wall_of(first_ns) <= span_wall_ns.1
}

/// What stands for a key that is in a damaged block.
fn unknown_key((slot, incarnation): (Slot, u32)) -> Key {
    Key::new("unknown", &format!("slot-{slot}-{incarnation}")).expect("letters and digits")
}
