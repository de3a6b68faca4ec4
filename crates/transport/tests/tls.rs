// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What encrypted connections promise, over a wire whose every byte the tests hold.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use terrace_core::{Applied, Error, ErrorKind, SystemClock};
use terrace_testkit::{Authority, Certificate, Validity};
use terrace_transport::{ClientTls, ServerTls, Socket, TlsSocket, Transport};

/// Patient, so that a busy machine fails no test.
const PATIENCE: Duration = Duration::from_secs(60);

const NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// Two ends of an encrypted connection, and what is between them.
struct Ends {
    client: Arc<TlsSocket>,
    server: Arc<TlsSocket>,
    /// What the client sends comes out here, and what is put in here the client gets.
    at_client: Socket,
    at_server: Socket,
}

fn server_tls(certificate: &Certificate) -> (ServerTls, TempDir) {
    let directory = tempfile::tempdir().expect("directory");
    let (certificate, key) = certificate.write(directory.path());
    (ServerTls::read(&certificate, &key).expect("usable"), directory)
}

fn client_tls(trusted: &str, name: Option<&str>) -> ClientTls {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("trusted.pem");
    std::fs::write(&file, trusted).expect("write");
    ClientTls::read(&file, name).expect("usable")
}

/// Carries bytes both ways, as they come, while `is_wanted`.
fn carry(one: &Socket, other: &Socket, is_wanted: impl Fn() -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while is_wanted() {
        for (from, to) in [(one, other), (other, one)] {
            if from.is_readable(Duration::from_millis(1)) {
                match from.read(&mut buffer) {
                    Ok(count) if count > 0 => put(to, &buffer[..count]),
                    _ => to.shutdown(Shutdown::Write),
                }
            }
        }
    }
}

fn put(to: &dyn Transport, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = to.write_vectored(&[IoSlice::new(bytes)]).expect("write");
        bytes = &bytes[count..];
    }
}

fn fill(from: &dyn Transport, buffer: &mut [u8]) {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]).expect("read") {
            0 => panic!("it ended after {done} bytes"),
            count => done += count,
        }
    }
}

/// Lets two ends agree on keys.
fn ends_of(server: &ServerTls, client: &ClientTls, host: &str) -> Result<Ends, Error> {
    let (client_socket, at_client) = Socket::pair().expect("pair");
    let (server_socket, at_server) = Socket::pair().expect("pair");
    let server = Arc::new(server.accept(server_socket, b"refused".to_vec()).expect("accept"));
    let ends = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let clock = SystemClock::default();
            let connected = client.connect(client_socket, host, PATIENCE, &clock);
            connected.inspect(|client| put(client, b"!"))
        });
        let accepting = scope.spawn(|| server.read(&mut [0]));
        carry(&at_client, &at_server, || !connecting.is_finished() || !accepting.is_finished());
        // A client that was refused has told the server.
        let _ = accepting.join().expect("no panic");
        connecting.join().expect("no panic")
    })?;
    Ok(Ends { client: Arc::new(ends), server, at_client, at_server })
}

fn ends() -> Ends {
    let authority = Authority::default();
    let (server, _directory) = server_tls(&authority.issue(NAMES, Validity::Now));
    ends_of(&server, &client_tls(&authority.pem(), None), "localhost").expect("agreed")
}

/// What the client sends for this, encrypted.
fn encrypted(ends: &Ends, bytes: &[u8]) -> Vec<u8> {
    put(&*ends.client, bytes);
    let mut record = vec![0; 64 << 10];
    let count = ends.at_client.read(&mut record).expect("read");
    record.truncate(count);
    record
}

#[test]
fn both_ends_and_nobody_else_know_the_channel() {
    let (one, other) = (ends(), ends());
    assert_eq!(one.client.channel().len(), 32);
    assert_eq!(one.client.channel(), one.server.channel());
    assert_ne!(one.client.channel(), other.client.channel());
    assert!(!one.client.passes_descriptors());
}

#[test]
fn what_is_sent_cannot_be_read_on_the_way() {
    let ends = ends();
    let record = encrypted(&ends, b"nobody reads this");
    assert!(record.len() > 17);
    assert!(!record.windows(6).any(|window| window == b"nobody"));
}

#[test]
fn a_server_is_trusted_by_its_authority_or_itself() {
    let authority = Authority::default();
    let issued = authority.issue(NAMES, Validity::Now);
    let own = Certificate::self_signed(NAMES, false);
    for (certificate, trusted) in [(&issued, authority.pem()), (&own, own.pem.clone())] {
        let (server, _directory) = server_tls(certificate);
        for host in NAMES {
            ends_of(&server, &client_tls(&trusted, None), host).expect(host);
        }
        let named = client_tls(&trusted, Some("localhost"));
        ends_of(&server, &named, "10.0.0.1").expect("the name that was said");
    }
}

#[test]
fn a_server_that_is_not_trusted_is_refused() {
    let (authority, stranger) = (Authority::default(), Authority::default());
    let good = authority.issue(NAMES, Validity::Now);
    let old = authority.issue(NAMES, Validity::Past);
    let root = Certificate::self_signed(NAMES, true);
    for (certificate, trusted, host, reason) in [
        (&good, stranger.pem(), "localhost", "vouches"),
        (&good, authority.pem(), "example.org", "another name"),
        (&good, authority.pem(), "10.0.0.1", "another name"),
        (&old, authority.pem(), "localhost", "expired"),
        (&root, root.pem.clone(), "localhost", "CA:FALSE"),
    ] {
        let (server, _directory) = server_tls(certificate);
        let refused = ends_of(&server, &client_tls(&trusted, None), host);
        let error = refused.err().expect(reason);
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
        assert!(error.to_string().contains(reason), "{}", error.chain());
    }
}

#[test]
fn a_part_of_a_record_is_kept_until_the_rest_comes() {
    let ends = ends();
    let record = encrypted(&ends, b"in two parts");
    ends.server.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
    let mut buffer = [0; 12];
    for part in [&record[..3], &record[3..20]] {
        put(&ends.at_server, part);
        for _ in 0..2 {
            assert!(!ends.server.is_readable(Duration::ZERO));
            let error = ends.server.read(&mut buffer).expect_err("a part");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }
    put(&ends.at_server, &record[20..]);
    assert!(ends.server.is_readable(Duration::ZERO));
    assert_eq!(ends.server.read(&mut buffer[..5]).expect("read"), 5);
    assert!(ends.server.is_readable(Duration::ZERO), "a part of it is decrypted");
    assert_eq!(ends.server.read(&mut buffer[5..]).expect("read"), 7);
    assert_eq!(&buffer, b"in two parts");
    assert!(!ends.server.is_readable(Duration::ZERO));
    assert!(!ends.server.is_ended());
}

#[test]
fn what_was_taken_arrives_although_a_write_had_no_time() {
    let ends = ends();
    ends.client.set_write_timeout(Some(Duration::from_millis(1))).expect("set");
    ends.client.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
    let sent: Vec<_> = (0..8 << 20).map(|index: u32| (index / 7) as u8).collect();
    // Nobody reads: sooner or later nothing more is taken, …
    let mut taken = 0;
    loop {
        match ends.client.write_vectored(&[IoSlice::new(&sent[taken..])]) {
            Ok(count) => taken += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(taken > 0 && taken < sent.len(), "{taken}");
    // … and what was taken comes, although the client only reads from now on.
    let received = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut received = vec![0; taken];
            fill(&*ends.server, &mut received);
            received
        });
        let reading = scope.spawn(|| {
            while !receiving.is_finished() {
                let error = ends.client.read(&mut [0]).expect_err("nothing is sent");
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            }
            receiving.join().expect("no panic")
        });
        carry(&ends.at_client, &ends.at_server, || !reading.is_finished());
        reading.join().expect("no panic")
    });
    assert!(received == sent[..taken]);
}

#[test]
fn both_directions_move_at_once() {
    const BYTES: usize = 64 << 20;
    let ends = ends();
    let bytes: Vec<_> = (0..BYTES).map(|index| (index / 1021) as u8).collect();
    let receive = |from: &TlsSocket| {
        let mut received = vec![0; BYTES];
        fill(from, &mut received);
        assert!(received == bytes);
    };
    std::thread::scope(|scope| {
        let moves = [
            scope.spawn(|| put(&*ends.client, &bytes)),
            scope.spawn(|| put(&*ends.server, &bytes)),
            scope.spawn(|| receive(&ends.client)),
            scope.spawn(|| receive(&ends.server)),
        ];
        carry(&ends.at_client, &ends.at_server, || moves.iter().any(|one| !one.is_finished()));
    });
}

#[test]
fn a_farewell_is_told_from_a_cut() {
    let cut = ends();
    let record = encrypted(&cut, b"cut in the middle");
    put(&cut.at_server, &record[..9]);
    cut.at_server.shutdown(Shutdown::Write);
    for _ in 0..2 {
        let error = cut.server.read(&mut [0; 9]).expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    assert!(cut.server.is_readable(Duration::ZERO) && cut.server.is_ended());

    let left = ends();
    left.client.shutdown(Shutdown::Both);
    let mut farewell = vec![0; 100];
    let count = left.at_client.read(&mut farewell).expect("read");
    assert!(count > 0, "nothing was said");
    put(&left.at_server, &farewell[..count]);
    assert!(left.server.is_readable(Duration::ZERO));
    assert_eq!(left.server.read(&mut [0; 9]).expect("the end"), 0);
    assert_eq!(left.server.read(&mut [0; 9]).expect("still the end"), 0);
}

#[test]
fn a_changed_bit_ends_the_connection() {
    let ends = ends();
    let mut record = encrypted(&ends, b"not to be changed");
    *record.last_mut().expect("not empty") ^= 1;
    put(&ends.at_server, &record);
    for _ in 0..2 {
        let error = ends.server.read(&mut [0; 99]).expect_err("changed");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

#[test]
fn shutdown_ends_who_waits() {
    let ends = ends();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| ends.server.read(&mut [0]));
        let writing = scope
            .spawn(|| while ends.server.write_vectored(&[IoSlice::new(&[7; 9999])]).is_ok() {});
        ends.server.shutdown(Shutdown::Both);
        assert_eq!(reading.join().expect("no panic").expect("the end"), 0);
        writing.join().expect("no panic");
    });
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (socket, _other) = Socket::pair().expect("pair");
    let tls = client_tls(&Authority::default().pem(), None);
    let timeout = Duration::from_millis(5);
    let error = tls.connect(socket, "localhost", timeout, &SystemClock::default());
    let error = error.expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::Unreachable { applied: Applied::No });
}

#[test]
fn who_does_not_encrypt_is_told_and_left() {
    let (tls, _directory) = server_tls(&Certificate::self_signed(NAMES, false));
    let (socket, peer) = Socket::pair().expect("pair");
    let server = tls.accept(socket, b"refused".to_vec()).expect("accept");
    put(&peer, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(server.read(&mut [0; 99]).expect_err("plain").kind(), io::ErrorKind::InvalidData);
    let error = server.write_vectored(&[IoSlice::new(b"a secret")]).expect_err("not encrypted");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    let mut heard = [0; 99];
    let count = peer.read(&mut heard).expect("read");
    assert_eq!(&heard[..count], b"refused");
    assert_eq!(peer.read(&mut heard).expect("the end"), 0);

    let (socket, peer) = Socket::pair().expect("pair");
    put(&peer, b"220 hello");
    let client = client_tls(&Authority::default().pem(), None);
    let error = client.connect(socket, "localhost", PATIENCE, &SystemClock::default());
    let error = error.expect_err("plain");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("without TLS"), "{error}");
}

#[test]
fn an_endless_greeting_is_not_gathered() {
    let (tls, _directory) = server_tls(&Certificate::self_signed(NAMES, false));
    let (socket, peer) = Socket::pair().expect("pair");
    let server = tls.accept(socket, Vec::new()).expect("accept");
    // Records of one handshake message that says it has 16 MiB.
    let record = |start: &[u8]| {
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend_from_slice(start);
        record.resize(5 + 0x4000, 0);
        record
    };
    let mut sent = 0;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let error = server.read(&mut [0]).expect_err("endless");
            server.shutdown(Shutdown::Both);
            error
        });
        let mut next = record(&[1, 0xff, 0xff, 0xff]);
        while let Ok(count) = peer.write_vectored(&[IoSlice::new(&next)]) {
            sent += count;
            assert!(sent < 8 << 20, "everything was taken");
            next.drain(..count);
            if next.is_empty() {
                next = record(&[]);
            }
        }
        let error = reading.join().expect("no panic");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path();
    let (certificate, key) = Certificate::self_signed(NAMES, false).write(path);
    let other = tempfile::tempdir().expect("directory");
    let (_, other_key) = Certificate::self_signed(NAMES, false).write(other.path());
    let empty = path.join("empty");
    std::fs::write(&empty, b"no certificate").expect("write");
    let kind = |certificate: &Path, key: &Path| {
        ServerTls::read(certificate, key).expect_err("unusable").kind()
    };
    assert_eq!(kind(&certificate, &other_key), ErrorKind::Invalid);
    assert_eq!(kind(&certificate, &path.join("missing")), ErrorKind::NotFound);
    assert_eq!(kind(&key, &key), ErrorKind::Invalid);
    assert_eq!(kind(&empty, &key), ErrorKind::Invalid);
    for mode in [0o640, 0o604] {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).expect("chmod");
        assert_eq!(kind(&certificate, &key), ErrorKind::Denied);
    }
    assert_eq!(ClientTls::read(&empty, None).expect_err("empty").kind(), ErrorKind::Invalid);
    let error = ClientTls::read(&certificate, Some("no name")).expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
