// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that get no answer in time, and are asked for again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_client::{Effect, Options};
use terrace_core::{Backend, ErrorKind, Kv, Result};
use terrace_server::{Call, Called, Caller, Kept, Limits, Service};

use crate::common::{connect, options, serve, store};

/// Metadata that count what they carry out, the first time when a test lets them.
struct Counting {
    inner: Arc<dyn Service>,
    count: AtomicU64,
    gate: Mutex<Option<Receiver<()>>>,
}

impl Service for Counting {
    fn store_id(&self) -> u128 {
        self.inner.store_id()
    }

    fn openings(&self) -> terrace_wire::Openings {
        self.inner.openings()
    }

    fn backend(&self) -> &dyn Backend {
        self.inner.backend()
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.inner.kv(namespace)
    }

    fn files(&self, _: &str, _: &Kept, _: &[u8]) -> Result<Vec<u8>> {
        let gate = self.gate.lock().expect("nobody panicked").take();
        if let Some(gate) = gate {
            gate.recv().expect("the test lets it");
        }
        Ok(vec![self.count.fetch_add(1, Ordering::AcqRel) as u8 + 1])
    }

    fn ends(&self) {
        self.inner.ends();
    }

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        self.inner.call(call, caller)
    }
}

#[test]
fn a_change_that_got_no_answer_is_carried_out_once_however_often_it_is_asked_for() {
    let (open, gate) = channel();
    let (count, gate) = (AtomicU64::default(), Mutex::new(Some(gate)));
    let service = Arc::new(Counting { inner: store(), count, gate });
    let (_server, endpoint) = serve(service.clone(), Limits::default());
    let hasty = Options { deadline: Duration::from_millis(300), ..options() };
    let client = connect(&endpoint, hasty).expect("it serves");
    let life = client.life();
    let mut unanswered = None;
    let mut ask = || client.files_once("files", Effect::Hold, life, b"it", &mut unanswered);
    for _ in 0..2 {
        let error = ask().expect_err("it waits");
        assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error}");
    }
    open.send(()).expect("it waits");
    let answer = loop {
        // A busy machine may be late once more.
        if let Ok((answer, _)) = ask() {
            break answer;
        }
    };
    assert_eq!(answer, [1], "it is the answer to the first time");
    assert!(unanswered.is_none());
    assert_eq!(service.count.load(Ordering::Acquire), 1);
}
