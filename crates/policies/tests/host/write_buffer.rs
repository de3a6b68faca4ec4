// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `examples/policies/write-buffer-rust`, driven through the host.

use terrace_core::{ErrorKind, EventKind, View};
use terrace_policies::host;

use crate::build;
use crate::world::{World, tier};

#[test]
fn the_rust_write_buffer_demotes_after_the_last_write() {
    let mut world = World::new(build::write_buffer(), &[("timeout_s", "10")]);
    let (a, b) = (world.create("t/a", 10), world.create("t/b", 10));
    world.wait_s(8);
    world.write(a);
    world.wait_s(3);
    assert_eq!(world.round(), ["b move 1: not written for the timeout"]);
    world.wait_s(7);
    assert_eq!(world.round(), ["a move 1: not written for the timeout"]);
    assert_eq!((world.tier_of(a), world.tier_of(b)), (1, 1));
    assert_eq!(world.round(), [""; 0]);
}

#[test]
fn the_rust_write_buffer_waits_for_close() {
    let mut world = World::new(build::write_buffer(), &[("timeout_s", "1")]);
    let slot = world.create("t/a", 10);
    world.happen(EventKind::Open, slot);
    world.wait_s(10);
    assert_eq!(world.round(), [""; 0]);
    world.happen(EventKind::Close, slot);
    assert_eq!(world.round(), ["a move 1: not written for the timeout"]);
}

#[test]
fn a_full_rust_write_buffer_does_not_wait() {
    let mut world = World::new(build::write_buffer(), &[("timeout_s", "1000")]);
    let slots: Vec<_> = (0..4).map(|i| world.create(&format!("t/{i}"), 24)).collect();
    world.write(slots[0]);
    assert_eq!(world.round(), ["1 move 1: the buffer is full"]);
    world.policy.set_parameter("high", "0.4").expect("exists");
    assert_eq!(world.round(), ["2 move 1: the buffer is full", "3 move 1: the buffer is full"]);
}

#[test]
fn the_rust_write_buffer_drains_on_a_message() {
    let mut world = World::new(build::write_buffer(), &[("timeout_s", "1000")]);
    world.create("t/a", 10);
    assert_eq!(world.round(), [""; 0]);
    world.wait_s(1);
    let reply = world.policy.message(&world.view, "drain", b"").expect("known");
    assert_eq!(reply, b"draining 1 segments\n");
    assert_eq!(world.round(), ["a move 1: not written for the timeout"]);
    let error = world.policy.message(&world.view, "fill", b"").expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn the_rust_write_buffer_refuses_one_tier() {
    let view = View::new(vec![tier("only", 100)], 1);
    let error = host::load(build::write_buffer(), &view, &[]).err().expect("refused");
    assert!(error.to_string().contains("needs two tiers"), "{error}");
}
