// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process with clients, which does what it is ordered on its standard input.

use std::sync::atomic::AtomicBool;

use terrace_core::{Result, Semantics};
use terrace_measure::check_stop;
use terrace_measure::sides::{Subject, Threads};
use terrace_measure::team::{self, Conversation, gone, odd};
use terrace_store::Store;

use super::client_options;
use super::order::{Answer, Counted, Order, Task, namespace};
use crate::micro::object::Objects;
use crate::micro::pairs::{PairCase, Stored};
use crate::micro::{Kind, Part, Shape};

/// Does what it is ordered with clients of this store.
pub fn obey(store: &str, stop: &AtomicBool) {
    team::obey(|conversation| rows(store, stop, conversation));
}

fn rows(address: &str, stop: &AtomicBool, conversation: &mut Conversation) -> Result<()> {
    let mut stores = Vec::new();
    while let Some(order) = conversation.hear()? {
        let Order::Make(task) = order else { return Err(odd("no row is made")) };
        while stores.len() < task.clients {
            stores.push(Store::open_with(address, client_options())?);
        }
        row(&task, &stores[..task.clients], stop, conversation)?;
    }
    Ok(())
}

/// Makes a row's subjects, runs its blocks, and forgets them.
fn row(
    task: &Task,
    stores: &[Store],
    stop: &AtomicBool,
    conversation: &mut Conversation,
) -> Result<()> {
    let semantics: Semantics = task.semantics.parse()?;
    let case = task.kind.cases().iter().find(|case| **case == task.case);
    let case = case.ok_or_else(|| odd("a case"))?;
    let Task { size_bytes, batch, threads, keys, bounds, .. } = *task;
    let shape = Shape { size_bytes, batch, threads, semantics, keys };
    let part = |client: usize| Part {
        namespace: namespace(&task.prefix, task.part(client)),
        number: task.part(client),
        of: task.parts,
    };
    let parts: Vec<_> = (0..stores.len()).map(part).collect();
    let pairs: Vec<_> = stores
        .iter()
        .zip(&parts)
        .map(|(store, part)| Stored { store, namespace: &part.namespace })
        .collect();
    let subject = |client: usize| -> Result<Box<dyn Subject + '_>> {
        let part = &parts[client];
        Ok(match task.kind {
            Kind::Object => Box::new(Objects::new(case, &stores[client], &shape, bounds, part)?),
            Kind::Kv => Box::new(PairCase::new(case, &pairs[client], &shape, bounds, part)?),
        })
    };
    let subjects = (0..stores.len()).map(subject).collect::<Result<_>>()?;
    let mut clients = Threads { subjects, threads, stop };
    let calls_max = clients.subjects.iter().map(|subject| subject.calls_max()).min().unwrap_or(0);
    conversation.say(&Answer::Made { calls_max })?;
    while let Some(order) = conversation.hear()? {
        match order {
            Order::Prepare { calls, block_ns } => {
                clients.prepare(calls)?;
                let mut begin = || {
                    conversation.say(&Answer::Ready)?;
                    conversation.expect(&Order::Go)
                };
                let block = clients.run(calls, block_ns, &mut begin)?;
                check_stop(stop)?;
                conversation.say(&Answer::Done(Counted::of(&block)))?;
                conversation.expect(&Order::Clean)?;
                clients.clean(&block.calls)?;
            }
            Order::Forget => {
                drop(clients);
                return conversation.say(&Answer::Over);
            }
            _ => return Err(odd("an order")),
        }
        conversation.say(&Answer::Over)?;
    }
    Err(gone())
}
