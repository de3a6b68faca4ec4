// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network and the file system do without a store.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use terrace_core::{Error, ErrorKind, Result};

use super::load::Work;

/// Bytes that each stream of iperf3 sends in one block.
const IPERF_BYTES: &str = "300M";

/// Bytes of a request and of its echo.
const ECHO_BYTES: usize = 64;

fn failed(error: std::io::Error) -> Error {
    Error::from_io("measure the yardstick", error)
}

/// Bytes per second of iperf3 over the loopback interface; `None` where it is not installed.
pub(super) fn iperf(streams: usize) -> Result<Option<f64>> {
    // A free port, found and given up again.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.map_err(failed)?.port().to_string();
    let server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut server = match server {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    // It says so when it listens.
    let mut first = [0; 1];
    let listened = server.stdout.take().expect("it was just piped").read_exact(&mut first);
    let client = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-p", &port, "-J", "-n", IPERF_BYTES])
        .args(["-P", &streams.to_string()])
        .output();
    // It ends after one client; one that did not come is not waited for.
    if client.as_ref().is_ok_and(|output| output.status.success()) {
        let _ = server.wait();
    } else {
        let _ = server.kill();
        let _ = server.wait();
    }
    listened.map_err(failed)?;
    let report: Value =
        serde_json::from_slice(&client.map_err(failed)?.stdout).map_err(|error| {
            Error::new(ErrorKind::Io, "measure the yardstick")
                .because("iperf3 gave no report")
                .caused_by(error)
        })?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| Some(bits / 8.0)).ok_or_else(|| {
        Error::new(ErrorKind::Io, "measure the yardstick").because("iperf3 measured nothing")
    })
}

/// A server that sends back what it gets, a thread for each connection, in this process.
pub(super) struct Echo {
    listener: Arc<TcpListener>,
}

impl Echo {
    pub(super) fn start() -> Result<Self> {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").map_err(failed)?);
        let accepting = Arc::clone(&listener);
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = accepting.accept() {
                std::thread::spawn(move || {
                    let mut message = [0; ECHO_BYTES];
                    let _ = stream.set_nodelay(true);
                    while stream.read_exact(&mut message).is_ok()
                        && stream.write_all(&message).is_ok()
                    {}
                });
            }
        });
        Ok(Self { listener })
    }

    /// Round trips, one at a time, over a connection of its own.
    pub(super) fn round_trips(&self) -> Result<Work<'static>> {
        let address = self.listener.local_addr().map_err(failed)?;
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Box::new(move || {
            let mut message = [1; ECHO_BYTES];
            stream.write_all(&message).map_err(failed)?;
            stream.read_exact(&mut message).map_err(failed)?;
            Ok(1)
        }))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

/// The files of this length in a directory and below it.
pub(super) fn files_of(directory: &Path, bytes: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.len() == bytes as u64 {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Reads of a whole file with pread(2).
pub(super) fn pread(path: &Path, bytes: usize) -> Result<Work<'static>> {
    let file = File::open(path).map_err(failed)?;
    let mut buffer = vec![0; bytes];
    Ok(Box::new(move || {
        file.read_exact_at(&mut buffer, 0).map_err(failed)?;
        Ok(1)
    }))
}
