// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process with clients, which does what it is ordered on its standard input.

use std::io::{BufRead, StdinLock, Write, stdin, stdout};
use std::sync::atomic::AtomicBool;

use rustix::process::{Signal, set_parent_process_death_signal};
use terrace_core::{Access, Error, ErrorKind, Result, Semantics};
use terrace_store::Store;

use super::order::{Answer, Counted, Order, Task, namespace, odd};
use crate::bench::micro::object::Objects;
use crate::bench::micro::pairs::{PairCase, Stored};
use crate::bench::micro::threads::{Subject, Threads, check_stop};
use crate::bench::micro::{Kind, Part, Shape};
use crate::context::alone;

/// Does what it is ordered with clients of this store, until there are no more orders. What fails
/// is said there, too, and ends it.
pub(crate) fn obey(store: &str, stop: &AtomicBool) {
    let mut conversation = Conversation { input: stdin().lock() };
    // The one that gives the orders may be killed while a block runs.
    let told = set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Error::from_io("begin a process of the benchmark", error.into()));
    if let Err(error) = told.and_then(|()| rows(store, stop, &mut conversation)) {
        // Nobody may be there any more to hear it.
        let _ = conversation.say(&Answer::failed(&error));
    }
}

fn rows(address: &str, stop: &AtomicBool, conversation: &mut Conversation) -> Result<()> {
    let mut stores = Vec::new();
    while let Some(order) = conversation.hear()? {
        let Order::Make(task) = order else { return Err(odd("no row is made")) };
        while stores.len() < task.clients {
            stores.push(Store::open_with(address, alone(Access::Write))?);
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

/// Orders that come and answers that go.
struct Conversation {
    input: StdinLock<'static>,
}

impl Conversation {
    /// The next order; none where there will be no more.
    fn hear(&mut self) -> Result<Option<Order>> {
        let mut line = String::new();
        let count = self
            .input
            .read_line(&mut line)
            .map_err(|error| Error::from_io("read an order of the benchmark", error))?;
        if count == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(|error| odd("no order").caused_by(error))
    }

    fn expect(&mut self, order: &Order) -> Result<()> {
        let heard = self.hear()?.ok_or_else(gone)?;
        let is_it = std::mem::discriminant(&heard) == std::mem::discriminant(order);
        if is_it { Ok(()) } else { Err(odd("another order is due")) }
    }

    fn say(&mut self, answer: &Answer) -> Result<()> {
        let line = serde_json::to_string(answer).map_err(|error| odd("JSON").caused_by(error))?;
        let mut output = stdout().lock();
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .map_err(|error| Error::from_io("answer an order of the benchmark", error))
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Io, "run the benchmark").because("whoever gives the orders is gone")
}
