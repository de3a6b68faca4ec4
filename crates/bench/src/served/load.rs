// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients in several processes that run the blocks of a row over one store.

use std::sync::atomic::AtomicBool;

use terrace_console::failure::complain;
use terrace_core::{
    Backend, BackendExt, Error, ErrorKind, Op, Persistency, Request, Result, Semantics,
};
use terrace_measure::sides::{Block, Runner, ServerUse};
use terrace_measure::team::{Team, odd};
use terrace_store::{OpenOptions, ServerReport, Store};
use terrace_transport::random_bytes;

use super::client_options;
use super::order::{Answer, Order, Task, namespace};
use crate::micro::place::bounds_of;
use crate::micro::{Planned, Shape};

/// Things of one call that takes away what was left.
const TIDY_BATCH: usize = 1000;

/// Clients of a store, in processes of their own. What they made is taken away with this.
pub(super) struct Load<'a> {
    /// Ends first.
    team: Option<Team<'a>>,
    /// To look at the servers with, and to tidy up.
    store: Store,
    /// What the namespaces of its clients begin with.
    prefix: String,
    /// There are servers that can be asked what they did.
    is_served: bool,
    /// Clients whose namespaces may have something in them.
    parts: usize,
    calls_max: u64,
}

impl<'a> Load<'a> {
    /// Starts so many processes.
    pub(super) fn start(address: &str, processes: usize, stop: &'a AtomicBool) -> Result<Self> {
        let is_served = Store::is_behind_servers(address);
        // A directory without an owner is served by this process, to its clients as well.
        let how = if is_served { client_options() } else { OpenOptions::default() };
        let store = Store::open_with(address, how)?;
        let mut number = [0; 4];
        random_bytes(&mut number)?;
        // Others may measure the same servers at the same time.
        let prefix = format!("bench-{:08x}", u32::from_le_bytes(number));
        let team = Some(Team::start(&["--store", address, "bench", "--obey"], processes, stop)?);
        Ok(Self { team, store, prefix, is_served, parts: 0, calls_max: 0 })
    }

    /// Makes what a row needs, with so many clients in each process.
    pub(super) fn make(&mut self, planned: &Planned, clients: usize) -> Result<()> {
        let (kind, case, shape) = planned;
        self.check_level(shape)?;
        let processes = self.team().processes();
        let parts = processes * clients;
        let space = self.store.space()?;
        let free_bytes = space.capacity_bytes.saturating_sub(space.used_bytes);
        let task = Task {
            kind: *kind,
            case: (*case).into(),
            size_bytes: shape.size_bytes,
            batch: shape.batch,
            threads: shape.threads,
            semantics: shape.semantics.to_string(),
            keys: shape.keys,
            bounds: bounds_of(free_bytes, self.store.target())?.shared(parts),
            clients,
            parts,
            process: 0,
            prefix: self.prefix.clone(),
        };
        self.parts = parts;
        let made = self.said(|process| Order::Make(Task { process, ..task.clone() }))?;
        let calls_max = made.into_iter().map(|answer| match answer {
            Answer::Made { calls_max } => Ok(calls_max),
            _ => Err(odd("nothing was made")),
        });
        self.calls_max = calls_max.collect::<Result<Vec<_>>>()?.into_iter().min().unwrap_or(0);
        Ok(())
    }

    /// Ends a row, of which nothing is left then.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.said(|_| Order::Forget)?;
        self.tidy()
    }

    fn check_level(&self, shape: &Shape) -> Result<()> {
        let (level, given) = (shape.semantics.persistency, self.store.capability().persistency);
        if level <= given {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "run the benchmark")
            .because("the store does not give this level")
            .with("level", level)
            .with("strongest", given)
            .with("store", self.store.target()))
    }

    fn servers(&self) -> Result<Vec<(String, ServerReport)>> {
        if self.is_served { self.store.servers() } else { Ok(Vec::new()) }
    }

    fn team(&mut self) -> &mut Team<'a> {
        self.team.as_mut().expect("it ends with this")
    }

    fn said(&mut self, order: impl Fn(usize) -> Order) -> Result<Vec<Answer>> {
        self.team().order(order)
    }

    /// Takes away everything in the namespaces of the clients.
    fn tidy(&mut self) -> Result<()> {
        for part in 0..self.parts {
            let namespace = namespace(&self.prefix, part);
            self.tidy_objects(&namespace)?;
            self.tidy_pairs(&namespace)?;
        }
        self.parts = 0;
        Ok(())
    }

    fn tidy_objects(&self, namespace: &str) -> Result<()> {
        let semantics = Semantics::at_level(Persistency::None);
        for keys in self.store.list_all(namespace, "")?.chunks(TIDY_BATCH) {
            let mut operations: Vec<_> =
                keys.iter().map(|key| Op::new(Request::Delete { key })).collect();
            self.store.execute(&mut operations, &semantics);
            for operation in operations {
                match operation.outcome.expect("every operation ends") {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn tidy_pairs(&self, namespace: &str) -> Result<()> {
        loop {
            let pairs = self.store.kv_scan(namespace, b"", None, TIDY_BATCH)?;
            if pairs.is_empty() {
                return Ok(());
            }
            let changes: Vec<_> = pairs.iter().map(|(key, _)| (key.as_slice(), None)).collect();
            self.store.kv_apply(namespace, &changes, Persistency::None)?;
        }
    }
}

impl Runner for Load<'_> {
    fn calls_max(&self) -> u64 {
        self.calls_max
    }

    /// They are prepared one after the other, or all at once; they begin together.
    fn block(&mut self, calls_max: u64, block_ns: u64) -> Result<Block> {
        self.said(|_| Order::Prepare { calls: calls_max, block_ns })?;
        let before = self.servers()?;
        let done = self.said(|_| Order::Go)?;
        let after = self.servers()?;
        self.said(|_| Order::Clean)?;
        let mut all = Block::new();
        for answer in done {
            let Answer::Done(counted) = answer else { return Err(odd("nothing was done")) };
            all.join(&counted.into_block()?);
        }
        all.servers = before.iter().zip(&after).map(used).collect();
        Ok(all)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.team = None;
        if let Err(error) = self.tidy() {
            let prefix = &self.prefix;
            complain(format_args!(
                "terrace: note: objects may be left in the namespaces {prefix}-*: {}",
                error.chain()
            ));
        }
    }
}

/// What a server did between two looks at it.
fn used((before, after): (&(String, ServerReport), &(String, ServerReport))) -> ServerUse {
    let ((name, before), (_, after)) = (before, after);
    let since = |count: fn(&ServerReport) -> u64| count(after).saturating_sub(count(before));
    ServerUse {
        name: name.clone(),
        cpu_ns: since(|report| report.cpu_ns),
        operations: since(|report| report.status.operations),
        received_bytes: since(|report| report.status.received_bytes),
        sent_bytes: since(|report| report.status.sent_bytes),
    }
}
