// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays a trace on a store: asks what its clients asked, and thinks as long as they did.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use terrace_core::Request::{Read, Write};
use terrace_core::{
    Backend, Buffer, Clock, Error, ErrorKind, Op, Open, Persistency, Random, Request as Asked,
    Result, Semantics, SystemClock,
};
use terrace_replay::{Operation, Population, Request, trace_key};
use terrace_store::{Store, TierReport};

use super::report::Outcome;

/// Puts there what the trace reads before it writes it, on the last tier that takes anything.
pub(super) fn populate(store: &Store, population: &Population, level: Persistency) -> Result<()> {
    let mut noise = Buffer::zeroed(0);
    for (id, bytes) in population.present() {
        noise.resize(noise.len().max(bytes as usize));
        Random::new(id).fill(&mut noise[..bytes as usize]);
        let object = store.open(&trace_key(id)?, &with_level(Open::create_new(), level))?;
        object.write_at(0, &[IoSlice::new(&noise[..bytes as usize])])?;
    }
    Ok(())
}

/// Plays the requests of every client, each in a thread.
pub(super) fn play(store: &Store, lanes: &[Vec<Request>], level: Persistency) -> Result<Outcome> {
    let first_ns = lanes.iter().flatten().map(|request| request.time_ns).min().unwrap_or(0);
    let before = store.admin().tiers()?;
    let (ready, clock) = (Barrier::new(lanes.len()), SystemClock::default());
    let answers = thread::scope(|scope| {
        let begin = |lane: &'_ Vec<Request>| {
            let client = Client::new(store, lane, level);
            let (ready, clock) = (&ready, &clock);
            let lane = lane.clone();
            scope.spawn(move || {
                ready.wait();
                client.go(&lane, first_ns, clock)
            })
        };
        let running: Vec<_> = lanes.iter().map(begin).collect();
        let join = |one: thread::ScopedJoinHandle<'_, Result<Times>>| {
            one.join().expect("playing does not panic")
        };
        running.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let after = store.admin().tiers()?;
    let began_ns = answers.iter().map(|times| times.began_ns).min().unwrap_or(0);
    let ended_ns = answers.iter().map(|times| times.ended_ns).max().unwrap_or(0);
    let [reads, writes] = [0, 1].map(|which| {
        let waited = answers.iter().map(|times| times.waited[which]);
        waited.fold((0, 0), |sum, (count, ns)| (sum.0 + count, sum.1 + ns))
    });
    let mean_s = |(count, ns): (u64, u64)| ns as f64 * 1e-9 / count.max(1) as f64;
    let ledger = |of: fn(&TierReport) -> u64| -> Vec<u64> {
        after.iter().zip(&before).map(|(after, before)| of(after) - of(before)).collect()
    };
    Ok(Outcome {
        makespan_s: (ended_ns - began_ns) as f64 * 1e-9,
        latency_s: mean_s((reads.0 + writes.0, reads.1 + writes.1)),
        read_s: mean_s(reads),
        write_s: mean_s(writes),
        served_bytes: ledger(|tier| tier.ledger.read_bytes + tier.ledger.written_bytes),
        migrated_bytes: ledger(|tier| tier.ledger.moved_in_bytes).iter().sum(),
    })
}

/// When a client began and ended, and how many answers it waited for, and how long.
struct Times {
    began_ns: u64,
    ended_ns: u64,
    /// Reads, and writes.
    waited: [(u64, u64); 2],
}

/// One client.
struct Client<'a> {
    store: &'a Store,
    level: Persistency,
    buffer: Buffer,
}

impl<'a> Client<'a> {
    fn new(store: &'a Store, lane: &[Request], level: Persistency) -> Self {
        let longest = lane.iter().map(|request| request.length_bytes).max().unwrap_or(0);
        let mut buffer = Buffer::zeroed(longest as usize);
        Random::new(longest).fill(&mut buffer);
        Self { store, level, buffer }
    }

    fn go(mut self, lane: &[Request], first_ns: u64, clock: &SystemClock) -> Result<Times> {
        // Else a sleep is 50 us longer. Where the slack cannot be set, thinking takes as much longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let began_ns = clock.now_ns();
        // It begins with the trace.
        let (mut answered_ns, mut ended_then_ns) = (began_ns, first_ns);
        let mut waited = [(0, 0); 2];
        for request in lane {
            let think_ns = request.time_ns.saturating_sub(ended_then_ns);
            let asked_ns = wait_until(answered_ns + think_ns, clock);
            ended_then_ns = request.time_ns + request.latency_ns;
            self.ask(request)?;
            answered_ns = clock.now_ns();
            let (count, ns) = &mut waited[usize::from(request.operation == Operation::Write)];
            (*count, *ns) = (*count + 1, *ns + answered_ns - asked_ns);
        }
        Ok(Times { began_ns, ended_ns: answered_ns, waited })
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        let key = trace_key(request.object)?;
        let (offset_bytes, bytes) = (request.offset_bytes, request.length_bytes as usize);
        let part = &mut self.buffer[..bytes];
        let semantics = Semantics::at_level(self.level);
        if request.operation != Operation::Write {
            let read = Read { key: &key, offset_bytes, buffer: part };
            return match execute(self.store, read, &semantics) {
                // Another client is to make it, and is later than it was.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                result => result,
            };
        }
        let write = Write { key: &key, offset_bytes, data: part };
        match execute(self.store, write, &semantics) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let object = self.store.open(&key, &with_level(Open::create(), self.level))?;
                object.write_at(offset_bytes, &[IoSlice::new(part)])
            }
            result => result,
        }
    }
}

/// One operation by name, as a trace has it.
fn execute(store: &Store, request: Asked<'_>, semantics: &Semantics) -> Result<()> {
    let mut operations = [Op::new(request)];
    store.execute(&mut operations, semantics);
    let [operation] = operations;
    let nothing = || Error::new(ErrorKind::Io, "play the trace").because("the store did nothing");
    operation.outcome.unwrap_or_else(|| Err(nothing())).map(drop)
}

fn with_level(how: Open, level: Persistency) -> Open {
    how.with_semantics(Semantics::at_level(level))
}

/// Sleeps, and looks at the clock for the rest: what wakes a thread takes as long as a request.
fn wait_until(at_ns: u64, clock: &SystemClock) -> u64 {
    const LATE_NS: u64 = 100_000;
    let left_ns = at_ns.saturating_sub(clock.now_ns());
    if left_ns > LATE_NS {
        clock.sleep(Duration::from_nanos(left_ns - LATE_NS));
    }
    loop {
        let now_ns = clock.now_ns();
        if now_ns >= at_ns {
            return now_ns;
        }
        std::hint::spin_loop();
    }
}
