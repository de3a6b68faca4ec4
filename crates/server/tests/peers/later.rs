// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes that nobody waits for: their end is told, once, whatever the server does.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_backends::{kv, object};
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_core::{
    Applied, Backend, Begun, Clock, Error, ErrorKind, Key, Kv, Object, ObjectExt, Open,
    Persistency, Result, Semantics,
};
use terrace_server::Limits;
use terrace_transport::{Endpoint, Listener};
use terrace_wire::{Failure, Header, Kind, Outcome};

use super::lives::{connect_hastily, free_endpoint, is_unreachable, start, welcome};
use crate::common::peer::Peer;
use crate::common::{Hasty, Plain, connect, options, serve, store};

/// Longer than a message that is on its way together with others.
const LONG_BYTES: usize = 1 << 20;

fn key(name: &str) -> Key {
    Key::new("later", name).expect("legal")
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at ^ (at >> 8)) as u8).collect()
}

/// What was told of a read: its offset, and what it came to.
type Told = (u64, Option<Result<Vec<u8>>>);

/// Begins reads and collects what is told of them.
struct Reads {
    sender: Sender<Told>,
    told: Receiver<Told>,
}

impl Reads {
    fn new() -> Self {
        let (sender, told) = channel();
        Self { sender, told }
    }

    fn begin(&self, object: &dyn Object, offset: u64, bytes: usize) -> Option<Begun> {
        object.later()?.read_later(offset, bytes, &mut || {
            let sender = self.sender.clone();
            Box::new(move |read: Option<Result<&[u8]>>| {
                let read = read.map(|read| read.map(<[u8]>::to_vec));
                sender.send((offset, read)).expect("the test waits for it");
            })
        })
    }

    /// Begins one where nobody reads, so that this thread is to.
    fn begin_first(&self, object: &dyn Object, offset: u64, bytes: usize) -> Box<dyn FnOnce()> {
        match self.begin(object, offset, bytes) {
            Some(Begun::Answering(answer)) => answer,
            Some(Begun::Sent) => panic!("nobody else reads"),
            None => panic!("nothing is in its way"),
        }
    }

    /// Everything that was told until now.
    fn told(&self) -> Vec<Told> {
        self.told.try_iter().collect()
    }
}

#[test]
fn one_thread_tells_of_all_reads_and_wakes_who_waits() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("many"), &Open::create_new()).expect("open");
    let bytes = content(40_000);
    object.write(0, &bytes).expect("write");
    for round in 0..20 {
        let reads = Reads::new();
        let answer = reads.begin_first(&*object, 0, 4096);
        for at in 1..10 {
            let begun = reads.begin(&*object, at * 4096, 4096);
            assert!(matches!(begun, Some(Begun::Sent)), "round {round}, read {at}");
        }
        std::thread::scope(|scope| {
            // Others, that do wait, and for whom nobody reads until the answers are given.
            let others: Vec<_> = (0..3).map(|_| scope.spawn(|| object.stat())).collect();
            answer();
            for other in others {
                let stat = other.join().expect("no panic").expect("stat");
                assert_eq!(stat.size_bytes, bytes.len() as u64);
            }
        });
        let mut told = reads.told();
        told.sort_by_key(|(offset, _)| *offset);
        let offsets: Vec<u64> = told.iter().map(|(offset, _)| *offset / 4096).collect();
        assert_eq!(offsets, (0..10).collect::<Vec<_>>(), "each once");
        for (offset, read) in told {
            let (start, end) = (offset as usize, bytes.len().min(offset as usize + 4096));
            assert!(read.expect("told").expect("read") == bytes[start..end], "at {offset}");
        }
    }
    let reads = Reads::new();
    reads.begin_first(&*object, 50_000, 4096)();
    let [(50_000, Some(Ok(read)))] = &reads.told()[..] else { panic!("behind the end") };
    assert!(read.is_empty());
}

#[test]
fn who_waits_is_not_kept_waiting_by_a_thread_that_does_not_read_yet() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("early"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    let reads = Reads::new();
    let answer = reads.begin_first(&*object, 0, 5);
    // Whoever began it is still sending, as far as anybody knows: whoever waits reads for both.
    assert_eq!(object.stat().expect("stat").size_bytes, 5);
    let (0, Some(Ok(read))) = reads.told.recv().expect("told") else { panic!("it can be read") };
    assert_eq!(read, b"bytes");
    assert!(matches!(reads.begin(&*object, 1, 4), Some(Begun::Sent)), "it is to be answered");
    answer();
    let [(1, Some(Ok(read)))] = &reads.told()[..] else { panic!("it can be read") };
    assert_eq!(read, b"ytes");
}

/// One thread waits for an answer, and reads meanwhile; another one is to answer reads.
#[test]
fn what_somebody_else_reads_is_told_of_as_well() {
    let (object, mut peer) = opened(Duration::from_secs(1 << 30), &Arc::new(Hasty::default()));
    for round in 0..50 {
        let reads = Reads::new();
        let answer = reads.begin_first(&*object, 0, 5);
        let read = peer.hear().expect("to read").header.id;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| object.stat().expect_err("what comes is no stat"));
            let stat = peer.hear().expect("to stat").header.id;
            let peer = &peer;
            scope.spawn(move || {
                let head = terrace_wire::write_outcomes(&[Outcome::Read(5)]);
                let failure = Failure::of(&Error::new(ErrorKind::NotFound, "stat")).to_head();
                match round % 2 {
                    0 => peer.say(Kind::Answer, read, &head, b"bytes"),
                    _ => peer.say(Kind::Failed, stat, &failure, b""),
                }
                std::thread::yield_now();
                match round % 2 {
                    0 => peer.say(Kind::Failed, stat, &failure, b""),
                    _ => peer.say(Kind::Answer, read, &head, b"bytes"),
                }
            });
            answer();
            // Whoever read it may be about to tell of it.
            let (0, Some(Ok(read))) = reads.told.recv().expect("told") else {
                panic!("it can be read")
            };
            assert_eq!(read, b"bytes");
            assert_eq!(waiting.join().expect("no panic").kind(), ErrorKind::NotFound);
        });
    }
}

#[test]
fn what_cannot_be_begun_is_not_told_of() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("bounds"), &Open::create_new()).expect("open");
    object.write(0, &content(LONG_BYTES)).expect("write");
    let reads = Reads::new();
    assert!(reads.begin(&*object, 0, LONG_BYTES).is_none(), "others would wait behind it");
    let answer = reads.begin_first(&*object, 0, 16);
    let begun = 1 + (0..1000).take_while(|_| reads.begin(&*object, 0, 16).is_some()).count();
    assert!(begun < 1000, "no bound");
    answer();
    let told = reads.told();
    assert_eq!(told.len(), begun);
    assert!(told.iter().all(|(_, read)| matches!(read, Some(Ok(read)) if *read == content(16))));
    assert_eq!(object.read_to_end().expect("it is as good as before"), content(LONG_BYTES));
}

#[test]
fn a_server_that_was_started_anew_is_asked_by_who_waits() {
    let (kept, endpoint) = (store(), free_endpoint());
    let server = start(&kept, &endpoint);
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("anew"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    drop(server);
    let _server = start(&kept, &endpoint);
    let reads = Reads::new();
    if let Some(Begun::Answering(answer)) = reads.begin(&*object, 0, 5) {
        answer();
    }
    let told = reads.told();
    assert!(told.iter().all(|(_, read)| read.is_none()), "{told:?}");
    assert_eq!(object.read_to_end().expect("read"), b"bytes");
    reads.begin_first(&*object, 0, 5)();
    let [(0, Some(Ok(read)))] = &reads.told()[..] else { panic!("it is open again") };
    assert_eq!(read, b"bytes");
}

#[test]
fn what_was_deleted_is_not_taken_for_empty() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("gone"), &Open::create_new()).expect("open");
    object.write(0, b"bytes").expect("write");
    client.delete(&key("gone")).expect("delete");
    let reads = Reads::new();
    reads.begin_first(&*object, 0, 5)();
    let now = object.read_to_end();
    match &reads.told()[..] {
        [(0, Some(Ok(read)))] => assert_eq!(*read, now.expect("as it is read otherwise")),
        [(0, None)] => drop(now.expect_err("as it is read otherwise")),
        told => panic!("{told:?}"),
    }
}

fn listen() -> Listener {
    Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen")
}

/// A client with an open object, and its server, which a test plays.
fn opened(deadline: Duration, clock: &Arc<Hasty>) -> (Box<dyn Object>, Peer) {
    opened_at(&listen(), deadline, clock)
}

/// The same for a server that connections can be made to again.
fn opened_at(
    listener: &Listener,
    deadline: Duration,
    clock: &Arc<Hasty>,
) -> (Box<dyn Object>, Peer) {
    let endpoint: Endpoint = listener.endpoint().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = connect_hastily(&endpoint, clock, deadline).expect("connect");
            client.open(&key("object"), &Open::create()).expect("open")
        });
        let mut peer = welcome(listener, 1);
        let asked = peer.hear().expect("to open");
        let opened = terrace_wire::Opened { handle: 1, ..Default::default() };
        let head = terrace_wire::write_outcomes(&[Outcome::Opened(opened)]);
        peer.say(Kind::Answer, asked.header.id, &head, b"");
        (client.join().expect("no panic"), peer)
    })
}

/// What was told of a write: its offset, and what it came to.
type Written = (u64, Option<Result<()>>);

fn begin_write(
    object: &dyn Object,
    offset: u64,
    data: &[u8],
    told: &Sender<Written>,
) -> Option<Begun> {
    object.later()?.write_later(offset, &Arc::from(data), &mut || {
        let told = told.clone();
        Box::new(move |written| told.send((offset, written)).expect("the test waits for it"))
    })
}

/// Begins one where nobody reads, so that this thread is to.
fn begin_first_write(
    object: &dyn Object,
    data: &[u8],
    told: &Sender<Written>,
) -> Box<dyn FnOnce() + Send> {
    match begin_write(object, 0, data, told) {
        Some(Begun::Answering(answer)) => answer,
        Some(Begun::Sent) => panic!("nobody else reads"),
        None => panic!("nothing is in its way"),
    }
}

#[test]
fn writes_are_done_when_they_are_told_of() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("written"), &Open::create_new()).expect("open");
    let (bytes, (sender, told)) = (content(64 << 10), channel());
    let answer = begin_first_write(&*object, &bytes[..4096], &sender);
    let mut begun = 1;
    for at in (4096..bytes.len()).step_by(4096) {
        match begin_write(&*object, at as u64, &bytes[at..][..4096], &sender) {
            Some(_) => begun += 1,
            None => object.write(at as u64, &bytes[at..][..4096]).expect("by who waits"),
        }
    }
    answer();
    for _ in 0..begun {
        let (at, written) = told.recv().expect("told");
        assert!(matches!(written, Some(Ok(()))), "{at}: {written:?}");
    }
    assert!(begun > 1 && object.read_to_end().expect("read") == bytes);
    object.sync().expect("what is to be synced is known");
}

#[test]
fn a_write_whose_connection_breaks_is_asked_for_again_by_its_number() {
    let (listener, (sender, told)) = (listen(), channel());
    let (object, mut peer) =
        opened_at(&listener, Duration::from_secs(1 << 30), &Arc::new(Hasty::default()));
    let answer = begin_first_write(&*object, b"bytes", &sender);
    let unheard = peer.hear().expect("to write");
    drop(peer);
    answer();
    let mut again = welcome(&listener, 1);
    let asked = again.hear().expect("to write");
    assert_eq!((asked.header.id, &asked.head), (unheard.header.id, &unheard.head));
    assert_eq!((&asked.payload[..], &unheard.payload[..]), (&b"bytes"[..], &b"bytes"[..]));
    again.say(Kind::Answer, asked.header.id, &terrace_wire::write_outcomes(&[Outcome::Done]), b"");
    let (0, Some(Ok(()))) = told.recv().expect("told") else { panic!("it is written") };
    assert!(told.try_recv().is_err(), "once");
}

#[test]
fn a_write_of_a_life_that_is_over_is_left_to_who_waits() {
    let (listener, (sender, told)) = (listen(), channel());
    let (object, mut peer) =
        opened_at(&listener, Duration::from_secs(1 << 30), &Arc::new(Hasty::default()));
    let answer = begin_first_write(&*object, b"bytes", &sender);
    peer.hear().expect("to write");
    drop(peer);
    answer();
    let _next = welcome(&listener, 2);
    let (0, None) = told.recv().expect("told") else { panic!("nobody wrote it") };
}

#[test]
fn where_the_connection_breaks_each_read_is_left_to_who_waits() {
    let (object, mut peer) = opened(Duration::from_secs(1 << 30), &Arc::new(Hasty::default()));
    let reads = Reads::new();
    let answer = reads.begin_first(&*object, 0, 5);
    assert!(reads.begin(&*object, 5, 5).is_some());
    let first = peer.hear().expect("to read").header.id;
    peer.hear().expect("to read");
    let head = terrace_wire::write_outcomes(&[Outcome::Read(5)]);
    peer.say(Kind::Answer, first, &head, b"bytes");
    drop(peer);
    answer();
    let mut told = reads.told();
    told.sort_by_key(|(offset, _)| *offset);
    let [(0, Some(Ok(read))), (5, None)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(read, b"bytes");
}

#[test]
fn an_answer_with_other_bytes_than_it_says_is_none() {
    for (said, bytes) in [(5, &b"byte"[..]), (4, b"bytes"), (9, b"too many.")] {
        let (object, mut peer) = opened(Duration::from_secs(1 << 30), &Arc::new(Hasty::default()));
        let reads = Reads::new();
        let answer = reads.begin_first(&*object, 0, 5);
        let id = peer.hear().expect("to read").header.id;
        peer.say(Kind::Answer, id, &terrace_wire::write_outcomes(&[Outcome::Read(said)]), bytes);
        answer();
        assert!(matches!(reads.told()[..], [(0, None)]), "{said}");
    }
}

#[test]
fn nobody_hears_of_a_silent_server_later_than_the_deadline() {
    let (clock, deadline) = (Arc::new(Hasty::default()), Duration::from_secs(20));
    let (object, _peer) = opened(deadline, &clock);
    let reads = Reads::new();
    let start_ns = clock.now_ns();
    let answer = reads.begin_first(&*object, 0, 5);
    assert!(reads.begin(&*object, 5, 5).is_some());
    answer();
    let took = Duration::from_nanos(clock.now_ns() - start_ns);
    // Each of them has a deadline of its own.
    assert!(took < deadline.mul_f64(2.0), "{took:?}");
    let is_late = |error: &Error| is_unreachable(error, Applied::Unknown);
    let told = reads.told();
    assert_eq!(told.len(), 2, "each once");
    for (offset, read) in told {
        let Some(Err(error)) = read else { panic!("{offset} was read") };
        assert!(is_late(&error), "{}", error.chain());
    }
}

#[test]
fn an_answer_that_stops_in_its_midst_is_late_and_no_reason_to_ask_again() {
    let (clock, deadline) = (Arc::new(Hasty::default()), Duration::from_secs(20));
    let (object, mut peer) = opened(deadline, &clock);
    let reads = Reads::new();
    let answer = reads.begin_first(&*object, 0, 5);
    let id = peer.hear().expect("to read").header.id;
    let head = terrace_wire::write_outcomes(&[Outcome::Read(5)]);
    let mut frame = Vec::new();
    Header::new(Kind::Answer, id, &head, b"bytes").write(&head, &mut frame);
    peer.say_bytes(&[&frame[..], b"byte"].concat());
    answer();
    let [(0, Some(Err(error)))] = &reads.told()[..] else { panic!("whoever asks waits again") };
    assert!(is_unreachable(error, Applied::Unknown), "{}", error.chain());
}

/// Reads of one object by several threads that do and do not wait, over and over.
#[test]
fn threads_that_wait_and_that_do_not_share_a_connection() {
    let (_server, endpoint) = serve(store(), Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let object = client.open(&key("shared"), &Open::create_new()).expect("open");
    let bytes = content(64 << 10);
    object.write(0, &bytes).expect("write");
    let (object, bytes) = (&*object, &bytes);
    let told = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let told = &told;
            scope.spawn(move || {
                let reads = Reads::new();
                let mut begun = 0;
                for at in 0..400 {
                    let offset = (thread * 7919 + at * 4099) % 60_000;
                    let range = offset as usize..offset as usize + 1000;
                    match reads.begin(object, offset, 1000) {
                        Some(Begun::Sent) => begun += 1,
                        Some(Begun::Answering(answer)) => {
                            answer();
                            begun += 1;
                        }
                        None => {
                            let mut read = vec![0; 1000];
                            object.read_exact(offset, &mut read).expect("read");
                            assert!(read == bytes[range], "at {offset}");
                        }
                    }
                }
                for _ in 0..begun {
                    let (offset, read) = reads.told.recv().expect("every one is told of");
                    let range = offset as usize..offset as usize + 1000;
                    let read = read.expect("nothing broke").expect("read");
                    assert!(read == bytes[range], "at {offset}");
                }
                assert!(reads.told().is_empty(), "each once");
                *told.lock().expect("no panic") += begun;
            });
        }
    });
    assert!(*told.lock().expect("no panic") > 0);
}

#[test]
fn of_a_striped_object_what_one_piece_has_is_read_later() {
    let parts: Vec<_> = (1..=2)
        .map(|id| {
            let backend = Arc::new(object::Memory::new(1 << 30));
            let kv = Arc::new(kv::Memory::default());
            let (server, endpoint) = serve(Arc::new(Plain { backend, kv }), Limits::default());
            let remote = Arc::new(connect(&endpoint, options()).expect("connect"));
            let kv: Arc<dyn Kv> = Arc::new(remote.kv("striped"));
            let name = format!("server-{id}");
            (Member { id, name, backend: remote, kv: Some(kv), weight: 1, since: 0 }, server)
        })
        .collect();
    let (members, _servers): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let map = Map::new(0, members).expect("legal");
    let distribution = Distribution::RoundRobin { stripe_bytes: 4096 };
    let store = Striped::new(map, distribution, 1).expect("legal");
    let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
    let how = Open::create_new().with_semantics(semantics);
    let object = store.open(&key("striped"), &how).expect("open");
    let bytes = content(4 * 4096);
    object.write(0, &bytes).expect("write");
    // One piece ends before the object does.
    object.write(5 * 4096 + 100, b"end").expect("write");
    for stripe in 0..4_u64 {
        let reads = Reads::new();
        reads.begin_first(&*object, stripe * 4096 + 96, 4000)();
        let told = reads.told();
        let [(offset, Some(Ok(read)))] = &told[..] else { panic!("{told:?}") };
        let start = *offset as usize;
        assert!(*read == bytes[start..start + 4000], "stripe {stripe}");
    }
    let reads = Reads::new();
    assert!(reads.begin(&*object, 4000, 200).is_none(), "on two servers");
    reads.begin_first(&*object, 4 * 4096, 4096)();
    assert!(matches!(reads.told()[..], [(_, None)]), "whether these are zeros is not known yet");
    let mut zeros = vec![1; 4096];
    object.read_exact(4 * 4096, &mut zeros).expect("read");
    assert_eq!(zeros, [0; 4096]);
}
