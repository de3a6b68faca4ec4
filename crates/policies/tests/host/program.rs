// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies in Python: what they see, what they may ask for, and how they fail.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use terrace_core::{
    ActionKind, Actions, Clock, ErrorKind, Event, EventKind, Hint, Interest, Key, Layout, Placed,
    Placement, Policy, Random, SystemClock, Temperature, TierIndex,
};

use crate::loading::place;
use crate::misbehaviour::{panic_text, sees_the_segments_as_they_are};
use crate::world::{World, load, two_tiers};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

fn scripted() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/fixtures/scripted.py")
}

/// A world with one object of 10 bytes, which the policy knows.
fn world(mode: &str) -> World {
    let mut world = World::new(&scripted(), &[("mode", mode)]);
    world.create("t/a", 10);
    world.observe();
    world
}

fn plan(world: &mut World, bytes: u64, count: usize) -> Vec<terrace_core::Action> {
    let mut actions = Actions::with_budget(bytes, count);
    world.policy.plan(&world.view, &mut actions);
    actions.into_list()
}

#[test]
fn a_program_sees_the_segments_as_they_are() {
    sees_the_segments_as_they_are(&scripted());
}

#[test]
fn a_program_sees_the_tiers_as_they_are() {
    let mut world = world("");
    world.view.tiers[0].figures.capacity_bytes = u64::MAX;
    world.view.tiers[0].utilisation = 0.25;
    world.view.tiers[1].figures.prices.per_gb_month = 0.02;
    let ask = |world: &mut World| {
        let told = world.policy.message(&world.view, "tiers", b"").expect("known");
        String::from_utf8(told).expect("text")
    };
    let told = ask(&mut world);
    let (fast, slow) = told.split_once('\n').expect("two lines");
    for (line, expected) in [
        (fast, "name='fast', capacity_bytes=inf, latency_ns=0, read_bytes_per_s=inf"),
        (fast, "used_bytes=10, reserved_bytes=0"),
        (fast, "utilisation=0.25, is_writable=True"),
        (slow, "name='slow', capacity_bytes=1000"),
        (slow, "price_per_1000_read_requests=0.0, price_per_gb_month=0.02"),
    ] {
        assert!(line.contains(expected), "{expected} in {line}");
    }
    assert_eq!(ask(&mut world), told, "nothing is new");
    world.view.tiers[1].used_bytes = 20;
    assert!(ask(&mut world).contains("used_bytes=20"), "one tier is");
}

#[test]
fn a_program_leaves_the_processors_to_the_store() {
    let mut world = world("");
    let threads = world.policy.message(&world.view, "threads", b"").expect("known");
    let set = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]
        .map(|variable| std::env::var(variable).ok());
    let [openblas, ..] = &set;
    let expected = match set.iter().any(Option::is_some) {
        true => openblas.clone().unwrap_or_default(),
        false => "1".into(),
    };
    assert_eq!(String::from_utf8(threads).expect("text"), expected);
}

#[test]
fn actions_come_as_they_were_meant() {
    let actions = plan(&mut world("all kinds"), 1000, 10);
    let to = TierIndex;
    let kinds: Vec<_> = actions.iter().map(|action| action.kind).collect();
    assert_eq!(
        kinds,
        [
            ActionKind::Move { to: to(1) },
            ActionKind::Promote { to: to(0) },
            ActionKind::Copy { to: to(1) },
            ActionKind::DropCopy { tier: to(1) },
            ActionKind::Cancel,
        ]
    );
    assert!(actions.iter().all(|action| (action.slot, action.incarnation) == (0, 1)));
    assert_eq!((actions[0].priority, actions[0].reason.as_str()), (-7, "down"));
    assert_eq!((actions[1].benefit_s, actions[1].reason.as_str()), (1.5, "up"));
}

#[test]
fn tiers_that_do_not_exist_are_left_to_the_stack() {
    let actions = plan(&mut world("tiers and slots"), 1000, 10);
    let kinds: Vec<_> = actions.iter().map(|action| action.kind).collect();
    let to = |tier| ActionKind::Move { to: TierIndex(tier) };
    assert_eq!(kinds, [to(255), to(200), to(255)]);
    assert_eq!(actions[1].reason, "x".repeat(200));
    assert_eq!(actions[1].benefit_s, 0.0, "NaN is no benefit");
}

#[test]
fn actions_are_bounded_by_the_budget() {
    assert_eq!(plan(&mut world("a million"), 1 << 40, 100).len(), 100);
    assert_eq!(plan(&mut world("a million"), 35, 100).len(), 3, "10 bytes each");
}

#[test]
fn receipts_reach_the_program() {
    let mut world = world("all kinds");
    world.round();
    world.observe();
    let reply = world.policy.message(&world.view, "count", b"").expect("known");
    assert_eq!(reply, b"1 5");
}

#[test]
fn a_program_that_fails_is_a_panic_that_says_where() {
    for (mode, expected) in [
        ("plan fails", "failed in plan: IndexError: list index out of range ("),
        ("observe fails", "failed in plan: RuntimeError: no more ("),
        ("no such slot", "failed in plan: IndexError: there is no slot 12345678, only 1 ("),
        ("exits", "failed in plan: SystemExit: 3 ("),
        ("dies", "failed in plan: cannot ask the policy: its process ended"),
        ("is killed", "failed in plan: cannot ask the policy: its process ended"),
        ("leaks", "failed in plan: MemoryError ("),
        ("closes", "failed in plan: cannot ask the policy: its process ended"),
    ] {
        let mut world = world(mode);
        let text = panic_text(|| drop(plan(&mut world, 1, 1)));
        assert!(text.starts_with("the policy program Scripted failed"), "{mode}: {text}");
        assert!(text.contains(expected), "{mode}: {text}");
        let is_placed = text.contains("scripted.py:") || !expected.ends_with('(');
        assert!(is_placed, "the line is named: {text}");
    }
}

#[test]
fn a_program_that_has_gone_fails_every_call() {
    let mut world = world("dies");
    panic_text(|| drop(plan(&mut world, 1, 1)));
    panic_text(|| drop(plan(&mut world, 1, 1)));
    panic_text(|| drop(world.policy.message(&world.view, "echo", b"")));
    let mut state = Vec::new();
    panic_text(|| world.policy.save(&world.view, &mut state));
}

#[test]
fn a_program_that_hangs_is_ended_with_its_policy() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("of-this-test.py");
    std::fs::copy(scripted(), &path).expect("copies");
    let world = World::new(&path, &[("mode", "hangs")]);
    let process = children_named(path.to_str().expect("text"));
    assert_eq!(process.len(), 1);
    let asked = ask_beside(world);
    for process in process {
        // As the system does where memory is short, and a person who has enough of it.
        drop(std::process::Command::new("kill").arg("-9").arg(process).status());
    }
    assert!(asked.join().expect("it returns"), "the call fails");
}

/// What the stack does once it has given a policy up.
#[test]
fn a_call_that_hangs_comes_back_when_it_is_cancelled_and_no_process_stays() {
    // Of this run alone, and long enough for it.
    let child = format!("1{:09}", std::process::id());
    let mode = format!("spins beside a sleep of {child}");
    let world = World::new(&scripted(), &[("mode", &mode)]);
    let cancel = world.policy.canceller().expect("a process can be given up");
    let asked = ask_beside(world);
    let clock = SystemClock::default();
    let until_ns = clock.now_ns() + LONG.as_nanos() as u64;
    while processes_named(&child).is_empty() {
        assert!(clock.now_ns() < until_ns, "the policy does not start its child");
        clock.sleep(Duration::from_millis(5));
    }
    cancel();
    assert!(asked.join().expect("it returns"), "the call fails");
    // It would come back by itself, long after this.
    while !processes_named(&child).is_empty() || clock.now_ns() > until_ns {
        assert!(clock.now_ns() < until_ns, "the call, or the child, does not end");
        clock.sleep(Duration::from_millis(5));
    }
    // Whoever gave up may say so again.
    cancel();
}

/// Asks for a plan on another thread and lets the policy go then; whether that failed.
fn ask_beside(world: World) -> JoinHandle<bool> {
    let World { mut policy, view, .. } = world;
    std::thread::spawn(move || {
        let mut actions = Actions::with_budget(1, 1);
        // Nobody waits for it any longer: what the stack does with a policy that overran its time.
        let asked = std::panic::AssertUnwindSafe(|| policy.plan(&view, &mut actions));
        let ended = std::panic::catch_unwind(asked);
        drop(policy);
        ended.is_err()
    })
}

/// Numbers of the processes with this in their command.
fn processes_named(text: &str) -> Vec<String> {
    named(text, "")
}

/// Numbers of the children of this process with this in their command.
fn children_named(text: &str) -> Vec<String> {
    named(text, &format!("PPid:\t{}\n", std::process::id()))
}

/// Numbers of the processes with the one in their command and the other in their status.
fn named(text: &str, me: &str) -> Vec<String> {
    let read = |process: &Path, file: &str| std::fs::read(process.join(file)).unwrap_or_default();
    std::fs::read_dir("/proc")
        .expect("there is one")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| {
            String::from_utf8_lossy(&read(process, "status")).contains(me)
                && String::from_utf8_lossy(&read(process, "cmdline")).contains(text)
        })
        .filter_map(|process| Some(process.file_name()?.to_str()?.to_owned()))
        .collect()
}

#[test]
fn messages_have_replies_and_refusals() {
    let mut world = world("");
    let mut message = |kind: &str, body: &[u8]| world.policy.message(&world.view, kind, body);
    assert_eq!(message("echo", b"\0\xff").expect("known"), b"\0\xff");
    assert_eq!(message("echo", b"").expect("known"), b"");
    for (kind, expected, reason) in [
        ("refuse", ErrorKind::Invalid, "the café is closed"),
        ("what", ErrorKind::Unsupported, "what is not known"),
    ] {
        let error = message(kind, b"").expect_err(kind);
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let text = panic_text(|| drop(message("text", b"")));
    assert!(text.contains("failed in message: TypeError: expected bytes, not str"), "{text}");
    let text = panic_text(|| drop(message("fail", b"")));
    assert!(text.contains("failed in message: KeyError: 'gone'"), "{text}");
}

#[test]
fn parameters_have_the_type_of_their_default_and_bounds() {
    let mut policy = load(&scripted(), &[("share", "0.25"), ("eager", "on")]).expect("loads");
    let shown = |policy: &dyn Policy| -> Vec<_> {
        let parameters = policy.parameters();
        parameters.into_iter().map(|one| format!("{}={}", one.name, one.value)).collect()
    };
    assert_eq!(shown(&*policy), ["mode=", "share=0.25", "count=3", "eager=on"]);
    for (name, value, kind, reason) in [
        ("share", "2", ErrorKind::Invalid, "expected a number from 0 to 1"),
        ("share", "nan", ErrorKind::Invalid, "expected a number from 0 to 1"),
        ("share", "much", ErrorKind::Invalid, "expected a number"),
        ("count", "1.5", ErrorKind::Invalid, "expected a whole number"),
        ("count", "-1", ErrorKind::Invalid, "expected a number from 0 to inf"),
        ("eager", "yes", ErrorKind::Invalid, "expected `on` or `off`"),
        ("mode", "refused", ErrorKind::Invalid, "not this one"),
        ("hihg", "1", ErrorKind::NotFound, "only mode, share, count, eager"),
    ] {
        let error = policy.set_parameter(name, value).expect_err(name);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(shown(&*policy), ["mode=", "share=0.25", "count=3", "eager=on"], "all as before");
    let error = load(&scripted(), &[("share", "2")]).err().expect("refused");
    assert!(error.to_string().contains("from 0 to 1"), "{error}");
}

#[test]
fn creates_are_answered_from_what_the_program_published() {
    let policy = load(&scripted(), &[("mode", "rules")]).expect("loads");
    let placer = policy.placer();
    drop(policy);
    let place = |key: &str, size_hint_bytes, temperature| {
        let key = Key::parse(key).expect("legal");
        let hint = Hint { temperature };
        placer.place(&Placement { key: &key, hint, size_hint_bytes, segment: 0, start_bytes: 0 })
    };
    let unknown = Temperature::Unknown;
    for (placed, tier) in [
        (place("abc/x.log", Some(150), unknown), 1),
        (place("abd/x.log", Some(150), unknown), 2),
        (place("abd/x.log", Some(99), unknown), 0),
        (place("abd/x.log", Some(201), unknown), 0),
        (place("abd/x.log", None, unknown), 0),
        (place("abd/x.log", None, Temperature::Cold), 3),
    ] {
        assert_eq!(placed, Placed::on(TierIndex(tier)));
    }
}

#[test]
fn a_wild_placement_is_left_to_the_stack() {
    for (mode, tier, layout) in [
        ("segments", 1, Layout::Fixed { segment_bytes: 4096 }),
        ("tier 70000", 255, Layout::One),
        ("numpy", 1, Layout::One),
    ] {
        let policy = load(&scripted(), &[("mode", mode)]).expect("loads");
        assert_eq!(place(&*policy.placer()), Placed { tier: TierIndex(tier), layout }, "{mode}");
    }
}

#[test]
fn a_placement_that_cannot_be_understood_ends_the_policy() {
    for (mode, expected) in [
        ("a word", "TypeError: expected the number of a tier, from 0, not 'fast' ("),
        ("an object", "AttributeError: 'object' object has no attribute 'rules'"),
    ] {
        let mut policy = load(&scripted(), &[]).expect("loads");
        let text = panic_text(|| drop(policy.set_parameter("mode", mode)));
        assert!(text.contains("failed in set_parameter") && text.contains(expected), "{text}");
    }
}

#[test]
fn numbers_and_texts_may_be_of_numpy() {
    let actions = plan(&mut world("numpy"), 1000, 10);
    assert_eq!(actions[0].kind, ActionKind::Move { to: TierIndex(1) });
    assert_eq!(actions[0].reason, "of NumPy");
}

#[test]
fn a_programs_state_survives_in_another_instance() {
    let mut old = world("");
    old.round();
    let mut state = b"before".to_vec();
    old.policy.save(&old.view, &mut state);
    let state = state.strip_prefix(b"before").expect("save appends");
    assert_eq!(state, b"1");

    let mut new = load(&scripted(), &[]).expect("loads");
    assert_eq!(new.state_version(), 3);
    new.restore(&old.view, 3, state).expect("its own state");
    assert_eq!(new.message(&old.view, "count", b"").expect("known"), b"1 0");
    let error = new.restore(&old.view, 4, state).expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = new.restore(&old.view, 3, b"short").expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    new.restore(&old.view, 3, b"").expect("nothing to restore");
}

#[test]
fn a_programs_chance_comes_from_the_seed_of_the_view() {
    let draw = |seed: u64| {
        let mut view = two_tiers();
        view.random = Random::new(seed);
        let mut policy = terrace_policies::program::start(&scripted(), &view, &[]).expect("loads");
        policy.message(&view, "drawn", b"").expect("known")
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_file_that_is_no_policy_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path
    };
    let two = "from terrace.policy import Policy\nclass A(Policy): pass\nclass B(Policy): pass\n";
    let refuses = "from terrace.policy import Policy\nclass A(Policy):\n def __init__(self, view):\n  \
                   raise ValueError(f'{len(view.tiers)} tiers are too few')\n";
    let reads = "from terrace.policy import Policy\nclass A(Policy): interest = (5,)\n";
    for (path, kind, reason) in [
        (dir.path().join("missing.py"), ErrorKind::NotFound, "missing.py"),
        (file("empty.py", ""), ErrorKind::Invalid, "expected one class derived from"),
        (file("two.py", two), ErrorKind::Invalid, "A, B"),
        (file("refuses.py", refuses), ErrorKind::Invalid, "2 tiers are too few"),
        (file("syntax.py", "def f(:"), ErrorKind::Invalid, "invalid syntax"),
        (file("fails.py", "1 / 0"), ErrorKind::Invalid, "division by zero"),
        (file("ends.py", "import os; os._exit(0)"), ErrorKind::Invalid, "does not answer"),
        (file("reads.py", reads), ErrorKind::Invalid, "expected STAT and SYNC in `interest`"),
    ] {
        let error = load(&path, &[]).err().unwrap_or_else(|| panic!("{}", path.display()));
        assert_eq!(error.kind(), kind, "{}", error.chain());
        assert!(error.chain().contains(reason), "{}", error.chain());
        assert!(error.to_string().contains(".py"), "the file is named: {error}");
    }
}

#[test]
fn a_derived_policy_is_the_one_that_is_meant() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mine.py");
    std::fs::write(dir.path().join("beside.py"), "TIER = 1\n").expect("writes");
    let text = "from beside import TIER\nfrom terrace.policy import Placement, Policy\n\
                class Base(Policy):\n placement = Placement(TIER)\nclass Mine(Base): pass\n";
    std::fs::write(&path, text).expect("writes");
    let policy = load(&path, &[]).expect("loads, with the module beside it");
    assert_eq!(place(&*policy.placer()), Placed::on(TierIndex(1)));
}

#[test]
fn many_segments_are_shown_in_parts_and_whole() {
    let mut world = World::new(&scripted(), &[]);
    for number in 0..100_000 {
        world.create(&format!("t/{number}"), 1);
    }
    for slot in 0..1000 {
        world.happen(EventKind::Delete, slot * 7);
    }
    world.observe();
    let reply = world.policy.message(&world.view, "segments", b"").expect("known");
    let reply = String::from_utf8(reply).expect("text");
    assert_eq!(reply.lines().count(), 100_000);
    assert_eq!(reply.lines().filter(|line| line.contains("live 0")).count(), 1000);
}

/// Reads of slot 0 at these times.
fn reads(times_ns: impl IntoIterator<Item = u64>) -> Vec<Event> {
    times_ns.into_iter().map(|time_ns| Event::new(EventKind::Read, 0, 1, time_ns)).collect()
}

fn told(world: &mut World, kind: &str) -> String {
    let reply = world.policy.message(&world.view, kind, b"").expect("known");
    String::from_utf8(reply).expect("text")
}

#[test]
fn a_program_gets_the_optional_events_that_it_asks_for() {
    let mut world = world("");
    assert_eq!(world.policy.interest(), Interest { stat: true, sync: false });
    let before = told(&mut world, "segments");
    let stats = [EventKind::Stat, EventKind::Sync, EventKind::Stat];
    let events = stats.map(|kind| Event::new(kind, 0, 1, world.view.now_ns + 5));
    world.policy.observe(&world.view, &events);
    assert_eq!(told(&mut world, "stats"), "2");
    assert_eq!(told(&mut world, "segments"), before, "they change nothing");
}

#[test]
fn events_that_a_program_keeps_stay_as_they_are() {
    let mut world = world("");
    told(&mut world, "count");
    world.policy.set_parameter("mode", "keeps").expect("known");
    for times_ns in [[1, 2, 3], [4, 5, 6], [7, 8, 9]] {
        world.policy.observe(&world.view, &reads(times_ns));
        plan(&mut world, 1, 1);
    }
    assert_eq!(told(&mut world, "kept"), "[2, 3] [5, 6] [8, 9]");
}

#[test]
fn more_events_than_the_memory_has_room_for_are_all_seen() {
    let mut world = world("");
    let events = reads(0..400_000);
    world.policy.observe(&world.view, &events);
    assert_eq!(told(&mut world, "reads"), "400000 1");
    world.policy.observe(&world.view, &events[..1]);
    assert_eq!(told(&mut world, "reads"), "400001 1");
    assert_eq!(told(&mut world, "reads"), "400001 1", "none since");
}

#[test]
fn a_program_that_loses_its_memory_harms_itself_only() {
    let mut world = world("unmaps");
    assert!(plan(&mut world, 1, 1).is_empty(), "nobody looked yet");
    world.policy.observe(&world.view, &reads(0..1000));
    let text = panic_text(|| drop(plan(&mut world, 1, 1)));
    assert!(text.contains("failed in plan: cannot ask the policy: its process ended"), "{text}");
}
