// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other side: a store that is owned by another process.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use terrace_client::{CallAnswer, Remote, RemoteKv};
use terrace_core::{
    Access, Applied, Backend, Clock, Error, ErrorKind, Kv, KvRange, Pair, Persistency, Result,
};
use terrace_stack::ScrubOptions;
use terrace_stack::report::ScrubReport;

use super::call::{Call, PROTOCOL_VERSION, Scanned, Welcome};
use super::nanoseconds;
use super::pool::{Connection, Lent, Pool, unreachable};
use super::remote::Attached;
use super::server::random_number;
use super::session::Answer;
use crate::cluster::Cluster;
use crate::directory::Directory;

/// A store that another process owns. Clones are the same session.
#[derive(Clone)]
pub(crate) struct Link {
    asking: Arc<dyn Asking>,
    /// Its objects.
    pub(crate) backend: Arc<dyn Backend>,
    /// Where it is behind servers, whose pairs are reached directly.
    servers: Servers,
    clock: Arc<dyn Clock>,
}

/// The servers that a store is behind.
#[derive(Clone)]
enum Servers {
    None,
    One(Remote),
    Many(Arc<Cluster>),
}

/// How a call gets to the owner of a store.
pub(crate) trait Asking: Send + Sync {
    /// Makes a call; `parts` are the bytes that belong to it.
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer>;
}

impl Asking for Wire {
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        self.lend()?.exchange(call, parts, progress)
    }
}

impl Asking for Remote {
    fn exchange(
        &self,
        call: &Call,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        let json = serde_json::to_vec(call).map_err(|error| {
            Error::new(ErrorKind::Invalid, "ask the server").because("no JSON").caused_by(error)
        })?;
        let CallAnswer { json, body } = self.call(&json, parts, progress)?;
        Ok(Answer { json, bytes: body })
    }
}

/// What the clones of a link and its open objects share.
pub(super) struct Wire {
    directory: Directory,
    hello: Call,
    pub(super) welcome: Welcome,
    pool: Pool,
}

impl Link {
    /// Reaches the owner of a store.
    ///
    /// # Errors
    ///
    /// `Unreachable` where nobody serves, `Unsupported` (another version), `Denied`, `Busy`.
    pub(crate) fn connect(
        directory: &Directory,
        access: Access,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let hello = Call::Hello { version: PROTOCOL_VERSION, session: random_number(), access };
        let (connection, answer) = Connection::open(directory, &hello)?;
        let wire = Wire {
            directory: directory.clone(),
            hello,
            welcome: read(&answer)?,
            pool: Pool::default(),
        };
        // Goes into the pool at once.
        drop(wire.pool.lend(|| Ok(connection))?);
        let wire = Arc::new(wire);
        let backend = Arc::new(Attached { wire: Arc::clone(&wire) });
        Ok(Self { asking: wire, backend, servers: Servers::None, clock: Arc::clone(clock) })
    }

    /// A store behind a server.
    pub(crate) fn over(remote: Remote, clock: &Arc<dyn Clock>) -> Self {
        Self {
            asking: Arc::new(remote.clone()),
            backend: Arc::new(remote.clone()),
            servers: Servers::One(remote),
            clock: Arc::clone(clock),
        }
    }

    /// A store behind several servers.
    pub(crate) fn over_many(cluster: Cluster, clock: &Arc<dyn Clock>) -> Self {
        let cluster = Arc::new(cluster);
        Self {
            backend: cluster.striped(),
            asking: Arc::clone(&cluster) as _,
            servers: Servers::Many(cluster),
            clock: Arc::clone(clock),
        }
    }

    /// The server that it is behind, if it is.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        match &self.servers {
            Servers::One(remote) => Some(remote),
            Servers::None | Servers::Many(_) => None,
        }
    }

    /// The pairs of a namespace, where they are behind servers.
    fn pairs(&self, namespace: &str) -> Result<Option<RemoteKv>> {
        match &self.servers {
            Servers::None => Ok(None),
            Servers::One(remote) => Ok(Some(remote.kv(namespace))),
            Servers::Many(cluster) => cluster.kv(namespace).map(Some),
        }
    }

    fn exchange(&self, call: &Call, parts: &[&[u8]]) -> Result<Answer> {
        self.asking.exchange(call, parts, &mut |_, _| {})
    }

    /// Asks for something without bytes.
    pub(crate) fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        read(&self.exchange(call, &[])?)
    }

    /// Asks again and again, as long as the answer is not what is waited for.
    pub(crate) fn wait_for<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        is_over: impl Fn(&T) -> bool,
        call: impl Fn(u64) -> Call,
    ) -> Result<T> {
        let clock = &self.clock;
        let deadline_ns = clock.now_ns().saturating_add(nanoseconds(timeout));
        loop {
            let left_ns = deadline_ns.saturating_sub(clock.now_ns());
            let answer = self.ask(&call(left_ns))?;
            if is_over(&answer) || clock.now_ns() >= deadline_ns {
                return Ok(answer);
            }
        }
    }

    pub(crate) fn message(&self, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let call = Call::Message { kind: kind.into() };
        Ok(self.exchange(&call, &[body])?.bytes)
    }

    /// Asks for something that takes long; `progress` hears of it meanwhile.
    pub(crate) fn ask_long<T: DeserializeOwned>(
        &self,
        call: &Call,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<T> {
        read(&self.asking.exchange(call, &[], progress)?)
    }

    pub(crate) fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ScrubReport> {
        // Beyond every device, and JSON knows no infinity.
        let bytes_per_s = options.bytes_per_s.max(1.0) as u64;
        let call = Call::Scrub { bytes_per_s, namespace: options.namespace.clone() };
        read(&self.asking.exchange(&call, &[], progress)?)
    }

    pub(crate) fn kv_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(kv) = self.pairs(namespace)? {
            return kv.get(key);
        }
        let answer = self.exchange(&Call::KvGet { namespace: namespace.into() }, &[key])?;
        let is_there: bool = read(&answer)?;
        Ok(is_there.then_some(answer.bytes))
    }

    pub(crate) fn kv_put(
        &self,
        namespace: &str,
        key: &[u8],
        value: &[u8],
        persistency: Persistency,
    ) -> Result<()> {
        if let Some(kv) = self.pairs(namespace)? {
            return kv.apply(&[(key, Some(value))], persistency).map(drop);
        }
        let call = Call::KvPut { namespace: namespace.into(), key_bytes: key.len(), persistency };
        read(&self.exchange(&call, &[key, value])?)
    }

    pub(crate) fn kv_remove(
        &self,
        namespace: &str,
        key: &[u8],
        persistency: Persistency,
    ) -> Result<bool> {
        if let Some(kv) = self.pairs(namespace)? {
            return Ok(kv.apply(&[(key, None)], persistency)? > 0);
        }
        let call = Call::KvRemove { namespace: namespace.into(), persistency };
        read(&self.exchange(&call, &[key])?)
    }

    /// Asks for pages until there are `max` pairs or no more.
    pub(crate) fn kv_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<Pair>> {
        if let Some(kv) = self.pairs(namespace)? {
            let range = KvRange::prefix(prefix);
            let range = after.map_or_else(|| range.clone(), |after| range.after(after));
            return kv.scan(&range, max);
        }
        let mut pairs: Vec<Pair> = Vec::new();
        loop {
            let after = pairs.last().map(|(key, _)| key.as_slice()).or(after);
            let call = Call::KvScan {
                namespace: namespace.into(),
                prefix_bytes: prefix.len(),
                has_after: after.is_some(),
                max: max - pairs.len(),
            };
            let answer = self.exchange(&call, &[prefix, after.unwrap_or_default()])?;
            let scanned: Scanned = read(&answer)?;
            let mut rest = &answer.bytes[..];
            let before = pairs.len();
            for (key_bytes, value_bytes) in scanned.lengths_bytes {
                pairs.push((take(&mut rest, key_bytes)?, take(&mut rest, value_bytes)?));
            }
            if scanned.is_end || pairs.len() >= max || pairs.len() == before {
                return Ok(pairs);
            }
        }
    }
}

impl Wire {
    /// Asks for something; `parts` are the bytes that belong to it.
    pub(super) fn ask<T: DeserializeOwned>(&self, call: &Call, parts: &[&[u8]]) -> Result<T> {
        read(&self.exchange(call, parts)?)
    }

    pub(super) fn exchange(&self, call: &Call, parts: &[&[u8]]) -> Result<Answer> {
        self.lend()?.exchange(call, parts, &mut |_, _| {})
    }

    fn lend(&self) -> Result<Lent<'_>> {
        self.pool.lend(|| {
            let (connection, answer) = Connection::open(&self.directory, &self.hello)?;
            let welcome: Welcome = read(&answer)?;
            // Its handles would be other objects.
            if welcome.instance != self.welcome.instance {
                return Err(unreachable(Applied::No)
                    .because("another process owns the store by now; open it again"));
            }
            Ok(connection)
        })
    }
}

/// The JSON of an answer.
pub(super) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    serde_json::from_slice(&answer.json).map_err(|error| not_understood().caused_by(error))
}

/// The next bytes of an answer.
pub(super) fn take(rest: &mut &[u8], bytes: usize) -> Result<Vec<u8>> {
    let (taken, later) = rest.split_at_checked(bytes).ok_or_else(not_understood)?;
    *rest = later;
    Ok(taken.to_vec())
}

fn not_understood() -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "reach the owner of the store")
        .because("its answer is not as it must be")
}
