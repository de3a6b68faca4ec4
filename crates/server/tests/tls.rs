// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Encrypted servers among clients and strangers that do not mean well.

mod common;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use terrace_backends::{kv, object};
use terrace_client::{Options, Remote};
use terrace_core::{Applied, Backend, Create, ErrorKind, Key, Open, Persistency, Semantics};
use terrace_server::{Limits, Server};
use terrace_testkit::Authority;
use terrace_transport::{ClientTls, Endpoint, Listener, Outgoing, ServerTls, Transport};

use common::{Plain, clock, connect, connect_tls, options, secret, serve, serve_tls, tls, tls_of};

const PATIENCE: Duration = Duration::from_secs(60);

fn service() -> Arc<Plain> {
    let backend = Arc::new(object::Memory::new(256 << 20));
    Arc::new(Plain { backend, kv: Arc::new(kv::Memory::default()) })
}

fn tcp(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(endpoint.to_string()).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// An object that may be lost with the server's memory.
fn new() -> Open {
    let semantics = Semantics { persistency: Persistency::None, ..Semantics::default() };
    Open { create: Create::IfMissing, semantics, ..Open::default() }
}

/// Writes an object and reads it again.
fn use_it(remote: &Remote, name: &str) {
    let key = Key::new("tests", name).expect("legal");
    let object = remote.open(&key, &new()).expect("open");
    object.write_at(0, &[IoSlice::new(name.as_bytes())]).expect("write");
    let mut buffer = vec![0; name.len()];
    object.read_at(0, &mut [IoSliceMut::new(&mut buffer)]).expect("read");
    assert_eq!(buffer, name.as_bytes());
}

/// Somebody between clients and a server, who passes on what he gets; all of it decrypted, where
/// he has what he needs for that. Once he is to cut, he passes on a part of what the server says,
/// and then nothing.
fn middle(
    to: &Endpoint,
    tls: Option<(ServerTls, ClientTls)>,
    is_to_cut: Arc<AtomicBool>,
) -> Endpoint {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("legal")).expect("listen");
    let endpoint = listener.endpoint().clone();
    let to = to.clone();
    std::thread::spawn(move || {
        while let Ok(socket) = listener.accept() {
            if is_to_cut.load(Ordering::SeqCst) {
                continue;
            }
            let beyond = terrace_transport::connect(&to, PATIENCE, &*clock()).expect("connect");
            let (near, far): (Arc<dyn Transport>, Arc<dyn Transport>) = match &tls {
                Some((server, client)) => {
                    let near = server.accept(socket, Vec::new()).expect("accept");
                    let far = client.connect(beyond, "127.0.0.1", PATIENCE, &*clock());
                    (Arc::new(near), Arc::new(far.expect("trusted")))
                }
                None => (Arc::new(socket), Arc::new(beyond)),
            };
            let (near_again, far_again) = (Arc::clone(&near), Arc::clone(&far));
            let is_to_cut = Arc::clone(&is_to_cut);
            std::thread::spawn(move || pass_on(&*near, &*far, &AtomicBool::new(false)));
            std::thread::spawn(move || pass_on(&*far_again, &*near_again, &is_to_cut));
        }
    });
    endpoint
}

fn pass_on(from: &dyn Transport, to: &dyn Transport, is_to_cut: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let is_cut = is_to_cut.load(Ordering::SeqCst);
        let count = if is_cut { count / 2 } else { count };
        if Outgoing(to).write_all(&buffer[..count]).is_err() || is_cut {
            break;
        }
    }
    from.shutdown(Shutdown::Both);
    to.shutdown(Shutdown::Both);
}

#[test]
fn a_client_without_tls_is_told() {
    let (server_tls, _) = tls();
    let (_server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let error = connect(&endpoint, options()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert!(error.to_string().contains("tls=FILE"), "{}", error.chain());
}

#[test]
fn a_client_with_tls_says_when_the_server_has_none() {
    let (_, client_tls) = tls();
    let (_server, endpoint) = serve(service(), Limits::default());
    let error = connect_tls(&endpoint, &client_tls, options()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert!(error.to_string().contains("without TLS"), "{}", error.chain());
}

#[test]
fn a_client_that_trusts_another_authority_is_safe() {
    let ((server_tls, _), (_, client_tls)) = (tls(), tls());
    let (_server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let error = connect_tls(&endpoint, &client_tls, options()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
}

#[test]
fn encryption_does_not_replace_the_secret() {
    let (server_tls, client_tls) = tls();
    let (server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let other = terrace_wire::Secret::new(b"another secret of a test").expect("long enough");
    for secret in [None, Some(other)] {
        let options = Options { secret, ..options() };
        let error = connect_tls(&endpoint, &client_tls, options).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    }
    assert!(server.status().sessions == 0);
    connect_tls(&endpoint, &client_tls, options()).expect("the right one");
}

#[test]
fn a_unix_socket_is_not_encrypted() {
    let (server_tls, _) = tls();
    let server = Server::new(service(), Some(secret()), Limits::default(), clock());
    let directory = tempfile::tempdir().expect("directory");
    let endpoint = Endpoint::Unix(directory.path().join("socket"));
    let error = server.listen_tls(&endpoint, &server_tls).expect_err("unix");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_proof_that_somebody_passes_on_proves_nothing() {
    let authority = Authority::default();
    let (server_tls, client_tls) = tls_of(&authority);
    let (server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let never = Arc::new(AtomicBool::new(false));
    // Who cannot decrypt may pass on what he likes, …
    let honest = middle(&endpoint, None, Arc::clone(&never));
    use_it(&connect_tls(&honest, &client_tls, options()).expect("connect"), "encrypted");
    assert_eq!(server.status().refused, 0);
    // … who can, because client and server trust him as much as each other, may not.
    let curious = middle(&endpoint, Some((tls_of(&authority).0, client_tls.clone())), never);
    let error = connect_tls(&curious, &client_tls, options()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert!(error.to_string().contains("does not know the secret"), "{}", error.chain());
    server.end();
    assert_eq!(server.status().refused, 1);
}

#[test]
fn a_cut_within_a_record_is_unreachable_until_it_is_mended() {
    let (server_tls, client_tls) = tls();
    let (_server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let is_to_cut = Arc::new(AtomicBool::new(false));
    let endpoint = middle(&endpoint, None, Arc::clone(&is_to_cut));
    let options = Options { deadline: Duration::from_secs(2), ..options() };
    let remote = connect_tls(&endpoint, &client_tls, options).expect("connect");
    use_it(&remote, "before");
    is_to_cut.store(true, Ordering::SeqCst);
    let key = Key::new("tests", "before").expect("legal");
    let error = remote.stat(&key).expect_err("cut");
    assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::No }, "{}", error.chain());
    is_to_cut.store(false, Ordering::SeqCst);
    use_it(&remote, "after");
}

#[test]
fn long_transfers_go_both_ways_at_once() {
    const BYTES: usize = 64 << 20;
    let (server_tls, client_tls) = tls();
    let (_server, endpoint) = serve_tls(service(), Limits::default(), &server_tls);
    let remote = connect_tls(&endpoint, &client_tls, options()).expect("connect");
    let bytes: Vec<_> = (0..BYTES).map(|index| (index / 1021) as u8).collect();
    let write = |name| {
        let object = remote.open(&Key::new("tests", name).expect("legal"), &new()).expect("open");
        object.write_at(0, &[IoSlice::new(&bytes)]).expect("write");
    };
    let read = |name| {
        let key = Key::new("tests", name).expect("legal");
        let object = remote.open(&key, &Open { create: Create::Never, ..new() }).expect("open");
        let mut read = vec![0; BYTES];
        assert_eq!(object.read_at(0, &mut [IoSliceMut::new(&mut read)]).expect("read"), BYTES);
        assert!(read == bytes, "{name} came back changed");
    };
    write("one");
    std::thread::scope(|scope| {
        scope.spawn(|| write("other"));
        read("one");
    });
    read("other");
}

#[test]
fn a_handshake_that_stalls_is_ended() {
    let (server_tls, _) = tls();
    let limits = Limits { greeting_time_max: Duration::from_millis(50), ..Limits::default() };
    let (_server, endpoint) = serve_tls(service(), limits, &server_tls);
    for start in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
        let mut stranger = tcp(&endpoint);
        stranger.write_all(start).expect("write");
        assert_eq!(stranger.read(&mut [0; 99]).expect("ended"), 0);
    }
}

#[test]
fn strangers_that_stall_leave_room_for_clients() {
    let (server_tls, client_tls) = tls();
    // Only the lack of room ends them.
    let (greeting_time_max, stall_max) = (2 * PATIENCE, 2 * PATIENCE);
    let limits = Limits { strangers_max: 4, greeting_time_max, stall_max, ..Limits::default() };
    let (_server, endpoint) = serve_tls(service(), limits, &server_tls);
    let remote = connect_tls(&endpoint, &client_tls, options()).expect("connect");
    let mut strangers = Vec::new();
    for number in 0..200 {
        let mut stranger = tcp(&endpoint);
        stranger.write_all(b"\x16\x03\x01\x02\x00\x01").expect("write");
        strangers.push(stranger);
        use_it(&remote, &format!("beside {number}"));
    }
    connect_tls(&endpoint, &client_tls, options()).expect("another client");
    // Each new one cost the oldest its place.
    strangers.truncate(strangers.len() - 4);
    for mut stranger in strangers {
        assert_eq!(stranger.read(&mut [0; 99]).expect("ended"), 0);
    }
}
