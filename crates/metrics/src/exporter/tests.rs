// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicU64;

use super::*;

const TIME_MAX: Duration = Duration::from_secs(60);

/// Counts scrapes.
struct Counting(Arc<AtomicU64>);

impl Source for Counting {
    fn collect(&self, samples: &mut Samples) {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        samples.count("terrace_migrations_active", &[], count);
    }
}

fn start(limits: Limits) -> (Exporter, Arc<AtomicU64>) {
    let scrapes = Arc::new(AtomicU64::new(0));
    let sources: Vec<Box<dyn Source>> = vec![Box::new(Counting(Arc::clone(&scrapes)))];
    let address = "127.0.0.1:0".parse().expect("legal");
    (Exporter::start(&address, sources, limits).expect("a free port"), scrapes)
}

fn connect(exporter: &Exporter) -> TcpStream {
    let stream = TcpStream::connect(exporter.endpoint().to_string()).expect("it listens");
    stream.set_read_timeout(Some(TIME_MAX)).expect("a timeout");
    stream
}

/// Everything that comes; what an end by a reset has cut off is lost.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

fn ask(exporter: &Exporter, request: &str) -> String {
    let mut stream = connect(exporter);
    // One that is refused early does not read everything.
    let _ = stream.write_all(request.as_bytes());
    rest(stream)
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

#[test]
fn a_scrape_gets_the_figures_of_its_moment() {
    let (exporter, _) = start(Limits::default());
    for number in 1..=3 {
        let answer = ask(&exporter, SCRAPE);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(body.contains(&format!("\nterrace_migrations_active {number}\n")), "{body}");
        assert!(body.ends_with("# EOF\n"), "{body}");
    }
    let head = ask(&exporter, &SCRAPE.replace("GET", "HEAD"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_request_that_is_too_long_is_refused() {
    let (exporter, scrapes) = start(Limits::default());
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(10 << 10));
    assert!(ask(&exporter, &long).starts_with("HTTP/1.1 431 "));
    assert!(ask(&exporter, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(&exporter, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert_eq!(scrapes.load(Ordering::SeqCst), 0);
    // One that never ends, from a peer that reads nothing: it is cut off.
    let mut endless = connect(&exporter);
    endless.set_write_timeout(Some(TIME_MAX)).expect("a timeout");
    let wrote = (0..1 << 14).try_for_each(|_| endless.write_all(&[b'x'; 1 << 14]));
    wrote.expect_err("256 MiB are not read");
    assert!(ask(&exporter, SCRAPE).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_slow_peer_is_cut_off_in_time() {
    let limits = Limits { time_max: Duration::from_millis(200), ..Limits::default() };
    let (exporter, scrapes) = start(limits);
    let clock = SystemClock::default();
    let begun_ns = clock.now_ns();
    let mut slow = connect(&exporter);
    // A byte now and then, so that no single wait is long.
    let mut sent = 0;
    let is_cut_off = SCRAPE.bytes().cycle().take(10_000).any(|byte| {
        clock.sleep(Duration::from_millis(10));
        sent += 1;
        slow.write_all(if byte == b'\n' { b"x" } else { std::slice::from_ref(&byte) }).is_err()
    });
    assert!(is_cut_off, "{sent} bytes were taken");
    assert!(clock.now_ns() - begun_ns < TIME_MAX.as_nanos() as u64);
    assert_eq!((rest(slow), scrapes.load(Ordering::SeqCst)), (String::new(), 0));
}

#[test]
fn many_connections_crowd_out_themselves() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let (exporter, _) = start(limits);
    let idle: Vec<_> = (0..40).map(|_| connect(&exporter)).collect();
    // The newest is served, whatever was there before.
    assert!(ask(&exporter, SCRAPE).starts_with("HTTP/1.1 200 "));
    assert!(exporter.shared.lock().open.len() <= 3);
    let mut ended = 0;
    for mut stream in idle.into_iter().take(37) {
        ended += usize::from(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert_eq!(ended, 37, "the oldest are closed at once, long before their time is over");
}

#[test]
fn an_exporter_that_ends_waits_for_no_peer() {
    let (exporter, _) = start(Limits { time_max: TIME_MAX, ..Limits::default() });
    let mut half = connect(&exporter);
    half.write_all(b"GET /metrics").expect("it is taken");
    assert!(ask(&exporter, SCRAPE).starts_with("HTTP/1.1 200 "));
    let address = exporter.endpoint().to_string();
    drop(exporter);
    TcpStream::connect(address).expect_err("nothing listens any more");
    assert_eq!(rest(half), "");
}

#[test]
fn an_address_has_a_port() {
    for text in ["127.0.0.1:0", "[::1]:9742", "host:1", "unix:/run/metrics"] {
        assert_eq!(read_address(text).expect("legal").to_string(), text);
    }
    for text in ["", "host", "[::1]", "host:", "host:port", "1:2:3", "unix:"] {
        assert!(read_address(text).is_err(), "{text}");
    }
}
