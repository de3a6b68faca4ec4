// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces that are written and read again.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use terrace_core::{ErrorKind, Random};
use terrace_replay::{
    Converted, Cut, Format, Operation, Options, Request, Trace, convert, trace_key,
};
use terrace_trace::{Access, Item, Reader, Record};

/// More than are read or written at a time.
const REQUESTS: usize = 120_000;

struct Place(TempDir);

impl Place {
    /// A directory with `trace.csv`: random requests for parts of objects, in the order of time.
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        let mut random = Random::new(11);
        let mut text = String::from("time_ns,id,size,offset,length,op,client\n");
        let mut time_ns = 1_700_000_000_000_000_000;
        for _ in 0..REQUESTS {
            time_ns += random.below(1_000_000);
            let object = random.below(500) << random.below(50);
            let (offset, length) = (random.below(1 << 20), random.below(1 << 16));
            let size = offset + length + random.below(1 << 10);
            let word = ["read", "write"][random.below(2) as usize];
            let client = random.below(9);
            text += &format!("{time_ns},{object},{size},{offset},{length},{word},{client}\n");
        }
        fs::write(place.path("trace.csv"), text).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn convert(&self, from: &str, cut: &Cut, format: Format, to: &str) -> Converted {
        self.try_convert(from, cut, format, to).unwrap()
    }

    fn try_convert(
        &self,
        from: &str,
        cut: &Cut,
        format: Format,
        to: &str,
    ) -> terrace_core::Result<Converted> {
        let open = || Trace::open(&self.path(from), &Options::default());
        let converted = convert(open()?, &open, cut, format, &self.path(to), &mut |_| true);
        converted.map(|converted| converted.expect("nobody ends it"))
    }

    /// The names of everything there is.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    fn read(&self, name: &str) -> (Format, Vec<Request>) {
        read(&self.path(name))
    }
}

fn read(path: &Path) -> (Format, Vec<Request>) {
    let mut trace = Trace::open(path, &Options::default()).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        trace.read(&mut batch).unwrap();
        if batch.is_empty() {
            return (trace.format(), all);
        }
        all.append(&mut batch);
    }
}

#[test]
fn csv_loses_nothing() {
    let place = Place::new();
    let converted = place.convert("trace.csv", &Cut::default(), Format::Csv, "again.csv");
    assert_eq!((converted.read, converted.written), (REQUESTS as u64, REQUESTS as u64));
    assert_eq!(
        fs::read(place.path("trace.csv")).unwrap(),
        fs::read(place.path("again.csv")).unwrap()
    );
}

#[test]
fn our_own_trace_has_no_clients_and_keeps_the_rest() {
    let place = Place::new();
    place.convert("trace.csv", &Cut::default(), Format::Terrace, "own");
    let (format, found) = place.read("own");
    assert_eq!(format, Format::Terrace);
    let (_, mut wanted) = place.read("trace.csv");
    wanted.iter_mut().for_each(|request| request.client = 0);
    assert!(found == wanted, "they differ");
}

/// A policy that looks at keys decides for the converted trace as for the other.
#[test]
fn objects_of_our_own_trace_have_the_keys_that_replays_show() {
    let place = Place::new();
    fs::write(place.path("one.csv"), "time,id,size,op\n1,255,10,write\n2,7,10,read\n").unwrap();
    place.convert("one.csv", &Cut::default(), Format::Terrace, "own");
    let mut reader = Reader::open(&place.path("own")).unwrap();
    let mut keys = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        let Item::Record(Record::Access(Access { event, .. })) = item else { continue };
        let subject = reader.subject(event.slot, event.incarnation).expect("it was named");
        keys.push((subject.object_id, subject.name.key().clone()));
    }
    keys.dedup();
    assert_eq!(keys, [255, 7].map(|id| (id, trace_key(id).unwrap())));
}

#[test]
fn oracle_general_keeps_objects_sizes_and_what_comes_next() {
    let place = Place::new();
    place.convert("trace.csv", &Cut::default(), Format::OracleGeneral, "oracle.bin");
    let (format, found) = place.read("oracle.bin");
    assert_eq!(format, Format::OracleGeneral);
    let (_, wanted) = place.read("trace.csv");
    let kept =
        |request: &Request| (request.object, request.size_bytes, request.time_ns / 1_000_000_000);
    assert!(found.iter().map(kept).eq(wanted.iter().map(kept)));
    let bytes = fs::read(place.path("oracle.bin")).unwrap();
    let nexts =
        bytes.chunks_exact(24).map(|record| i64::from_le_bytes(record[16..].try_into().unwrap()));
    for (index, next) in nexts.enumerate().step_by(997) {
        let later = wanted[index + 1..].iter().position(|one| one.object == wanted[index].object);
        assert_eq!(next, later.map_or(-1, |later| (index + later + 2) as i64));
    }
}

#[test]
fn a_window_of_time_is_cut_out() {
    let place = Place::new();
    let (_, all) = place.read("trace.csv");
    let start_ns = all[0].time_ns;
    let cut = Cut::default().window(10_000_000_000, 20_000_000_000);
    place.convert("trace.csv", &cut, Format::Csv, "window.csv");
    let within = |request: &&Request| {
        (10_000_000_000..20_000_000_000).contains(&(request.time_ns - start_ns))
    };
    let wanted: Vec<Request> = all.iter().filter(within).copied().collect();
    assert!(wanted.len() > 1000 && wanted.len() < all.len());
    assert!(place.read("window.csv").1 == wanted);
}

#[test]
fn a_sample_has_all_requests_of_its_objects() {
    let place = Place::new();
    let (_, all) = place.read("trace.csv");
    let sample = |part, seed| Cut::default().sample(part, seed).unwrap();
    place.convert("trace.csv", &sample(0.25, 1), Format::Csv, "sample.csv");
    let (_, found) = place.read("sample.csv");
    let objects: std::collections::HashSet<u64> = found.iter().map(|one| one.object).collect();
    let wanted: Vec<Request> =
        all.iter().filter(|one| objects.contains(&one.object)).copied().collect();
    assert!(found == wanted);
    let known: std::collections::HashSet<u64> = all.iter().map(|one| one.object).collect();
    let part = objects.len() as f64 / known.len() as f64;
    assert!((0.2..0.3).contains(&part), "{part}");
    for (index, (cut, count)) in
        [(sample(0.0, 1), 0), (sample(1.0, 1), all.len())].iter().enumerate()
    {
        let converted = place.convert("trace.csv", cut, Format::Csv, &format!("{index}.csv"));
        assert_eq!(converted.written, *count as u64);
    }
    assert_eq!(Cut::default().sample(1.5, 1).unwrap_err().kind(), ErrorKind::Invalid);
    let other = place.convert("trace.csv", &sample(0.25, 2), Format::Csv, "other.csv");
    assert_ne!(other.written, found.len() as u64, "another seed chooses others");
}

#[test]
fn nothing_is_overwritten() {
    let place = Place::new();
    fs::create_dir(place.path("there")).unwrap();
    for (format, name) in [(Format::Csv, "trace.csv"), (Format::Terrace, "there")] {
        let error = place.try_convert("trace.csv", &Cut::default(), format, name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    }
    assert_eq!(place.names(), ["there", "trace.csv"]);
}

#[test]
fn a_conversion_that_fails_or_is_ended_leaves_nothing() {
    let place = Place::new();
    let mut text = fs::read_to_string(place.path("trace.csv")).unwrap();
    text += "1,2,x,0,0,read,1\n";
    fs::write(place.path("damaged.csv"), text).unwrap();
    for (format, name) in
        [(Format::Csv, "to.csv"), (Format::Terrace, "to"), (Format::OracleGeneral, "to.bin")]
    {
        let error = place.try_convert("damaged.csv", &Cut::default(), format, name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let open = || Trace::open(&place.path("trace.csv"), &Options::default());
        let mut left = 20;
        let mut goes_on = |_: u64| {
            left -= 1;
            left > 0
        };
        let to = place.path(name);
        let ended =
            convert(open().unwrap(), &open, &Cut::default(), format, &to, &mut goes_on).unwrap();
        assert_eq!(ended, None);
        assert_eq!(place.names(), ["damaged.csv", "trace.csv"], "{format}");
    }
    place.convert("trace.csv", &Cut::default(), Format::Csv, "to.csv");
    assert_eq!(place.names(), ["damaged.csv", "to.csv", "trace.csv"]);
}

#[test]
fn what_a_format_cannot_hold_is_named() {
    let place = Place::new();
    fs::write(place.path("large.csv"), "id,size\n1,5\n2,4294967296\n").unwrap();
    let convert = |format, to| place.try_convert("large.csv", &Cut::default(), format, to);
    let error = convert(Format::OracleGeneral, "large.bin");
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("large.bin request=2"), "{error}");
    let error = convert(Format::Lcs, "l");
    assert!(error.unwrap_err().to_string().contains("only read"));
    assert_eq!(read(&place.path("large.csv")).1[0].operation, Operation::Unknown);
}
