// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One ordered listing of what all servers list in order.

use std::collections::{BTreeMap, VecDeque};

use terrace_core::{Cursor, Error, Key, NAME_BYTES_MAX, Page, Result};

use super::parallel::at_once;
use super::piece::is_reserved;
use super::{Member, Shared, all};

/// Most names that a server is asked for at once.
const PAGE_KEYS_MAX: usize = 4096;

/// First bytes of a cursor: whose it is, and its version.
const TAG: [u8; 2] = [b'S', 1];

/// Where a listing stands: behind the last name that was returned. A cursor of a server leads to
/// one of its pages, of which a part may have been returned.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    last: Option<String>,
    /// By number of the server; `None` where it has nothing more. Others are at their start.
    servers: BTreeMap<u128, Option<Cursor>>,
}

/// A page of one server.
struct Source {
    id: u128,
    /// Leads to this page; `None` where there is nothing more.
    cursor: Option<Cursor>,
    /// What was not returned yet.
    names: VecDeque<String>,
    /// Leads behind it.
    next: Option<Cursor>,
}

impl Shared {
    pub(super) fn list(
        &self,
        namespace: &str,
        prefix: &str,
        cursor: &Cursor,
        max: usize,
    ) -> Result<Page> {
        if is_reserved(prefix) {
            return Ok(Page::default());
        }
        let mut state = State::read(cursor)?;
        if max == 0 {
            return Ok(Page { keys: Vec::new(), next: Some(state.write()) });
        }
        let load = |member: &Member| {
            let cursor = state.servers.get(&member.id).cloned().unwrap_or(Some(Cursor::start()));
            let mut source = Source::new(member.id, cursor);
            let list = |cursor: &Cursor| {
                member.backend.list(namespace, prefix, cursor, max.min(PAGE_KEYS_MAX))
            };
            let loaded = source.load(list, state.last.as_deref());
            loaded.map(|()| source).map_err(|error| member.blame(error))
        };
        let load = &load;
        let members = self.map.members().iter();
        let mut sources = all(at_once(members.map(|member| move || load(member)).collect()))?;
        let names = merge(&mut sources, max);
        if let Some(last) = names.last() {
            state.last = Some(last.clone());
        }
        state.servers = sources.into_iter().map(|source| (source.id, source.position())).collect();
        let is_end = state.servers.values().all(Option::is_none);
        let keys = names.iter().map(|name| Key::new(namespace, name)).collect::<Result<_>>()?;
        Ok(Page { keys, next: (!is_end).then(|| state.write()) })
    }
}

/// Takes up to `max` names from the sources in order, each once, as long as it is certain that no
/// source has one before them.
fn merge(sources: &mut [Source], max: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    while names.len() < max && sources.iter().all(Source::is_certain) {
        let first = sources.iter().filter_map(|source| source.names.front()).min().cloned();
        let Some(first) = first else { break };
        for source in sources.iter_mut().filter(|source| source.names.front() == Some(&first)) {
            source.names.pop_front();
        }
        names.push(first);
    }
    names
}

impl Source {
    fn new(id: u128, cursor: Option<Cursor>) -> Self {
        Self { id, cursor, names: VecDeque::new(), next: None }
    }

    /// Gets the first page with a name behind `last`.
    fn load(&mut self, list: impl Fn(&Cursor) -> Result<Page>, last: Option<&str>) -> Result<()> {
        while let Some(cursor) = self.cursor.clone() {
            let page = list(&cursor)?;
            self.next = page.next;
            for key in &page.keys {
                if is_reserved(key.name()) {
                    // Only pieces follow.
                    self.next = None;
                    break;
                }
                if last.is_none_or(|last| key.name() > last) {
                    self.names.push_back(key.name().into());
                }
            }
            if !self.names.is_empty() {
                break;
            }
            self.cursor = self.next.take();
        }
        Ok(())
    }

    /// Whether it is known which of its names is next.
    fn is_certain(&self) -> bool {
        !self.names.is_empty() || self.next.is_none()
    }

    /// Where it goes on.
    fn position(self) -> Option<Cursor> {
        if self.names.is_empty() { self.next } else { self.cursor }
    }
}

impl State {
    fn write(&self) -> Cursor {
        let mut bytes = TAG.to_vec();
        let mut put = |part: &[u8]| {
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part);
        };
        put(self.last.as_deref().unwrap_or_default().as_bytes());
        for (id, cursor) in &self.servers {
            let is_there = u8::from(cursor.is_some());
            let cursor = cursor.as_ref().map(|cursor| &cursor.0[..]).unwrap_or_default();
            put(&[&id.to_le_bytes()[..], &[is_there], cursor].concat());
        }
        Cursor(bytes)
    }

    fn read(cursor: &Cursor) -> Result<Self> {
        if cursor.is_start() {
            return Ok(Self::default());
        }
        Self::parse(&cursor.0)
            .ok_or_else(|| Error::invalid("list objects", "the cursor is not one of this listing"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&TAG)?;
        let mut take = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (part, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some((part, behind.is_empty()))
        };
        let (last, mut is_end) = take()?;
        let last = std::str::from_utf8(last).ok().filter(|last| last.len() <= NAME_BYTES_MAX)?;
        let last = (!last.is_empty()).then(|| last.into());
        let mut state = Self { last, servers: BTreeMap::new() };
        while !is_end {
            let (part, is_last) = take()?;
            is_end = is_last;
            let (id, part) = part.split_first_chunk::<16>()?;
            let cursor = match part.split_first()? {
                (0, []) => None,
                (1, cursor) => Some(Cursor(cursor.to_vec())),
                _ => return None,
            };
            if state.servers.insert(u128::from_le_bytes(*id), cursor).is_some() {
                return None;
            }
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(names: &[&str], has_next: bool) -> Source {
        let names = names.iter().map(|name| name.to_string()).collect();
        let cursor = Some(Cursor(vec![1]));
        Source { id: 0, cursor, names, next: has_next.then(|| Cursor(vec![2])) }
    }

    #[test]
    fn pages_are_merged_as_far_as_they_are_certain() {
        let mut sources = [source(&["a", "d"], true), source(&["b", "c", "e"], false)];
        assert_eq!(merge(&mut sources, 9), ["a", "b", "c", "d"], "the first may have a d2");
        let [one, other] = sources;
        assert_eq!(one.position(), Some(Cursor(vec![2])), "a new page");
        assert_eq!(other.position(), Some(Cursor(vec![1])), "the same again");
        let mut same = [source(&["a", "b"], false), source(&["a", "b"], false)];
        assert_eq!(merge(&mut same, 1), ["a"]);
        assert_eq!(merge(&mut same, 9), ["b"], "each name once");
    }

    #[test]
    fn a_position_survives_its_cursor() {
        let servers = [(5, None), (6, Some(Cursor::start())), (7, Some(Cursor(vec![0; 300])))];
        let state = State { last: Some("é".into()), servers: servers.into() };
        let cursor = state.write();
        assert_eq!(State::read(&cursor).expect("own bytes"), state);
        for end in 1..cursor.0.len() {
            if let Ok(other) = State::read(&Cursor(cursor.0[..end].to_vec())) {
                assert!(other.servers.len() < state.servers.len(), "cut at {end}");
            }
        }
        assert_eq!(State::read(&Cursor::start()).expect("legal"), State::default());
        assert!(State::read(&Cursor(b">a".to_vec())).is_err());
    }
}
