// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server in this process, and clients of it.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "not every test uses everything")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use terrace_backends::kv;
use terrace_backends::object::{File, FileSettings};
use terrace_client::{Address, Options, Remote, TlsAddress};
use terrace_core::{Backend, Clock, Error, ErrorKind, Kv, Result, SystemClock};
use terrace_server::{Call, Called, Caller, Kept as SessionKept, Limits, Server, Service};
use terrace_stack::{Parts, Stack, Tier};
use terrace_testkit::{Authority, Validity};
use terrace_transport::{ClientTls, Endpoint, ServerTls};
use terrace_wire::Secret;

mod hasty;
mod held;
pub mod peer;

pub use hasty::Hasty;
pub use held::Held;

/// Any backend and any engine as something to serve.
pub struct Plain {
    pub backend: Arc<dyn Backend>,
    pub kv: Arc<dyn Kv>,
}

impl Service for Plain {
    fn store_id(&self) -> u128 {
        7
    }

    fn openings(&self) -> terrace_wire::Openings {
        terrace_wire::Openings::default()
    }

    fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    fn kv(&self, _: &str) -> Result<Arc<dyn Kv>> {
        Ok(Arc::clone(&self.kv))
    }

    fn files(&self, namespace: &str, kept: &SessionKept, request: &[u8]) -> Result<Vec<u8>> {
        // How often the session asked.
        let asked = kept.get_or_make(namespace, || Ok(AtomicU64::new(0)))?;
        let count = asked.fetch_add(1, Ordering::Relaxed) + 1;
        Ok([request, &count.to_le_bytes()].concat())
    }

    fn ends(&self) {}

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        match call.json {
            b"\"echo\"" => {
                caller.progress(1, 2);
                caller.progress(2, 2);
                Ok(Called { json: call.json.to_vec(), body: call.body.to_vec() })
            }
            b"\"panic\"" => panic!("a test asked for it"),
            _ => Err(Error::new(ErrorKind::Unsupported, "call").because("there is no such call")),
        }
    }
}

/// A store in a directory of its own, which may outlive its servers.
pub fn store() -> Arc<Kept> {
    let directory = tempfile::tempdir().expect("directory");
    let settings = FileSettings { capacity_bytes: 1 << 30, read_only: false };
    let backend = Arc::new(File::open(directory.path(), settings).expect("open"));
    let plain = Plain { backend: backend.clone(), kv: Arc::new(kv::Memory::default()) };
    Arc::new(Kept { backend, plain, openings: Mutex::default(), _directory: directory })
}

/// Objects in a directory, which is removed with this, and pairs in main memory.
pub struct Kept {
    pub backend: Arc<File>,
    plain: Plain,
    /// What its servers tell.
    pub openings: Mutex<terrace_wire::Openings>,
    _directory: TempDir,
}

impl Service for Kept {
    fn store_id(&self) -> u128 {
        self.plain.store_id()
    }

    fn openings(&self) -> terrace_wire::Openings {
        *self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backend(&self) -> &dyn Backend {
        self.plain.backend()
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.plain.kv(namespace)
    }

    fn files(&self, namespace: &str, kept: &SessionKept, request: &[u8]) -> Result<Vec<u8>> {
        self.plain.files(namespace, kept, request)
    }

    fn ends(&self) {
        self.plain.ends();
    }

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        self.plain.call(call, caller)
    }
}

/// A stack over a directory, which may outlive its servers.
pub struct Stacked {
    pub stack: Arc<Stack>,
    kv: Arc<dyn Kv>,
    _directory: TempDir,
}

impl Stacked {
    pub fn service(&self) -> Arc<dyn Service> {
        self.service_of(self.stack.clone())
    }

    /// The same with another backend in front of the stack.
    pub fn service_of(&self, backend: Arc<dyn Backend>) -> Arc<dyn Service> {
        Arc::new(Plain { backend, kv: self.kv.clone() })
    }
}

/// A new stack, which replaces objects as a whole.
pub fn stacked() -> Stacked {
    let directory = tempfile::tempdir().expect("directory");
    let settings = FileSettings { capacity_bytes: 1 << 30, read_only: false };
    let path = directory.path().join("tier");
    std::fs::create_dir(&path).expect("directory");
    let tier = Arc::new(File::open(&path, settings).expect("open"));
    let tiers = || vec![Tier::new("only", tier.clone()).with_capacity(1 << 30)];
    let catalog = kv::open_kv("lmdb", &directory.path().join("catalog")).expect("open");
    Stack::create(&Parts::new(tiers(), Arc::clone(&catalog))).expect("create");
    let stack = Arc::new(Stack::open(Parts::new(tiers(), catalog)).expect("open"));
    Stacked { stack, kv: Arc::new(kv::Memory::default()), _directory: directory }
}

/// What the tests share with their servers.
pub fn secret() -> Secret {
    Secret::new(b"a secret of the tests").expect("long enough")
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

/// A server of these, on a free port of the loopback interface.
pub fn serve(service: Arc<dyn Service>, limits: Limits) -> (Server, Endpoint) {
    let server = Server::new(service, Some(secret()), limits, clock());
    let endpoint = "127.0.0.1:0".parse().expect("legal");
    let endpoint = server.listen(&endpoint).expect("listen");
    (server, endpoint)
}

/// Patient, so that a busy machine fails no test; the secret of [`serve`].
pub fn options() -> Options {
    let deadline = Duration::from_secs(60);
    Options { secret: Some(secret()), deadline, connect_timeout: deadline, ..Options::default() }
}

pub fn connect(endpoint: &Endpoint, options: Options) -> Result<Remote> {
    let address = Address { endpoint: endpoint.clone(), clock: clock() };
    Remote::connect(Box::new(address), options, clock())
}

/// Waits for something that another thread brings about.
///
/// # Panics
///
/// Where it takes longer than any machine needs.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(120);
    let clock = clock();
    let end_ns = clock.now_ns() + PATIENCE.as_nanos() as u64;
    while !is_so() {
        assert!(clock.now_ns() < end_ns, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Both sides of TLS on the loopback interface, whose authority is one of the tests.
pub fn tls() -> (ServerTls, ClientTls) {
    tls_of(&Authority::default())
}

pub fn tls_of(authority: &Authority) -> (ServerTls, ClientTls) {
    let directory = tempfile::tempdir().expect("directory");
    let issued = authority.issue(&["127.0.0.1"], Validity::Now);
    let (certificate, key) = issued.write(directory.path());
    let trusted = directory.path().join("trusted.pem");
    std::fs::write(&trusted, authority.pem()).expect("write");
    let server = ServerTls::read(&certificate, &key).expect("usable");
    (server, ClientTls::read(&trusted, None).expect("usable"))
}

/// As [`serve`], encrypted.
pub fn serve_tls(service: Arc<dyn Service>, limits: Limits, tls: &ServerTls) -> (Server, Endpoint) {
    let server = Server::new(service, Some(secret()), limits, clock());
    let endpoint = "127.0.0.1:0".parse().expect("legal");
    let endpoint = server.listen_tls(&endpoint, tls).expect("listen");
    (server, endpoint)
}

pub fn connect_tls(endpoint: &Endpoint, tls: &ClientTls, options: Options) -> Result<Remote> {
    let address = Address { endpoint: endpoint.clone(), clock: clock() };
    let address = TlsAddress { address, tls: tls.clone() };
    Remote::connect(Box::new(address), options, clock())
}
