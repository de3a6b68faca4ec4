// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every backend and every engine must do, through a server.

mod common;

use std::sync::Arc;

use tempfile::TempDir;
use terrace_backends::{kv, object};
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_client::{Remote, RemoteKv};
use terrace_core::{Backend, Kv};
use terrace_server::{Limits, Server};
use terrace_testkit::{behaviour_suite, kv_suite};
use terrace_transport::Endpoint;

use common::{Plain, connect, connect_tls, options, serve, serve_tls, tls};

fn memory() -> Arc<dyn Backend> {
    Arc::new(object::Memory::new(64 << 20))
}

fn remote(backend: Arc<dyn Backend>) -> (Arc<Remote>, Server) {
    let kv = Arc::new(kv::Memory::default());
    let (server, endpoint) = serve(Arc::new(Plain { backend, kv }), Limits::default());
    (Arc::new(connect(&endpoint, options()).expect("connect")), server)
}

fn remote_file() -> (Arc<Remote>, (Server, TempDir)) {
    let directory = tempfile::tempdir().expect("directory");
    let settings = object::FileSettings { capacity_bytes: 64 << 20, read_only: false };
    let file = object::File::open(directory.path(), settings);
    let (remote, server) = remote(Arc::new(file.expect("open")));
    (remote, (server, directory))
}

fn remote_unix() -> (Arc<Remote>, (Server, TempDir)) {
    let directory = tempfile::tempdir().expect("directory");
    let kv = Arc::new(kv::Memory::default());
    let service = Arc::new(Plain { backend: memory(), kv });
    let (server, _) = serve(service, Limits::default());
    let endpoint = Endpoint::Unix(directory.path().join("socket"));
    server.listen(&endpoint).expect("listen");
    // No secret: the mode of the socket decides.
    let options = terrace_client::Options { secret: None, ..options() };
    (Arc::new(connect(&endpoint, options).expect("connect")), (server, directory))
}

fn remote_kv(kv: Arc<dyn Kv>) -> (Arc<RemoteKv>, (Server, Remote)) {
    let service = Arc::new(Plain { backend: memory(), kv });
    let (server, endpoint) = serve(service, Limits::default());
    let remote = connect(&endpoint, options()).expect("connect");
    (Arc::new(remote.kv("pairs")), (server, remote))
}

/// Objects in stripes over three servers.
fn striped() -> (Box<Striped>, Vec<Server>) {
    let members = (1..=3).map(|id| {
        let kv = Arc::new(kv::Memory::default());
        let service = Arc::new(Plain { backend: memory(), kv });
        let (server, endpoint) = serve(service, Limits::default());
        let remote = Arc::new(connect(&endpoint, options()).expect("connect"));
        let kv: Arc<dyn Kv> = Arc::new(remote.kv("striped"));
        let name = format!("server-{id}");
        (Member { id, name, backend: remote, kv: Some(kv), weight: 1, since: 0 }, server)
    });
    let (members, servers) = members.unzip();
    let map = Map::new(0, members).expect("legal");
    let distribution = Distribution::RoundRobin { stripe_bytes: 4096 };
    (Box::new(Striped::new(map, distribution, 1).expect("legal")), servers)
}

fn remote_tls() -> (Arc<Remote>, Server) {
    let (server_tls, client_tls) = tls();
    let service = Arc::new(Plain { backend: memory(), kv: Arc::new(kv::Memory::default()) });
    let (server, endpoint) = serve_tls(service, Limits::default(), &server_tls);
    (Arc::new(connect_tls(&endpoint, &client_tls, options()).expect("connect")), server)
}

fn remote_kv_tls() -> (Arc<RemoteKv>, (Server, Arc<Remote>)) {
    let (remote, server) = remote_tls();
    (Arc::new(remote.kv("pairs")), (server, remote))
}

behaviour_suite!(memory_over_tcp, remote(memory()));
behaviour_suite!(file_over_tcp, remote_file());
behaviour_suite!(memory_over_unix, remote_unix());
behaviour_suite!(striped_over_tcp, striped());
behaviour_suite!(memory_over_tls, remote_tls());
kv_suite!(kv_over_tls, remote_kv_tls());
kv_suite!(kv_over_tcp, remote_kv(Arc::new(kv::Memory::default())));
