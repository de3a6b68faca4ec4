// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers that are kept until they are acknowledged, and that are long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use terrace_client::Effect;
use terrace_core::{Applied, ErrorKind};
use terrace_server::Limits;
use terrace_wire::{Operation, Outcome};

use crate::common::peer::Peer;
use crate::common::{Held, clock, connect, options, serve, store};

/// As long as a small file that comes with its open.
const LONG: [u8; 4096] = [7; 4096];

#[test]
fn long_answers_that_nobody_acknowledges_are_not_kept_as_wholes() {
    // A KiB for each, as by default.
    let limits = Limits { replies_max: 100, replies_bytes_max: 100 << 10, ..Limits::default() };
    let (_server, endpoint) = serve(store(), limits);
    let mut peer = Peer::greeted(&endpoint);
    let data_bytes = LONG.len() as u32;
    let open = [Operation::Files { namespace: "files".into(), effect: Effect::Hold, data_bytes }];
    for id in 1..=100 {
        peer.ask_as(id, 0, &open, &LONG);
        let (outcomes, _) = peer.outcomes(id).expect("it is carried out");
        assert!(matches!(outcomes[..], [Outcome::Read(_)]), "{outcomes:?}");
    }
    peer.ask_as(1, 0, &open, &LONG);
    let (_, again) = peer.outcomes(1).expect("kept");
    assert_eq!(again, [&LONG[..], &1_u64.to_le_bytes()].concat(), "it was carried out once");
    peer.ask_as(100, 0, &open, &LONG);
    let error = peer.outcomes(100).expect_err("there was no room for it");
    let unknown = ErrorKind::Unreachable { applied: Applied::Unknown };
    assert_eq!(error.kind(), unknown, "{error}");
    peer.ask_as(101, 0, &open, &LONG);
    assert_eq!(peer.outcomes(101).expect_err("one too many").kind(), ErrorKind::Busy);
}

/// A long write goes over a connection of its own, and may be slow.
#[test]
fn one_slow_change_lets_the_server_refuse_no_other() {
    /// So long nothing is answered where the client waits, on any machine that is not too busy: on one
    /// that is, the test shows less.
    const STILL: Duration = Duration::from_millis(500);
    let held = Arc::new(Held::new(store()));
    let (_server, endpoint) = serve(Arc::clone(&held) as _, Limits::default());
    let client = connect(&endpoint, options()).expect("connect");
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| client.files("hold", Effect::Change, None, &[1; 100_000]));
        held.wait_until_held();
        let opens = scope.spawn(|| {
            (0..1200).try_for_each(|_| {
                let opened = client.files("files", Effect::Hold, None, &LONG);
                answered.fetch_add(1, Ordering::AcqRel);
                opened.map(drop)
            })
        });
        let clock = clock();
        let mut last = (0, clock.now_ns());
        while !opens.is_finished() && clock.now_ns() - last.1 < STILL.as_nanos() as u64 {
            let count = answered.load(Ordering::Acquire);
            if count != last.0 {
                last = (count, clock.now_ns());
            }
            std::thread::yield_now();
        }
        held.release();
        opens.join().expect("no panic").expect("they wait for it at most");
        slow.join().expect("no panic").expect("it ends, too");
    });
}
