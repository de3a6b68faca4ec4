// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures frames in main memory: `frames_speed [FILE]`; see `docs/how-to/pack-a-tier.md`. Without a file the
//! bytes are the sources of this crate, repeated far apart.

use std::path::Path;
use std::sync::Arc;

use terrace_backends::object::{FrameKey, Framed, Memory, Packing};
use terrace_core::{
    Backend, Clock, Error, Key, ObjectExt, Open, Persistency, Result, Semantics, SystemClock,
};

/// Bytes that are written and read.
const BYTES: usize = 256 << 20;

/// Repetitions, of which the fastest counts.
const TIMES: usize = 3;

fn main() -> Result<()> {
    let sample = match std::env::args().nth(1) {
        Some(file) => std::fs::read(&file)
            .map_err(|error| Error::from_io("read a sample", error).with("file", file))?,
        None => {
            let mut sample = Vec::new();
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            gather(&root, &mut sample)
                .map_err(|error| Error::from_io("read the sources", error))?;
            sample
        }
    };
    let data: Vec<u8> = sample.iter().copied().cycle().take(BYTES).collect();
    println!("| frames | write | read | read 4 KiB | stored |\n|---|---|---|---|---|");
    let key = FrameKey::from_text(&[b'a'; 64])?;
    for (name, level, is_encrypted) in [
        ("neither", None, false),
        ("`zstd:1`", Some(1), false),
        ("`zstd:3`", Some(3), false),
        ("`zstd:9`", Some(9), false),
        ("encrypted", None, true),
        ("`zstd:3`, encrypted", Some(3), true),
    ] {
        let packing = Packing { level, key: is_encrypted.then(|| key.clone()) };
        measure(name, &packing, &data)?;
    }
    Ok(())
}

/// All sources below a directory, in the order of their names.
fn gather(directory: &Path, out: &mut Vec<u8>) -> std::io::Result<()> {
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(directory)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            gather(&path, out)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.extend(std::fs::read(&path)?);
        }
    }
    Ok(())
}

fn measure(name: &str, packing: &Packing, data: &[u8]) -> Result<()> {
    let clock = SystemClock::default();
    let key = Key::new("seg", "object")?;
    let best = |times: &[u64]| times.iter().copied().min().unwrap_or(1) as f64 / 1e9;
    let (mut writes, mut reads, mut pages, mut stored) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..TIMES {
        let backend = Framed::open(Arc::new(Memory::new(u64::MAX)), packing.clone())?;
        let semantics = Semantics::at_level(Persistency::None);
        let start_ns = clock.now_ns();
        let object = backend.open(&key, &Open::create_new().with_semantics(semantics))?;
        for (index, piece) in data.chunks(256 << 10).enumerate() {
            object.write((index * (256 << 10)) as u64, piece)?;
        }
        object.sync()?;
        writes.push(clock.now_ns() - start_ns);
        stored = object.stat()?.allocated_bytes;
        let mut piece = vec![0; 1 << 20];
        let start_ns = clock.now_ns();
        for at in (0..data.len()).step_by(piece.len()) {
            object.read_exact(at as u64, &mut piece)?;
        }
        reads.push(clock.now_ns() - start_ns);
        let mut page = vec![0; 4096];
        let start_ns = clock.now_ns();
        // Far apart: no frame is at hand.
        for number in 0..1000_u64 {
            object.read_exact(number * 7919 % 2048 * (128 << 10), &mut page)?;
        }
        pages.push((clock.now_ns() - start_ns) / 1000);
    }
    let rate = |times: &[u64]| data.len() as f64 / best(times) / 1e6;
    println!(
        "| {name} | {:.0} MB/s | {:.0} MB/s | {:.0} us | {:.1} % |",
        rate(&writes),
        rate(&reads),
        best(&pages) * 1e6,
        100.0 * stored as f64 / data.len() as f64
    );
    Ok(())
}
