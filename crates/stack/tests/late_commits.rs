// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commits of which nobody heard what became of them, and what was done since.

mod common;

use common::hooked::{Call, Verdict};
use common::world::{World, cutting, key, put};
use terrace_core::{
    Atomicity, Backend, BackendExt, ErrorKind, Hint, Key, ObjectExt, Op, Open, Persistency,
    Request, Semantics,
};
use terrace_stack::Stack;
use terrace_testkit::Operation;

fn durable(open: Open) -> Open {
    open.with_semantics(Semantics::at_level(Persistency::Storage))
}

fn assert_gone(stack: &Stack, name: &Key) {
    let opened = stack.open(name, &Open::read()).map(drop).expect_err("it was deleted");
    assert_eq!(opened.kind(), ErrorKind::NotFound, "{}", opened.chain());
    let deleted = stack.delete(name).expect_err("it was deleted");
    assert_eq!(deleted.kind(), ErrorKind::NotFound, "{}", deleted.chain());
}

#[test]
fn what_was_deleted_is_gone_although_that_could_not_be_made_durable() {
    let world = World::two();
    let stack = world.create();
    let name = key("deleted");
    let object = stack.open(&name, &durable(Open::create_new())).expect("creates");
    object.write(0, &[1; 5000]).expect("writes");
    world.kv().fail_next(Operation::KvWait, ErrorKind::Io);
    let error = stack.delete(&name).expect_err("it cannot be made durable");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert_gone(&stack, &name);
    put(&stack, &name, &[2; 300]);
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 300]);
    assert_eq!(stack.tiers()[0].used_bytes, 300);
}

#[test]
fn a_create_that_was_taken_back_leaves_nothing_although_that_could_not_be_made_durable() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let name = key("taken-back");
    let kv = world.kv().clone();
    world.tier(0).on(move |moment| match moment.call {
        Call::Write if !moment.is_done => {
            kv.fail_next(Operation::KvWait, ErrorKind::Io);
            Verdict::Fail(ErrorKind::Io)
        }
        _ => Verdict::Go,
    });
    let create = Request::Create { key: &name, data: &[1; 8000], hint: Hint::default() };
    let mut operations = [Op::new(create)];
    let semantics =
        Semantics { atomicity: Atomicity::Operation, ..Semantics::at_level(Persistency::Storage) };
    stack.execute(&mut operations, &semantics);
    let [operation] = operations;
    operation.outcome.expect("is filled").expect_err("its bytes cannot be written");
    world.tier(0).heal();
    assert_gone(&stack, &name);
    put(&stack, &name, &[2; 300]);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 300]);
}
