// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of many streams of a bucket; alone in its process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_backends::object::{S3, S3Settings};
use terrace_core::{Backend, Create, Key, ObjectExt, Open, Persistency, Semantics};
use terrace_testkit::anonymous_mib;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

const STREAMS: usize = 64;
const BYTES: usize = 12 << 20;

const MIB_MAX: u64 = 300;

const TEST: &str = "memory_is_bounded_with_many_streams";
const IS_SERVICE: &str = "TERRACE_TEST_S3_SERVICE";
const LISTENS: &str = "the service listens at ";

/// The service in a process of its own, until it is dropped.
struct Service {
    child: Child,
    endpoint: String,
}

impl Service {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args([TEST, "--exact", "--nocapture"]).env(IS_SERVICE, "1");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let endpoint = lines
            .find_map(|line| Some(line.ok()?.strip_prefix(LISTENS)?.to_owned()))
            .expect("it listens");
        Self { child, endpoint }
    }

    /// What the other process does: it ends with its standard input.
    fn run() {
        let server = S3Server::start();
        println!("\n{LISTENS}{}", server.endpoint());
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::None))
}

#[test]
fn memory_is_bounded_with_many_streams() {
    if std::env::var_os(IS_SERVICE).is_some() {
        return Service::run();
    }
    let service = Service::start();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    std::fs::write(file.path(), text).expect("written");
    let settings = S3Settings {
        endpoint: Some(service.endpoint.clone()),
        region: Some(REGION.into()),
        credentials: Some(file.path().into()),
        ..S3Settings::new(BUCKET)
    };
    let backend = S3::open(&settings, u64::MAX, false).expect("opened");
    let key = |value: u8| Key::new("seg", &value.to_string()).expect("legal");
    for value in 0..4 {
        let how = Open { size_hint_bytes: Some(BYTES as u64), ..how(Create::New) };
        let object = backend.open(&key(value), &how).expect("begun");
        object.write(0, &vec![value; BYTES]).expect("written");
        object.sync().expect("made");
    }
    let before_mib = anonymous_mib() as u64;
    let most_mib = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for stream in 0..STREAMS {
            let (backend, most_mib) = (&backend, &most_mib);
            scope.spawn(move || {
                let value = (stream % 4) as u8;
                let object = backend.open(&key(value), &how(Create::Never)).expect("there");
                let (mut piece, mut at) = (vec![0; 128 << 10], 0);
                while at < BYTES as u64 {
                    let count = object.read(at, &mut piece).expect("read");
                    assert!(piece[..count].iter().all(|byte| *byte == value));
                    at += count as u64;
                    most_mib.fetch_max(anonymous_mib() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let grown_mib = most_mib.into_inner().saturating_sub(before_mib);
    assert!(grown_mib < MIB_MAX, "{grown_mib} MiB more with {STREAMS} streams");
}
