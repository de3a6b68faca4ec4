// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clusters of stores in main memory.

use std::sync::Arc;

use terrace_backends::object::{Faults, Faulty, Memory};
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_core::{Backend, Create, Key, Kv, Object, Open, Persistency, Result, Semantics};

pub(crate) const CAPACITY_BYTES: u64 = 64 << 20;

/// Small, so that everything crosses boundaries.
pub(crate) const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution::Single,
    Distribution::RoundRobin { stripe_bytes: 7 },
    Distribution::Weighted { stripe_bytes: 5 },
    Distribution::Progressive { head_bytes: 10, stripe_bytes: 3 },
];

pub(crate) const EVEN: Distribution = Distribution::RoundRobin { stripe_bytes: 4 };

/// Main memory promises nothing.
pub(crate) const VOLATILE: Semantics = Semantics::at_level(Persistency::None);

/// A store whose failures a test decides.
pub(crate) struct Server {
    pub(crate) memory: Memory,
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) id: u128,
}

impl Server {
    pub(crate) fn new(id: u128) -> Self {
        let memory = Memory::new(CAPACITY_BYTES);
        let kv = Arc::new(terrace_backends::kv::Memory::default());
        Self { memory, kv, faults: Faults::new(id as u64), id }
    }

    pub(crate) fn member(&self) -> Member {
        let backend = Faulty::new(Arc::new(self.memory.clone()), Arc::clone(&self.faults));
        Member {
            id: self.id,
            name: format!("server-{}", self.id),
            backend: Arc::new(backend),
            kv: Some(Arc::clone(&self.kv)),
            weight: self.id as u32,
            since: 0,
        }
    }

    /// How much it holds.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.memory.space().expect("it says").used_bytes
    }

    /// Names of everything that it holds of the namespace of the tests.
    pub(crate) fn names(&self) -> Vec<String> {
        use terrace_core::BackendExt;
        let keys = self.memory.list_all("test", "").expect("lists");
        keys.iter().map(|key| key.name().into()).collect()
    }
}

/// `count` stores that were there from the beginning.
pub(crate) fn servers(count: u128) -> Vec<Server> {
    (1..=count).map(Server::new).collect()
}

pub(crate) fn map(servers: &[Server]) -> Map {
    Map::new(0, servers.iter().map(Server::member).collect()).expect("legal")
}

/// All of them as one store.
pub(crate) fn striped(servers: &[Server], distribution: Distribution) -> Striped {
    over(map(servers), distribution)
}

pub(crate) fn over(map: Map, distribution: Distribution) -> Striped {
    Striped::new(map, distribution, seed()).expect("legal")
}

/// Another one each time, as in different processes.
fn seed() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64
}

pub(crate) fn key(name: &str) -> Key {
    Key::new("test", name).expect("legal")
}

pub(crate) fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(VOLATILE)
}

/// Creates an object that holds `data`; it is distributed however short it is.
pub(crate) fn try_put(store: &dyn Backend, name: &str, data: &[u8]) -> Result<Box<dyn Object>> {
    use terrace_core::ObjectExt;
    let object = store.open(&key(name), &how(Create::New))?;
    object.write(0, data)?;
    Ok(object)
}

#[track_caller]
pub(crate) fn put(store: &dyn Backend, name: &str, data: &[u8]) {
    try_put(store, name, data).unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Bytes of which no two in a row are the same.
pub(crate) fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// The content of an object that is not long. (`read_to_end` asks for 1 MiB at a time, which are
/// hundreds of thousands of the stripes here.)
pub(crate) fn content(object: &dyn Object) -> Result<Vec<u8>> {
    use terrace_core::ObjectExt;
    let mut buffer = vec![0xee; 2000];
    let count = object.read(0, &mut buffer)?;
    assert!(count < buffer.len(), "it is longer than expected");
    buffer.truncate(count);
    Ok(buffer)
}

/// The content of the object with this name.
pub(crate) fn read_all(store: &dyn Backend, key: &Key) -> Result<Vec<u8>> {
    content(&*store.open(key, &Open::read())?)
}
