// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace comes to the same in the time model, whichever format it is in.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use terrace_core::{
    Event, EventKind, Figures, Key, Persistency, Random, TierIndex, TierView, Watermarks,
};
use terrace_replay::{
    Character, Converted, Cut, Format, Options, Population, Recent, TierTimed, Timed, TimedOptions,
    TimedReplay, TimedTier, Trace, convert,
};
use terrace_trace::{About, Item, Origin, Reader, Record, Settings, Tier, Waits, Writer};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// When the recordings begin, by their own clock and by that of the wall.
const BEGAN_NS: u64 = 77 * MS;
const BEGAN_WALL_NS: u64 = 1_700_000_000_000_000_000;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn convert(&self, from: &str, cut: &Cut, format: Format, to: &str) -> Converted {
        let from = self.path(from);
        let options = Options { has_lives: true, ..Options::default() };
        let open = || Trace::open(&from, &options);
        let trace = open().expect("it is a trace");
        let converted = convert(trace, &open, cut, format, &self.path(to), &mut |_| true);
        converted.expect("it can be written").expect("nobody ends it")
    }

    fn replay(&self, name: &str) -> Timed {
        replay(&self.path(name))
    }
}

fn replay(path: &Path) -> Timed {
    let tier = |name: &str, capacity_bytes, latency_ns| {
        let bytes_per_s = 1e8;
        let figures = Figures {
            capacity_bytes,
            latency_ns,
            read_bytes_per_s: bytes_per_s,
            write_bytes_per_s: bytes_per_s,
            parallelism: 4,
            idle_w: 1.0,
            active_w: 3.0,
            ..Figures::default()
        };
        let watermarks = Watermarks { low: 0.5, high: 0.9, critical: 1.0 };
        let view = TierView { watermarks, ..TierView::empty(name, figures) };
        let character = Character { create_ns: 3 * MS, ..Character::default() };
        TimedTier { view, character, recent: Recent::default() }
    };
    let tiers = vec![tier("fast", 4 * MIB, MS / 10), tier("slow", u64::MAX, 8 * MS)];
    let timed_options = TimedOptions::new(tiers);
    let policy = terrace_policies::create("lru", &timed_options.view(), &[]).expect("it is known");
    let options = Options { has_lives: true, ..Options::default() };
    let open = || Trace::open(path, &options).expect("it is a trace");
    let population = Population::read(&mut open(), &mut |_| {}).expect("readable");
    let replay = TimedReplay::new(timed_options);
    replay.run(population, open(), policy, &mut |_| {}).expect("readable")
}

fn assert_same(found: &Timed, wanted: &Timed) {
    assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
}

fn bytes(timed: &Timed) -> u64 {
    let bytes = |tier: &TierTimed| tier.read_bytes + tier.written_bytes;
    timed.tiers.iter().map(bytes).sum()
}

/// A recording of three threads that each make, write, read, cut, close and delete their objects.
fn record(directory: &Path) {
    let tier = |name: &str| Tier {
        name: name.into(),
        figures: Figures::default(),
        watermarks: Watermarks::default(),
        persistency: Persistency::Storage,
    };
    let settings = Settings {
        directory: directory.into(),
        max_bytes: 1 << 30,
        salt: None,
        has_decisions: false,
    };
    let origin = Origin {
        store_id: 5,
        wall_ns: BEGAN_WALL_NS,
        monotonic_ns: BEGAN_NS,
        tiers: vec![tier("fast"), tier("slow")],
    };
    let mut events = Vec::new();
    let mut random = Random::new(3);
    for thread in 0..3 {
        let mut now_ns = BEGAN_NS + thread * MS;
        for object in 0..20_u32 {
            let slot = thread as u32 * 100 + object;
            let mut put = |kind, offset_bytes, length_bytes, latency_ns: u64| {
                let tier = TierIndex(random.below(2) as u8);
                let event = Event::new(kind, slot, 7, now_ns);
                events.push(Event { tier, offset_bytes, length_bytes, latency_ns, ..event });
                now_ns += latency_ns + random.below(2 * MS);
            };
            if object % 3 > 0 {
                put(EventKind::Create, 0, 0, 0);
                put(EventKind::Write, 0, MIB, 9 * MS);
            }
            put(EventKind::Open, 0, 0, 0);
            put(EventKind::Read, 0, MIB / 2, 5 * MS);
            put(EventKind::SetLen, 0, MIB / 4, 0);
            put(EventKind::Moved, 0, MIB / 4, 0);
            put(EventKind::Read, 0, MIB / 2, 4 * MS);
            put(EventKind::Close, 0, 0, 0);
            if object % 4 == 0 {
                put(EventKind::Delete, 0, 0, 0);
            }
        }
    }
    events.sort_by_key(|event| event.time_ns);
    let mut writer = Writer::begin(settings, origin).expect("it is empty");
    for event in &events {
        let key = Key::new("run", &format!("object-{}", event.slot)).expect("legal");
        let about = About { object_id: event.slot.into(), segment: 0, start_bytes: 0, key: &key };
        let waits = Waits { guard_ns: event.latency_ns / 10, stack_ns: 0 };
        writer.access(event, waits, || Some(about));
    }
    assert_eq!(writer.end().lost_records, 0);
}

/// Everything that happened, by the clock of the wall, with the names of objects.
fn told(directory: &Path) -> Vec<String> {
    let mut reader = Reader::open(directory).expect("it is there");
    let mut told = Vec::new();
    while let Some(item) = reader.next_item().expect("readable") {
        let Item::Record(Record::Access(access)) = item else { continue };
        let head = reader.head().expect("it has one");
        let (event, subject) = (
            access.event,
            reader.subject(access.event.slot, access.event.incarnation).expect("it has a name"),
        );
        let tier = &head.tiers[event.tier.index()].name;
        let time_ns = head.wall_of(event.time_ns);
        let Event { kind, offset_bytes, length_bytes, latency_ns, .. } = event;
        told.push(format!(
            "{time_ns} {kind:?} {tier} {offset_bytes} {length_bytes} {latency_ns} {:?} {subject:?}",
            access.waits
        ));
    }
    told
}

#[test]
fn our_own_trace_loses_nothing_when_it_is_cut() {
    let place = Place::new();
    record(&place.path("own"));
    let cut = Cut::default().window(0, u64::MAX - 1);
    let converted = place.convert("own", &cut, Format::Terrace, "cut");
    assert_eq!(converted.read, converted.written);
    assert_eq!(told(&place.path("cut")), told(&place.path("own")));
    assert_same(&place.replay("cut"), &place.replay("own"));
}

#[test]
fn our_own_trace_takes_as_long_in_csv_and_back() {
    let place = Place::new();
    record(&place.path("own"));
    let timed = place.replay("own");
    place.convert("own", &Cut::default(), Format::Csv, "own.csv");
    let text = fs::read_to_string(place.path("own.csv")).expect("it was written");
    assert!(text.starts_with("time_ns,id,size,offset,length,op,latency_ns\n"), "{text:.80}");
    assert_same(&place.replay("own.csv"), &timed);
    place.convert("own.csv", &Cut::default(), Format::Terrace, "again");
    assert_same(&place.replay("again"), &timed);
}

#[test]
fn a_window_of_our_own_trace_knows_how_long_its_objects_were() {
    let place = Place::new();
    record(&place.path("own"));
    let cut = Cut::default().window(150 * MS, 300 * MS);
    let converted = place.convert("own", &cut, Format::Terrace, "window");
    assert!(converted.written > 5 && converted.written < converted.read, "{converted:?}");
    place.convert("own", &cut, Format::Csv, "window.csv");
    assert_same(&place.replay("window"), &place.replay("window.csv"));
}

#[test]
fn sizes_of_reads_are_no_truncations() {
    let place = Place::new();
    let rows = (0..6).map(|row| format!("{row},1,{},read\n", [100, 1_000_000][row % 2]));
    let text = format!("time,id,size,op\n{}", rows.collect::<String>());
    fs::write(place.path("load.csv"), text).expect("writable");
    let timed = place.replay("load.csv");
    assert_eq!(bytes(&timed), 3_000_300);
    place.convert("load.csv", &Cut::default(), Format::Terrace, "own");
    assert_same(&place.replay("own"), &timed);
}

#[test]
fn what_a_trace_cuts_is_cut_after_a_conversion() {
    let place = Place::new();
    let text = "time,id,size,length,op\n0,1,0,0,create\n1,1,1000,1000,write\n2,1,0,10,set-length\n\
                3,1,10,1000,read\n4,1,0,0,delete\n5,1,10,10,read\n";
    fs::write(place.path("load.csv"), text).expect("writable");
    let timed = place.replay("load.csv");
    assert_eq!((bytes(&timed), timed.requests), (1010, 3));
    place.convert("load.csv", &Cut::default(), Format::Terrace, "own");
    assert_same(&place.replay("own"), &timed);
}

#[test]
fn what_a_format_cannot_hold_is_said() {
    let place = Place::new();
    let text = "time_ms,id,size,offset,length,op,client,latency\n0,1,9,1,2,read,1,0.1\n\
                5,1,9,0,9,other,2,0.1\n5,1,0,0,0,close,2,0\n";
    fs::write(place.path("load.csv"), text).expect("writable");
    let notes = |format, name| place.convert("load.csv", &Cut::default(), format, name).notes;
    assert_eq!(notes(Format::Csv, "again.csv"), Vec::<String>::new());
    assert_same(&place.replay("again.csv"), &place.replay("load.csv"));
    let own = notes(Format::Terrace, "own").join("\n");
    assert!(own.contains("no clients") && own.contains("1 requests are not known"), "{own}");
    let oracle = notes(Format::OracleGeneral, "oracle.bin").join("\n");
    for what in ["fractions", "parts", "clients", "latencies", "closes"] {
        assert!(oracle.contains(what), "{oracle}");
    }
}

#[test]
fn a_recorded_trace_without_latencies_says_so() {
    let place = Place::new();
    for (name, latency) in [("without", 0), ("with", 7)] {
        let text =
            format!("time,id,size,op,client,latency\n0,1,9,read,1,0\n1,2,9,read,2,{latency}\n");
        fs::write(place.path("load.csv"), text).expect("writable");
        let converted = place.convert("load.csv", &Cut::default(), Format::Terrace, name);
        let is_of_one = converted.notes.concat().contains("is taken for that of one");
        assert_eq!(is_of_one, latency == 0, "{:?}", converted.notes);
        let mut trace = Trace::open(&place.path(name), &Options::default()).expect("a trace");
        Population::read(&mut trace, &mut |_| {}).expect("readable");
        let is_noted = trace.notes().concat().contains("no request has a latency");
        assert_eq!(is_noted, latency == 0, "{:?}", trace.notes());
    }
}
