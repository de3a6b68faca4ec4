// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The behaviour of every backend, over a pool.

use std::sync::Arc;
use std::time::Duration;

use terrace_backends::object::{Rados, Rates, Throttle};
use terrace_testkit::{ManualClock, behaviour_suite};

fn suite() -> (Arc<Rados>, ()) {
    (Arc::new(super::open(&super::settings())), ())
}

fn throttled_suite() -> (Arc<Throttle>, ()) {
    let rates = Rates {
        latency: Duration::from_millis(5),
        read_bytes_per_s: Some(1e9),
        write_bytes_per_s: Some(1e8),
        parallelism: 3,
    };
    let (backend, ()) = suite();
    (Arc::new(Throttle::new(backend, rates, Arc::new(ManualClock::new()))), ())
}

behaviour_suite!(rados, suite());
behaviour_suite!(throttled_rados, throttled_suite());
