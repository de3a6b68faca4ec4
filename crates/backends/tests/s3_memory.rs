// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of many streams of a bucket; alone in its process.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_backends::object::{S3, S3Settings};
use terrace_core::{Backend, Create, Key, ObjectExt, Open, Persistency, Semantics};
use terrace_testkit::anonymous_mib;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

const STREAMS: usize = 64;
const BYTES: usize = 12 << 20;

/// With the service, which is in the same process.
const MIB_MAX: u64 = 300;

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::None))
}

#[test]
fn memory_is_bounded_with_many_streams() {
    let server = S3Server::start();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    std::fs::write(file.path(), text).expect("written");
    let settings = S3Settings {
        endpoint: Some(server.endpoint()),
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
