// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many changes while one takes long: the server keeps a bounded number of answers, and nobody fails.

mod common;

use std::sync::{Arc, Condvar, Mutex};

use terrace_backends::{kv, object};
use terrace_core::{Kv, KvExt as _, KvRange, Result, Ticket};
use terrace_server::Limits;
use terrace_testkit::{Body, KvLayer, Layered};

use common::{Plain, connect, options, serve};

/// Pairs of which one commit waits until it is let go.
struct Held {
    inner: kv::Memory,
    is_free: Mutex<bool>,
    freed: Condvar,
}

impl KvLayer for Held {
    fn inner(&self) -> &dyn Kv {
        &self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let mut is_slow = false;
        let ticket = self.inner.transact(&mut |txn| {
            let was_there = txn.get(b"slow")?.is_some();
            body(txn)?;
            is_slow = !was_there && txn.get(b"slow")?.is_some();
            Ok(())
        })?;
        if is_slow {
            let free = self.is_free.lock().expect("no panic");
            drop(self.freed.wait_while(free, |is_free| !*is_free).expect("no panic"));
        }
        Ok(ticket)
    }
}

#[test]
fn a_slow_change_does_not_make_others_fail() {
    let kv = Arc::new(Layered(Held {
        inner: kv::Memory::default(),
        is_free: Mutex::new(false),
        freed: Condvar::new(),
    }));
    let backend = Arc::new(object::Memory::new(1 << 20));
    let limits = Limits { replies_max: 4096, ..Limits::default() };
    let (_server, endpoint) = serve(Arc::new(Plain { backend, kv: Arc::clone(&kv) as _ }), limits);
    let remote = connect(&endpoint, options()).expect("connect");
    let others = connect(&endpoint, options()).expect("connect").kv("n");
    // More than fit the shared connection, so that it has one for itself.
    let value = vec![0; 100_000];
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| remote.kv("n").put(b"slow", &value).map(drop));
        let changes = scope.spawn(|| -> Result<u32> {
            for index in 0..10_000_u32 {
                remote.kv("n").put(&[b"k", &index.to_be_bytes()[..]].concat(), b"")?;
            }
            Ok(others.scan(&KvRange::prefix(b"k"), usize::MAX)?.len() as u32)
        });
        // The window fills, or everything was done before the slow one came; both are well.
        while !changes.is_finished()
            && others.scan(&KvRange::all(), usize::MAX).expect("scan").len() < 1000
        {
            std::thread::yield_now();
        }
        *kv.is_free.lock().expect("no panic") = true;
        kv.freed.notify_all();
        slow.join().expect("no panic").expect("it is done in the end");
        assert_eq!(changes.join().expect("no panic").expect("none fails"), 10_000);
    });
}
