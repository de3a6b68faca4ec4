// SPDX-License-Identifier: Apache-2.0 OR MIT

use terrace_backends::kv::Memory;
use terrace_fs::{Failure, FileClock, Kind, Made, Metadata, ROOT, Session, Tree, TreeOptions};
use terrace_testkit::ManualClock;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// More entries than there are.
const MANY: usize = 1000;

/// Longer than nothing is fetched after others changed what was.
const AFTER_REST: Duration = Duration::from_secs(3);

/// Somebody who lists directories of a server.
struct Scene {
    clock: Arc<ManualClock>,
    session: Session,
    listings: ListingsAhead,
    /// How many requests of each kind there were.
    lists: usize,
    aheads: usize,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let kv = Arc::new(Memory::default());
        Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
        let of_files = FileClock::following(Arc::<ManualClock>::clone(&clock));
        let session = Session::new(&Tree::open(kv, of_files).expect("it was made"));
        let listings = ListingsAhead::new(Arc::<ManualClock>::clone(&clock));
        Self { clock, session, listings, lists: 0, aheads: 0 }
    }

    /// Makes so many directories in one, with as many in each of them, so many levels of them.
    fn fill(&self, above: u64, count: usize, levels: usize) {
        for number in 0..count {
            let name = format!("{}", number * 7919 % 1000);
            let made = Made { kind: Kind::Directory, ..Made::default() };
            let request = Request::Make { directory: above, name: name.as_bytes(), made };
            let Ok(Reply::Made { node, .. }) = self.session.call(&request) else { panic!() };
            if levels > 1 {
                self.fill(node.number, count, levels - 1);
            }
        }
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        let asked = self.session.call(request);
        self.listings.note(request, asked.as_ref().ok());
        asked
    }

    /// Lists a directory, as it is.
    fn list(&mut self, directory: u64) -> Vec<Listed> {
        let list = Request::List { directory, after: 0, max: 1000, with_nodes: true };
        let Ok(Reply::Listing(expected)) = self.session.call(&list) else { panic!() };
        let found = match self.listings.take(directory, 0, MANY, LONG) {
            None => self.listings.wanted(directory, 0).and_then(|fetch| {
                self.aheads += 1;
                let asked = self.ask(&fetch.request());
                self.listings.fetched(&fetch, &asked, MANY)
            }),
            found => found,
        };
        if let Some(found) = found {
            assert_eq!(found.entries, expected);
            return expected;
        }
        self.lists += 1;
        assert!(self.ask(&list).is_ok());
        expected
    }

    /// Lists a directory and so many levels of what is below; how many that were.
    fn walk(&mut self, directory: u64, order: Order, levels: usize) -> usize {
        let mut entries = self.list(directory);
        if order == Order::Names {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let walk = |entry: &Listed| self.walk(entry.number, order, levels - 1);
        1 + if levels == 0 { 0 } else { entries.iter().map(walk).sum() }
    }

    /// As if so many were wanted ahead.
    fn due(&self, due: usize) {
        let mut state = self.listings.state();
        (state.due, state.fetched) = (due, 0);
    }

    fn requests(&mut self) -> (usize, usize) {
        (std::mem::take(&mut self.lists), std::mem::take(&mut self.aheads))
    }
}

#[test]
fn who_walks_a_tree_asks_for_many_directories_at_once() {
    for order in [Order::Listed, Order::Names] {
        let mut scene = Scene::new();
        scene.fill(ROOT, 5, 3);
        assert_eq!(scene.walk(ROOT, order, 3), 1 + 5 + 25 + 125);
        // The root is in no directory; then 2, 3, 5, 9, 17 and 32. The first one may be that in both orders.
        let (lists, aheads) = scene.requests();
        assert!(lists + aheads < 20, "{order:?}: {lists} and {aheads}");
        // Once more, with as many as came last.
        scene.walk(ROOT, order, 3);
        assert_eq!(scene.requests(), (1, 5), "{order:?}");
    }
}

#[test]
fn who_lists_what_is_in_one_directory_gets_nothing_below() {
    for order in [Order::Listed, Order::Names] {
        let mut scene = Scene::new();
        scene.fill(ROOT, 100, 1);
        let Ok(Reply::Listing(entries)) =
            scene.ask(&Request::List { directory: ROOT, after: 0, max: 1000, with_nodes: true })
        else {
            panic!()
        };
        entries.iter().for_each(|entry| scene.fill(entry.number, 3, 1));
        scene.walk(ROOT, order, 1);
        // The first ones bring what is below, which nobody wants; from then on all are wanted.
        let (lists, aheads) = scene.requests();
        assert!(lists + aheads < 20, "{order:?}: {lists} and {aheads}");
        scene.walk(ROOT, order, 1);
        assert_eq!(scene.listings.state().unwanted(), 0, "{order:?}: all were wanted");
    }
}

#[test]
fn who_lists_in_no_order_asks_for_each_alone() {
    let mut scene = Scene::new();
    scene.fill(ROOT, 40, 1);
    let entries = scene.list(ROOT);
    let mut numbers: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
    // Far from their order.
    for index in 0..numbers.len() {
        numbers.swap(index, index * 17 % 40);
    }
    scene.requests();
    numbers.iter().for_each(|number| _ = scene.list(*number));
    let (lists, aheads) = scene.requests();
    assert!(lists >= 35 && aheads <= 5, "{lists} and {aheads}");
}

#[test]
fn who_takes_long_for_each_asks_for_few_in_vain() {
    let mut scene = Scene::new();
    scene.fill(ROOT, 200, 1);
    let entries = scene.list(ROOT);
    let mut in_vain = 0;
    for entry in &entries {
        scene.list(entry.number);
        in_vain += scene.listings.state().fetched;
        scene.clock.advance(DELEGATED_FOR);
    }
    assert!(in_vain <= 200 / IN_ORDER_MIN as usize, "{in_vain}");
    // Who is as fast as half of what came gets half.
    let mut requests = 0;
    for entry in &entries {
        let before = scene.aheads;
        scene.list(entry.number);
        requests += usize::from(scene.aheads > before);
        scene.clock.advance(DELEGATED_FOR / 8);
    }
    assert!((200 / 8..200 / 6).contains(&requests), "{requests}");
}

/// A scene in which a directory is kept, and it.
fn kept() -> (Scene, u64) {
    let mut scene = Scene::new();
    scene.fill(ROOT, 4, 1);
    let entries = scene.list(ROOT);
    scene.list(entries[0].number);
    assert!(scene.listings.state().kept.contains_key(&entries[1].number));
    (scene, entries[1].number)
}

#[test]
fn what_was_fetched_is_given_once_and_for_a_while() {
    let (scene, directory) = kept();
    let now = Duration::from_millis(1);
    scene.clock.advance(now);
    assert_eq!(scene.listings.take(directory, 0, MANY, now), None, "that is too old");
    let found = scene.listings.take(directory, 0, MANY, LONG).expect("it is kept");
    assert_eq!(found.age, now);
    assert_eq!(scene.listings.take(directory, 0, MANY, LONG), None);
    let (scene, directory) = kept();
    scene.clock.advance(DELEGATED_FOR - DELEGATED_FOR / 8);
    assert_eq!(scene.listings.take(directory, 0, MANY, LONG), None, "others may soon change it");
}

#[test]
fn nothing_is_used_that_was_delegated_before() {
    let (mut scene, directory) = kept();
    scene.due(1);
    let entries = scene.list(ROOT);
    let next = [0, 1].map(|index: usize| entries[index].number);
    assert_eq!(next[1], directory);
    let fetch = scene.listings.wanted(next[0], 0).expect("it is the first one");
    assert_eq!(
        scene.listings.take(directory, 0, MANY, LONG),
        None,
        "the server may know of no more"
    );
    assert_eq!(scene.listings.wanted(next[1], 0), None, "one at a time");
    let lost = Err(Failure::from(Errno::HOSTUNREACH));
    assert_eq!(scene.listings.fetched(&fetch, &lost, MANY), None);
    assert!(!scene.listings.state().is_fetching);
}

#[test]
fn after_a_change_by_others_nothing_is_fetched_for_a_while() {
    for (answer, is_later) in [(Ok(Reply::NotHere), true), (Err(Errno::INVAL.into()), false)] {
        let (mut scene, _) = kept();
        scene.due(1);
        let first = scene.list(ROOT)[0].number;
        let fetch = scene.listings.wanted(first, 0).expect("it is the first one");
        scene.requests();
        assert_eq!(scene.listings.fetched(&fetch, &answer, MANY), None);
        scene.walk(ROOT, Order::Listed, 1);
        assert_eq!(scene.requests(), (1 + 4, 0), "{answer:?}: as if there were none");
        scene.clock.advance(AFTER_REST);
        scene.walk(ROOT, Order::Listed, 1);
        assert_eq!(scene.requests().1 > 0, is_later, "{answer:?}");
    }
}

#[test]
fn long_directories_are_known_by_their_parts() {
    let scene = Scene::new();
    scene.fill(ROOT, 90, 1);
    let mut position = 0;
    let mut all = Vec::new();
    loop {
        let list = Request::List { directory: ROOT, after: position, max: 40, with_nodes: true };
        let Ok(Reply::Listing(entries)) = scene.ask(&list) else { panic!() };
        let Some(last) = entries.last() else { break };
        position = last.position;
        all.extend(entries);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let next = |index: usize| {
        let fetch = scene.listings.wanted(all[index].number, 0).expect("it is next");
        let Request::ListAhead { directories, .. } = fetch.request() else { panic!() };
        let asked = scene.ask(&fetch.request());
        assert!(scene.listings.fetched(&fetch, &asked, MANY).is_some());
        directories
    };
    assert_eq!(next(0), [all[0].number, all[1].number]);
    assert!(scene.listings.take(all[1].number, 0, MANY, LONG).is_some());
    assert_eq!(next(2), [2, 3, 4].map(|index: usize| all[index].number));
    // Listed anew it has only what is there then.
    let remove = |entry: &Listed| {
        let name = &entry.name;
        scene.ask(&Request::Remove { directory: ROOT, name, is_directory: true })
    };
    assert!(all.iter().map(remove).all(|removed| removed.is_ok()));
    scene.fill(ROOT, 1, 1);
    let list = Request::List { directory: ROOT, after: 0, max: 40, with_nodes: true };
    assert!(scene.ask(&list).is_ok());
    let state = scene.listings.state();
    assert_eq!((state.walk.places.len(), state.walk.parents.len()), (1, 1));
}

fn listed(number: u64, name: &str, kind: Kind) -> Listed {
    Listed { name: name.as_bytes().into(), position: 3 + number, number, kind, node: None }
}

#[test]
fn directories_behind_many_files_are_known() {
    let mut walk = Walk::default();
    let files: Vec<_> = (0..9).map(|it| listed(it, &it.to_string(), Kind::File)).collect();
    walk.note(ROOT, 0, &files, true);
    let directories: Vec<_> =
        (10..14).map(|it| listed(it, &it.to_string(), Kind::Directory)).collect();
    walk.note(ROOT, files[8].position, &directories, false);
    walk.step(ROOT);
    let place = walk.step(10).expect("it comes first");
    assert_eq!(walk.next(place, 9), [11, 12, 13]);
    // Some may be left out.
    let place = walk.step(12).expect("it comes soon");
    assert_eq!(walk.next(place, 9), [13]);
}

#[test]
fn directories_are_remembered_up_to_a_bound() {
    let mut walk = Walk::default();
    // One that is always in another one.
    for number in 2..3 * DIRECTORIES_MAX as u64 {
        walk.note(number, 0, &[listed(1, "moved", Kind::Directory)], false);
        assert!(walk.parents.len() <= DIRECTORIES_MAX && walk.places.len() <= 1);
    }
    // Many in one.
    let many: Vec<_> = (2..1000).map(|it| listed(it, &it.to_string(), Kind::Directory)).collect();
    for number in 1000..1100 {
        walk.note(number, 0, &many, false);
        let children: usize = walk.parents.values().map(|parent| parent.children.len()).sum();
        assert!(children + walk.parents.len() <= DIRECTORIES_MAX);
        assert_eq!(walk.count, children + walk.parents.len());
    }
    (1000..1100).for_each(|number| walk.note(number, 0, &[], false));
    assert_eq!((walk.count, walk.parents.len(), walk.places.len()), (0, 0, 0));
}

#[test]
fn what_was_walked_through_is_forgotten() {
    let mut scene = Scene::new();
    scene.fill(ROOT, 5, 3);
    scene.walk(ROOT, Order::Listed, 3);
    let state = scene.listings.state();
    // The root, and the last one of each level.
    assert_eq!(state.walk.parents.len(), 3);
}
