// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is fetched ahead, told once, and told again.

use terrace_fs::{Changes, Kind, Made, Node, RenameHow};
use terrace_testkit::ManualClock;

use super::*;

const DIRECTORY: u64 = 7;
const LONG: Duration = Duration::from_secs(1);
const FILES: u64 = 100;
/// The first node that is asked for alone.
const ASKED: u64 = 1 << 40;

struct Scene {
    names: NamesAhead,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        Self { names: NamesAhead::new(Arc::<ManualClock>::clone(&clock)), clock }
    }

    /// Some names are asked for.
    fn ask(&self, count: u64) {
        self.ask_in(DIRECTORY, count);
    }

    /// As the mount does: it looks for what was fetched first.
    fn ask_in(&self, directory: u64, count: u64) {
        for number in 0..count {
            let name = format!("asked{number}");
            let request = Request::Lookup { directory, name: name.as_bytes() };
            let wanted = self.names.wanted(directory, LONG, || Ok(None));
            assert_eq!(wanted.expect("nobody is asked"), None);
            self.carry_out(&request, Ok(Reply::Node(node(ASKED + number))));
        }
    }

    fn wanted(&self, size: u64) -> Option<Fetch> {
        self.names.wanted(DIRECTORY, LONG, || Ok(Some(size))).expect("it is known")
    }

    /// Names are fetched while something else is done.
    fn fetch(&self, meanwhile: impl FnOnce()) {
        self.ask(ASKED_MIN);
        let fetch = self.wanted(FILES).expect("enough were asked for");
        meanwhile();
        self.fetched(&fetch, 1..=FILES);
    }

    fn fetched(&self, fetch: &Fetch, numbers: std::ops::RangeInclusive<u64>) {
        self.names.fetched(fetch, &Ok(Reply::Listing(numbers.map(listed).collect())));
    }

    fn take(&self, number: u64) -> Option<u64> {
        let found = self.names.take(DIRECTORY, number.to_string().as_bytes(), LONG);
        found.map(|(number, _)| number)
    }

    fn carry_out(&self, request: &Request<'_>, asked: Result<Reply>) {
        let changed = Changed::by(request);
        let begun = self.names.begin(request, &changed);
        self.names.end(&begun, request, &changed, &asked);
    }
}

fn listed(number: u64) -> Listed {
    let node = node(number);
    Listed {
        name: number.to_string().into(),
        position: number,
        number,
        kind: Kind::File,
        node: (number != 4).then_some(node),
    }
}

fn node(number: u64) -> Node {
    Node { number, ..Node::default() }
}

fn change(number: u64) -> Request<'static> {
    Request::Change { number, changes: Changes::default() }
}

const MADE: Made<'_> = Made {
    kind: Kind::File,
    permissions: 0o644,
    umask: 0,
    user: 0,
    group: 0,
    device: 0,
    target: &[],
    is_opened: false,
    object: None,
};
const MAKE: Request<'_> = Request::Make { directory: DIRECTORY, name: b"6", made: MADE };
const LOOKUP: Request<'_> = Request::Lookup { directory: DIRECTORY, name: b"1" };
const REMOVE: Request<'_> =
    Request::Remove { directory: DIRECTORY, name: b"7", is_directory: false };
const RENAME: Request<'_> = Request::Rename {
    from_directory: 1,
    from: b"a",
    to_directory: DIRECTORY,
    to: b"8",
    how: RenameHow { keeps_existing: false, exchanges: false, leaves_whiteout: false },
    user: 0,
    group: 0,
};

#[test]
fn names_are_fetched_once_enough_were_asked_for() {
    let scene = Scene::new();
    assert_eq!(scene.wanted(FILES), None, "none was asked for");
    scene.ask(ASKED_MIN - 1);
    assert_eq!(scene.wanted(FILES), None);
    scene.ask(1);
    let unknown = scene.names.wanted(DIRECTORY, LONG, || Ok(None)).expect("nothing failed");
    assert_eq!(unknown, None, "nobody knows how many");
    let failed = scene.names.wanted(DIRECTORY, LONG, || Err(Errno::IO.into()));
    assert_eq!(failed.expect_err("nobody answers").errno(), Errno::IO);
    let other = scene.names.wanted(8, LONG, || Ok(Some(1))).expect("nobody is asked");
    assert_eq!(other, None, "another directory");
    assert_eq!(scene.wanted(FETCHED_PER_ASKED * ASKED_MIN + 1), None, "too many for them");
    let fetch = scene.wanted(FETCHED_PER_ASKED * ASKED_MIN).expect("not too many");
    assert_eq!(scene.wanted(FILES), None, "they are being fetched");
    scene.fetched(&fetch, 1..=u64::from(FETCHED_MAX));
    let more = scene.wanted(FILES).expect("there are more");
    assert_eq!(more.position, u64::from(FETCHED_MAX));
    scene.fetched(&more, 5000..=5000);
    assert_eq!(scene.wanted(FILES), None, "there are no more");
    for listings in 1..4 {
        scene.ask((ASKED_MIN << listings) - 1);
        assert_eq!(scene.wanted(FILES), None, "they may be the last new ones");
        scene.ask(1);
        let new = scene.wanted(FILES).expect("others came to be there");
        assert_eq!(new.position, 0);
        scene.fetched(&new, 1..=FILES);
    }
    scene.ask(ASKED_MIN);
    scene.clock.advance(LONG);
    assert_eq!(scene.wanted(FILES), None, "that was long ago");
    scene.ask(ASKED_MIN);
    let again = scene.wanted(FILES).expect("they are asked for again");
    assert_eq!(again.position, 0);
    scene.names.fetched(&again, &Err(Errno::IO.into()));
    assert_eq!(scene.wanted(FILES), None, "they cannot be had");
}

#[test]
fn nothing_is_fetched_of_large_directories_nor_for_those_who_believe_nothing() {
    let scene = Scene::new();
    let request = Request::Lookup { directory: DIRECTORY, name: b"a" };
    for _ in 0..10 * ASKED_MIN {
        let size = || Ok(Some(FILES));
        let wanted = scene.names.wanted(DIRECTORY, Duration::ZERO, size);
        assert_eq!(wanted.expect("nobody is asked"), None);
        scene.carry_out(&request, Ok(Reply::Node(Node::default())));
    }
    assert!(scene.names.state().directories.is_empty(), "nothing is remembered for them");
    scene.ask(SIZE_MAX / FETCHED_PER_ASKED);
    assert_eq!(scene.wanted(SIZE_MAX + 1), None);
    assert_eq!(scene.wanted(SIZE_MAX), None, "its size is not asked for again at once");
}

#[test]
fn what_was_fetched_is_told_once_as_long_as_it_is_new() {
    let scene = Scene::new();
    scene.fetch(|| {});
    assert_eq!(scene.take(1), Some(1));
    assert_eq!(scene.take(1), None, "who asks again wants to know better");
    assert_eq!(scene.take(4), None, "nothing came with the name");
    assert_eq!(scene.take(FILES + 1), None, "there is no such name");
    scene.clock.advance(LONG / 2);
    let (_, age) = scene.names.take(DIRECTORY, b"2", LONG).expect("new enough");
    assert_eq!(age, LONG / 2);
    scene.clock.advance(LONG / 2);
    assert_eq!(scene.take(5), None, "too old");
}

#[test]
fn what_the_kernel_has_forgotten_it_is_told_again_as_long_as_it_is_new() {
    let scene = Scene::new();
    scene.fetch(|| {});
    scene.names.forgotten(FILES + 1);
    for _ in 0..3 {
        assert_eq!(scene.take(1), Some(1));
        assert_eq!(scene.take(1), None);
        scene.names.forgotten(1);
    }
    for nothing in [Err(Errno::NOENT.into()), Ok(Reply::Nowhere)] {
        let scene = Scene::new();
        scene.fetch(|| {});
        scene.carry_out(&LOOKUP, nothing);
        scene.names.forgotten(1);
        assert_eq!(scene.take(1), None, "it is gone");
    }
    scene.carry_out(&LOOKUP, Ok(Reply::Node(node(500))));
    assert_eq!(scene.take(1), None, "it was told a moment ago");
    scene.names.forgotten(1);
    assert_eq!(scene.take(1), None, "another node has the name");
    scene.names.forgotten(500);
    scene.clock.advance(LONG / 2);
    assert_eq!(scene.names.take(DIRECTORY, b"1", LONG), Some((500, LONG / 2)));
    scene.names.forgotten(500);
    scene.clock.advance(LONG / 2);
    assert_eq!(scene.take(1), None, "too old");
}

#[test]
fn what_this_client_made_is_told_again() {
    let made =
        Reply::Made { node: node(500), directory: node(DIRECTORY), delegated: Default::default() };
    let scene = Scene::new();
    scene.carry_out(&MAKE, Ok(made.clone()));
    scene.names.forgotten(500);
    assert_eq!(scene.take(6), None, "nobody asks for names here");
    scene.ask(1);
    scene.carry_out(&MAKE, Ok(made));
    assert_eq!(scene.take(6), None, "it was told");
    scene.names.forgotten(500);
    assert_eq!(scene.take(6), Some(500));
    scene.names.forgotten(500);
    scene.carry_out(&MAKE, Err(Errno::IO.into()));
    assert_eq!(scene.take(6), None, "what is there now was not said");
}

#[test]
fn what_is_heard_beside_a_change_is_not_told_again() {
    let asked = Ok(Reply::Node(node(500)));
    let begin =
        |scene: &Scene, request: &Request<'_>| scene.names.begin(request, &Changed::by(request));
    let end = |scene: &Scene, begun: &Begun, request: &Request<'_>, asked: &_| {
        scene.names.end(begun, request, &Changed::by(request), asked);
    };
    let done = Ok(Reply::Done);
    // The change begins in between, or ends.
    for is_first in [false, true] {
        let scene = Scene::new();
        scene.ask(1);
        match is_first {
            true => {
                let change = begin(&scene, &REMOVE);
                let lookup = begin(&scene, &LOOKUP);
                end(&scene, &change, &REMOVE, &done);
                end(&scene, &lookup, &LOOKUP, &asked);
            }
            false => {
                let lookup = begin(&scene, &LOOKUP);
                scene.carry_out(&REMOVE, Ok(Reply::Done));
                end(&scene, &lookup, &LOOKUP, &asked);
            }
        }
        scene.names.forgotten(500);
        assert_eq!(scene.take(1), None, "{is_first}");
        scene.carry_out(&LOOKUP, asked.clone());
        scene.names.forgotten(500);
        assert_eq!(scene.take(1), Some(500), "{is_first}");
    }
}

#[test]
fn what_was_asked_for_later_counts_also_where_it_was_answered_sooner() {
    let newer = [Ok(Reply::Node(node(501))), Err(Errno::NOENT.into())];
    for (asked, is_there) in newer.into_iter().zip([true, false]) {
        let scene = Scene::new();
        scene.ask(1);
        let begin = || scene.names.begin(&LOOKUP, &Changed::None);
        let end = |begun, asked| scene.names.end(begun, &LOOKUP, &Changed::None, asked);
        let first = begin();
        scene.clock.advance(LONG / 4);
        let second = begin();
        end(&second, &asked);
        end(&first, &Ok(Reply::Node(node(500))));
        [500, 501].into_iter().for_each(|number| scene.names.forgotten(number));
        assert_eq!(scene.take(1), is_there.then_some(501));
    }
}

#[test]
fn names_that_this_client_changes_are_asked_for() {
    for is_meanwhile in [false, true] {
        let scene = Scene::new();
        let changes = || {
            scene.carry_out(&change(5), Err(Errno::IO.into()));
            scene.carry_out(&MAKE, Err(Errno::IO.into()));
            scene.carry_out(&REMOVE, Err(Errno::IO.into()));
        };
        match is_meanwhile {
            true => scene.fetch(changes),
            false => {
                scene.fetch(|| {});
                changes();
            }
        }
        for number in [6, 7] {
            assert_eq!(scene.take(number), None, "{number} {is_meanwhile}");
        }
        for number in [5, 8] {
            assert_eq!(scene.take(number), Some(number), "it leads where it led");
        }
    }
}

#[test]
fn where_anything_may_have_changed_all_is_asked_for() {
    let scene = Scene::new();
    scene.fetch(|| scene.carry_out(&RENAME, Ok(Reply::Done)));
    assert_eq!(scene.take(1), None);
    let scene = Scene::new();
    scene.fetch(|| {});
    scene.carry_out(&RENAME, Ok(Reply::Done));
    assert_eq!(scene.take(1), None);
}

#[test]
fn nothing_is_fetched_beside_a_change_whose_end_is_not_known() {
    let scene = Scene::new();
    scene.ask(ASKED_MIN);
    let request = change(5);
    let changed = Changed::by(&request);
    let begun = scene.names.begin(&request, &changed);
    assert_eq!(scene.wanted(FILES), None);
    scene.names.end(&begun, &request, &changed, &Ok(Reply::Done));
    assert!(scene.wanted(FILES).is_some());
}

#[test]
fn newer_answers_count_also_those_that_come_while_names_are_fetched() {
    let stale = || Err(Errno::STALE.into());
    for is_meanwhile in [false, true] {
        let scene = Scene::new();
        let answers = || {
            scene.carry_out(&LOOKUP, Ok(Reply::Node(node(500))));
            scene.carry_out(&Request::Node { number: 2 }, stale());
            scene.carry_out(&Request::Content { number: 5 }, stale());
            scene.carry_out(&Request::Target { number: 6 }, stale());
            scene.carry_out(&Request::Lookup { directory: 7, name: b"a" }, stale());
            scene.carry_out(&Request::Open { number: 9, is_for_writing: false }, stale());
            scene.carry_out(&change(10), stale());
        };
        match is_meanwhile {
            true => scene.fetch(answers),
            false => {
                scene.fetch(|| {});
                answers();
            }
        }
        for number in [1, 2, 5, 6, 7, 9, 10] {
            assert_eq!(scene.take(number), None, "{number} {is_meanwhile}");
            scene.names.forgotten(number);
            assert_eq!(scene.take(number), None, "{number} {is_meanwhile}");
        }
        assert_eq!(scene.take(8), Some(8));
    }
}

#[test]
fn who_was_told_of_a_name_is_not_told_what_was_fetched_later() {
    let scene = Scene::new();
    scene.ask(ASKED_MIN);
    let fetch = scene.wanted(FILES).expect("enough were asked for");
    let entry = Listed { name: b"asked0".into(), ..listed(1) };
    scene.names.fetched(&fetch, &Ok(Reply::Listing(vec![entry, listed(2)])));
    assert_eq!(scene.names.take(DIRECTORY, b"asked0", LONG), None);
    assert_eq!(scene.take(2), Some(2));
}

#[test]
fn a_name_is_no_newer_because_its_node_was_fetched_by_another_one() {
    let scene = Scene::new();
    scene.fetch(|| {});
    scene.clock.advance(10 * LONG);
    scene.ask_in(8, ASKED_MIN);
    let wanted = scene.names.wanted(8, LONG, || Ok(Some(FILES))).expect("it is known");
    scene.fetched(&wanted.expect("enough were asked for"), 1..=FILES);
    assert_eq!(scene.take(1), None, "that was long ago");
    assert_eq!(scene.names.take(8, b"1", LONG), Some((1, Duration::ZERO)), "it was just fetched");
}

#[test]
fn what_is_remembered_is_bounded() {
    let scene = Scene::new();
    for directory in 0..2 * DIRECTORIES_MAX as u64 {
        scene.ask_in(1000 + directory, 1);
    }
    assert_eq!(scene.names.state().directories.len(), DIRECTORIES_MAX);
    let page = u64::from(FETCHED_MAX);
    // In each period there are others.
    for period in 1..=2 * NAMES_MAX as u64 / page {
        scene.clock.advance(LONG);
        scene.ask(ASKED_MIN);
        let fetch = scene.wanted(FILES).expect("there are more");
        scene.fetched(&fetch, 1000 * period..=1000 * period + page - 1);
        // And those that were asked for alone.
        let known = page + ASKED_MIN;
        assert_eq!(scene.names.state().places.len(), known as usize, "{period}");
    }
    for directory in 0..2 * NAMES_MAX as u64 / page {
        scene.ask_in(directory, ASKED_MIN);
        let size = || Ok(Some(FILES));
        let fetch = scene.names.wanted(directory, LONG, size).expect("it is known");
        let first = 1_000_000 + directory * page;
        scene.fetched(&fetch.expect("enough were asked for"), first..=first + page - 1);
        assert!(scene.names.state().places.len() <= NAMES_MAX);
    }
}

#[test]
fn what_the_kernel_was_told_of_goes_first() {
    let scene = Scene::new();
    scene.fetch(|| {});
    let count = || {
        let state = scene.names.state();
        let names = state.directories.values().map(|known| known.names.len()).sum::<usize>();
        assert_eq!(names, state.places.len());
        names
    };
    // One of what was fetched came without a node.
    let fetched = FILES as usize - 1;
    assert_eq!(count(), fetched + ASKED_MIN as usize);
    scene.ask_in(DIRECTORY, (NAMES_MAX - fetched) as u64);
    assert_eq!(count(), NAMES_MAX);
    scene.carry_out(&LOOKUP, Ok(Reply::Node(node(500))));
    assert_eq!(count(), NAMES_MAX, "it had the name of another one");
    let request = Request::Lookup { directory: DIRECTORY, name: b"more" };
    scene.carry_out(&request, Ok(Reply::Node(node(501))));
    assert_eq!(count(), fetched);
    assert_eq!(scene.take(2), Some(2));
}
