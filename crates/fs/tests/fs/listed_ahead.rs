// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that are listed before anybody wants to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::kv::Memory;
use terrace_core::Clock;
use terrace_fs::{
    Changes, DELEGATED_FOR, ENTRIES_AHEAD_MAX, FileClock, Kind, LISTED_AHEAD_MAX, Listed,
    ListedAhead, MAY_SAY_GONE_FOR, Made, Metadata, NamedFile, Order, ROOT, RenameHow, Reply,
    Request, Result, SAID_GONE_FOR, Session, Time, Tree, TreeOptions,
};
use terrace_testkit::ManualClock;

/// More entries than there are.
const MANY: u32 = 1000;

/// Longer than nothing is listed ahead after a change.
const LONG: Duration = Duration::from_secs(3);

/// The clock of the server. Who sleeps lets somebody look.
#[derive(Default)]
struct ServerClock {
    clock: ManualClock,
    look: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for ServerClock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.clock.fmt(out)
    }
}

impl Clock for ServerClock {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.clock.wall_ns()
    }

    fn sleep(&self, duration: Duration) {
        let look = self.look.lock().expect("nobody panicked").take();
        if let Some(look) = look {
            look();
        }
        self.clock.sleep(duration);
    }
}

struct Scene {
    clock: Arc<ServerClock>,
    tree: Arc<Tree>,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ServerClock::default());
        let kv = Arc::new(Memory::default());
        Tree::create(&*kv, &TreeOptions::default(), &*clock, &[7; 32]).expect("it is empty");
        let of_files = FileClock::following(Arc::<ServerClock>::clone(&clock));
        let tree = Tree::open(kv, of_files).expect("it was made");
        Self { clock, tree }
    }

    fn session(&self) -> Session {
        Session::new(&self.tree)
    }

    fn advance(&self, duration: Duration) {
        self.clock.clock.advance(duration);
    }

    /// How long a request takes.
    fn waited(&self, session: &Session, request: &Request<'_>) -> Duration {
        let before_ns = self.clock.now_ns();
        let asked = session.call(request);
        assert!(asked.is_ok(), "{request:?}: {asked:?}");
        Duration::from_nanos(self.clock.now_ns() - before_ns)
    }
}

fn make(session: &Session, directory: u64, name: &str, kind: Kind) -> u64 {
    let made = Made { kind, ..Made::default() };
    match session.call(&Request::Make { directory, name: name.as_bytes(), made }) {
        Ok(Reply::Made { node, .. }) => node.number,
        other => panic!("{other:?}"),
    }
}

fn directory(session: &Session, above: u64, name: &str) -> u64 {
    make(session, above, name, Kind::Directory)
}

fn file(session: &Session, above: u64, name: &str) -> u64 {
    make(session, above, name, Kind::File)
}

/// What is asked for: these, without what is below them.
fn ahead(directories: &[u64], grant: u64) -> Request<'static> {
    let (below, count, max) = (None, directories.len() as u32, MANY);
    Request::ListAhead { directories: directories.to_vec(), below, count, max, grant }
}

fn listed_ahead(session: &Session, request: &Request<'_>) -> Vec<ListedAhead> {
    match session.call(request) {
        Ok(Reply::ListedAhead(listed)) => listed,
        other => panic!("{other:?}"),
    }
}

fn numbers(session: &Session, request: &Request<'_>) -> Vec<u64> {
    listed_ahead(session, request).iter().map(|one| one.directory.number).collect()
}

fn list(session: &Session, directory: u64) -> Result<Vec<Listed>> {
    match session.call(&Request::List { directory, after: 0, max: MANY, with_nodes: true })? {
        Reply::Listing(entries) => Ok(entries),
        other => panic!("{other:?}"),
    }
}

fn directories_in(session: &Session, directory: u64, order: Order) -> Vec<u64> {
    let mut entries = list(session, directory).expect("it is there");
    entries.retain(|entry| entry.kind == Kind::Directory);
    if order == Order::Names {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    }
    entries.into_iter().map(|entry| entry.number).collect()
}

/// A directory and all below it, each before what is in it.
fn walk(session: &Session, directory: u64, order: Order) -> Vec<u64> {
    let below = directories_in(session, directory, order);
    let below = below.into_iter().flat_map(|below| walk(session, below, order));
    [directory].into_iter().chain(below).collect()
}

#[test]
fn directories_come_as_they_are_in_the_order_of_a_walk() {
    let scene = Scene::new();
    let session = scene.session();
    for name in ["b", "a", "d", "c"] {
        let here = directory(&session, ROOT, name);
        for name in ["z", "y", "x"] {
            let there = directory(&session, here, name);
            file(&session, there, "file");
            file(&session, here, &format!("file {name}"));
        }
    }
    let mut grant = 0;
    for order in [Order::Listed, Order::Names] {
        let all = walk(&session, ROOT, order);
        let top = directories_in(&session, ROOT, order);
        assert_eq!((all.len(), top.len()), (17, 4));
        for count in [1, 2, 5, 17, MANY] {
            grant += 1;
            let (directories, below) = (vec![ROOT], Some(order));
            let request = Request::ListAhead { directories, below, count, max: MANY, grant };
            let listed = listed_ahead(&session, &request);
            let told: Vec<u64> = listed.iter().map(|one| one.directory.number).collect();
            assert_eq!(told, all[..all.len().min(count as usize)], "{order:?}");
            for one in listed {
                assert_eq!(list(&session, one.directory.number), Ok(one.entries));
                let asked = session.call(&Request::Node { number: one.directory.number });
                assert_eq!(asked, Ok(Reply::Node(one.directory)));
            }
        }
        // Each once.
        grant += 1;
        let (directories, below) = (vec![top[0], top[0], ROOT], Some(order));
        let request = Request::ListAhead { directories, below, count: MANY, max: MANY, grant };
        let mut once = walk(&session, top[0], order);
        once.push(ROOT);
        once.extend(top[1..].iter().flat_map(|directory| walk(&session, *directory, order)));
        assert_eq!(numbers(&session, &request), once);
        // From one on, with what comes behind it above.
        grant += 1;
        let (directories, below) = (vec![top[1], top[3]], Some(order));
        let request = Request::ListAhead { directories, below, count: 9, max: MANY, grant };
        let expected = [walk(&session, top[1], order), walk(&session, top[3], order)].concat();
        assert_eq!(numbers(&session, &request), expected);
        grant += 1;
        assert_eq!(numbers(&session, &ahead(&top, grant)), top, "and no others");
    }
}

#[test]
fn as_many_entries_come_as_were_asked_for_and_whole_directories() {
    let scene = Scene::new();
    let session = scene.session();
    let made = ["a", "b", "c"].map(|name| directory(&session, ROOT, name));
    for (count, here) in [(2, made[0]), (3, made[1]), (1, made[2])] {
        (0..count).for_each(|number| _ = file(&session, here, &number.to_string()));
    }
    let told = |max: u32| {
        let directories = made.to_vec();
        let grant = u64::from(max) + 1;
        let request = Request::ListAhead { directories, below: None, count: MANY, max, grant };
        numbers(&session, &request)
    };
    for (max, count) in [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2), (6, 3)] {
        assert_eq!(told(max), made[..count], "{max} entries");
    }
    let long = directory(&session, ROOT, "long");
    for number in 0..=ENTRIES_AHEAD_MAX {
        if number == ENTRIES_AHEAD_MAX {
            let (directories, below, max) = (vec![long], None, u32::MAX);
            let request = Request::ListAhead { directories, below, count: 1, max, grant: 50 };
            let listed = listed_ahead(&session, &request);
            assert_eq!(listed[0].entries.len() as u32, ENTRIES_AHEAD_MAX);
        }
        file(&session, long, &number.to_string());
    }
    let (directories, below, max) = (vec![long, made[0]], None, u32::MAX);
    let request = Request::ListAhead { directories, below, count: 2, max, grant: 51 };
    assert_eq!(numbers(&session, &request), [0; 0], "not a part of it");
    // What is gone is left out, as is what is no directory.
    let gone = directory(&session, ROOT, "gone");
    let file = file(&session, ROOT, "file");
    let remove = Request::Remove { directory: ROOT, name: b"gone", is_directory: true };
    assert!(session.call(&remove).is_ok());
    let asked = ahead(&[gone, made[2], file, made[0]], 100);
    assert_eq!(numbers(&session, &asked), [made[2], made[0]]);
    assert_eq!(numbers(&session, &ahead(&[gone], 101)), Vec::<u64>::new());
    let many = vec![ROOT; LISTED_AHEAD_MAX + 1];
    let refused = session.call(&ahead(&many, 102)).expect_err("these are too many");
    assert_eq!(refused.errno(), Errno::INVAL);
}

/// A change of the names in directory `home`, where `inner`, which is empty, and `file` are.
type Change = (&'static str, fn(u64) -> Request<'static>);

const RENAME: RenameHow =
    RenameHow { keeps_existing: false, exchanges: false, leaves_whiteout: false };

fn rename(
    (from_directory, from): (u64, &'static str),
    (to_directory, to): (u64, &'static str),
    how: RenameHow,
) -> Request<'static> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    Request::Rename { from_directory, from, to_directory, to, how, user: 0, group: 0 }
}

const CHANGES: [Change; 9] = [
    ("make", |directory| Request::Make {
        directory,
        name: b"new",
        made: Made { kind: Kind::File, ..Made::default() },
    }),
    ("remove", |directory| Request::Remove { directory, name: b"file", is_directory: false }),
    ("rmdir", |directory| Request::Remove { directory, name: b"inner", is_directory: true }),
    ("remove several", |directory| {
        let removed = vec![NamedFile { name: b"none", number: 1 << 40, changed: Time::default() }];
        Request::RemoveNumbered { directory, removed, changed: None }
    }),
    ("move within", |home| rename((home, "file"), (home, "moved"), RENAME)),
    ("move away", |home| rename((home, "file"), (ROOT, "away"), RENAME)),
    ("move here", |home| rename((ROOT, "other"), (home, "here"), RENAME)),
    ("replace", |home| rename((home, "file"), (ROOT, "other"), RENAME)),
    ("exchange", |home| {
        rename((home, "inner"), (ROOT, "other"), RenameHow { exchanges: true, ..RENAME })
    }),
];

#[test]
fn nobody_changes_names_on_which_another_one_relies() {
    for (what, change) in CHANGES {
        let scene = Scene::new();
        let (mine, other) = (scene.session(), scene.session());
        let home = directory(&mine, ROOT, "home");
        let elsewhere = directory(&mine, ROOT, "elsewhere");
        directory(&mine, home, "inner");
        file(&mine, home, "file");
        file(&mine, ROOT, "other");
        // What its maker may rely on is over.
        scene.advance(LONG);
        let _ = file(&other, home, "somebody else's");
        scene.advance(LONG);
        assert_eq!(numbers(&mine, &ahead(&[home, elsewhere], 1)), [home, elsewhere]);
        scene.advance(DELEGATED_FOR / 4);
        let elsewhere_made = Request::Make {
            directory: ROOT,
            name: b"beside",
            made: Made { kind: Kind::Directory, ..Made::default() },
        };
        assert_eq!(scene.waited(&other, &elsewhere_made), Duration::ZERO, "{what}");
        let changes = Changes { permissions: Some(0o700), ..Changes::default() };
        let mode = Request::Change { number: home, changes };
        assert_eq!(scene.waited(&other, &mode), Duration::ZERO, "{what}: that is no name");
        // Nor is it carried out before: else somebody could see it, and tell who relies on the names.
        let (looking, seen) = (scene.session(), Arc::new(Mutex::new(None)));
        let (before, looked) = (list(&looking, home), Arc::clone(&seen));
        let look = move || *looked.lock().expect("nobody panicked") = Some(list(&looking, home));
        *scene.clock.look.lock().expect("nobody panicked") = Some(Box::new(look));
        assert_eq!(scene.waited(&other, &change(home)), DELEGATED_FOR * 3 / 4, "{what}");
        assert_eq!(seen.lock().expect("nobody panicked").take(), Some(before), "{what}");
        // It has ended for all of them, and nothing more comes for a while.
        let made = Made { kind: Kind::File, ..Made::default() };
        let request = Request::Make { directory: elsewhere, name: b"new", made };
        assert_eq!(scene.waited(&other, &request), Duration::ZERO, "{what}");
        assert_eq!(mine.call(&ahead(&[home], 2)), Ok(Reply::NotHere), "{what}");
        scene.advance(LONG);
        assert_eq!(numbers(&mine, &ahead(&[home], 3)), [home], "{what}");
    }
}

#[test]
fn who_has_it_changes_it_without_waiting() {
    for (what, change) in CHANGES {
        let scene = Scene::new();
        let mine = scene.session();
        let home = directory(&mine, ROOT, "home");
        directory(&mine, home, "inner");
        file(&mine, home, "file");
        file(&mine, ROOT, "other");
        scene.advance(LONG);
        assert_eq!(numbers(&mine, &ahead(&[home], 1)), [home]);
        assert_eq!(scene.waited(&mine, &change(home)), Duration::ZERO, "{what}");
    }
}

#[test]
fn a_directory_on_which_another_one_relies_is_not_removed() {
    for replaces in [false, true] {
        let scene = Scene::new();
        let (mine, other) = (scene.session(), scene.session());
        let home = directory(&mine, ROOT, "home");
        let empty = directory(&mine, home, "empty");
        directory(&mine, home, "another");
        scene.advance(LONG);
        assert_eq!(numbers(&mine, &ahead(&[empty], 1)), [empty]);
        let request = match replaces {
            true => rename((home, "another"), (home, "empty"), RENAME),
            false => Request::Remove { directory: home, name: b"empty", is_directory: true },
        };
        assert_eq!(scene.waited(&other, &request), DELEGATED_FOR, "replaces: {replaces}");
    }
}

#[test]
fn what_was_delegated_before_is_no_more() {
    let scene = Scene::new();
    let (mine, other) = (scene.session(), scene.session());
    let made = ["a", "b", "c"].map(|name| directory(&mine, ROOT, name));
    scene.advance(LONG);
    assert_eq!(numbers(&mine, &ahead(&[made[0], made[2]], 2)), [made[0], made[2]]);
    assert_eq!(mine.call(&ahead(&made, 1)), Ok(Reply::NotHere), "it comes late");
    assert_eq!(numbers(&mine, &ahead(&[made[1], made[2]], 3)), [made[1], made[2]]);
    let make = |directory| {
        let made = Made { kind: Kind::File, ..Made::default() };
        Request::Make { directory, name: b"new", made }
    };
    assert_eq!(scene.waited(&other, &make(made[0])), Duration::ZERO);
    assert_eq!(scene.waited(&other, &make(made[2])), DELEGATED_FOR);
    // Nor that of somebody who is gone, once its time is over.
    scene.advance(LONG);
    assert_eq!(numbers(&mine, &ahead(&[made[1]], 4)), [made[1]]);
    drop(mine);
    scene.advance(DELEGATED_FOR / 2);
    assert_eq!(scene.waited(&other, &make(made[1])), DELEGATED_FOR / 2, "he may not know yet");
}

#[test]
fn nothing_is_said_to_be_gone_where_others_list_without_asking() {
    let scene = Scene::new();
    let (mine, other) = (scene.session(), scene.session());
    let home = directory(&mine, ROOT, "home");
    for name in ["a", "b", "c"] {
        file(&mine, home, name);
    }
    let elsewhere = directory(&mine, ROOT, "elsewhere");
    scene.advance(LONG);
    let remove = |name: &'static [u8]| {
        let Ok(Reply::Node(node)) = mine.call(&Request::Lookup { directory: home, name }) else {
            panic!("it is there")
        };
        let removed = vec![NamedFile { name, number: node.number, changed: node.changed }];
        match mine.call(&Request::RemoveNumbered { directory: home, removed, changed: None }) {
            Ok(Reply::Removed { count: 1, may_say_gone, .. }) => may_say_gone,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(numbers(&other, &ahead(&[elsewhere], 1)), [elsewhere]);
    assert!(remove(b"a"), "nobody lists it");
    // Whoever wants to list it waits, and nobody gets it ahead.
    assert_eq!(numbers(&other, &ahead(&[home, elsewhere], 2)), [elsewhere]);
    assert!(remove(b"b"));
    let list = Request::List { directory: home, after: 0, max: MANY, with_nodes: true };
    assert_eq!(scene.waited(&other, &list), MAY_SAY_GONE_FOR + SAID_GONE_FOR);
    scene.advance(LONG);
    assert_eq!(numbers(&other, &ahead(&[home], 3)), [home]);
    let before_ns = scene.clock.now_ns();
    assert!(remove(b"c"), "he was waited for, and is to ask again");
    let waited = Duration::from_nanos(scene.clock.now_ns() - before_ns);
    assert_eq!(waited, DELEGATED_FOR);
}

#[test]
fn where_one_user_alone_changes_names_nobody_lists_ahead() {
    let scene = Scene::new();
    let (mine, other) = (scene.session(), scene.session());
    let home = directory(&mine, ROOT, "home");
    let elsewhere = directory(&other, ROOT, "elsewhere");
    file(&mine, home, "file");
    assert_eq!(numbers(&other, &ahead(&[home, elsewhere], 1)), [elsewhere]);
    assert_eq!(numbers(&other, &ahead(&[home], 2)), [0; 0], "it is refused nothing");
    assert_eq!(numbers(&mine, &ahead(&[home], 1)), [home], "whose it is");
    scene.advance(DELEGATED_FOR / 2);
    // Whoever relies on that may have said to a program that he has made a file.
    let made = Made { kind: Kind::File, ..Made::default() };
    let make = Request::Make { directory: home, name: b"new", made };
    assert_eq!(scene.waited(&mine, &make), Duration::ZERO);
    scene.advance(DELEGATED_FOR);
    assert_eq!(numbers(&other, &ahead(&[home], 3)), [home]);
    // Nor does anybody begin to rely on it meanwhile.
    let look = Request::Lookup { directory: home, name: b"none" };
    let nothing = mine.call(&look).expect_err("there is none");
    assert_eq!(nothing.errno(), Errno::NOENT);
    scene.advance(DELEGATED_FOR);
    assert_eq!(mine.call(&look), Ok(Reply::Nowhere));
}

#[test]
fn a_server_that_starts_waits_until_nobody_relies_on_the_one_before() {
    let scene = Scene::new();
    let session = scene.session();
    assert_eq!(numbers(&session, &ahead(&[ROOT], 1)), [0; 0]);
    scene.advance(DELEGATED_FOR);
    assert_eq!(numbers(&session, &ahead(&[ROOT], 2)), [ROOT]);
}
