// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Homes that lose their power, and with it the pairs that were not durable.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use terrace_backends::object::{Effect, FaultPoint, When};
use terrace_core::{Backend, Create, Kv, KvRange, Pair, Result, Ticket};
use terrace_testkit::{KvLayer, Layered};

use super::cluster::{EVEN, bytes, how, key, put, read_all, servers, striped};

/// More than an object has.
const PAIRS_MAX: usize = 100;

/// Pairs that are durable when somebody has waited for them.
struct Volatile {
    inner: Arc<dyn Kv>,
    durable: Mutex<Vec<Pair>>,
}

impl Volatile {
    fn lose_power(&self) {
        let durable = self.durable.lock().expect("nobody panicked").clone();
        let lose = self.inner.transact(&mut |txn| {
            for (key, _) in txn.scan(&KvRange::all(), PAIRS_MAX)? {
                txn.delete(&key)?;
            }
            durable.iter().try_for_each(|(key, value)| txn.put(key, value))
        });
        lose.expect("it is main memory");
    }
}

impl KvLayer for Volatile {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.inner.wait(ticket)?;
        let pairs = self.inner.scan(&KvRange::all(), PAIRS_MAX)?;
        *self.durable.lock().expect("nobody panicked") = pairs;
        Ok(())
    }
}

#[test]
fn an_append_that_is_on_its_way_keeps_its_place_when_the_home_loses_power() {
    let mut servers = servers(3);
    let mut homes = Vec::new();
    for server in &mut servers {
        let (inner, durable) = (Arc::clone(&server.kv), Mutex::default());
        let home = Arc::new(Layered(Volatile { inner, durable }));
        server.kv = Arc::clone(&home) as _;
        homes.push(home);
    }
    let (one, other) = (striped(&servers, EVEN), striped(&servers, EVEN));
    put(&one, "a", &bytes(1, 30));
    for server in &servers {
        server.faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Hang);
    }
    let append = |store: &dyn Backend, data: &[u8]| {
        let object = store.open(&key("a"), &how(Create::Never)).expect("opens");
        object.append(&[IoSlice::new(data)]).expect("appends")
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| append(&one, &[7; 12]));
        servers.iter().for_each(|server| server.faults.wait_hanging(1));
        homes.iter().for_each(|home| home.lose_power());
        let second = append(&other, &[8; 12]);
        servers.iter().for_each(|server| server.faults.release());
        assert_eq!((first.join().expect("no panic"), second), (30, 42));
    });
    let expected = [bytes(1, 30), vec![7; 12], vec![8; 12]].concat();
    assert_eq!(read_all(&one, &key("a")).expect("reads"), expected);
}
