// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever the network does: what clients see of an object could have happened one after the
//! other, what is acknowledged holds, and what must not happen twice does not.

use std::sync::Arc;
use std::time::Duration;

use terrace_backends::kv;
use terrace_backends::object::{File, FileSettings};
use terrace_client::{Options, Remote};
use terrace_core::{Atomicity, Backend, ObjectExt, Open, Persistency, Random, Semantics};
use terrace_server::{Limits, Server, Service};
use terrace_stack::{Parts, Stack, Tier};
use terrace_testkit::history::{Action, is_linearizable};
use terrace_testkit::once::{Counter, Log};
use terrace_testkit::registers::{Histories, Objects, Pairs, Puts, Registers, is_unknown};
use terrace_testkit::seeds;

use crate::common::{Plain, clock, options, secret};
use crate::net::{Faults, Net, Wire};

const THREADS: u64 = 3;
const STEPS: u64 = 40;
const NAMES: u64 = 2;

/// Whole values are asked for.
const WHOLE: Semantics = Semantics {
    atomicity: Atomicity::Operation,
    persistency: Persistency::None,
    ..Semantics::DEFAULT
};

/// Main memory has the catalog.
const VOLATILE: Semantics = Semantics::at_level(Persistency::None);

const FAULTS: Faults =
    Faults { delay: 0.05, drop: 0.004, cut: 0.02, duplicate: 0.04, refuse: 0.02, renumber: false };

/// Something to serve: a stack, whose operations are whole.
fn service(directory: &std::path::Path) -> Arc<dyn Service> {
    let settings = FileSettings { capacity_bytes: 1 << 30, read_only: false };
    let tier = Arc::new(File::open(directory, settings).expect("open"));
    let tiers = || vec![Tier::new("only", tier.clone()).with_capacity(1 << 30)];
    let catalog = Arc::new(kv::Memory::default());
    Stack::create(&Parts::new(tiers(), catalog.clone())).expect("create");
    let stack = Stack::open(Parts::new(tiers(), catalog)).expect("open");
    Arc::new(Plain { backend: Arc::new(stack), kv: Arc::new(kv::Memory::default()) })
}

fn server(service: &Arc<dyn Service>) -> Server {
    Server::new(Arc::clone(service), Some(secret()), Limits::default(), clock())
}

/// A client that tries until it is let in.
fn client(net: &Arc<Net>) -> Remote {
    let deadline = Duration::from_secs(4);
    let options = Options { deadline, connect_timeout: deadline / 2, ..options() };
    loop {
        let wire = Box::new(Wire(Arc::clone(net)));
        match Remote::connect(wire, options.clone(), net.clock.clone()) {
            Ok(client) => return client,
            Err(error) => _ = is_unknown(&error),
        }
    }
}

/// Runs one random history; returns how many changes nobody knows of.
fn run(seed: u64, faults: Faults) -> Result<usize, String> {
    let directory = tempfile::tempdir().expect("directory");
    let service = service(directory.path());
    let net = Net::new(server(&service), faults, seed);
    let (objects, pairs, puts) = (Histories::default(), Histories::default(), Histories::default());
    let (log, counter) = (Log::default(), Counter::default());
    let key = terrace_core::Key::new("simulated", "log").expect("legal");
    service.backend().open(&key, &Open::create_new().with_semantics(WHOLE)).expect("create");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (net, objects, pairs, puts) = (&net, &objects, &pairs, &puts);
            let (log, counter, key) = (&log, &counter, &key);
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(THREADS) + thread);
                let client = client(net);
                let appending = Open::write().with_semantics(WHOLE);
                let mut object = None;
                for step in 0..STEPS {
                    match random.below(10) {
                        8.. => puts.step(&Puts(&client, VOLATILE), NAMES, &mut random),
                        0..=2 => objects.step(&Objects(&client, WHOLE), NAMES, &mut random),
                        3..=4 => pairs.step(&Pairs(&client.kv("pairs")), NAMES, &mut random),
                        5 => _ = counter.increment(&client.kv("counter")),
                        _ => {
                            object = object.or_else(|| client.open(key, &appending).ok());
                            if let Some(object) = &object {
                                let _ = log.append(&**object, thread * STEPS + step);
                            }
                        }
                    }
                }
            });
        }
        let mut random = Random::new(!seed);
        if random.chance(0.5) {
            // Somewhere in the middle.
            let pause = Duration::from_millis(random.below(4_000));
            let start_ns = terrace_core::Clock::now_ns(&*net.clock);
            let is_over = |now_ns: u64| now_ns - start_ns > pause.as_nanos() as u64;
            for _ in 0..200_000 {
                if is_over(terrace_core::Clock::now_ns(&*net.clock)) {
                    break;
                }
                std::thread::yield_now();
            }
            net.restart(server(&service));
        }
    });
    net.heal();
    let last = client(&net);
    for name in 0..NAMES {
        for (histories, registers) in [
            (&objects, &Objects(&last, WHOLE) as &dyn Registers),
            (&pairs, &Pairs(&last.kv("pairs")) as &dyn Registers),
            (&puts, &Puts(&last, VOLATILE) as &dyn Registers),
        ] {
            histories.act(registers, name, Action::Read);
            let events = histories.of(name);
            if !is_linearizable(&events) {
                return Err(format!("no order explains what happened to {name}: {events:#?}"));
            }
        }
    }
    let object = last.open(&key, &Open::read().with_semantics(WHOLE)).expect("open");
    log.compare(&object.read_to_end().expect("read"))?;
    counter.compare(&last.kv("counter"))?;
    Ok(objects.count().1 + pairs.count().1 + puts.count().1)
}

#[test]
fn whatever_the_network_does_histories_are_linearizable() {
    let mut unknown = 0;
    let seeds = seeds(12);
    let is_one = seeds.end - seeds.start == 1;
    for seed in seeds {
        unknown += run(seed, FAULTS).unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"));
    }
    assert!(is_one || unknown > 0, "nothing went wrong that a client could not mend");
}

#[test]
fn on_a_good_network_everything_is_known() {
    for seed in seeds(2) {
        let faults = Faults { delay: 0.2, ..Faults::default() };
        // Only a server that ends leaves something unknown.
        run(seed, faults).unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"));
    }
}

#[test]
fn a_server_that_forgot_what_it_answered_would_be_found_out() {
    let faults = Faults { duplicate: 0.2, renumber: true, ..Faults::default() };
    let is_found = (0..20).any(|seed| run(seed, faults).is_err());
    assert!(is_found, "requests were carried out twice, and nobody noticed");
}
