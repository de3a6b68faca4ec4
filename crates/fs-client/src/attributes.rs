// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes that nodes did not have a moment ago.
//!
//! Before each write to a file that it caches, the kernel asks whether the file has capabilities
//! that the write would take away; programs that list a directory ask for access control lists.
//! Nearly all files have neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Node, Reply, Request, Result};

/// Nodes that are remembered; of a forgotten one it is asked.
const NODES_MAX: usize = 1 << 14;

/// What the kernel asks for.
const CAPABILITIES: &[u8] = b"security.capability";

/// What nodes do not have.
pub(crate) struct AbsentAttributes {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    known: HashMap<u64, Absent>,
    /// How many requests began to set attributes.
    begun: u64,
    /// How many of them have not ended.
    running: usize,
}

/// When it was asked, of a node that did not have them then.
#[derive(Clone, Copy, Default)]
struct Absent {
    all_ns: Option<u64>,
    capabilities_ns: Option<u64>,
}

/// A request that is on its way.
pub(crate) struct Begun {
    at_ns: u64,
    /// How many requests had begun to set attributes, if none of them was on its way.
    count: Option<u64>,
}

impl AbsentAttributes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Whether a node had no attribute of this name, or none at all, less than `age_max` ago.
    pub(crate) fn is_absent(&self, number: u64, name: Option<&[u8]>, age_max: Duration) -> bool {
        let state = self.state();
        let Some(absent) = state.known.get(&number) else { return false };
        let now_ns = self.clock.now_ns();
        let is_recent = |at_ns: Option<u64>| {
            at_ns.is_some_and(|at_ns| Duration::from_nanos(now_ns.saturating_sub(at_ns)) < age_max)
        };
        is_recent(absent.all_ns) || name == Some(CAPABILITIES) && is_recent(absent.capabilities_ns)
    }

    /// A request begins.
    pub(crate) fn begin(&self, request: &Request<'_>) -> Begun {
        let at_ns = self.clock.now_ns();
        let mut state = self.state();
        let count = (state.running == 0).then_some(state.begun);
        if let Some(number) = set_by(request) {
            state.known.remove(&number);
            state.begun += 1;
            state.running += 1;
        }
        Begun { at_ns, count }
    }

    /// It has ended.
    pub(crate) fn end(&self, begun: &Begun, request: &Request<'_>, asked: &Result<Reply>) {
        let mut state = self.state();
        if set_by(request).is_some() {
            state.running -= 1;
            return;
        }
        // Else one may have been set meanwhile, after the server looked for this answer.
        if begun.count != Some(state.begun) {
            return;
        }
        match (request, asked) {
            (Request::Xattr { number, name }, Err(failure))
                if *name == CAPABILITIES && failure.errno() == Errno::NODATA =>
            {
                state.absent(*number).capabilities_ns = Some(begun.at_ns);
            }
            (_, Ok(reply)) => {
                for node in nodes(reply).filter(|node| !node.has_xattrs) {
                    state.absent(node.number).all_ns = Some(begun.at_ns);
                }
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the map is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn absent(&mut self, number: u64) -> &mut Absent {
        if self.known.len() >= NODES_MAX && !self.known.contains_key(&number) {
            self.known.clear();
        }
        self.known.entry(number).or_default()
    }
}

/// The node that may get an attribute.
fn set_by(request: &Request<'_>) -> Option<u64> {
    match request {
        Request::SetXattr { number, .. } => Some(*number),
        _ => None,
    }
}

/// The nodes of which a reply tells.
fn nodes(reply: &Reply) -> Box<dyn Iterator<Item = &Node> + '_> {
    match reply {
        Reply::Node(node) | Reply::Opened { node, .. } => Box::new(std::iter::once(node)),
        Reply::Made { node, directory, .. } => Box::new([node, directory].into_iter()),
        Reply::Gone { directory, .. } => Box::new(directory.iter()),
        Reply::Listing(entries) => Box::new(entries.iter().filter_map(|entry| entry.node.as_ref())),
        Reply::ListedAhead(listed) => Box::new(listed.iter().flat_map(|one| {
            let of_entries = one.entries.iter().filter_map(|entry| entry.node.as_ref());
            of_entries.chain([&one.directory])
        })),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use terrace_fs::SetHow;
    use terrace_testkit::ManualClock;

    use super::*;

    const LONG: Duration = Duration::from_secs(1);
    const FILE: u64 = 7;
    const ASK: Request<'_> = Request::Xattr { number: FILE, name: CAPABILITIES };
    const LOOK: Request<'_> = Request::Node { number: FILE };
    const SET: Request<'_> = Request::SetXattr {
        number: FILE,
        name: b"user.a",
        value: b"",
        how: SetHow::Any,
        clears_set_group: false,
    };

    fn scene() -> (Arc<ManualClock>, AbsentAttributes) {
        let clock = Arc::new(ManualClock::new());
        (Arc::clone(&clock), AbsentAttributes::new(clock))
    }

    fn told(has_xattrs: bool) -> Result<Reply> {
        Ok(Reply::Node(Node { number: FILE, has_xattrs, ..Node::default() }))
    }

    fn exchange(absent: &AbsentAttributes, request: &Request<'_>, asked: &Result<Reply>) {
        let begun = absent.begin(request);
        absent.end(&begun, request, asked);
    }

    #[test]
    fn a_node_without_any_has_none_for_a_while() {
        let (clock, absent) = scene();
        let is_absent = |name| absent.is_absent(FILE, name, LONG);
        assert!(!is_absent(None), "nobody has said so");
        exchange(&absent, &LOOK, &told(true));
        assert!(!is_absent(Some(CAPABILITIES)));
        exchange(&absent, &LOOK, &told(false));
        assert!(is_absent(None) && is_absent(Some(b"user.a")));
        assert!(!absent.is_absent(FILE, None, Duration::ZERO), "it is to be asked every time");
        clock.advance(LONG);
        assert!(!is_absent(None));
    }

    #[test]
    fn a_file_may_have_others_than_capabilities() {
        let (_, absent) = scene();
        exchange(&absent, &ASK, &Err(Errno::IO.into()));
        assert!(!absent.is_absent(FILE, Some(CAPABILITIES), LONG));
        exchange(&absent, &ASK, &Err(Errno::NODATA.into()));
        assert!(absent.is_absent(FILE, Some(CAPABILITIES), LONG));
        assert!(!absent.is_absent(FILE, Some(b"user.a"), LONG));
        assert!(!absent.is_absent(FILE, None, LONG));
    }

    #[test]
    fn what_is_set_is_not_absent() {
        let (_, absent) = scene();
        let is_absent = || absent.is_absent(FILE, None, LONG);
        exchange(&absent, &LOOK, &told(false));
        exchange(&absent, &SET, &Err(Errno::IO.into()));
        assert!(!is_absent(), "whether it was set nobody knows");
        // An answer from before, that comes behind, or while it is being set.
        let looked = absent.begin(&LOOK);
        exchange(&absent, &SET, &Ok(Reply::Done));
        absent.end(&looked, &LOOK, &told(false));
        assert!(!is_absent());
        let setting = absent.begin(&SET);
        exchange(&absent, &LOOK, &told(false));
        assert!(!is_absent());
        absent.end(&setting, &SET, &Ok(Reply::Done));
        exchange(&absent, &LOOK, &told(false));
        assert!(is_absent(), "another client removed it");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (_, absent) = scene();
        for number in 0..=NODES_MAX as u64 {
            exchange(&absent, &LOOK, &Ok(Reply::Node(Node { number, ..Node::default() })));
        }
        assert_eq!(absent.state().known.len(), 1);
    }
}
